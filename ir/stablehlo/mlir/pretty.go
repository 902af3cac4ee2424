package mlir

import "strings"

// This file reads the forms that dialects print for their own operations. Most are a list of
// values, words and attributes with or without names, and types behind a colon; what differs
// has its function here.

// pretty reads an operation behind its name, in the form of its dialect.
func (p *Parser) pretty(o *Operation) {
	switch o.Name {
	case "return", "call":
		o.Name = "func." + o.Name
	case "stablehlo.while":
		p.while(o)
		return
	case "stablehlo.reduce":
		if p.Peek() == '(' {
			p.reduce(o)
			return
		}
	case "chlo.scan":
		p.scan(o)
		return
	case "sdy.mesh":
		if p.Expect("@", "before the name of a mesh") {
			at := p.Pos
			o.Flags = append(o.Flags, Attr{Kind: KindSymbol, Text: p.Suffix("a mesh"), At: at})
			p.Expect("=", "behind the name of a mesh")
			o.Flags = append(o.Flags, p.Attr(false))
			if p.sameLine() && p.Eat("{") {
				o.Attrs = p.dict("}")
			}
		}
		return
	case "sdy.manual_computation", "sdy.named_computation":
		p.manual(o)
		return
	case "sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.all_reduce", "sdy.reduce_scatter", "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced":
		if c := p.Peek(); c == '[' || c == '{' {
			o.Attrs = append(o.Attrs, Named{"axes", p.brackets("axes")})
		}
		if p.number() != "" && p.Expect("->", "between dimensions") { // older all_to_all {"x"} 0->1
			p.space()
			p.number()
		}
	}
	if !strings.HasSuffix(o.Name, "return") {
		p.space() // what an operation is of may stand on the next line
	}
	p.items(o)
	if p.ahead("dim_numbers") || p.ahead("out_sharding") { // on a line of its own
		p.items(o)
	}
	p.signature(o)
}

// items reads values, words and attributes as long as they stand behind a comma or on the
// line of what came before.
func (p *Parser) items(o *Operation) {
	for p.Err == nil {
		at := p.Pos
		comma := p.Eat(",")
		if !comma {
			p.Pos = at
			if !p.sameLine() && p.Peek() != '{' { // no operation starts with attributes
				p.Pos = at
				return
			}
		}
		switch c := p.Peek(); {
		case c == ':' || c == '}' || c == ')' || c == 0 || !comma && (p.ahead("loc") || strings.HasPrefix(p.s[p.Pos:], "->")):
			return
		case c == '(':
			p.Pos++
			p.list(o)
		case c == '{':
			p.Pos++
			o.Attrs = append(o.Attrs, p.dict("}")...)
		default:
			p.item(o)
		}
	}
}

// list reads items up to a closing parenthesis; the opening one was read.
func (p *Parser) list(o *Operation) {
	for first := true; p.Err == nil && !p.Eat(")"); first = false {
		if !first && !p.Expect(",", "in a list of operands") {
			return
		}
		p.item(o)
	}
}

// item reads one value, word or attribute.
func (p *Parser) item(o *Operation) {
	at := p.Pos
	switch c := p.Peek(); {
	case c == '%':
		o.Operands = append(o.Operands, p.operand())
		if p.Pos < len(p.s) && (p.s[p.Pos] == '[' || p.s[p.Pos] == ' ' && p.sameLine() && p.Peek() == '[') {
			p.ranges(o)
		}
		return
	case Letter(c):
		name := p.Word()
		if p.Eat("=") {
			o.Attrs = append(o.Attrs, Named{name, p.Parts()})
			return
		}
		if p.sameLine() && digit(p.Peek()) { // atol 0.1
			o.Attrs = append(o.Attrs, Named{name, p.Attr(false)})
			return
		}
		p.Pos = at
	}
	o.Flags = append(o.Flags, p.Attr(false))
}

// Parts reads an attribute that may be written as parts: [0] x [1], or [b, f]x[i, o]->[b, f].
func (p *Parser) Parts() Attr {
	a := p.Attr(false)
	for p.Err == nil && a.Kind == KindList {
		sep := p.s[min(p.Pos, len(p.s)):]
		switch {
		case !p.sameLine():
			return a
		case p.Eat("->"):
		case p.Peek() == 'x' && len(sep) > 1:
			p.Pos++
			if p.Peek() != '[' {
				p.Pos--
				return a
			}
		default:
			return a
		}
		b := p.Attr(false)
		if len(a.List) == 0 || a.Text != "parts" {
			a = Attr{Kind: KindList, Text: "parts", At: a.At, List: []Attr{a}}
		}
		a.List = append(a.List, b)
	}
	return a
}

// ranges reads what stands in brackets behind a value: the number of an element of a
// tuple, or start:limit:stride of each dimension of a slice.
func (p *Parser) ranges(o *Operation) {
	all := Attr{Kind: KindList, At: p.Pos}
	p.Eat("[")
	for p.Err == nil && !p.Eat("]") {
		if len(all.List) > 0 && !p.Expect(",", "between ranges") {
			break
		}
		one := Attr{Kind: KindList, At: p.Pos}
		for p.Err == nil {
			p.space()
			n := Attr{Kind: KindNumber, At: p.Pos}
			if n.Text = p.number(); n.Text == "" {
				p.Failf(p.Pos, "expected a number, found %s", p.found())
			}
			if one.List = append(one.List, n); !p.Eat(":") {
				break
			}
		}
		all.List = append(all.List, one)
	}
	o.Attrs = append(o.Attrs, Named{"ranges", all})
}

// signature reads the types behind a colon: (A, B) -> C, A, B -> C, or a list. A form whose
// types are those of its attributes has none, or only that of the result behind an arrow.
func (p *Parser) signature(o *Operation) {
	if p.Peek() != ':' {
		if p.sameLine() && p.Eat("->") {
			o.Outs = p.resultTypes()
		}
		return
	}
	p.Pos++
	if p.Peek() == '(' {
		o.Ins = p.types()
		if p.Eat("->") {
			o.Outs = p.resultTypes()
		}
		return
	}
	o.Ins = []Type{p.typ()}
	for p.Err == nil && p.Eat(",") {
		o.Ins = append(o.Ins, p.typ())
	}
	if p.Eat("->") || p.sameLine() && p.Keyword("to") { // of casts
		o.Outs = p.resultTypes()
	}
}

// while reads (%a = %x, ...) : types [attributes {...}] cond {...} do {...}.
func (p *Parser) while(o *Operation) {
	var args []Arg
	if !p.Expect("(", "behind while") {
		return
	}
	for p.Err == nil && !p.Eat(")") {
		if len(args) > 0 && !p.Expect(",", "between loop variables") {
			break
		}
		r := p.operand()
		args = append(args, Arg{Name: r.Name, At: r.At})
		p.Expect("=", "behind a loop variable")
		o.Operands = append(o.Operands, p.operand())
	}
	p.signature(o)
	if len(o.Ins) != len(args) {
		p.Failf(o.At, "%d loop variables, %d types", len(args), len(o.Ins))
		return
	}
	o.Outs = o.Ins
	for i := range args {
		args[i].Type = o.Ins[i]
	}
	if p.Keyword("attributes") && p.Expect("{", "before attributes") {
		o.Attrs = p.dict("}")
	}
	for _, w := range []string{"cond", "do"} {
		if !p.Keyword(w) {
			p.Failf(p.Pos, "expected %s, found %s", w, p.found())
			return
		}
		if p.Expect("{", "behind "+w) {
			r := p.region()
			r.Args = args
			o.Regions = append(o.Regions, r)
		}
	}
}

// reduce reads (%x init: %c), ... applies OP across dimensions = [...] : types, or with
// reducer(%a: T, %b: T) {...} behind the types in the place of applies.
func (p *Parser) reduce(o *Operation) {
	var inits []Operand
	for p.Err == nil && p.Eat("(") {
		o.Operands = append(o.Operands, p.operand())
		if !p.Keyword("init") {
			p.Failf(p.Pos, "expected init, found %s", p.found())
		}
		p.Expect(":", "behind init")
		inits = append(inits, p.operand())
		p.Expect(")", "behind an initial value")
		p.Eat(",")
	}
	o.Operands = append(o.Operands, inits...)
	applies := ""
	if p.Keyword("applies") {
		applies = p.Word()
	}
	if !p.Keyword("across") {
		p.Failf(p.Pos, "expected across, found %s", p.found())
	}
	p.items(o)
	p.signature(o)
	if len(o.Ins) != len(o.Operands) {
		p.Failf(o.At, "%d operands, %d types", len(o.Operands), len(o.Ins))
		return
	}
	if applies != "" {
		t := o.Ins[len(o.Ins)-1]
		r := &Block{Args: []Arg{{Name: "a", Type: t, At: o.At}, {Name: "b", Type: t, At: o.At}}}
		r.Ops = []*Operation{
			{Name: applies, At: o.At, Results: []Result{{"r", 1}}, Operands: []Operand{{Use{"a", 0}, o.At}, {Use{"b", 0}, o.At}}, Ins: []Type{t}, Outs: []Type{t}},
			{Name: "stablehlo.return", At: o.At, Operands: []Operand{{Use{"r", 0}, o.At}}, Ins: []Type{t}},
		}
		o.Regions = append(o.Regions, r)
		return
	}
	if !p.Keyword("reducer") {
		p.Failf(p.Pos, "expected reducer, found %s", p.found())
	}
	var left, right []Arg
	for p.Err == nil && p.Peek() == '(' {
		pair := p.args("%")
		if len(pair) != 2 {
			p.Failf(o.At, "a reducer takes two values of each operand")
			return
		}
		left, right = append(left, pair[0]), append(right, pair[1])
	}
	if p.Expect("{", "before the body of a reducer") {
		r := p.region()
		r.Args = append(left, right...)
		o.Regions = append(o.Regions, r)
	}
}

// scan reads (%x, ...) inits(%c, ...) dimension=0 [attributes] {...} : types.
func (p *Parser) scan(o *Operation) {
	var parts []int64
	for _, before := range []string{"", "inits"} {
		if before != "" && !p.Keyword(before) {
			p.Failf(p.Pos, "expected %s, found %s", before, p.found())
		}
		if !p.Expect("(", "before operands") {
			return
		}
		n := len(o.Operands)
		p.list(o)
		parts = append(parts, int64(len(o.Operands)-n))
	}
	o.Attrs = append(o.Attrs, Named{"operandSegmentSizes", Numbers(o.At, parts...)})
	for p.Err == nil {
		p.Eat(",")
		if p.Peek() == '{' {
			at := p.Pos
			p.Pos++
			if p.Peek() == '^' {
				break
			}
			p.Pos = at + 1
			o.Attrs = append(o.Attrs, p.dict("}")...)
			continue
		}
		p.item(o)
	}
	if p.Err == nil {
		o.Regions = append(o.Regions, p.region())
	}
	p.signature(o)
}

// manual reads the operands, shardings, axes, arguments and body of a manual computation, or
// the name and no axes of a named one, whose shardings may be absent.
func (p *Parser) manual(o *Operation) {
	named := o.Name == "sdy.named_computation"
	if named && p.Expect("<", "before a name") {
		o.Flags = append(o.Flags, p.Attr(false))
		p.Expect(">", "behind a name")
	}
	if !p.Expect("(", "before operands") {
		return
	}
	p.list(o)
	for _, name := range []string{"in_shardings", "out_shardings", "manual_axes"} {
		at := p.Pos
		if named && !p.ahead(name) {
			continue
		}
		if !p.Keyword(name) || !p.Expect("=", "behind "+name) {
			p.Failf(at, "expected %s, found %s", name, p.found())
			return
		}
		o.Attrs = append(o.Attrs, Named{name, p.brackets(name)})
	}
	args := p.args("%")
	if p.Expect("{", "before the body of a manual computation") {
		r := p.region()
		r.Args = args
		o.Regions = append(o.Regions, r)
	}
	if p.Eat("{") {
		o.Attrs = append(o.Attrs, p.dict("}")...)
	}
	p.signature(o)
}

// brackets reads a list in brackets as it stands.
func (p *Parser) brackets(name string) Attr {
	c := p.Peek()
	a := Attr{Kind: KindOpaque, Text: name, At: p.Pos}
	if c != '[' && c != '{' {
		p.Failf(p.Pos, "expected a list, found %s", p.found())
		return a
	}
	p.Pos++
	a.Start, a.End = p.balanced(p.Pos-1, closingOf(c))
	return a
}

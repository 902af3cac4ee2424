package stablehlo

// This file reads the forms that dialects print for their own operations. Most are a list of
// values, words and attributes with or without names, and types behind a colon; what differs
// has its function here.

// pretty reads an operation behind its name, in the form of its dialect.
func (p *parser) pretty(o *op) {
	switch o.name {
	case "return", "call":
		o.name = "func." + o.name
	case "stablehlo.while":
		p.while(o)
		return
	case "stablehlo.reduce":
		if p.peek() == '(' {
			p.reduce(o)
			return
		}
	case "sdy.mesh":
		if p.expect("@", "before the name of a mesh") {
			at := p.i
			o.flags = append(o.flags, attr{Kind: kindSymbol, Text: p.suffix("a mesh"), at: at})
			p.expect("=", "behind the name of a mesh")
			o.flags = append(o.flags, p.attr(false))
			if p.sameLine() && p.eat("{") {
				o.attrs = p.dict("}")
			}
		}
		return
	case "sdy.manual_computation":
		p.manual(o)
		return
	case "sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.all_reduce", "sdy.reduce_scatter", "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced":
		if c := p.peek(); c == '[' || c == '{' {
			o.attrs = append(o.attrs, named{"axes", p.brackets("axes")})
		}
	}
	p.items(o)
	if p.ahead("dim_numbers") || p.ahead("out_sharding") { // on a line of its own
		p.items(o)
	}
	p.signature(o)
}

// items reads values, words and attributes as long as they stand behind a comma or on the
// line of what came before.
func (p *parser) items(o *op) {
	for p.err == nil {
		at := p.i
		comma := p.eat(",")
		if !comma {
			p.i = at
			if !p.sameLine() && p.peek() != '{' { // no operation starts with attributes
				p.i = at
				return
			}
		}
		switch c := p.peek(); {
		case c == ':' || c == '}' || c == ')' || c == 0 || !comma && p.ahead("loc"):
			return
		case c == '(':
			p.i++
			p.list(o)
		case c == '{':
			p.i++
			o.attrs = append(o.attrs, p.dict("}")...)
		default:
			p.item(o)
		}
	}
}

// list reads items up to a closing parenthesis; the opening one was read.
func (p *parser) list(o *op) {
	for first := true; p.err == nil && !p.eat(")"); first = false {
		if !first && !p.expect(",", "in a list of operands") {
			return
		}
		p.item(o)
	}
}

// item reads one value, word or attribute.
func (p *parser) item(o *op) {
	at := p.i
	switch c := p.peek(); {
	case c == '%':
		o.operands = append(o.operands, p.operand())
		if p.i < len(p.s) && (p.s[p.i] == '[' || p.s[p.i] == ' ' && p.sameLine() && p.peek() == '[') {
			p.ranges(o)
		}
		return
	case letter(c):
		name := p.word()
		if p.eat("=") {
			o.attrs = append(o.attrs, named{name, p.parts()})
			return
		}
		p.i = at
	}
	o.flags = append(o.flags, p.attr(false))
}

// parts reads an attribute that may be written as parts: [0] x [1], or [b, f]x[i, o]->[b, f].
func (p *parser) parts() attr {
	a := p.attr(false)
	for p.err == nil && a.Kind == kindList {
		sep := p.s[min(p.i, len(p.s)):]
		switch {
		case !p.sameLine():
			return a
		case p.eat("->"):
		case p.peek() == 'x' && len(sep) > 1:
			p.i++
			if p.peek() != '[' {
				p.i--
				return a
			}
		default:
			return a
		}
		b := p.attr(false)
		if len(a.List) == 0 || a.Text != "parts" {
			a = attr{Kind: kindList, Text: "parts", at: a.at, List: []attr{a}}
		}
		a.List = append(a.List, b)
	}
	return a
}

// ranges reads what stands in brackets behind a value: the number of an element of a
// tuple, or start:limit:stride of each dimension of a slice.
func (p *parser) ranges(o *op) {
	all := attr{Kind: kindList, at: p.i}
	p.eat("[")
	for p.err == nil && !p.eat("]") {
		if len(all.List) > 0 && !p.expect(",", "between ranges") {
			break
		}
		one := attr{Kind: kindList, at: p.i}
		for p.err == nil {
			p.space()
			n := attr{Kind: kindNumber, at: p.i}
			if n.Text = p.number(); n.Text == "" {
				p.failf(p.i, "expected a number, found %s", p.found())
			}
			if one.List = append(one.List, n); !p.eat(":") {
				break
			}
		}
		all.List = append(all.List, one)
	}
	o.attrs = append(o.attrs, named{"ranges", all})
}

// signature reads the types behind a colon: (A, B) -> C, A, B -> C, or a list. A form whose
// types are those of its attributes has none.
func (p *parser) signature(o *op) {
	if p.peek() != ':' {
		return
	}
	p.i++
	if p.peek() == '(' {
		o.ins = p.types()
		if p.eat("->") {
			o.outs = p.resultTypes()
		}
		return
	}
	o.ins = []Type{p.typ()}
	for p.err == nil && p.eat(",") {
		o.ins = append(o.ins, p.typ())
	}
	if p.eat("->") {
		o.outs = p.resultTypes()
	}
}

// while reads (%a = %x, ...) : types [attributes {...}] cond {...} do {...}.
func (p *parser) while(o *op) {
	var args []Arg
	if !p.expect("(", "behind while") {
		return
	}
	for p.err == nil && !p.eat(")") {
		if len(args) > 0 && !p.expect(",", "between loop variables") {
			break
		}
		r := p.operand()
		args = append(args, Arg{Name: r.name, at: r.at})
		p.expect("=", "behind a loop variable")
		o.operands = append(o.operands, p.operand())
	}
	p.signature(o)
	if len(o.ins) != len(args) {
		p.failf(o.at, "%d loop variables, %d types", len(args), len(o.ins))
		return
	}
	o.outs = o.ins
	for i := range args {
		args[i].Type = o.ins[i]
	}
	if p.keyword("attributes") && p.expect("{", "before attributes") {
		o.attrs = p.dict("}")
	}
	for _, w := range []string{"cond", "do"} {
		if !p.keyword(w) {
			p.failf(p.i, "expected %s, found %s", w, p.found())
			return
		}
		if p.expect("{", "behind "+w) {
			r := p.region()
			r.args = args
			o.regions = append(o.regions, r)
		}
	}
}

// reduce reads (%x init: %c), ... applies OP across dimensions = [...] : types, or with
// reducer(%a: T, %b: T) {...} behind the types in the place of applies.
func (p *parser) reduce(o *op) {
	var inits []ref
	for p.err == nil && p.eat("(") {
		o.operands = append(o.operands, p.operand())
		if !p.keyword("init") {
			p.failf(p.i, "expected init, found %s", p.found())
		}
		p.expect(":", "behind init")
		inits = append(inits, p.operand())
		p.expect(")", "behind an initial value")
		p.eat(",")
	}
	o.operands = append(o.operands, inits...)
	applies := ""
	if p.keyword("applies") {
		applies = p.word()
	}
	if !p.keyword("across") {
		p.failf(p.i, "expected across, found %s", p.found())
	}
	p.items(o)
	p.signature(o)
	if len(o.ins) != len(o.operands) {
		p.failf(o.at, "%d operands, %d types", len(o.operands), len(o.ins))
		return
	}
	if applies != "" {
		t := o.ins[len(o.ins)-1]
		r := &block{args: []Arg{{Name: "a", Type: t, at: o.at}, {Name: "b", Type: t, at: o.at}}}
		r.ops = []*op{
			{name: applies, at: o.at, results: []result{{"r", 1}}, operands: []ref{{"a", 0, o.at}, {"b", 0, o.at}}, ins: []Type{t}, outs: []Type{t}},
			{name: "stablehlo.return", at: o.at, operands: []ref{{"r", 0, o.at}}, ins: []Type{t}},
		}
		o.regions = append(o.regions, r)
		return
	}
	if !p.keyword("reducer") {
		p.failf(p.i, "expected reducer, found %s", p.found())
	}
	var left, right []Arg
	for p.err == nil && p.peek() == '(' {
		pair := p.args("%")
		if len(pair) != 2 {
			p.failf(o.at, "a reducer takes two values of each operand")
			return
		}
		left, right = append(left, pair[0]), append(right, pair[1])
	}
	if p.expect("{", "before the body of a reducer") {
		r := p.region()
		r.args = append(left, right...)
		o.regions = append(o.regions, r)
	}
}

// manual reads the operands, shardings, axes, arguments and body of a manual computation.
func (p *parser) manual(o *op) {
	if !p.expect("(", "before operands") {
		return
	}
	p.list(o)
	for _, name := range []string{"in_shardings", "out_shardings", "manual_axes"} {
		at := p.i
		if !p.keyword(name) || !p.expect("=", "behind "+name) {
			p.failf(at, "expected %s, found %s", name, p.found())
			return
		}
		o.attrs = append(o.attrs, named{name, p.brackets(name)})
	}
	args := p.args("%")
	if p.expect("{", "before the body of a manual computation") {
		r := p.region()
		r.args = args
		o.regions = append(o.regions, r)
	}
	if p.eat("{") {
		o.attrs = append(o.attrs, p.dict("}")...)
	}
	p.signature(o)
}

// brackets reads a list in brackets as it stands.
func (p *parser) brackets(name string) attr {
	c := p.peek()
	a := attr{Kind: kindOpaque, Text: name, at: p.i}
	if c != '[' && c != '{' {
		p.failf(p.i, "expected a list, found %s", p.found())
		return a
	}
	p.i++
	a.start, a.end = p.balanced(p.i-1, closingOf(c))
	return a
}

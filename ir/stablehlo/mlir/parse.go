package mlir

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
)

// Chunk is a part of a file between lines that start with // -----.
type Chunk struct {
	Line       int // of its first line, from 1
	start, end int
	src        *diag.Source
}

// Split cuts a file at the lines that start with // -----, as MLIR's tools do.
func Split(name, text string) []Chunk {
	src := diag.NewSource(name, text)
	var out []Chunk
	start, line := 0, 1
	for at, n := 0, 1; at < len(text); n++ {
		end := len(text)
		if k := strings.IndexByte(text[at:], '\n'); k >= 0 {
			end = at + k + 1
		}
		if rest, ok := strings.CutPrefix(text[at:end], "// -----"); ok && !strings.HasPrefix(rest, "-") { // longer lines are rulers
			out = append(out, Chunk{line, start, at, src})
			start, line = end, n+1
		}
		at = end
	}
	return append(out, Chunk{line, start, len(text), src})
}

// Text is the chunk's own text.
func (c Chunk) Text() string { return c.src.Text[c.start:c.end] }

// Parse reads the module of a text; functions may stand without one around them. The error
// is a *diag.Finding: line, column and a caret.
func Parse(name, text string) (*Module, error) {
	return Chunk{1, 0, len(text), diag.NewSource(name, text)}.Parse()
}

// Parse is [Parse] of the chunk: positions, those of errors too, are in the whole file.
func (c Chunk) Parse() (*Module, error) {
	p := &Parser{src: c.src, s: c.src.Text[:c.end], Pos: c.start, alias: map[string]Attr{}, typeAlias: map[string]Type{}}
	m := &Module{Source: c.src, At: c.start, Alias: p.alias, blobs: map[string]int{}}
	p.space()
	m.At = p.Pos
	p.body(m, 0)
	names := map[string]bool{}
	for _, f := range m.Funcs {
		if p.Err == nil && names[f.Name] {
			p.Failf(f.At, "function @%s is defined twice: a program is one module", f.Name)
		}
		names[f.Name] = true
	}
	if p.Err != nil {
		return nil, p.Err
	}
	return m, nil
}

// body reads what stands in a module, up to a closing byte, 0 for the end of the text.
func (p *Parser) body(m *Module, closing byte) {
	if !p.enter() {
		return
	}
	defer func() { p.depth-- }()
	for p.Err == nil {
		switch c := p.Peek(); {
		case c == 0 && closing == 0:
			return
		case c != 0 && c == closing:
			p.Pos++
			return
		case c == '#':
			at := p.Pos
			p.Pos++
			name := p.Suffix("an attribute")
			if p.Expect("=", "behind the name of an attribute") {
				v := p.Attr(true)
				v.At = at
				p.alias[name] = v
			}
		case c == '!':
			p.Pos++
			name := p.Suffix("a type")
			p.Expect("=", "behind the name of a type")
			if t := p.typ(); t.Tensor {
				p.typeAlias[name] = t
			}
		case strings.HasPrefix(p.s[p.Pos:], "{-#"):
			p.Pos += 3
			p.resources(m, "#-}")
		default:
			p.top(m)
		}
	}
}

// resources reads what stands behind a module, and notes where the data are that constants name.
func (p *Parser) resources(m *Module, closing string) {
	if !p.enter() {
		return
	}
	defer func() { p.depth-- }()
	for p.Peek(); p.Err == nil && !p.Eat(closing); p.Eat(",") {
		name := p.Suffix("a resource")
		switch p.Expect(":", "behind the name of a resource"); {
		case p.Eat("{"):
			p.resources(m, "}")
		case p.Peek() == '"':
			m.blobs[name] = p.Pos
			p.Str()
		case p.Word() == "" && p.Err == nil:
			p.Failf(p.Pos, "expected a resource, found %s", p.found())
		}
		p.Peek()
	}
}

// top reads one operation of a module: a module, a function, or another.
func (p *Parser) top(m *Module) {
	at := p.Pos
	switch {
	case p.Keyword("module") || p.Keyword("builtin.module"):
		m.At = at
		if p.Peek() == '@' {
			p.Pos++
			m.Name = p.Suffix("a module")
		}
		if p.Keyword("attributes") && p.Expect("{", "before attributes") {
			m.Attrs = p.dict("}")
		}
		if p.Expect("{", "before the body of a module") {
			p.body(m, '}')
		}
		p.location()
	case p.Keyword("func.func") || p.Keyword("func"):
		if f := p.function(at); p.Err == nil {
			m.Funcs = append(m.Funcs, f)
		}
	default:
		o := p.operation()
		if p.Err != nil {
			return
		}
		switch o.Name {
		case "builtin.module":
			for _, r := range o.Regions {
				p.adopt(m, r.Ops)
			}
			m.Attrs = append(m.Attrs, o.Attrs...)
			m.At = at
		default:
			p.adopt(m, []*Operation{o})
		}
	}
}

// adopt takes operations of a module that stand in generic form.
func (p *Parser) adopt(m *Module, ops []*Operation) {
	for _, o := range ops {
		if o.Name != "func.func" {
			m.Others = append(m.Others, o)
			continue
		}
		f := &Func{Attrs: o.Attrs, At: o.At}
		if a, ok := o.Attrs.Get("sym_name"); ok {
			f.Name = a.Text
		}
		if a, ok := o.Attrs.Get("sym_visibility"); ok {
			f.Private = a.Text == "private"
		}
		if len(o.Regions) > 0 {
			f.Body = o.Regions[0]
			f.Args = f.Body.Args
			for _, last := range f.Body.Ops {
				if last.Name == "func.return" {
					f.Results = last.Ins
				}
			}
			f.ResultAttrs = make([]Attrs, len(f.Results))
			said, _ := o.Attrs.Get("arg_attrs")
			for i := range min(len(said.List), len(f.Args)) {
				f.Args[i].Attrs = append(f.Args[i].Attrs, said.List[i].Dict...)
			}
			said, _ = o.Attrs.Get("res_attrs")
			for i := range min(len(said.List), len(f.Results)) {
				f.ResultAttrs[i] = said.List[i].Dict
			}
		}
		m.Funcs = append(m.Funcs, f)
	}
}

// function reads a function behind its keyword.
func (p *Parser) function(at int) *Func {
	f := &Func{At: at}
	if p.Keyword("private") {
		f.Private = true
	} else {
		p.Keyword("public")
	}
	if !p.Expect("@", "before the name of a function") {
		return f
	}
	f.Name = p.Suffix("a function")
	f.Args = p.args("%")
	if p.Eat("->") {
		if p.Peek() != '(' {
			f.Results = []Type{p.typ()}
			f.ResultAttrs = []Attrs{nil}
		} else {
			for _, a := range p.args("") {
				f.Results = append(f.Results, a.Type)
				f.ResultAttrs = append(f.ResultAttrs, a.Attrs)
			}
		}
	}
	if p.Keyword("attributes") && p.Expect("{", "before attributes") {
		f.Attrs = p.dict("}")
	}
	if p.Peek() == '{' {
		p.Pos++
		f.Body = p.region()
	}
	p.location()
	return f
}

// args reads arguments in parentheses, or with an empty sigil the types of results: both
// with attributes and locations.
func (p *Parser) args(sigil string) []Arg {
	var out []Arg
	if !p.Expect("(", "before arguments") {
		return nil
	}
	for p.Err == nil && !p.Eat(")") {
		if len(out) > 0 && !p.Expect(",", "between arguments") {
			break
		}
		p.space()
		a := Arg{At: p.Pos}
		if sigil != "" && p.Eat(sigil) {
			a.Name = p.Suffix("an argument")
			p.Expect(":", "before the type of an argument")
		}
		a.Type = p.typ()
		if p.Eat("{") {
			a.Attrs = p.dict("}")
		}
		p.location()
		out = append(out, a)
	}
	return out
}

// location reads where the program came from: what stands between the parentheses of loc,
// or behind the name that the text has given it so far.
func (p *Parser) location() string {
	if !p.ahead("loc") {
		return ""
	}
	p.Pos += len("loc")
	if !p.Expect("(", "behind loc") {
		return ""
	}
	start, end := p.balanced(p.Pos-1, ')')
	return p.s[start:end]
}

// region reads a block of operations behind its opening brace.
func (p *Parser) region() *Block {
	b := &Block{}
	if !p.enter() {
		return b
	}
	defer func() { p.depth-- }()
	if p.Eat("^") {
		p.Suffix("a block")
		if p.Peek() == '(' {
			b.Args = p.args("%")
		}
		p.Expect(":", "behind the name of a block")
	}
	for p.Err == nil && !p.Eat("}") {
		if p.Peek() == '^' {
			p.Failf(p.Pos, "a region of several blocks: control flow is that of if, case and while")
			break
		}
		b.Ops = append(b.Ops, p.operation())
	}
	return b
}

// operation reads one operation.
func (p *Parser) operation() *Operation {
	p.space()
	o := &Operation{At: p.Pos}
	if p.Peek() == '%' {
		for p.Err == nil {
			p.space()
			if !p.Expect("%", "before the name of a result") {
				return o
			}
			r := Result{p.Suffix("a value"), 1}
			if p.Pos < len(p.s) && p.s[p.Pos] == ':' {
				p.Pos++
				at := p.Pos
				if n := p.Integer("a number of results"); n >= 1 && n <= MaxNumbers {
					r.Count = int(n)
				} else {
					p.Failf(at, "%d results, want 1 to %d", n, MaxNumbers)
				}
			}
			o.Results = append(o.Results, r)
			if !p.Eat(",") {
				break
			}
		}
		p.Expect("=", "behind the names of results")
		p.space()
		o.At = p.Pos
	}
	if p.Peek() == '"' {
		o.Name = p.Str()
		p.generic(o)
	} else if o.Name = p.Word(); o.Name == "" {
		p.Failf(p.Pos, "expected an operation, found %s", p.found())
	} else if p.pretty(o); p.Err != nil {
		p.foreign(o)
	} else if isForeign(o) {
		p.other = o
	}
	if o.Outs == nil {
		o.Outs = outs(o)
	}
	if p.Err == nil && p.sameLine() {
		o.Location = p.location()
	}
	return o
}

// forms are the dialects whose custom assembly formats the parser knows.
var forms = []string{"stablehlo", "chlo", "func", "sdy", "check", "interpreter"}

// foreign blames what could not be read on the operation, where its dialect is another one, or on
// such a one before it, if what could not be read is no operation.
func (p *Parser) foreign(o *Operation) {
	if !strings.Contains(o.Name, ".") && p.other != nil {
		o = p.other
	}
	if p.blamed || !isForeign(o) {
		return
	}
	p.blamed = true
	p.Err = ErrorAt(p.src, o.At, len(o.Name), "syntax", "op not supported: %s: the dialects that are read are %s", o.Name, strings.Join(forms, ", "))
}

func isForeign(o *Operation) bool {
	dialect, _, ok := strings.Cut(o.Name, ".")
	return ok && !slices.Contains(forms, dialect)
}

// MaxNumbers bounds what an operation defines.
const MaxNumbers = 1 << 16

// outs are the types of results where a form leaves the arrow out: all types that it lists
// if there are as many, else the last of them.
func outs(o *Operation) []Type {
	n := o.NumResults()
	if n > 0 && len(o.Ins) == n {
		return o.Ins
	}
	if n == 1 && len(o.Ins) > 0 {
		return o.Ins[len(o.Ins)-1:]
	}
	return nil
}

// generic reads the generic form behind the name.
func (p *Parser) generic(o *Operation) {
	if !p.Expect("(", "before operands") {
		return
	}
	p.list(o)
	if p.Eat("<{") {
		o.Attrs = p.dict("}>")
	}
	if p.Peek() == '(' {
		p.Pos++
		for p.Err == nil && !p.Eat(")") {
			if len(o.Regions) > 0 && !p.Expect(",", "between regions") {
				break
			}
			if p.Expect("{", "before a region") {
				o.Regions = append(o.Regions, p.region())
			}
		}
	}
	if p.Eat("{") {
		o.Attrs = append(o.Attrs, p.dict("}")...)
	}
	if p.Expect(":", "before the types of "+o.Name) {
		o.Ins = p.types()
		if p.Expect("->", "before the types of results") {
			o.Outs = p.resultTypes()
		}
	}
}

// operand reads a use of a value.
func (p *Parser) operand() Operand {
	p.space()
	r := Operand{At: p.Pos}
	if !p.Expect("%", "before a value") {
		return r
	}
	r.Name = p.Suffix("a value")
	if p.Pos < len(p.s) && p.s[p.Pos] == '#' {
		p.Pos++
		if r.Index = int(p.Integer("the number of a result")); r.Index < 0 || r.Index >= MaxNumbers {
			p.Failf(r.At, "there is no result %d", r.Index)
		}
	}
	return r
}

package stablehlo

import (
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
		if strings.HasPrefix(text[at:], "// -----") {
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
	p := &parser{src: c.src, s: c.src.Text[:c.end], i: c.start, alias: map[string]attr{}}
	m := &Module{src: c.src, at: c.start, alias: p.alias}
	p.space()
	m.at = p.i
	p.body(m, 0)
	if p.err != nil {
		return nil, p.err
	}
	return m, nil
}

// body reads what stands in a module, up to a closing byte, 0 for the end of the text.
func (p *parser) body(m *Module, closing byte) {
	if !p.enter() {
		return
	}
	defer func() { p.depth-- }()
	for p.err == nil {
		switch c := p.peek(); {
		case c == 0 && closing == 0:
			return
		case c != 0 && c == closing:
			p.i++
			return
		case c == '#':
			at := p.i
			p.i++
			name := p.suffix("an attribute")
			if p.expect("=", "behind the name of an attribute") {
				v := p.attr(true)
				v.at = at
				p.alias[name] = v
			}
		case c == '!':
			p.i++
			p.suffix("a type")
			p.expect("=", "behind the name of a type")
			p.typ()
		case strings.HasPrefix(p.s[p.i:], "{-#"):
			n := strings.Index(p.s[p.i:], "#-}")
			if n < 0 {
				p.failf(p.i, "resources without an end")
				return
			}
			p.i += n + 3
		default:
			p.top(m)
		}
	}
}

// top reads one operation of a module: a module, a function, or another.
func (p *parser) top(m *Module) {
	at := p.i
	switch {
	case p.keyword("module") || p.keyword("builtin.module"):
		m.at = at
		if p.peek() == '@' {
			p.i++
			m.Name = p.suffix("a module")
		}
		if p.keyword("attributes") && p.expect("{", "before attributes") {
			m.attrs = p.dict("}")
		}
		if p.expect("{", "before the body of a module") {
			p.body(m, '}')
		}
		p.location()
	case p.keyword("func.func") || p.keyword("func"):
		if f := p.function(at); p.err == nil {
			m.Funcs = append(m.Funcs, f)
		}
	default:
		o := p.operation()
		if p.err != nil {
			return
		}
		switch o.name {
		case "builtin.module":
			for _, r := range o.regions {
				p.adopt(m, r.ops)
			}
			m.attrs = append(m.attrs, o.attrs...)
			m.at = at
		default:
			p.adopt(m, []*op{o})
		}
	}
}

// adopt takes operations of a module that stand in generic form.
func (p *parser) adopt(m *Module, ops []*op) {
	for _, o := range ops {
		if o.name != "func.func" {
			m.ops = append(m.ops, o)
			continue
		}
		f := &Func{attrs: o.attrs, at: o.at}
		if a, ok := o.attrs.Get("sym_name"); ok {
			f.Name = a.Text
		}
		if a, ok := o.attrs.Get("sym_visibility"); ok {
			f.Private = a.Text == "private"
		}
		if len(o.regions) > 0 {
			f.body = o.regions[0]
			f.Args = f.body.args
			for _, last := range f.body.ops {
				if last.name == "func.return" {
					f.Results = last.ins
				}
			}
		}
		m.Funcs = append(m.Funcs, f)
	}
}

// function reads a function behind its keyword.
func (p *parser) function(at int) *Func {
	f := &Func{at: at}
	if p.keyword("private") {
		f.Private = true
	} else {
		p.keyword("public")
	}
	if !p.expect("@", "before the name of a function") {
		return f
	}
	f.Name = p.suffix("a function")
	f.Args = p.args("%")
	if p.eat("->") {
		if p.peek() != '(' {
			f.Results = []Type{p.typ()}
			f.resultAttrs = []attrs{nil}
		} else {
			for _, a := range p.args("") {
				f.Results = append(f.Results, a.Type)
				f.resultAttrs = append(f.resultAttrs, a.attrs)
			}
		}
	}
	if p.keyword("attributes") && p.expect("{", "before attributes") {
		f.attrs = p.dict("}")
	}
	if p.peek() == '{' {
		p.i++
		f.body = p.region()
	}
	p.location()
	return f
}

// args reads arguments in parentheses, or with an empty sigil the types of results: both
// with attributes and locations.
func (p *parser) args(sigil string) []Arg {
	var out []Arg
	if !p.expect("(", "before arguments") {
		return nil
	}
	for p.err == nil && !p.eat(")") {
		if len(out) > 0 && !p.expect(",", "between arguments") {
			break
		}
		p.space()
		a := Arg{at: p.i}
		if sigil != "" && p.eat(sigil) {
			a.Name = p.suffix("an argument")
			p.expect(":", "before the type of an argument")
		}
		a.Type = p.typ()
		if p.eat("{") {
			a.attrs = p.dict("}")
		}
		p.location()
		out = append(out, a)
	}
	return out
}

// location reads where the program came from: what stands between the parentheses of loc,
// or behind the name that the text has given it so far.
func (p *parser) location() string {
	if !p.ahead("loc") {
		return ""
	}
	p.i += len("loc")
	if !p.expect("(", "behind loc") {
		return ""
	}
	start, end := p.balanced(p.i-1, ')')
	return p.s[start:end]
}

// region reads a block of operations behind its opening brace.
func (p *parser) region() *block {
	b := &block{}
	if !p.enter() {
		return b
	}
	defer func() { p.depth-- }()
	if p.eat("^") {
		p.suffix("a block")
		if p.peek() == '(' {
			b.args = p.args("%")
		}
		p.expect(":", "behind the name of a block")
	}
	for p.err == nil && !p.eat("}") {
		if p.peek() == '^' {
			p.failf(p.i, "a region of several blocks: control flow is that of if, case and while")
			break
		}
		b.ops = append(b.ops, p.operation())
	}
	return b
}

// operation reads one operation.
func (p *parser) operation() *op {
	p.space()
	o := &op{at: p.i}
	if p.peek() == '%' {
		for p.err == nil {
			p.space()
			if !p.expect("%", "before the name of a result") {
				return o
			}
			r := result{p.suffix("a value"), 1}
			if p.i < len(p.s) && p.s[p.i] == ':' {
				p.i++
				at := p.i
				if n := p.integer("a number of results"); n >= 1 && n <= maxResults {
					r.count = int(n)
				} else {
					p.failf(at, "%d results, want 1 to %d", n, maxResults)
				}
			}
			o.results = append(o.results, r)
			if !p.eat(",") {
				break
			}
		}
		p.expect("=", "behind the names of results")
		p.space()
		o.at = p.i
	}
	if p.peek() == '"' {
		o.name = p.str()
		p.generic(o)
	} else if o.name = p.word(); o.name == "" {
		p.failf(p.i, "expected an operation, found %s", p.found())
	} else {
		p.pretty(o)
	}
	if o.outs == nil {
		o.outs = outs(o)
	}
	if p.err == nil && p.sameLine() {
		o.loc = p.location()
	}
	return o
}

// maxResults bounds what an operation defines.
const maxResults = 1 << 16

// outs are the types of results where a form leaves the arrow out: all types that it lists
// if there are as many, else the last of them.
func outs(o *op) []Type {
	n := o.numResults()
	if n > 0 && len(o.ins) == n {
		return o.ins
	}
	if n == 1 && len(o.ins) > 0 {
		return o.ins[len(o.ins)-1:]
	}
	return nil
}

// generic reads the generic form behind the name.
func (p *parser) generic(o *op) {
	if !p.expect("(", "before operands") {
		return
	}
	p.list(o)
	if p.eat("<{") {
		o.attrs = p.dict("}>")
	}
	if p.peek() == '(' {
		p.i++
		for p.err == nil && !p.eat(")") {
			if len(o.regions) > 0 && !p.expect(",", "between regions") {
				break
			}
			if p.expect("{", "before a region") {
				o.regions = append(o.regions, p.region())
			}
		}
	}
	if p.eat("{") {
		o.attrs = append(o.attrs, p.dict("}")...)
	}
	if p.expect(":", "before the types of "+o.name) {
		o.ins = p.types()
		if p.expect("->", "before the types of results") {
			o.outs = p.resultTypes()
		}
	}
}

// operand reads a use of a value.
func (p *parser) operand() ref {
	p.space()
	r := ref{at: p.i}
	if !p.expect("%", "before a value") {
		return r
	}
	r.name = p.suffix("a value")
	if p.i < len(p.s) && p.s[p.i] == '#' {
		p.i++
		if r.index = int(p.integer("the number of a result")); r.index < 0 || r.index >= maxResults {
			p.failf(r.at, "there is no result %d", r.index)
		}
	}
	return r
}

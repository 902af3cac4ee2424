package hlo

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
)

// shape is the type of an instruction.
type shape struct {
	elem   string // as HLO spells it; of a type without elements its name
	dims   []int64
	layout []int64 // dimensions from the one that lies densest; nil: row-major
	tuple  []shape
	many   bool // a tuple, also of none
}

// instruction is one instruction as the text has it.
type instruction struct {
	name     string
	opcode   string
	at       int
	shape    shape
	operands []string
	inside   span // what stands in the parentheses of a constant or a parameter
	attrs    []attribute
}

// span is a part of the text.
type span struct{ start, end int }

// attribute is an attribute whose value is not read yet.
type attribute struct {
	name string
	span
}

// computation is a list of instructions.
type computation struct {
	name  string
	at    int
	entry bool
	list  []*instruction
	root  *instruction
}

// module is a parsed module.
type module struct {
	name  string
	at    int
	attrs []attribute
	order []*computation
	by    map[string]*computation
}

// maxDims bounds the dimensions of a type.
const maxDims = 64

// parse reads a module.
func parse(src *diag.Source) (*module, error) {
	p := &scanner{src: src, s: src.Text}
	m := &module{by: map[string]*computation{}}
	p.space()
	if m.at = p.i; p.word() != "HloModule" {
		p.failf(m.at, "expected HloModule, found %s", (&scanner{src: src, s: src.Text}).found())
	}
	m.name = p.name("a module")
	if p.eat(",") {
		m.attrs = p.attributes()
	}
	for p.err == nil && p.peek() != 0 {
		at := p.i
		entry := false
		switch word := p.word(); {
		case word == "ENTRY":
			entry = true
		case slices.Contains(tables, word):
			p.table()
			continue
		default:
			p.i = at
		}
		c := p.computation(at, entry)
		if p.err == nil && m.by[c.name] != nil {
			p.failf(at, "a second computation %s", c.name)
		}
		m.by[c.name], m.order = c, append(m.order, c)
	}
	return m, p.err
}

// tables are headers of lists that say where instructions came from.
var tables = []string{"FileNames", "FunctionNames", "FileLocations", "StackFrames"}

// table skips lines that begin with a number.
func (p *scanner) table() {
	for p.line(); digit(p.peek()); {
		p.line()
	}
}

// computation reads a computation behind ENTRY.
func (p *scanner) computation(at int, entry bool) *computation {
	c := &computation{at: at, entry: entry, name: p.name("a computation")}
	if p.peek() == '(' {
		p.balanced()
		if p.expect("->", "behind the parameters of a computation") {
			p.shape(0)
		}
	}
	if !p.expect("{", "before instructions") {
		return c
	}
	for p.err == nil && !p.eat("}") {
		in, root := p.instruction()
		c.list = append(c.list, in)
		if root {
			c.root = in
		}
	}
	if c.root == nil && len(c.list) > 0 {
		c.root = c.list[len(c.list)-1]
	}
	if c.root == nil && p.err == nil {
		p.failf(at, "computation %s is empty", c.name)
	}
	if p.err == nil && p.i < len(p.s) && p.s[p.i] == ',' {
		p.i++
		p.attributes()
	}
	return c
}

// instruction reads NAME = SHAPE OPCODE(OPERANDS), ATTRIBUTES.
func (p *scanner) instruction() (*instruction, bool) {
	p.space()
	in := &instruction{at: p.i}
	root := strings.HasPrefix(p.s[p.i:], "ROOT ")
	if root {
		p.i += len("ROOT ")
	}
	in.name = p.name("an instruction")
	p.expect("=", "behind the name of an instruction")
	in.shape = p.shape(0)
	p.space()
	in.at = p.i
	if in.opcode = p.word(); in.opcode == "" && p.err == nil {
		p.failf(p.i, "expected an operation, found %s", p.found())
	}
	if p.err != nil || p.peek() != '(' {
		p.failf(p.i, "expected operands, found %s", p.found())
		return in, root
	}
	if in.opcode == "constant" || in.opcode == "parameter" || in.opcode == "iota" {
		in.inside.start, in.inside.end = p.balanced()
	} else {
		in.operands = p.operands()
	}
	if p.err == nil && p.i < len(p.s) && p.s[p.i] == ',' {
		p.i++
		in.attrs = p.attributes()
	}
	return in, root
}

// operands reads names in parentheses, of which each may have its type in front.
func (p *scanner) operands() []string {
	var out []string
	p.expect("(", "before operands")
	for p.err == nil && !p.eat(")") {
		if len(out) > 0 && !p.expect(",", "between operands") {
			break
		}
		c := p.peek()
		if at := p.i; c != '%' {
			if p.word(); c == '(' || p.peek() == '[' {
				p.i = at
				p.shape(0)
			} else {
				p.i = at
			}
		}
		out = append(out, p.name("an operand"))
	}
	return out
}

// attributes reads NAME=VALUE with commas, up to the end of a line; values are left as they are.
func (p *scanner) attributes() []attribute {
	var out []attribute
	for p.err == nil {
		a := attribute{name: p.word()}
		if a.name == "" || !p.expect("=", "behind the name of an attribute") {
			p.failf(p.i, "expected an attribute, found %s", p.found())
			break
		}
		a.start = p.i // the padding of a scalar is nothing
		for p.err == nil && p.i < len(p.s) {
			c := p.s[p.i]
			if c == ',' || c == '\n' {
				break
			}
			switch c {
			case '{', '(', '[':
				p.balanced()
			case '"':
				p.quoted(c)
			default:
				p.i++
			}
		}
		a.end = p.i
		out = append(out, a)
		if p.i >= len(p.s) || p.s[p.i] != ',' {
			break
		}
		p.i++
	}
	return out
}

// shape reads a type: an element type, sizes and a layout, or a tuple of types.
func (p *scanner) shape(depth int) shape {
	if depth > maxDepth {
		p.failf(p.i, "nested deeper than %d levels", maxDepth)
		return shape{}
	}
	if p.eat("(") {
		t := shape{many: true}
		for p.err == nil && !p.eat(")") {
			if len(t.tuple) > 0 && !p.expect(",", "between the types of a tuple") {
				break
			}
			t.tuple = append(t.tuple, p.shape(depth+1))
		}
		return t
	}
	t := shape{elem: p.word()}
	if t.elem == "" {
		p.failf(p.i, "expected a type, found %s", p.found())
	}
	if !p.expect("[", "behind an element type") {
		return t
	}
	for p.err == nil && !p.eat("]") {
		if len(t.dims) > 0 && !p.expect(",", "between sizes") {
			break
		}
		at := p.i
		if p.eat("<=") {
			p.failf(at, "a size that is only bounded")
		}
		n := p.integer("a size")
		if n < 0 || len(t.dims) == maxDims {
			p.failf(at, "a size of %d, or more than %d of them", n, maxDims)
		}
		t.dims = append(t.dims, n)
	}
	if p.i < len(p.s) && p.s[p.i] == '{' {
		t.layout = p.layout(len(t.dims))
	}
	return t
}

// layout reads {1,0:T(8,128)}: dimensions, and how memory is tiled, which means nothing here.
func (p *scanner) layout(rank int) []int64 {
	start, end := p.balanced()
	l, _, _ := strings.Cut(p.s[min(start, len(p.s)):min(end, len(p.s))], ":")
	q := &scanner{src: p.src, s: p.s[:start+len(l)], i: start}
	var out []int64
	for p.err == nil && q.err == nil && q.peek() != 0 {
		if len(out) > 0 {
			q.expect(",", "between dimensions")
		}
		d := q.integer("a dimension")
		if d < 0 || d >= int64(rank) || slices.Contains(out, d) {
			q.failf(start, "a layout of %d dimensions", rank)
		}
		out = append(out, d)
	}
	if q.err == nil && out != nil && len(out) != rank {
		q.failf(start, "a layout of %d dimensions", rank)
	}
	if q.err != nil && p.err == nil {
		p.err, p.i = q.err, len(p.s)
	}
	for i, d := range out { // row-major: the last dimension is the densest
		if d != int64(rank-1-i) {
			return out
		}
	}
	return nil
}

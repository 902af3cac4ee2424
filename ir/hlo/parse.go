package hlo

import (
	"fmt"
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
	absent bool // the text leaves it out
}

// instruction is one instruction as the text has it.
type instruction struct {
	name     string
	opcode   string
	at       int
	shape    shape
	operands []string
	declared []shape // types in front of operands, absent where there is none
	inside   span    // what stands in the parentheses of a constant or a parameter
	attrs    []attribute
	started  *shape // what is in flight, once it is converted; nil: nothing, or that is not known
}

// span is a part of the text.
type span struct{ start, end int }

// attribute is an attribute whose value is not read yet.
type attribute struct {
	name string
	span
	inline *computation // the value, where the text has it in this place
}

// computation is a list of instructions.
type computation struct {
	name  string
	at    int
	entry bool
	list  []*instruction
	root  *instruction
	gives *shape // what the text says of the root's type, nil if nothing

	params []shape // once it is converted
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
		p.i = m.at
		p.failf(m.at, "expected HloModule, found %s", p.found())
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
		if entry && slices.ContainsFunc(m.order, func(k *computation) bool { return k.entry }) {
			p.failf(at, "a second ENTRY")
		}
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
			t := p.shape(0)
			c.gives = &t
		}
	}
	p.body(c)
	if p.err == nil && p.eat(",") {
		p.attributes()
	}
	return c
}

// body reads the instructions of a computation in braces.
func (p *scanner) body(c *computation) {
	if !p.expect("{", "before instructions") {
		return
	}
	outer := p.nested
	for p.err == nil && !p.eat("}") {
		p.nested = nil
		in, root := p.instruction()
		c.list = append(append(c.list, p.nested...), in)
		if root && c.root != nil {
			p.failf(in.at, "a second root of computation %s", c.name)
		}
		if root {
			c.root = in
		}
	}
	p.nested = outer
	if c.root == nil && len(c.list) > 0 {
		c.root = c.list[len(c.list)-1]
	}
	if c.root == nil && p.err == nil {
		p.failf(c.at, "computation %s is empty", c.name)
	}
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
	p.does(in)
	if p.err == nil && p.eat(",") {
		in.attrs = p.attributes()
	}
	return in, root
}

// does reads SHAPE OPCODE(OPERANDS), where the shape may be absent.
func (p *scanner) does(in *instruction) {
	if in.shape = (shape{absent: true}); p.typed() {
		in.shape = p.shape(0)
	}
	p.space()
	in.at = p.i
	if in.opcode = p.word(); in.opcode == "" && p.err == nil {
		p.failf(p.i, "expected an operation, found %s", p.found())
	}
	if p.err != nil || p.peek() != '(' {
		p.failf(p.i, "expected operands, found %s", p.found())
		return
	}
	if in.opcode == "constant" || in.opcode == "parameter" || in.opcode == "iota" {
		in.inside.start, in.inside.end = p.balanced()
	} else {
		in.operands, in.declared = p.operands()
	}
}

// typed reports whether a type is next.
func (p *scanner) typed() bool {
	c := p.peek()
	at := p.i
	word := p.word()
	next := p.peek()
	p.i = at
	return c == '(' || c != '%' && next != '(' || word == buffer
}

// buffer stands in front of the type of a value that operations change in place.
const buffer = "b"

// operands reads names in parentheses, of which each may have its type in front. In the place of
// a name there may be an instruction without attributes.
func (p *scanner) operands() (out []string, types []shape) {
	p.expect("(", "before operands")
	for p.err == nil && !p.eat(")") {
		if len(out) > 0 && !p.expect(",", "between operands") {
			break
		}
		at, t := p.i, shape{absent: true}
		c := p.peek()
		if c != '%' {
			if p.word(); c == '(' || p.peek() == '[' {
				p.i = at
				t = p.shape(0)
				c = p.peek()
			} else {
				p.i = at
			}
		}
		name := p.name("an operand")
		if c != '%' && p.peek() == '(' {
			name = p.within(at, name)
		}
		for p.err == nil && p.i < len(p.s) && p.s[p.i] == '#' {
			name = p.element(name)
		}
		out, types = append(out, name), append(types, t)
	}
	return out, types
}

// deeper reads what stands within an instruction, up to a depth.
func (p *scanner) deeper(read func()) {
	if p.depth++; p.depth > maxDepth {
		p.failf(p.i, "nested deeper than %d levels", maxDepth)
	} else {
		read()
	}
	p.depth--
}

// inline reads a computation in the place of its name. No other has the one that it gets.
func (p *scanner) inline(key string) *computation {
	c := &computation{at: p.i, name: fmt.Sprintf("%%%s.%d", key, p.i)}
	p.deeper(func() { p.body(c) })
	return c
}

// within reads an instruction in the place of an operand, and gives it a name that the text does
// not have.
func (p *scanner) within(at int, opcode string) string {
	p.i = at
	in := &instruction{name: fmt.Sprintf("%%%s.%d", opcode, at)}
	p.deeper(func() { p.does(in) })
	p.nested = append(p.nested, in)
	return in.name
}

// element reads #1 behind the name of a tuple: an element of it.
func (p *scanner) element(of string) string {
	at := p.i
	p.i++
	n := p.integer("the number of an element")
	in := &instruction{name: fmt.Sprintf("%%%s.%d.%d", of, n, at), opcode: "get-tuple-element", at: at, shape: shape{absent: true}, operands: []string{of},
		attrs: []attribute{{name: "index", span: span{at + 1, p.i}}}}
	p.nested = append(p.nested, in)
	return in.name
}

// callees are attributes that name a computation, or have it in their place.
var callees = []string{"to_apply", "calls", "condition", "body", "true_computation", "false_computation", "select", "scatter"}

// attributes reads NAME=VALUE with commas; values are left as they are.
func (p *scanner) attributes() []attribute {
	var out []attribute
	for p.err == nil {
		a := attribute{name: p.word()}
		if a.name == "" || !p.expect("=", "behind the name of an attribute") {
			p.failf(p.i, "expected an attribute, found %s", p.found())
			break
		}
		if a.name != "padding" { // that of a scalar is nothing
			p.space()
		}
		a.start = p.i
		if slices.Contains(callees, a.name) && p.peek() == '{' {
			a.inline = p.inline(a.name)
			a.end = p.i
		} else {
			a.end = p.value()
		}
		if out = append(out, a); !p.eat(",") {
			break
		}
	}
	return out
}

// value goes behind the value of an attribute, and returns its end: comments are no part of it.
// It ends with its line, where a bracket closes that it does not open, or before an instruction.
func (p *scanner) value() int {
	start, end := p.i, p.i
	for p.err == nil && p.i < len(p.s) {
		c := p.s[p.i]
		if c == ',' || c == '\n' || c == '}' || end > start && p.i > end && p.another() {
			break
		}
		switch {
		case c == '{' || c == '(' || c == '[':
			p.balanced()
		case c == '"':
			p.quoted(c)
		case c == ' ' || c == '\t' || c == '\r':
			p.i++
			continue
		case p.comment():
			continue
		default:
			p.i++
		}
		end = p.i
	}
	return end
}

// another reports whether an instruction is next.
func (p *scanner) another() bool {
	q := &scanner{src: p.src, s: p.s, i: p.i}
	q.eat("%")
	word := q.word()
	return word == "ROOT" || word != "" && q.peek() == '='
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
	if t.elem == buffer && p.peek() == '(' {
		p.failf(p.i, "a buffer that operations change in place (%s(...)): not supported; write the program with values", buffer)
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
			p.failf(at, "a tensor whose size is known at run time only (<=...) is not supported; compile the program for fixed sizes")
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

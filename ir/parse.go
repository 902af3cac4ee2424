package ir

import (
	"fmt"
	"math"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Parse reads a module's text form. name is what error messages call the text.
// The error, if any, is a *diag.Error: one finding per broken line, each with
// line, column and caret. Parse checks syntax and names; Verify checks meaning.
// Linear in the text's length.
func Parse(name, text string) (*Module, error) {
	p := &parser{src: diag.NewSource(name, text), s: text, m: &Module{}}
	p.m.source = p.src
	p.module()
	if err := p.errs.Err(); err != nil {
		return nil, err
	}
	return p.m, nil
}

// maxFindings ends the parse of a text that is broken all over.
const maxFindings = 50

// parser is a hand-written recursive-descent parser without a token buffer: i is
// the next byte. bad is set by the first error of a line and cleared by recovery.
type parser struct {
	src  *diag.Source
	s    string
	i    int
	m    *Module
	errs diag.List
	bad  bool
}

func (p *parser) failf(at, n int, rule, format string, args ...any) {
	if p.bad {
		return
	}
	p.bad = true
	p.errs.Add(&diag.Finding{Source: p.src, Pos: p.src.PosAt(min(at, len(p.s))), Len: n, Rule: rule, Msg: fmt.Sprintf(format, args...)})
}

// space skips blanks and comments within a line.
func (p *parser) space() {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == ' ' || c == '\t' || c == '\r':
			p.i++
		case c == '/' && p.i+1 < len(p.s) && p.s[p.i+1] == '/':
			for p.i < len(p.s) && p.s[p.i] != '\n' {
				p.i++
			}
		default:
			return
		}
	}
}

// lines skips blanks, comments and line ends.
func (p *parser) lines() {
	for {
		p.space()
		if p.i >= len(p.s) || p.s[p.i] != '\n' {
			return
		}
		p.i++
	}
}

// recover skips to the next line after an error.
func (p *parser) recover() {
	for p.i < len(p.s) && p.s[p.i] != '\n' {
		p.i++
	}
	p.bad = false
}

func (p *parser) peek() byte {
	p.space()
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *parser) eat(c byte) bool {
	if p.peek() == c && p.i < len(p.s) {
		p.i++
		return true
	}
	return false
}

// found describes the next token for an error message.
func (p *parser) found() string {
	switch c := p.peek(); {
	case p.i >= len(p.s):
		return "the end of the text"
	case c == '\n':
		return "the end of the line"
	case identByte(c):
		j := p.i
		for j < len(p.s) && identByte(p.s[j]) {
			j++
		}
		return strconv.Quote(p.s[p.i:j])
	default:
		return strconv.QuoteRune(rune(c))
	}
}

func (p *parser) expect(c byte, where string) {
	if !p.bad && !p.eat(c) {
		p.failf(p.i, 1, "syntax", "expected '%c' %s, found %s", c, where, p.found())
	}
}

func identByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '$'
}

// ident reads a name; what says what it names, for the error.
func (p *parser) ident(what string) string {
	p.space()
	j := p.i
	for j < len(p.s) && identByte(p.s[j]) {
		j++
	}
	if j == p.i {
		p.failf(p.i, 1, "syntax", "expected %s, found %s", what, p.found())
	}
	s := p.s[p.i:j]
	p.i = j
	return s
}

func (p *parser) word(w string) bool {
	p.space()
	j := p.i + len(w)
	if j <= len(p.s) && p.s[p.i:j] == w && (j == len(p.s) || !identByte(p.s[j])) {
		p.i = j
		return true
	}
	return false
}

func (p *parser) int64(what string) int64 {
	p.space()
	j := p.i
	if j < len(p.s) && p.s[j] == '-' {
		j++
	}
	for j < len(p.s) && p.s[j] >= '0' && p.s[j] <= '9' {
		j++
	}
	n, err := strconv.ParseInt(p.s[p.i:j], 10, 64)
	if err != nil {
		p.failf(p.i, j-p.i, "syntax", "expected %s, found %s", what, p.found())
	}
	p.i = j
	return n
}

func (p *parser) endOfLine() {
	if c := p.peek(); !p.bad && c != '\n' && p.i < len(p.s) {
		p.failf(p.i, 1, "syntax", "expected the end of the line, found %s", p.found())
	}
}

func (p *parser) module() {
	worldSeen := false
	for {
		p.lines()
		if p.i >= len(p.s) || len(p.errs.All) >= maxFindings {
			break
		}
		start := p.i
		switch {
		case p.word("world"):
			n := p.int64("the number of ranks")
			if !p.bad && (n < 1 || n > math.MaxInt32) {
				p.failf(start, p.i-start, "world", "a world has at least one rank")
			}
			if worldSeen {
				p.failf(start, p.i-start, "world", "the world is declared twice")
			}
			worldSeen, p.m.World = true, int(n)
			p.endOfLine()
		case p.word("group"):
			p.groupDecl(start)
		case p.word("sym"):
			p.symDecl(start)
		case p.word("func"):
			p.fn(start)
		default:
			p.failf(p.i, 1, "syntax", "expected world, group, sym or func, found %s", p.found())
		}
		if p.bad {
			p.recover()
		}
	}
	if !worldSeen {
		p.failf(0, 1, "world", "the text must declare its world, for example: world 8")
	}
}

func (p *parser) groupDecl(start int) {
	p.expect('@', "before a group's name")
	name := p.ident("a group's name")
	p.expect('=', "after a group's name")
	p.expect('[', "before the subgroups")
	var ranks [][]int
	for !p.bad && !p.eat(']') {
		if len(ranks) > 0 {
			p.expect(',', "between subgroups")
		}
		p.expect('[', "before a subgroup's ranks")
		sub := []int{}
		for !p.bad && !p.eat(']') {
			if len(sub) > 0 {
				p.expect(',', "between ranks")
			}
			sub = append(sub, int(p.int64("a rank")))
		}
		ranks = append(ranks, sub)
	}
	p.endOfLine()
	if p.bad {
		return
	}
	if p.m.Group(name) != nil {
		p.failf(start, p.i-start, "redefined", "group @%s is declared twice", name)
		return
	}
	p.m.AddGroup(name, ranks).pos = p.src.PosAt(start)
}

func (p *parser) symDecl(start int) {
	name := p.ident("a symbol's name")
	if !p.bad && !p.word("hint") {
		p.failf(p.i, 1, "syntax", "expected hint, found %s", p.found())
	}
	hint := p.int64("a hint")
	if !p.bad && !p.word("max") {
		p.failf(p.i, 1, "syntax", "expected max, found %s", p.found())
	}
	maximum := p.int64("an upper bound")
	p.endOfLine()
	if p.bad {
		return
	}
	if p.m.Symbol(name) != nil {
		p.failf(start, p.i-start, "redefined", "symbol %s is declared twice", name)
		return
	}
	p.m.AddSymbol(name, hint, maximum).pos = p.src.PosAt(start)
}

func (p *parser) fn(start int) {
	p.expect('@', "before a function's name")
	name := p.ident("a function's name")
	if !p.bad && p.m.Func(name) != nil {
		p.failf(start, p.i-start, "redefined", "function @%s is declared twice", name)
	}
	f := p.m.AddFunc(name)
	f.pos = p.src.PosAt(start)
	p.expect('(', "before the inputs")
	for first := true; !p.bad && !p.eat(')'); first = false {
		if !first {
			p.expect(',', "between inputs")
			p.lines()
		}
		p.input(f)
	}
	p.expect('-', "in '->' before the result types")
	p.expect('>', "in '->' before the result types")
	p.expect('(', "before the result types")
	var results []Type
	resultsAt := p.i
	for !p.bad && !p.eat(')') {
		if len(results) > 0 {
			p.expect(',', "between result types")
		}
		results = append(results, p.typ())
	}
	p.expect('{', "before the body")
	p.endOfLine()
	if p.bad { // without a signature the body would only repeat the error
		return
	}
	for {
		p.lines()
		if p.eat('}') {
			break
		}
		if p.i >= len(p.s) {
			p.failf(start, 4, "syntax", "function @%s has no closing '}'", name)
			return
		}
		p.node(f)
		if p.bad {
			p.recover()
		}
		if len(p.errs.All) >= maxFindings {
			return
		}
	}
	p.endOfLine()
	p.checkResults(f, results, resultsAt)
}

func (p *parser) checkResults(f *Func, results []Type, at int) {
	r := f.Return()
	if r == nil {
		if len(p.errs.All) == 0 {
			p.failf(p.i-1, 1, "return", "function @%s does not end with a return", f.Name)
		}
		return
	}
	if len(r.args) != len(results) {
		p.failf(at, 1, "return", "the signature declares %d results, return gives %d", len(results), len(r.args))
		return
	}
	for i, v := range r.args {
		if !v.typ.Equal(results[i]) {
			p.failf(at, 1, "return", "result %d is declared %s, return gives %s of type %s", i, results[i], v, v.typ)
		}
	}
}

func (p *parser) input(f *Func) {
	p.space()
	start := p.i
	p.expect('%', "before an input's name")
	name := p.ident("an input's name")
	p.expect(':', "before an input's type")
	t := p.typ()
	spec := NodeSpec{Op: OpInput, Name: name, Results: []Type{t}, Pos: p.src.PosAt(start)}
	p.tail(&spec)
	if p.bad {
		return
	}
	if f.Lookup(name) != nil {
		p.failf(start, len(name)+1, "redefined", "%%%s is defined twice", name)
		return
	}
	f.Append(spec)
}

// node reads one line of a body.
func (p *parser) node(f *Func) {
	start := p.i
	var spec NodeSpec
	spec.Pos = p.src.PosAt(start)
	count := 0
	if p.eat('%') {
		spec.Name = p.ident("a name")
		count = 1
		if p.eat(':') {
			count = int(p.int64("the number of results"))
		}
		p.expect('=', "after the name")
	}
	p.space()
	opAt := p.i
	p.opName(&spec, opAt)
	if p.peek() == '%' {
		spec.Args = append(spec.Args, p.operand(f))
		for !p.bad && p.eat(',') {
			spec.Args = append(spec.Args, p.operand(f))
		}
	}
	if !p.bad && p.word("on") {
		p.onGroup(&spec)
	}
	if !p.bad && p.peek() == '{' {
		p.attrs(&spec.Attrs)
	}
	if count > 0 || p.peek() == ':' {
		p.expect(':', "before the result types")
		spec.Results = append(spec.Results, p.typ())
		for !p.bad && p.eat(',') {
			spec.Results = append(spec.Results, p.typ())
		}
	}
	p.tail(&spec)
	p.endOfLine()
	if p.bad {
		return
	}
	switch {
	case count != len(spec.Results):
		p.failf(start, 1, "results", "%d results are named, %d types are given", count, len(spec.Results))
	case spec.Name != "" && f.Lookup(spec.Name) != nil:
		p.failf(start, len(spec.Name)+1, "redefined", "%%%s is defined twice", spec.Name)
	case spec.Op == OpInput:
		p.failf(opAt, 5, "syntax", "inputs stand in the function's signature")
	default:
		f.Append(spec)
	}
}

// opName reads name or name.reduction.
func (p *parser) opName(spec *NodeSpec, at int) {
	name := p.ident("an operation")
	if p.bad {
		return
	}
	op, ok := OpByName(name)
	if !ok {
		for i := len(name) - 1; i > 0; i-- {
			if name[i] == '.' {
				if op, ok = OpByName(name[:i]); ok && op.info().Reduces && Reduction(name[i+1:]).Valid() {
					spec.Attrs = spec.Attrs.With("reduce", attr.String(name[i+1:]))
				} else {
					ok = false
				}
				break
			}
		}
	}
	if !ok {
		p.failf(at, len(name), "unknown-op", "%q is not an operation; an operation of your own is written: call %s{target=%q}", name, "%operands ", name)
	}
	spec.Op = op
}

func (p *parser) operand(f *Func) *Value {
	p.space()
	start := p.i
	p.expect('%', "before an operand")
	name := p.ident("an operand's name")
	index := -1
	if !p.bad && p.i < len(p.s) && p.s[p.i] == '#' {
		p.i++
		index = int(p.int64("a result's number"))
	}
	if p.bad {
		return nil
	}
	n := f.Lookup(name)
	switch {
	case n == nil:
		p.failf(start, p.i-start, "undefined", "%%%s is not defined before this line", name)
	case index < 0 && len(n.results) == 1:
		return n.results[0]
	case index < 0:
		p.failf(start, p.i-start, "undefined", "%%%s has %d results; say which, as in %%%s#0", name, len(n.results), name)
	case index >= len(n.results) || len(n.results) == 1:
		p.failf(start, p.i-start, "undefined", "%%%s has %d results, there is no %%%s#%d", name, len(n.results), name, index)
	default:
		return n.results[index]
	}
	return nil
}

func (p *parser) onGroup(spec *NodeSpec) {
	p.expect('@', "before a group's name")
	at := p.i
	name := p.ident("a group's name")
	if p.bad {
		return
	}
	if spec.Group = p.m.Group(name); spec.Group == nil {
		p.failf(at-1, len(name)+1, "undefined", "group @%s is not declared", name)
	}
}

func (p *parser) attrs(into *attr.List) {
	l, n, err := attr.Scan(p.s[p.i:])
	p.i += n
	if err != nil {
		p.failf(p.i, 1, "syntax", "%v", err)
		return
	}
	for _, a := range l {
		if into.Has(a.Key) {
			p.failf(p.i-1, 1, "syntax", "attribute %s given twice", a.Key)
			return
		}
		*into = into.With(a.Key, a.Val)
	}
}

// tail reads the cost and the annotations.
func (p *parser) tail(spec *NodeSpec) {
	if !p.bad && p.word("ms") {
		p.space()
		j := p.i
		for j < len(p.s) && (identByte(p.s[j]) || p.s[j] == '-' || p.s[j] == '+') {
			j++
		}
		v, err := strconv.ParseFloat(p.s[p.i:j], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			p.failf(p.i, j-p.i, "syntax", "expected a cost in milliseconds, found %s", p.found())
			return
		}
		spec.Cost, spec.HasCost = v, true
		p.i = j
	}
	if !p.bad && p.peek() == '!' {
		p.i++
		if p.peek() != '{' {
			p.failf(p.i, 1, "syntax", "expected '{' after '!', found %s", p.found())
			return
		}
		p.attrs(&spec.Meta)
	}
}

func (p *parser) typ() Type {
	if p.word("async") {
		if !p.eat('(') {
			return Async(p.tensor())
		}
		var ts []Type
		for !p.bad && !p.eat(')') {
			if len(ts) > 0 {
				p.expect(',', "between the types of an async value")
			}
			ts = append(ts, p.tensor())
		}
		if len(ts) == 0 {
			p.failf(p.i-1, 1, "syntax", "an async value carries at least one tensor")
		}
		return Async(ts...)
	}
	return p.tensor()
}

func (p *parser) tensor() Type {
	p.space()
	at := p.i
	name := p.ident("a type")
	if p.bad {
		return Type{}
	}
	t := Type{}
	var ok bool
	if t.dt, ok = dtype.Parse(name); !ok {
		p.failf(at, len(name), "syntax", "%q is not an element type; have f64 f32 f16 bf16 i64 i32 i8 u8 bool", name)
		return t
	}
	p.expect('[', "after an element type")
	if p.eat(']') {
		return t
	}
	for {
		t.shape = append(t.shape, p.dim())
		if p.bad || !p.eat(',') {
			break
		}
	}
	if !p.bad && p.eat(':') {
		t = p.strides(t)
	}
	p.expect(']', "after the dimensions")
	return t
}

func (p *parser) strides(t Type) Type {
	at := p.i
	st := []int64{p.int64("a stride")}
	for !p.bad && p.eat(',') {
		st = append(st, p.int64("a stride"))
	}
	if p.bad {
		return t
	}
	for _, s := range st {
		if s < 0 {
			p.failf(at, p.i-at, "syntax", "strides must not be negative")
			return t
		}
	}
	if _, static := t.shape.Static(); !static || len(st) != len(t.shape) {
		p.failf(at, p.i-at, "syntax", "strides go with as many static dimensions")
		return t
	}
	return t.WithStrides(st)
}

// dim reads a dimension expression.
func (p *parser) dim() Dim {
	p.space()
	d, n, err := dim.Scan(p.s[p.i:])
	if err != nil {
		p.i += n
		p.failf(p.i, 1, "syntax", "%v", err)
		return Dim{}
	}
	at := p.i
	p.i += n
	if _, static := d.Const(); !static && p.m != nil {
		for _, name := range d.Symbols(nil) {
			if p.m.Symbol(name) == nil {
				p.failf(at, n, "undefined", "symbol %s is not declared", name)
			}
		}
	}
	return d
}

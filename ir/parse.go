package ir

import (
	"math"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/text"
)

// Parse reads a module's text form. name is what error messages call the text.
// The error, if any, is a *diag.Error: one finding per broken line, each with
// line, column and caret. Parse checks syntax and names; Verify checks meaning.
// Linear in the text's length.
func Parse(name, s string) (*Module, error) {
	p := &parser{Scanner: text.NewScanner(name, s), m: NewModule(0)}
	p.m.source = p.Src
	p.module()
	if err := p.Errs.Err(); err != nil {
		return nil, err
	}
	return p.m, nil
}

// maxFindings ends the parse of a text that is broken all over.
const maxFindings = 50

// parser is a hand-written recursive-descent parser: one line, one node.
type parser struct {
	text.Scanner
	m        *Module
	asked    []asked // of the line being read
	versions []asked // of the function being read
}

func (p *parser) module() {
	worldSeen := false
	for {
		p.Lines()
		if p.I >= len(p.S) || len(p.Errs.All) >= maxFindings {
			break
		}
		start := p.I
		switch {
		case p.Word("world"):
			n := p.Int("the number of ranks")
			if !p.Bad && (n < 1 || n > MaxWorld) {
				p.Failf(start, p.I-start, "world", "a world has 1 to %d ranks, not %d", MaxWorld, n)
			}
			if worldSeen {
				p.Failf(start, p.I-start, "world", "the world is declared twice")
			}
			worldSeen, p.m.World = true, int(n)
			p.EndOfLine()
		case p.Word("group"):
			p.groupDecl(start)
		case p.Word("sym"):
			p.symDecl(start)
		case p.Word("need"):
			size := p.Dim(p.known)
			p.EndOfLine()
			if !p.Bad {
				p.m.checks = append(p.m.checks, Check{size, p.Src.PosAt(start)})
			}
		case p.Word("stages"):
			p.stagesDecl(start)
		case p.Word("func"):
			p.fn(start)
		default:
			p.Failf(p.I, 1, "syntax", "expected world, group, sym, need, stages or func, found %s", p.Found())
		}
		if p.Bad {
			p.Recover()
		}
	}
	if !worldSeen {
		p.Failf(0, 1, "world", "the text must declare its world, for example: world 8")
	}
}

func (p *parser) groupDecl(start int) {
	p.Expect('@', "before a group's name")
	name := p.Name("a group's name")
	p.Expect('=', "after a group's name")
	ranks := p.Ranks()
	p.EndOfLine()
	if p.Bad {
		return
	}
	if p.m.Group(name) != nil {
		p.Failf(start, p.I-start, "redefined", "group @%s is declared twice", name)
		return
	}
	p.m.AddGroup(name, ranks).pos = p.Src.PosAt(start)
}

func (p *parser) stagesDecl(start int) {
	p.Expect('@', "before the name of stages")
	name := p.Name("the name of stages")
	p.Keyword("on")
	var spec NodeSpec
	p.onGroup(&spec)
	p.Expect('=', "after the group of stages")
	var funcs []string
	for more := true; more && !p.Bad; more = p.Eat(',') {
		p.Expect('@', "before a function's name")
		funcs = append(funcs, p.Name("a function's name"))
	}
	p.EndOfLine()
	if !p.Bad {
		p.m.AddStages(name, spec.Group, funcs...).pos = p.Src.PosAt(start)
	}
}

func (p *parser) symDecl(start int) {
	name := p.Ident("a symbol's name")
	p.Keyword("hint")
	hint, minimum := p.Int("a hint"), int64(0)
	if !p.Bad && p.Word("min") {
		minimum = p.Int("a lower bound")
	}
	p.Keyword("max")
	maximum := p.Int("an upper bound")
	p.EndOfLine()
	if p.Bad {
		return
	}
	if p.m.Symbol(name) != nil {
		p.Failf(start, p.I-start, "redefined", "symbol %s is declared twice", name)
		return
	}
	p.m.AddSymbol(name, hint, minimum, maximum).pos = p.Src.PosAt(start)
}

func (p *parser) fn(start int) {
	p.Expect('@', "before a function's name")
	name := p.Name("a function's name")
	if !p.Bad && p.m.Func(name) != nil {
		p.Failf(start, p.I-start, "redefined", "function @%s is declared twice", name)
	}
	f := p.m.AddFunc(name)
	f.pos = p.Src.PosAt(start)
	p.Expect('(', "before the inputs")
	for first := true; !p.Bad && !p.Eat(')'); first = false {
		if !first {
			p.Expect(',', "between inputs")
			p.Lines()
		}
		p.input(f)
	}
	p.Expect('-', "in '->' before the result types")
	p.Expect('>', "in '->' before the result types")
	p.Expect('(', "before the result types")
	var results []Type
	resultsAt := p.I
	for !p.Bad && !p.Eat(')') {
		if len(results) > 0 {
			p.Expect(',', "between result types")
		}
		results = append(results, p.typ())
	}
	p.Expect('{', "before the body")
	p.EndOfLine()
	if p.Bad {
		p.skipBody()
		return
	}
	for {
		p.Lines()
		if p.Eat('}') {
			break
		}
		if p.I >= len(p.S) {
			p.Failf(start, 4, "syntax", "function @%s has no closing '}'", name)
			return
		}
		p.node(f)
		if p.Bad {
			p.Recover()
		}
		if len(p.Errs.All) >= maxFindings {
			return
		}
	}
	p.EndOfLine()
	if len(p.Errs.All) == 0 {
		f.ResolveVersions()
		p.checkVersions()
	}
	p.checkResults(f, results, resultsAt)
}

// skipBody passes the body of a function whose signature is broken: it would only
// repeat the error.
func (p *parser) skipBody() {
	for {
		p.Recover()
		p.Lines()
		at := p.I
		if p.I >= len(p.S) || p.Eat('}') {
			return
		}
		if p.Word("func") {
			p.I = at
			return
		}
	}
}

func (p *parser) checkResults(f *Func, results []Type, at int) {
	r := f.Return()
	if r == nil {
		if len(p.Errs.All) == 0 {
			p.Failf(p.I-1, 1, "return", "function @%s does not end with a return", f.Name)
		}
		return
	}
	if len(r.args) != len(results) {
		p.Failf(at, 1, "return", "the signature declares %d results, return gives %d", len(results), len(r.args))
		return
	}
	for i, v := range r.args {
		if !v.typ.Equal(results[i]) {
			p.Failf(at, 1, "return", "result %d is declared %s, return gives %s of type %s", i, results[i], v, v.typ)
		}
	}
}

func (p *parser) input(f *Func) {
	p.Space()
	start := p.I
	p.Expect('%', "before an input's name")
	name := p.Name("an input's name")
	p.Expect(':', "before an input's type")
	t := p.typ()
	spec := NodeSpec{Op: OpInput, Name: name, Results: []Type{t}, Pos: p.Src.PosAt(start)}
	if !p.Bad && p.Peek() == '{' {
		p.Attrs(&spec.Attrs)
	}
	p.tail(&spec)
	if p.Bad {
		return
	}
	if f.Lookup(name) != nil {
		p.Failf(start, len(name)+1, "redefined", "%%%s is defined twice", name)
		return
	}
	f.Append(spec)
}

// node reads one line of a body.
func (p *parser) node(f *Func) {
	start := p.I
	var spec NodeSpec
	spec.Pos = p.Src.PosAt(start)
	count := 0
	if p.Eat('%') {
		spec.Name = p.Name("a name")
		count = 1
		if p.Eat(':') {
			count = int(p.Int("the number of results"))
		}
		p.Expect('=', "after the name")
	}
	p.Space()
	opAt := p.I
	p.opName(&spec, opAt)
	if p.Peek() == '%' {
		p.asked = p.asked[:0]
		spec.Args = append(spec.Args, p.operand(f, len(spec.Args)))
		for !p.Bad && p.Eat(',') {
			spec.Args = append(spec.Args, p.operand(f, len(spec.Args)))
		}
	}
	if !p.Bad && p.Word("on") {
		p.onGroup(&spec)
	}
	if !p.Bad && p.Peek() == '{' {
		p.Attrs(&spec.Attrs)
	}
	if count > 0 || p.Peek() == ':' {
		p.Expect(':', "before the result types")
		spec.Results = append(spec.Results, p.typ())
		for !p.Bad && p.Eat(',') {
			spec.Results = append(spec.Results, p.typ())
		}
	}
	p.tail(&spec)
	p.after(f, &spec)
	p.EndOfLine()
	if p.Bad {
		return
	}
	switch {
	case count != len(spec.Results):
		p.Failf(start, 1, "results", "%d results are named, %d types are given", count, len(spec.Results))
	case spec.Name != "" && f.Lookup(spec.Name) != nil:
		p.Failf(start, len(spec.Name)+1, "redefined", "%%%s is defined twice", spec.Name)
	case spec.Op == OpInput:
		p.Failf(opAt, 5, "syntax", "inputs belong in the function's signature")
	default:
		n := f.Append(spec)
		for _, a := range p.asked {
			a.node = n
			p.versions = append(p.versions, a)
		}
	}
	p.asked = p.asked[:0]
}

// asked is an operand that says which version it is.
type asked struct {
	node   *Node
	arg    int
	writer string
	at     int // where the operand stands
	len    int
}

// checkVersions compares what operands say with the newest versions, which they have got.
func (p *parser) checkVersions() {
	for _, a := range p.versions {
		now := a.node.args[a.arg]
		switch {
		case now.IsVersion() && now.def.name == a.writer:
		case now.IsVersion():
			p.Failf(a.at, a.len, "version", "%s is at version %s here, not @%s", now.Base(), now, a.writer)
		default:
			p.Failf(a.at, a.len, "version", "nothing before this line writes the storage of %s, so there is no %s@%s", now, now, a.writer)
		}
	}
	p.versions = p.versions[:0]
}

// opName reads name or name.reduction.
func (p *parser) opName(spec *NodeSpec, at int) {
	name := p.Ident("an operation")
	if p.Bad {
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
		p.Failf(at, len(name), "unknown-op", "%q is not an operation; an operation of your own is written: call %s{target=%q}", name, "%operands ", name)
	}
	spec.Op = op
}

// operand reads operand arg of a node.
func (p *parser) operand(f *Func, arg int) *Value {
	p.Space()
	start := p.I
	p.Expect('%', "before an operand")
	name := p.Name("an operand's name")
	index := -1
	if !p.Bad && p.I < len(p.S) && p.S[p.I] == '#' {
		p.I++
		index = int(p.Int("a result's number"))
	}
	if !p.Bad && p.I < len(p.S) && p.S[p.I] == '@' {
		p.I++
		writer := p.Name("the node that wrote this version")
		p.asked = append(p.asked, asked{arg: arg, writer: writer, at: start, len: p.I - start})
	}
	if p.Bad {
		return nil
	}
	n := f.Lookup(name)
	switch {
	case n == nil:
		p.Failf(start, p.I-start, "undefined", "%%%s is not defined before this line", name)
	case index < 0 && len(n.results) == 1:
		return n.results[0]
	case index < 0:
		p.Failf(start, p.I-start, "undefined", "%%%s has %d results; say which, as in %%%s#0", name, len(n.results), name)
	case index >= len(n.results) || len(n.results) == 1:
		p.Failf(start, p.I-start, "undefined", "%%%s has %d results, there is no %%%s#%d", name, len(n.results), name, index)
	default:
		return n.results[index]
	}
	return nil
}

func (p *parser) onGroup(spec *NodeSpec) {
	p.Expect('@', "before a group's name")
	at := p.I
	name := p.Name("a group's name")
	if p.Bad {
		return
	}
	if spec.Group = p.m.Group(name); spec.Group == nil {
		p.Failf(at-1, len(name)+1, "undefined", "group @%s is not declared", name)
	}
}

// tail reads the cost and the annotations.
func (p *parser) tail(spec *NodeSpec) {
	if !p.Bad && p.Word("ms") {
		p.Space()
		j := p.I
		for j < len(p.S) && (text.IdentByte(p.S[j]) || p.S[j] == '-' || p.S[j] == '+') {
			j++
		}
		v, err := strconv.ParseFloat(p.S[p.I:j], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			p.Failf(p.I, j-p.I, "syntax", "expected a cost in milliseconds, found %s", p.Found())
			return
		}
		spec.Cost, spec.HasCost = v, true
		p.I = j
	}
	if !p.Bad && p.Peek() == '!' {
		p.I++
		if p.Peek() != '{' {
			p.Failf(p.I, 1, "syntax", "expected '{' after '!', found %s", p.Found())
			return
		}
		p.Attrs(&spec.Meta)
	}
}

// after reads order-only edges.
func (p *parser) after(f *Func, spec *NodeSpec) {
	if p.Bad || !p.Word("after") {
		return
	}
	for first := true; first || !p.Bad && p.Eat(','); first = false {
		p.Space()
		start := p.I
		p.Expect('%', "before the name of a node that has to come first")
		name := p.Name("the name of a node")
		if n := f.Lookup(name); n != nil {
			spec.After = append(spec.After, n)
		} else {
			p.Failf(start, p.I-start, "undefined", "%%%s is not defined before this line", name)
		}
	}
}

func (p *parser) typ() Type {
	if p.Word("async") {
		if !p.Eat('(') {
			return Async(p.tensor())
		}
		var ts []Type
		for !p.Bad && !p.Eat(')') {
			if len(ts) > 0 {
				p.Expect(',', "between the types of an async value")
			}
			ts = append(ts, p.tensor())
		}
		if len(ts) == 0 {
			p.Failf(p.I-1, 1, "syntax", "an async value carries at least one tensor")
		}
		return Async(ts...)
	}
	return p.tensor()
}

func (p *parser) tensor() Type {
	t := p.Tensor(p.known)
	return TensorOf(t.DType, t.Shape).WithSymbolicStrides(t.Strides)
}

// known reports whether a symbol is declared.
func (p *parser) known(sym string) bool { return p.m.Symbol(sym) != nil }

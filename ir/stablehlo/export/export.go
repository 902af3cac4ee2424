package export

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Options say what the text has besides the function.
type Options struct {
	// Constants has what inputs hold that the text is to hold, by input; nil of an argument.
	Constants []*mlir.Literal

	// Barriers hold the order of collectives against compilers that choose their own: one
	// starts behind what is computed before it, and what stands behind its wait follows it.
	Barriers bool
}

// Write writes a function as the module that it is on every rank, and the functions that it
// runs; its own is @main. The error names the node that StableHLO has no words for, or is the
// writer's. The text is the same for the same function.
func Write(w io.Writer, f *ir.Func, o Options) error {
	b := bufio.NewWriterSize(w, 1<<16)
	e := &emitter{w: b, o: o, world: f.Module().World, used: map[string]bool{"main": true}, funcs: map[*ir.Func]string{}}
	if len(o.Constants) > len(f.Inputs()) {
		return fmt.Errorf("export: %d constants for %d inputs of @%s", len(o.Constants), len(f.Inputs()), f.Name)
	}
	fmt.Fprintf(b, "module @%s attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = %d : i32} {\n", symbol(f.Name), e.world)
	e.todo = []*ir.Func{f}
	for i := 0; i < len(e.todo) && e.err == nil; i++ {
		e.function(e.todo[i], i == 0)
	}
	if e.err != nil {
		return e.err
	}
	fmt.Fprint(b, "}\n")
	return b.Flush()
}

// function writes a function: the module's own, or one that a node runs.
func (e *emitter) function(f *ir.Func, own bool) {
	if f.Return() == nil {
		e.err = fmt.Errorf("export: function @%s has no return", f.Name)
		return
	}
	e.vals, e.last = map[*ir.Value][]val{}, nil
	e.signature(f, own)
	for _, n := range f.Order() {
		if e.err != nil {
			return
		}
		switch e.node = n; n.Op() {
		case ir.OpInput:
		case ir.OpReturn:
			out := e.args(n)
			e.lines = append(e.lines, line{nil, 0, []any{"return ", out, " : ", list(out, val.typ)}})
			if len(out) == 0 {
				e.lines[len(e.lines)-1].parts = []any{"return"}
			}
			e.flush("")
		default:
			e.operation(n)
		}
	}
	fmt.Fprint(e.w, "  }\n")
}

// signature writes the head of the function, and what inputs are constants.
func (e *emitter) signature(f *ir.Func, own bool) {
	donated := map[*ir.Node]int{} // look-up only
	for _, d := range f.Donations() {
		k := 0
		for _, v := range f.Return().Args()[:d.Result] {
			k += len(v.Type().Tensors())
		}
		donated[d.Input] = k
	}
	var args []string
	for i, n := range f.Inputs() {
		e.node = n
		if own && i < len(e.o.Constants) && e.o.Constants[i] != nil {
			l := e.o.Constants[i]
			e.vals[n.Result(0)] = []val{e.constant(l.DType, l.Shape, denseText(l.Data, l.DType, l.Shape))}
			e.nameResults(n)
			continue
		}
		ts := n.Result(0).Type().Tensors()
		for k, t := range ts {
			v := of(t.DType(), e.static(t))
			text := n.Name()
			if len(ts) > 1 {
				text = fmt.Sprintf("%s_%d", text, k)
			}
			v.name = &name{e.fresh(text)}
			attrs := ""
			if k, ok := donated[n]; ok {
				attrs = fmt.Sprintf(" {tf.aliasing_output = %d : i32}", k)
			}
			args = append(args, v.String()+": "+v.typ()+attrs)
			e.vals[n.Result(0)] = append(e.vals[n.Result(0)], v)
		}
	}
	var results []string
	e.node = f.Return()
	for _, v := range f.Return().Args() {
		for _, t := range v.Type().Tensors() {
			results = append(results, typeText(t.DType(), e.static(t)))
		}
	}
	name := "public @main"
	if !own {
		name = "private @" + e.funcs[f]
	}
	fmt.Fprintf(e.w, "  func.func %s(%s) -> (%s) {\n", name, strings.Join(args, ", "), strings.Join(results, ", "))
	e.flush("")
}

// static are the sizes of a tensor, which have to be numbers.
func (e *emitter) static(t ir.Type) []int64 {
	s, ok := t.Shape().Static()
	if !ok {
		e.failf("%s has a size that a run decides", t)
	}
	return s
}

// shape is that of a result of the node.
func (e *emitter) shape(i int) []int64 { return e.static(e.node.Result(i).Type()) }

// dtype is the element type of a result of the node.
func (e *emitter) dtype(i int) ir.DType { return e.node.Result(i).Type().DType() }

// args are the tensors of a node's operands, those of one in flight one after the other.
func (e *emitter) args(n *ir.Node) []val {
	var in []val
	for _, a := range n.DeclaredArgs() {
		if a.IsVersion() {
			e.failf("%s is a tensor that was written in place", a)
		}
		in = append(in, e.vals[a]...)
	}
	return in
}

// operation writes a node.
func (e *emitter) operation(n *ir.Node) {
	in := e.args(n)
	for _, v := range n.DeclaredResults() {
		for _, t := range v.Type().Tensors() {
			e.static(t)
		}
	}
	r, ok := rules[n.Op()]
	if !ok {
		e.failf("StableHLO has no such operation")
	}
	if e.err != nil {
		return
	}
	if e.o.Barriers && n.Op().IsCollective() {
		in = e.behind(in)
	}
	out := r(e, in)
	if e.err != nil {
		return
	}
	if e.o.Barriers && n.Op() == ir.OpWaitTensor {
		out = e.behind(out)
	}
	for _, v := range n.DeclaredResults() {
		k := len(v.Type().Tensors())
		if k > len(out) {
			e.failf("%d results", len(out))
			return
		}
		e.vals[v], out = out[:k:k], out[k:]
	}
	if v := e.vals[n.Result(0)]; !n.Op().IsCollective() && len(e.lines) > 0 {
		e.last = &v[0]
	}
	e.nameResults(n)
	e.flush(location(n))
}

// behind ties tensors to the latest one that was computed: who reads them waits for it.
func (e *emitter) behind(vs []val) []val {
	if e.last == nil || len(vs) == 0 {
		return vs
	}
	out := e.several(append([]val{*e.last}, vs...), "stablehlo.optimization_barrier ", append([]val{*e.last}, vs...),
		" : ", list(append([]val{*e.last}, vs...), val.typ))
	return out[1:]
}

// nameResults gives what the node's last operations define the names of its results.
func (e *emitter) nameResults(n *ir.Node) {
	for _, r := range n.DeclaredResults() {
		for _, v := range e.vals[r] {
			if v.text == "" {
				v.text = e.fresh(r.Name())
			}
		}
	}
}

// fresh is a name of the text that no other value has.
func (e *emitter) fresh(s string) string {
	s = symbol(s)
	for base, i := s, 0; e.used[s]; i++ {
		s = fmt.Sprintf("%s_%d", base, i)
	}
	e.used[s] = true
	return s
}

// symbol is a name as MLIR allows it: letters, digits and some signs, and a letter first.
func symbol(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 128 && (letter(byte(r)) || r >= '0' && r <= '9' || r == '.' || r == '$' || r == '-') {
			return r
		}
		return '_'
	}, s)
	if s == "" || !letter(s[0]) {
		s = "v" + s
	}
	return s
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// location is where a node came from, as the text says it: where the program that it was
// read from says it came from, or its place there.
func location(n *ir.Node) string {
	for _, o := range n.Origins() {
		p, ok := o.(*stablehlo.Position)
		switch {
		case !ok:
		case p.Location != "" && !strings.Contains(p.Location, "#"):
			return " loc(" + p.Location + ")"
		default:
			return fmt.Sprintf(" loc(%q:%d:%d)", p.File, p.Line, p.Col)
		}
	}
	return ""
}

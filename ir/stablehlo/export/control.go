package export

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// This file writes control flow: a body is a function of the text, too, which a region calls.

// results are values of the node's results, which it must have.
func (e *emitter) results() (like []val) {
	for i, r := range e.node.DeclaredResults() {
		like = append(like, of(r.Type().DType(), e.shape(i)))
	}
	if len(like) == 0 {
		e.failf("it has no result")
	}
	return like
}

// callee is the name of a function that the node runs.
func (e *emitter) callee(f *ir.Func) string {
	if _, ok := e.funcs[f]; !ok {
		e.funcs[f] = e.fresh(f.Name)
		e.todo = append(e.todo, f)
	}
	return e.funcs[f]
}

// region calls a function on values, and gives what that gives.
func (e *emitter) region(f *ir.Func, args []any, types string) []any {
	var to []string
	for _, v := range f.Return().Args() {
		for _, t := range v.Type().Tensors() {
			to = append(to, typeText(t.DType(), e.static(t)))
		}
	}
	all := list(to, func(s string) string { return s })
	result, used := "%.r", "%.r"
	if len(to) > 1 {
		result = fmt.Sprintf("%%.r:%d", len(to))
		used = list(every(len(to)), func(i int64) string { return fmt.Sprintf("%%.r#%d", i) })
	}
	out := append([]any{"      ", result, " = func.call @", e.callee(f), "("}, args...)
	return append(out, ") : (", types, ") -> (", all, ")\n      stablehlo.return ", used, " : ", all, "\n    }")
}

// while carries its first operands; its regions see the others.
func while(e *emitter, vs []val) []val {
	carried := vs[:e.node.Carried()]
	if len(carried) == 0 {
		e.failf("a loop that carries nothing")
		return nil
	}
	parts := []any{"stablehlo.while("}
	var args []any
	for i, v := range vs {
		if i > 0 {
			args = append(args, ", ")
		}
		if i >= len(carried) {
			args = append(args, v)
			continue
		}
		if i > 0 {
			parts = append(parts, ", ")
		}
		own := fmt.Sprintf("%%.v%d", i)
		parts, args = append(parts, own, " = ", v), append(args, own)
	}
	parts = append(parts, ") : ", list(carried, val.typ), "\n    ")
	for i, f := range e.node.Bodies() {
		parts = append(parts, []string{"cond {\n", " do {\n"}[i])
		parts = append(parts, e.region(f, args, list(vs, val.typ))...)
	}
	return e.several(carried, parts...)
}

// choice runs one of some functions: the last for a number that there is not, before that is
// cut to 32 bits.
func choice(e *emitter, vs []val) []val {
	bodies := e.node.Bodies()
	at, args := vs[0], vs[1:]
	if at.dt == ir.Bool || at.dt.Size() < 4 {
		at = e.to(at, ir.I32)
	}
	last := e.whole(int64(len(bodies)-1), at.dt, at.shape)
	known := e.compare("LE", at, last)
	if !at.dt.IsUnsigned() {
		known = e.simple("stablehlo.and", known, e.compare("GE", at, e.whole(0, at.dt, at.shape)))
	}
	at = e.to(e.choose(known, at, last), ir.I32)
	like := e.results()
	if len(like) == 0 {
		return nil
	}
	parts := []any{`"stablehlo.case"(`, at, ") ("}
	for i, f := range bodies {
		if i > 0 {
			parts = append(parts, ", ")
		}
		parts = append(parts, "{\n")
		parts = append(parts, e.region(f, []any{args}, list(args, val.typ))...)
	}
	return e.several(like, append(parts, ") : (", at.typ(), ") -> ", resultTypes(like))...)
}

package decompose

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Looper is an Emitter whose module takes functions, which bodies of loops are.
type Looper interface {
	Emitter
	// Body begins a function that has inputs of those types. End ends it with its results and returns
	// it, or nil if something in it was refused.
	Body(what string, types []ir.Type) (body Looper, in []*ir.Value, end func(outs []*ir.Value) *ir.Func)
}

// Loop runs a body so many times, or as long as more, if it is not nil, gives true of the state, i.e.
// one element. The body makes the next state, of the same types, of its iteration, which counts from 0 as
// i64[1], of the state and of what stays as it is. All are in row-major order, and a body reads nothing
// else of the function.
func Loop(to Looper, iterations int64, state, fixed []*ir.Value, more func(e Looper, state []*ir.Value) *ir.Value, body func(e Looper, iteration *ir.Value, state, fixed []*ir.Value) []*ir.Value) []*ir.Value {
	e := emit{to}
	args := []*ir.Value{e.integer(ir.I64, 0, 1)}
	for _, x := range slices.Concat(state, fixed) {
		args = append(args, e.dense(x))
	}
	types := make([]ir.Type, len(args))
	for k, x := range args {
		types[k] = x.Type()
	}
	carried := 1 + len(state)
	test, in, end := to.Body("cond", types)
	t := emit{test}
	goes := t.with(ir.OpLt, in[0], iterations)
	if more != nil {
		goes = t.binary(ir.OpLogicalAnd, goes, t.view(more(test, in[1:carried]), []int64{1}))
	}
	cond := end([]*ir.Value{t.view(goes, nil)})
	step, in, end := to.Body("body", types)
	b := emit{step}
	next := append([]*ir.Value{b.with(ir.OpAdd, in[0], 1)}, body(step, in[0], in[1:carried], in[carried:])...)
	for k, x := range next {
		next[k] = b.dense(x)
	}
	f := end(next)
	if cond == nil || f == nil {
		return state
	}
	DonateCarried(f, carried)
	attrs := ir.A(ir.CondKey, cond.Name, ir.BodyKey, f.Name)
	if more == nil {
		attrs = ir.A(ir.CondKey, cond.Name, ir.BodyKey, f.Name, "trips", iterations)
	}
	return to.Op(ir.OpWhile, nil, attrs, args, types[:carried]...)[1:]
}

// DonateCarried lets the next value of what a loop carries be computed in the place of the last, where
// nothing else of the body's results lies. Carried are the first of the body's inputs.
func DonateCarried(body *ir.Func, carried int) {
	st, err := ir.ComputeStorages(body)
	if err != nil || body.Return() == nil {
		return // the module's final check reports why
	}
	outs := body.Return().Args()
	owner := make([]int, st.Len()) // by storage: 1 and the number of the input that it is, 0 of others
	for i, n := range body.Inputs() {
		owner[st.Of(n.Result(0))[0].Storage] = i + 1
	}
	lies := map[ir.StorageID]int{} // how many results lie in a storage; look-up only
	for _, v := range outs {
		lies[st.Of(v)[0].Storage]++
	}
	for k, n := range body.Inputs()[:carried] {
		own, got := st.Of(n.Result(0))[0].Storage, st.Of(outs[k])[0].Storage
		others := lies[own]
		if own == got {
			others--
		}
		if others == 0 && (owner[got] == 0 || own == got) && outs[k].Type().Equal(n.Result(0).Type()) {
			body.SetAttrs(n, n.Attrs().With(ir.DonateKey, ir.A("v", int64(k))[0].Val))
		}
	}
}

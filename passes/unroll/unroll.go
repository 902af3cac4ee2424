// Package unroll has pass unroll: loops with constant trip counts are unrolled.
package unroll

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/loops"
)

// Pass unrolls a while, one iteration after the other, where constants say how many
// there are and a budget allows it. The loop's counter is then a number in every iteration, so that rows
// that are read and written at it are slices: what one iteration puts into a stack and another takes
// out is handed over (canonicalize), collectives of one iteration run beside the one before (overlap),
// and no host looks at a number between iterations.
//
// Where the budget does not allow all of a loop, several of its iterations become one: collectives of
// all but the first of them then start before the iteration that they are for, as far as later passes like.
// A loop whose length is no multiple stays as it is, and so does one that is longer than package
// equiv follows.
//
// Numbers are followed through integers of few elements, by the kernels of the host. Linear in what
// comes out.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "unroll",
		Doc:  "Unrolls loops whose trip count follows from constants.",
		Options: []passes.Option{
			{Name: "nodes", Kind: passes.KindInt, Default: "16384", Doc: "operations of all unrolled iterations of a function, at most"},
			{Name: "bytes", Kind: passes.KindBytes, Default: "0", Doc: "memory of all values of these iterations, at most; 0 for any"},
			{Name: "factor", Kind: passes.KindInt, Default: "4", Doc: "factor by which loops beyond the budget are unrolled, at most; 1: they are not"},
		},
		Stats: []passes.Stat{
			{Name: "loops", Doc: "loops that were unrolled"},
			{Name: "iterations", Doc: "their iterations"},
			{Name: "nodes", Doc: "operations of these iterations"},
			{Name: "widened", Doc: "loops unrolled by a factor"},
			{Name: "large", Doc: "loops of known length that are beyond the budget, and were not widened"},
			{Name: "unknown", Doc: "loops whose length a run decides"},
		},
		Run: run,
	}
}

func run(ctx *passes.Context, f *ir.Func) error {
	u := &unroller{ctx: ctx, f: f, nodes: ctx.Int("nodes"), bytes: ctx.Bytes("bytes"), known: loops.NewKnown(f)}
	if u.bytes == 0 {
		u.bytes = -1
	}
	tried := map[*ir.Node]bool{}
	for again := true; again; { // loops in bodies become loops of f
		again = false
		for _, n := range f.Order() {
			if n.Op() != ir.OpWhile || tried[n] {
				continue
			}
			tried[n] = true
			if again = u.loop(n); again {
				break
			}
		}
	}
	return nil
}

// unroller unrolls the loops of a function.
type unroller struct {
	ctx   *passes.Context
	f     *ir.Func
	nodes int64 // what is left of the budget
	bytes int64 // the same, -1 for any
	known *loops.Known
}

// loop unrolls n, and reports whether it did.
func (u *unroller) loop(n *ir.Node) bool {
	cond, body := n.Bodies()[0], n.Bodies()[1]
	size := int64(len(cond.Order()) + len(body.Order()))
	state := u.known.State(n)
	trips, _, end := loops.Count(n, state, loops.MaxProved, u.ctx.Tick)
	switch end {
	case loops.Unknown:
		u.ctx.Count("unknown", 1)
		return false
	case loops.Long:
		u.ctx.Count("large", 1)
		return false
	}
	if !u.ctx.Enable(n.Name()) {
		return false
	}
	bytes := u.made(body)
	if !u.allows(trips*size, trips*bytes) {
		for k := min(u.ctx.Int("factor"), trips-1); k > 1; k-- {
			if trips%k == 0 && u.allows(k*size, k*bytes) && u.mine(n) {
				u.take(k*size, k*bytes)
				u.widen(n, int(k), trips)
				u.ctx.Count("widened", 1)
				return false
			}
		}
		u.ctx.Count("large", 1)
		return false
	}
	u.ctx.Count("loops", 1)
	u.ctx.Count("iterations", float64(trips))
	u.ctx.Count("nodes", float64(trips*size))
	u.take(trips*size, trips*bytes)
	u.inline(n, int(trips), state)
	return true
}

// allows reports whether so much is left of the budget.
func (u *unroller) allows(nodes, bytes int64) bool {
	return nodes <= u.nodes && (u.bytes < 0 || bytes <= u.bytes)
}

func (u *unroller) take(nodes, bytes int64) {
	u.nodes -= nodes
	if u.bytes >= 0 {
		u.bytes -= bytes
	}
}

// mine reports whether no other node runs the body of a loop, and no carried tensor of it lies in
// the place of another in the next iteration.
func (u *unroller) mine(n *ir.Node) bool {
	body := n.Bodies()[1]
	for _, f := range u.f.Module().Funcs() {
		for _, m := range f.Order() {
			if m != n && slices.Contains(m.Bodies(), body) {
				return false
			}
		}
	}
	for k, v := range body.Return().Args() {
		if d := ir.StorageOf(v).Def(); d.Op() == ir.OpInput && d != body.Inputs()[k] {
			return false
		}
	}
	return n.Bodies()[0] != body
}

// widen makes one iteration of k. The body gets another name, as it means something else.
func (u *unroller) widen(n *ir.Node, k int, trips int64) {
	body, name := n.Bodies()[1], ""
	for i := k; name == "" || u.f.Module().Func(name) != nil; i++ {
		name = fmt.Sprintf("%s.x%d", body.Name, i)
	}
	body.Name = name
	u.f.SetAttrs(n, n.Attrs().With(ir.BodyKey, attr.String(name)))
	ret, nodes := body.Return(), slices.Clone(body.Order())
	last := slices.Clone(ret.Args())
	vals := slices.Clone(last)
	for range k - 1 {
		r := &loops.Iteration{Func: body, At: ret, Now: map[*ir.Value]*ir.Value{}}
		for i, in := range body.Inputs() {
			v := in.Result(0)
			if r.Now[v] = v; i < n.Carried() {
				r.Now[v] = r.As(vals[i], v.Type())
			}
		}
		r.Copy(nodes)
		for i, v := range last {
			vals[i] = r.Now[v]
		}
	}
	body.SetArgs(ret, vals...)
	if n.Attrs().Has("trips") {
		u.f.SetAttrs(n, n.Attrs().With("trips", attr.Int(trips/int64(k))))
	}
}

// made is how many bytes the values of a body have that are no views.
func (u *unroller) made(body *ir.Func) int64 {
	total := int64(0)
	for _, n := range body.Order() {
		for _, v := range n.Results() {
			if n.Op() != ir.OpInput && v.Aliases() == nil {
				for _, t := range v.Type().Tensors() {
					total += u.f.Module().Bound(t.Bytes())
				}
			}
		}
	}
	return total
}

// inline puts so many iterations in place of n.
func (u *unroller) inline(n *ir.Node, trips int, known []*hostops.Tensor) {
	body, carried := n.Bodies()[1], n.Carried()
	vals := slices.Clone(n.Args())
	for range trips {
		u.ctx.Tick()
		r := &loops.Iteration{Func: u.f, At: n, From: n, Known: loops.Numbers(body, known), Now: map[*ir.Value]*ir.Value{}}
		r.Begin(body, vals)
		r.Copy(body.Order())
		next := make([]*hostops.Tensor, carried)
		for k, v := range body.Return().Args() {
			next[k], vals[k] = r.Known[v], r.Now[v]
		}
		known = append(next, known[carried:]...)
	}
	(&loops.Iteration{Func: u.f, At: n, From: n}).Replace(n, vals)
}

// Package reuse has pass reuse-buffers, which computes results in place of operands.
package reuse

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// reuse-buffers decides which results lie in place of an operand: all_reduce and
// broadcast on operands that nobody needs afterwards, and launches that read an
// element before they overwrite it, fused launches among them where what depends on the
// operand is elementwise. The decision is the annotation inplace, which
// lowering follows; there are no copies to be saved otherwise, since a result that
// cannot take over its operand gets a buffer of its own, and only an operand with
// gaps is copied before a collective.
//
// A result takes over the first operand for which package place finds it legal,
// whose storage it covers (else the rest of the storage would live on with it),
// and which is the program's own: never a parameter or data, and an activation or
// a tangent that the caller hands over only where inputs=dying says so. An input that
// is donated is taken over by the result that it is donated to and nothing else: in
// place where the result's launch reads it (inplace), and where every read of it comes
// before (home). If neither is legal, lowering copies the result at the end. Memory
// cannot grow: where the operand would have been freed and the result allocated,
// now neither happens, and live memory is otherwise the same.
//
// What it does not do: reduce_scatter into its operand, all_gather around it. Their
// piece lies at a place that depends on the rank, and offsets must not. Nor
// collective_permute, whose operand is still on its way out while the result
// arrives. O(nodes + uses).
func Pass() passes.Pass {
	return passes.Pass{
		Name: "reuse-buffers",
		Doc:  "Puts results in place of operands that are not needed any more.",
		Options: []passes.Option{
			{Name: "collectives", Kind: passes.KindBool, Default: "true", Doc: "all_reduce and broadcast in place"},
			{Name: "launches", Kind: passes.KindBool, Default: "true", Doc: "elementwise operations, softmax, cumsum and updates in place"},
			{Name: "updates", Kind: passes.KindBool, Default: "true", Doc: "among the launches: cumsum and updates of a part of the operand, whose compiled kernels want result and operand apart"},
			{Name: "inputs", Kind: passes.KindString, Default: "keep", Choices: []string{"keep", "dying"}, Doc: "inputs that may be overwritten: none, or saved activations and tangents after their last use"},
		},
		Stats: []passes.Stat{
			{Name: "collectives", Doc: "collective operands that a result takes over"},
			{Name: "launches", Doc: "operands of launches that the result takes over"},
			{Name: "bytes", Doc: "bytes of the results that need no buffer of their own"},
			{Name: "donated", Doc: "results that lie in place of the inputs donated to them"},
			{Name: "donated-copied", Doc: "results that are copied there at the end"},
			{Name: "kept-needed", Doc: "results of all_reduce and broadcast with a buffer of their own because the operand is needed again or in flight"},
			{Name: "kept-caller", Doc: "the same because the operand belongs to the caller"},
			{Name: "kept-part", Doc: "the same because the operand is a part of its storage or of another layout"},
			{Name: "bound-before-bytes", Doc: "least memory that the function's buffers need, before the pass"},
			{Name: "bound-after-bytes", Doc: "the same after the pass"},
		},
		Places:       true,
		FunctionPass: true,
		Run:          runReuseBuffers,
	}
}

func runReuseBuffers(ctx *passes.Context, f *ir.Func) error {
	before, after, err := Run(f, &Reuser{Collectives: ctx.Bool("collectives"), Launches: ctx.Bool("launches"), updates: ctx.Bool("updates"),
		Dying: ctx.Str("inputs") == "dying", Enable: ctx.Enable, Count: ctx.Count})
	if err != nil {
		return err
	}
	ctx.Count("bound-before-bytes", float64(before))
	ctx.Count("bound-after-bytes", float64(after))
	return nil
}

// Run decides about every node of f, and returns the least memory that its buffers
// need before and after.
func Run(f *ir.Func, r *Reuser) (before, after int64, err error) {
	for _, n := range f.Order() {
		if meta := n.Meta().Without(place.InPlaceKey).Without(place.HomeKey); !meta.Equal(n.Meta()) {
			f.SetMeta(n, meta)
		}
	}
	if before, err = leastMemory(f); err != nil {
		return 0, 0, err
	}
	if r.a, err = place.Analyse(f); err != nil {
		return 0, 0, err
	}
	for _, n := range f.Order() {
		if list := r.home(n); list != nil {
			f.SetMeta(n, n.Meta().With(place.HomeKey, attr.Ints(list...)))
			continue
		}
		wanted := n.Op().Class() != ir.ClassView && r.Launches && (r.updates || n.Op() == ir.OpWhile || place.KernelInPlace(n.Op()))
		if n.Op().IsCollective() {
			wanted = r.Collectives
		}
		if !wanted || len(n.Args()) == 0 || len(n.Results()) != 1 && n.Op() != ir.OpWhile || n.Op() == ir.OpWaitTensor || r.a.Inside(n) {
			continue
		}
		if list := r.node(n); list != nil {
			f.SetMeta(n, n.Meta().With(place.InPlaceKey, attr.Ints(list...)))
		}
	}
	l, err := place.Of(f)
	if err != nil {
		return 0, 0, err
	}
	for _, h := range l.Donated {
		stat := "donated"
		if h.Copied {
			stat = "donated-copied"
		}
		r.Count(stat, 1)
	}
	after, err = l.Bound()
	return before, after, err
}

// leastMemory is the largest sum of buffers that live together.
func leastMemory(f *ir.Func) (int64, error) {
	l, err := place.Of(f)
	if err != nil {
		return 0, err
	}
	return l.Bound()
}

// home returns the annotation of n where some result takes the place of a donated input
// that n does not read; nil if none does.
func (r *Reuser) home(n *ir.Node) []int64 {
	var list []int64
	found := false
	for _, v := range n.DeclaredResults() {
		for range v.Type().Tensors() {
			in := int64(r.a.Home(n, len(list)))
			found = found || in >= 0
			list = append(list, in)
		}
	}
	if !found || !r.Enable(n.Name()) {
		return nil
	}
	return list
}

// Reuser is the state of one run.
type Reuser struct {
	a                              *place.Analysis
	Collectives, Launches, updates bool // the options
	Dying                          bool // inputs that die may be overwritten
	Enable                         func(site string) bool
	Count                          func(stat string, by float64)
}

// node returns the annotation of n, nil if no result takes over an operand.
func (r *Reuser) node(n *ir.Node) []int64 {
	var ts []ir.Type
	for _, v := range n.DeclaredResults() {
		ts = append(ts, v.Type().Tensors()...)
	}
	list := make([]int64, len(ts))
	found, asked := false, false
	for k, t := range ts {
		list[k] = -1
		operand, why := r.operand(n, k)
		if operand < 0 {
			if n.Op().IsCollective() && why != "" {
				r.Count(why, 1)
			}
			continue
		}
		if !asked {
			asked = true
			if !r.Enable(n.Name()) {
				return nil
			}
		}
		list[k], found = int64(operand), true
		stat := "launches"
		if n.Op().IsCollective() {
			stat = "collectives"
		}
		r.Count(stat, 1)
		r.Count("bytes", float64(r.a.Size(t)))
	}
	if !found {
		return nil
	}
	return list
}

// operand finds the operand that tensor k takes over, or -1 and a statistic that
// says why the operand of a collective is not.
func (r *Reuser) operand(n *ir.Node, k int) (operand int, why string) {
	for i, v := range r.a.Operands(n) {
		if r.a.Donated(n, k, v) && r.a.InPlace(n, k, i) == nil {
			return i, ""
		}
	}
	for i, v := range r.a.Operands(n) {
		if n.Op().IsCollective() && i != k {
			continue
		}
		err := r.a.InPlace(n, k, i)
		switch {
		case err == nil && !r.Dying && r.a.Input(v) != nil:
			why = "kept-caller"
		case err == nil && !r.a.Whole(v):
			why = "kept-part"
		case err == nil:
			return i, ""
		default:
			why = keptBecause[err.Hazard]
		}
	}
	return -1, why
}

// keptBecause names the statistic that counts a hazard of a collective.
var keptBecause = map[place.Hazard]string{
	place.Needed:    "kept-needed",
	place.InFlight:  "kept-needed",
	place.Shared:    "kept-needed",
	place.Opaque:    "kept-needed",
	place.Callers:   "kept-caller",
	place.OtherType: "kept-part",
}

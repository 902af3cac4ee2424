package standard

import (
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// plan-memory gives every buffer its offset in the one arena of the device: the
// same on every rank and in every run. Two buffers share bytes only if every use
// of one is ordered before every use of the other; the head of package lower says
// why that holds for buffers whose lifetimes are apart in list order, and the
// program checker proves it of every program.
//
// The problem is rectangle packing with fixed times. Best fit in several orders
// and a repair of the best one come within half a percent of the lower bound on
// graphs of thousands of buffers; where they do not come within a thousandth, small
// functions are searched. The offsets are annotations (see package place), which
// lowering copies; what changes the function afterwards makes them stale, which
// lowering notices. Near-linear in the buffers.
func planMemory() passes.Pass {
	return passes.Pass{
		Name: "plan-memory",
		Doc:  "Gives every buffer a fixed offset in the arena.",
		Options: []passes.Option{
			{Name: "capacity", Kind: passes.KindBytes, Default: "0", Doc: "largest arena allowed, 0 for any; more is an error that names the tensors at the peak"},
		},
		Stats: []passes.Stat{
			{Name: "buffers", Doc: "buffers placed"},
			{Name: "arena-bytes", Doc: "size of the arena"},
			{Name: "bound-bytes", Doc: "no plan is smaller than this"},
		},
		Places:       true,
		FunctionPass: true,
		Run:          runPlanMemory,
	}
}

func runPlanMemory(ctx *passes.Context, f *ir.Func) error {
	l, err := place.Of(f)
	if err != nil {
		return err
	}
	plan, err := l.Place(ctx.Ctx, ctx.Bytes("capacity"))
	if err != nil {
		return err
	}
	if ctx.Enable(f.Name) {
		l.Annotate(plan.Offsets)
	}
	ctx.Count("buffers", float64(len(l.Buffers)))
	ctx.Count("arena-bytes", float64(plan.Height))
	ctx.Count("bound-bytes", float64(plan.Bound))
	return nil
}

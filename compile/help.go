package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
)

// Help is what a schedule would gain if something were twice as fast: the collectives of a
// group, or what computes. Times are in milliseconds.
type Help struct {
	Group       string // of the collectives, empty for what computes
	Ranks       int    // that communicate with each other
	Domains     int    // NVLink domains that they are in, 0 if the costs know no machine
	Collectives int
	Busy        float64 // of the group's stream, or of what computes
	Exposed     float64 // computing waits for collectives of this group
	Gain        float64 // the makespan is shorter by as much
}

// Helps says what would make a function faster in the order that it has: each group, and what
// computes, twice as fast. The largest gain comes first. Errors are Simulate's.
func (f *Function) Helps() ([]Help, error) {
	model := f.result.costs
	_, now, err := Simulate(f.Func, model)
	if err != nil {
		return nil, err
	}
	out := []Help{{Busy: now.Compute}}
	groups := []*ir.Group{nil}
	for i, n := range f.Func.Order() {
		switch {
		case n.Op().IsCollective() && n.Group() != nil:
			h := &out[groupAt(&out, &groups, n.Group(), model)]
			h.Collectives++
			h.Busy += now.End[i] - now.Begin[i]
		case n.Op() == ir.OpWaitTensor && n.Arg(0).Def().Group() != nil:
			out[groupAt(&out, &groups, n.Arg(0).Def().Group(), model)].Exposed += max(0, now.End[i]-now.Issue[i])
		}
	}
	for k := range out {
		then, err := f.faster(model, groups[k])
		if err != nil {
			return nil, err
		}
		out[k].Gain = max(0, now.Makespan-then)
	}
	slices.SortStableFunc(out, func(a, b Help) int { return cmp.Compare(b.Gain, a.Gain) })
	return slices.DeleteFunc(out, func(h Help) bool { return h.Gain <= 0.001*now.Makespan }), nil
}

// String says it in a sentence.
func (h Help) String() string {
	figure := func(ms float64) string {
		if ms < 1 {
			return fmt.Sprintf("%.4f", ms)
		}
		return fmt.Sprintf("%.2f", ms)
	}
	if h.Group == "" {
		return fmt.Sprintf("%s ms less if twice as fast: computing, %s ms", figure(h.Gain), figure(h.Busy))
	}
	s := fmt.Sprintf("%s ms less if twice as fast: collectives on @%s (%d), busy %s ms and exposed %s", figure(h.Gain), h.Group, h.Collectives, figure(h.Busy), figure(h.Exposed))
	if h.Domains > 0 {
		s += fmt.Sprintf(", %d ranks in NVLink domains (%d)", h.Ranks, h.Domains)
	}
	return s
}

// groupAt is the place of a group's entry, which it makes.
func groupAt(out *[]Help, groups *[]*ir.Group, g *ir.Group, model *cost.Model) int {
	if i := slices.Index(*groups, g); i >= 0 {
		return i
	}
	h := Help{Group: g.Name, Ranks: g.Size()}
	if model.Machine != nil {
		h.Domains = model.Machine.Span(g.Ranks).Domains
	}
	*out, *groups = append(*out, h), append(*groups, g)
	return len(*out) - 1
}

// faster is the makespan if the collectives of a group, or what computes for nil, took half as long.
func (f *Function) faster(model *cost.Model, g *ir.Group) (float64, error) {
	half := func(n *ir.Node) float64 {
		ms, _ := model.NodeMs(n)
		if n.Op().IsCollective() && n.Group() == g || g == nil && !n.Op().IsCollective() {
			ms /= 2
		}
		return ms
	}
	_, tl, err := simulate(f.Func, half)
	if err != nil {
		return 0, err
	}
	return tl.Makespan, nil
}

package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sim"
)

// Bottleneck is what a schedule would gain if something were twice as fast: the collectives of a
// group, or compute. For stages, all figures but the gain are those of the stage with the most.
// Times are in milliseconds.
type Bottleneck struct {
	Group       string // of the collectives; empty for compute and for transfers between stages
	Ranks       int    // that communicate with each other
	Domains     int    // NVLink domains that they are in, 0 if the costs know no machine
	Stages      int    // of all collectives between stages: the number of stages
	Collectives int
	Busy        float64 // time of the group's stream, or of compute
	Exposed     float64 // compute waits for collectives of this group
	Gain        float64 // reduction of the makespan
}

// Bottlenecks returns what each group, and compute, would gain the function in its present
// order if twice as fast. The largest gain comes first. Errors are Simulate's.
func (f *Function) Bottlenecks() ([]Bottleneck, error) {
	p := &simulation{funcs: []*ir.Func{f.Func}}
	err := p.model(f.result.costs)
	if err != nil {
		return nil, err
	}
	return p.bottlenecks(f.result.costs)
}

// bottlenecks simulates the functions as they are, and once for each group, and for compute, with that twice as fast.
func (p *simulation) bottlenecks(model *cost.Model) ([]Bottleneck, error) {
	now, err := p.run(nil)
	if err != nil {
		return nil, err
	}
	out := []Bottleneck{{}}
	groups := []*ir.Group{nil}
	at := func(g *ir.Group) int { return groupAt(&out, &groups, g, model) }
	if p.s != nil {
		out, groups = append(out, Bottleneck{Stages: len(p.funcs)}), append(groups, &ir.Group{})
		within := at
		at = func(g *ir.Group) int {
			if p.between(g) {
				return 1
			}
			return within(g)
		}
	}
	for place, f := range p.funcs {
		tl, own := now[place], make([]Bottleneck, len(out)) // of this stage
		own[0].Busy = tl.Compute
		entry := func(g *ir.Group) *Bottleneck {
			k := at(g)
			for k >= len(own) {
				own = append(own, Bottleneck{})
			}
			return &own[k]
		}
		for i, n := range f.Order() {
			switch {
			case n.Op().IsCollective() && n.Group() != nil:
				h := entry(n.Group())
				h.Collectives++
				h.Busy += tl.End[i] - tl.Begin[i]
			case n.Op() == ir.OpWaitTensor && n.Arg(0).Def().Group() != nil:
				entry(n.Arg(0).Def().Group()).Exposed += max(0, tl.End[i]-tl.Issue[i])
			}
		}
		for k, h := range own {
			out[k].Collectives = max(out[k].Collectives, h.Collectives)
			out[k].Busy, out[k].Exposed = max(out[k].Busy, h.Busy), max(out[k].Exposed, h.Exposed)
		}
	}
	for k := range out {
		then, err := p.run(func(n *ir.Node) bool {
			return n.Group() != nil && n.Op().IsCollective() && at(n.Group()) == k || k == 0 && !n.Op().IsCollective()
		})
		if err != nil {
			return nil, err
		}
		out[k].Gain = max(0, makespan(now)-makespan(then))
	}
	slices.SortStableFunc(out, func(a, b Bottleneck) int { return cmp.Compare(b.Gain, a.Gain) })
	return slices.DeleteFunc(out, func(h Bottleneck) bool { return h.Gain <= 0.001*makespan(now) }), nil
}

func makespan(lines []*sim.Timeline) (ms float64) {
	for _, l := range lines {
		ms = max(ms, l.Makespan)
	}
	return ms
}

// String says it in a sentence.
func (h Bottleneck) String() string {
	figure := func(ms float64) string {
		if ms < 1 {
			return fmt.Sprintf("%.4f", ms)
		}
		return fmt.Sprintf("%.2f", ms)
	}
	if h.Stages > 0 {
		return fmt.Sprintf("%s ms less if twice as fast: transfers between %d stages (%d), busy %s ms and exposed %s", figure(h.Gain), h.Stages, h.Collectives, figure(h.Busy), figure(h.Exposed))
	}
	if h.Group == "" {
		return fmt.Sprintf("%s ms less if twice as fast: compute, %s ms", figure(h.Gain), figure(h.Busy))
	}
	s := fmt.Sprintf("%s ms less if twice as fast: collectives on @%s (%d), busy %s ms and exposed %s", figure(h.Gain), h.Group, h.Collectives, figure(h.Busy), figure(h.Exposed))
	if h.Domains > 0 {
		s += fmt.Sprintf(", %d ranks in NVLink domains (%d)", h.Ranks, h.Domains)
	}
	return s
}

// groupAt is the place of a group's entry, which it makes.
func groupAt(out *[]Bottleneck, groups *[]*ir.Group, g *ir.Group, model *cost.Model) int {
	if i := slices.Index(*groups, g); i >= 0 {
		return i
	}
	h := Bottleneck{Group: g.Name, Ranks: g.Size()}
	if model.Machine != nil {
		h.Domains = model.Machine.Span(g.Ranks).Domains
	}
	*out, *groups = append(*out, h), append(*groups, g)
	return len(*out) - 1
}

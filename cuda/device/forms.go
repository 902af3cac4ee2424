package device

import (
	"slices"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/driver"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A collective overlapped with compute takes another form than an exposed one
// (cuda/coll/overlapped.go), and which of the two it is shows once the whole step is collected. So
// it is planned then. Ranks that took different forms would wait for each other until time
// is up. Which compute overlaps with a collective may differ, by programs that are written by
// hand or by libraries that one rank lacks, so the ranks of a group tell each other
// (agree.go), and a collective overlapped with compute on one of them is so on all.

// collective is a call of a step that is being collected.
type collective struct {
	g          *group
	c          rt.Collective
	overlapped bool      // compute overlaps with it
	within     *inMatmul // where it is done within a matmul, see inmatmul.go
	dsts       [][]int64 // of one that tells: by result and place in the group, where it begins there
}

// exchangesAddresses reports whether ranks tell each other where results are: of a transfer between stages
// that the peers' copies may write as it is.
func (k *collective) exchangesAddresses() bool {
	c := &k.c
	for i := range c.Outs {
		if !layout.Alike(c.Ins[i], c.Outs[i]) {
			return false
		}
	}
	return c.CrossStage && c.Op == rt.CollectivePermute
}

// collect adds a collective of which the form is open.
func (r *recording) collect(st *stream, g *group, c *rt.Collective) {
	k := &collective{g: g, c: *c}
	// The caller's lists may hold something else by then.
	k.c.Pairs, k.c.InSplits, k.c.OutSplits = slices.Clone(c.Pairs), cloned(c.InSplits), cloned(c.OutSplits)
	k.c.Ins, k.c.Outs = slices.Clone(c.Ins), slices.Clone(c.Outs)
	for _, list := range [2][]rt.Tensor{k.c.Ins, k.c.Outs} {
		for i := range list {
			list[i].Shape, list[i].Strides = slices.Clone(list[i].Shape), slices.Clone(list[i].Strides)
		}
	}
	r.open[g] = append(r.open[g], k)
	r.add(item{st: st, coll: k})
}

func cloned(lists [][]int64) [][]int64 {
	out := slices.Clone(lists)
	for i := range out {
		out[i] = slices.Clone(out[i])
	}
	return out
}

// findOverlapped sees which collectives overlap with compute on this rank.
func (r *recording) findOverlapped() {
	for k := range r.items {
		if c := r.items[k].coll; c != nil {
			c.overlapped = r.busy(k)
		}
	}
}

// form plans the collectives. All ranks of a group have agreed on the forms, so that they
// agree on the parts of staging, too.
func (r *recording) form() error {
	d := r.d
	next := map[*group]int{} // part of staging that a group's next reduction overlapped with compute begins with
	for k := range r.items {
		i := &r.items[k]
		if i.coll == nil {
			continue
		}
		if w := i.coll.within; w != nil {
			i.plan = w.reduction
			r.hold(w.reduction)
			continue
		}
		g, c, part := i.coll.g, &i.coll.c, alone
		if i.coll.overlapped {
			part = next[g]
		}
		p, err := d.planned(d.collectiveKey(c, part, i.coll.dsts), func() (*plan, error) { return d.planCollective(g, c, part, i.coll.dsts) }, c.Outs, c.Ins)
		if err != nil {
			return d.call(c.Name(), err)
		}
		next[g] = (next[g] + p.parts) % coll.StagingParts
		i.plan = p
		r.hold(p)
	}
	return nil
}

// busy reports whether matmuls or the like run in the compute streams while collective
// k does: between what it waits for and whoever waits for it. Blocks of generated kernels
// are short, and a collective by a kernel becomes resident between them.
func (r *recording) busy(k int) bool {
	st := r.items[k].st
	if compute(st.name) {
		return false
	}
	from := 0
	for i := k - 1; i >= 0; i-- { // the last event of a compute stream that st waited for before
		if w := &r.items[i]; w.st == st && w.wait != 0 {
			if at := r.recordedBefore(i, w.wait); at >= 0 && compute(r.items[at].st.name) {
				from = at
				break
			}
		}
	}
	ours := map[driver.Event]bool{} // events that stand for the collective
	for i := from; i < len(r.items); i++ {
		x := &r.items[i]
		switch {
		case i > k && x.record != 0 && x.st == st:
			ours[x.record] = true
		case i > k && x.record != 0:
			delete(ours, x.record)
		case i > k && x.wait != 0 && ours[x.wait] && compute(x.st.name):
			return false // nothing has been found up to here
		case x.plan != nil && compute(x.st.name) && x.plan.holds():
			return true
		}
	}
	return false
}

// holds reports whether a call may keep multiprocessors until it ends: a library's, and
// one of which nothing is known. Package program answers that by the operation
// (program.Instr.Holds), for simulations, which know of no device: who serves a launch is
// decided here, and a library may serve more than matmuls and attention. For what the
// standard libraries serve the answers are the same, which a test holds them to, but for
// convolutions: programs have kernels for these, which libraries may do without.
func (p *plan) holds() bool { return p.step != nil || p.call != nil }

// recordedBefore is the item that recorded an event last before item k, -1 if none did.
func (r *recording) recordedBefore(k int, ev driver.Event) int {
	for i := k - 1; i >= 0; i-- {
		if r.items[i].record == ev {
			return i
		}
	}
	return -1
}

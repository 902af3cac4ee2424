package device

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A gather or a reduce_scatter that the program marks, and that overlaps with no compute, is fused into
// a matmul. That is a third form of a collective (forms.go), which all ranks of its group have to have.
// What it takes of a reduce_scatter is in scatter.go.
//
// A matmul that waits for a gather gathers (kernels/src/gather.h): it begins with the rank's own rows while those of
// the others come. Such a kernel holds all multiprocessors while it waits for peers. So no other call that waits for
// peers may be under way beside it: each comes before it or behind it, by the order of streams and events,
// on every rank.

// gatherer is a library with matmuls that gather their left operand.
type gatherer interface {
	PlanGather(c *library.Call, a *kernels.Args) (library.Step, error)
}

// inMatmul is a collective's form within a matmul.
type inMatmul struct {
	matmul    int // item
	plan      *plan
	reduction *plan // of a reduce_scatter, in its own place
	moved     []int // items: records of the gather's stream that stand for it, which come after the matmul then
	waits     []int // items by which the matmul's stream waits for them
	events    [2]driver.Event
}

// planWithin plans the collectives that can take place within matmuls, one in each.
func (r *recording) planWithin() error {
	var order order
	taken := map[int]bool{}
	for k := range r.items {
		c := r.items[k].coll
		if c == nil || !c.c.InMatmul || c.overlapped || c.c.CrossStage || len(c.c.Ins) != 1 || c.g.m == nil {
			continue
		}
		if order == nil {
			order = r.order()
		}
		var w *inMatmul
		var err error
		switch c.c.Op {
		case rt.AllGather:
			w, err = r.gathers(order, k)
		case rt.ReduceScatter:
			w, err = r.scatters(order, k)
		}
		switch {
		case errors.Is(err, library.ErrNotServed):
		case err != nil:
			return r.d.call(c.c.Name(), err)
		case w != nil && !taken[w.matmul]:
			c.within, taken[w.matmul] = w, true
		}
	}
	return nil
}

// gathers plans gather k within the matmul that waits for it; nil if there is none.
func (r *recording) gathers(order order, k int) (*inMatmul, error) {
	w := r.taker(k)
	if w == nil || !r.alone(order, k, w.matmul) {
		return nil, nil
	}
	var err error
	w.plan, err = r.gather(r.items[k].coll, r.items[w.matmul].plan)
	for i := range w.events {
		if err == nil {
			w.events[i], err = r.d.own(r.life).Event(false)
		}
	}
	return w, err
}

// taker finds the matmul that a compute stream does next when it has waited for gather k, nil if it does
// something else. Up to there nothing else waits for the gather, or follows it in its stream.
func (r *recording) taker(k int) *inMatmul {
	w, st := &inMatmul{}, r.items[k].st
	ours := map[driver.Event]bool{} // events that stand for the gather
	var main *stream
	for i := k + 1; i < len(r.items); i++ {
		x := &r.items[i]
		switch {
		case x.mark != 0, x.record != 0 && x.st != st && ours[x.record]:
			return nil
		case x.record != 0 && x.st == st:
			ours[x.record], w.moved = true, append(w.moved, i)
		case x.wait != 0 && x.st == st:
			return nil
		case x.wait != 0 && ours[x.wait]:
			if main != nil && main != x.st || !compute(x.st.name) {
				return nil
			}
			main, w.waits = x.st, append(w.waits, i)
		case x.plan == nil && x.coll == nil || x.st != st && !compute(x.st.name):
		case x.st == main && x.plan != nil && x.plan.asked != nil:
			w.matmul = i
			return w
		default:
			return nil
		}
	}
	return nil
}

// order says what has ended when an item begins: by item and stream, the number of items.
type order []map[*stream]int

// order follows streams and events.
func (r *recording) order() order {
	o := make(order, len(r.items))
	now, at := map[*stream]map[*stream]int{}, map[driver.Event]map[*stream]int{}
	for i := range r.items {
		x := &r.items[i]
		o[i] = map[*stream]int{}
		for _, m := range []map[*stream]int{now[x.st], at[x.wait]} {
			for s, n := range m {
				o[i][s] = max(o[i][s], n)
			}
		}
		after := maps.Clone(o[i])
		if x.plan != nil || x.coll != nil {
			after[x.st] = i + 1
		}
		now[x.st] = after
		if x.record != 0 {
			at[x.record] = after
		}
	}
	return o
}

// alone reports whether no compute overlaps with gather k, and every other call that may wait for peers has
// ended when matmul j begins, or begins when it has ended.
func (r *recording) alone(o order, k, j int) bool {
	main := r.items[j].st
	for i := range r.items {
		x := &r.items[i]
		waits := x.coll != nil || x.plan != nil && (x.plan.group != nil || x.plan.call != nil)
		switch {
		case i == k || i == j || x.plan == nil && x.coll == nil:
		case i < j && o[j][x.st] <= i && waits,
			i < k && o[k][x.st] <= i && compute(x.st.name),
			i > j && o[i][main] <= j && waits:
			return false
		}
	}
	return true
}

// notServed says why a collective and a matmul stay two calls.
func notServed(why string) error { return fmt.Errorf("%w: %s", library.ErrNotServed, why) }

// gather plans the gather and the matmul as one call. Errors that wrap library.ErrNotServed mean that they stay two.
func (r *recording) gather(c *collective, matmul *plan) (*plan, error) {
	d, in, out, asked := r.d, c.c.Ins[0], c.c.Outs[0], matmul.asked
	first := true // the dimensions before the gathered one have one element
	for _, n := range in.Shape[:min(c.c.Dim, len(in.Shape))] {
		first = first && n == 1
	}
	all, depth := asked.Ins[0], asked.Ins[0].Shape[len(asked.Ins[0].Shape)-1]
	switch {
	case !first || !in.Dense() || !out.Dense() || in.DType != all.DType:
		return nil, notServed("the gather")
	case all.At != d.at(out) || intmath.Product(all.Shape) != out.NumElems():
		return nil, notServed("the matmul reads something else")
	case extent(asked.Ins[1]).Overlaps(library.Memory{At: d.at(out), Bytes: uint64(out.Bytes())}):
		return nil, notServed("both operands are gathered")
	case depth == 0 || in.NumElems()%depth != 0:
		return nil, notServed("rows of several ranks")
	}
	lo, hi, err := in.Span()
	if err != nil {
		return nil, err
	}
	own := library.Memory{At: d.base + driver.Ptr(lo), Bytes: uint64(hi - lo)}
	place := d.at(out) + driver.Ptr(int64(c.g.pos)*in.Bytes())
	p := newCollective(c.g, &c.c)
	p.name, p.stream = p.name+", "+matmul.name, matmul.stream
	switch {
	case own.At == place:
	case own.Overlaps(library.Memory{At: d.at(out), Bytes: uint64(out.Bytes())}):
		return nil, notServed("the rank's own rows lie where others come")
	case own.Overlaps(extent(asked.Outs[0])): // which is written while they are read
		p.cmds.Copy(driver.Main, place, own.At, own.Bytes)
		own.At = place
	}
	call := *asked
	call.Op = kernels.AllGatherMatmul.String()
	if n := d.domain.World.Sharing(); n > 1 { // ranks on this device wait for each other
		call.SMs = max(1, min(d.rank.Info.SMs, cmp.Or(call.SMs, d.rank.Info.SMs))/n)
	}
	call.Ins = []library.Tensor{{At: own.At, DType: in.DType, Shape: []int64{in.NumElems() / depth, depth}, Strides: []int64{depth, 1}}, asked.Ins[1]}
	call.Outs = []library.Tensor{all, asked.Outs[0]}
	err = notServed("no library")
	for _, l := range d.libs {
		if g, ok := l.(gatherer); ok && err != nil {
			err = d.planGather(p, g, &call)
		}
	}
	return p, err
}

// planGather plans a call of a library as one of the plan's group.
func (d *Device) planGather(p *plan, l gatherer, call *library.Call) error {
	prepared, err := p.group.m.PrepareOwn(kernels.AllGatherMatmul, func(a *kernels.Args, c *driver.Commands) error {
		step, err := l.PlanGather(call, a)
		if err != nil {
			return err
		}
		p.algo = step.String()
		p.group.names.Keep(a.Seq, p.name)
		step.AddTo(c)
		return nil
	})
	if err == nil {
		prepared.AddTo(&p.cmds)
	}
	return err
}

// extent is the memory from a tensor's first to its last element.
func extent(t library.Tensor) library.Memory {
	last := int64(1)
	for i, n := range t.Shape {
		last += (n - 1) * t.Strides[i]
	}
	return library.Memory{At: t.At, Bytes: uint64(last * int64(t.DType.Size()))}
}

// placeWithin puts collectives within matmuls where all ranks do: the stream of a gather continues after the matmul.
func (r *recording) placeWithin() {
	r.placeScatters()
	gathers, drop := map[int]int{}, map[int]bool{} // look-up only
	for k := range r.items {
		if c := r.items[k].coll; c != nil && c.within != nil && c.within.reduction == nil {
			gathers[c.within.matmul] = k
			for _, i := range slices.Concat(c.within.moved, c.within.waits) {
				drop[i] = true
			}
		}
	}
	if len(gathers) == 0 {
		return
	}
	var out []item
	for i, x := range r.items {
		k, takes := gathers[i]
		switch {
		case drop[i]:
		case x.coll != nil && x.coll.within != nil && x.coll.within.reduction == nil:
			out = append(out, item{st: x.st, record: x.coll.within.events[0]})
		case takes:
			w, st := r.items[k].coll.within, r.items[k].st
			r.hold(w.plan)
			out = append(out, item{st: x.st, wait: w.events[0]}, item{st: x.st, plan: w.plan}, item{st: x.st, record: w.events[1]}, item{st: st, wait: w.events[1]})
			for _, m := range w.moved {
				out = append(out, r.items[m])
			}
		default:
			out = append(out, x)
		}
	}
	r.items = out
}

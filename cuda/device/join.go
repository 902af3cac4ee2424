package device

import (
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

// join replaces matmuls that follow each other in a stream by one launch where the
// library has one for them.
func (r *recording) join() error {
	for k := 0; k < len(r.items); k++ {
		first, ok := r.items[k].joiner()
		if !ok {
			continue
		}
		var at []int
		var next []library.Step
		for i := k + 1; i < len(r.items); i++ {
			x := &r.items[i]
			if x.bracket != nil {
				break
			}
			if x.st != r.items[k].st {
				continue // other streams neither help nor hinder: what orders them is events
			}
			if x.plan == nil || x.plan.step == nil {
				break
			}
			at, next = append(at, i), append(next, x.plan.step)
		}
		if len(next) == 0 {
			continue
		}
		step, n, err := first.Join(next)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		p := &plan{name: r.items[k].plan.name, algo: step.String(), step: step}
		step.AddTo(&p.cmds)
		for _, i := range at[:n] {
			p.name += ", " + r.items[i].plan.name
		}
		if log := r.d.opts.Log; log != nil {
			log.Info("joined", "rank", r.d.spec.Rank, "names", p.name, "algorithm", p.algo)
		}
		r.items[k].plan = p
		for _, i := range slices.Backward(at[:n]) {
			r.items = slices.Delete(r.items, i, i+1)
		}
	}
	return nil
}

func (i *item) joiner() (library.Joiner, bool) {
	if i.plan == nil {
		return nil, false
	}
	j, ok := i.plan.step.(library.Joiner)
	return j, ok
}

// fetch lets the weights of each skinny matmul come into the cache while what
// stands between it and the matmul before it runs: short kernels, attention, and
// collectives leave memory idle. Requests go out in a stream of their own.
func (r *recording) fetch() error {
	limit := r.d.opts.Prefetch
	if limit <= 0 {
		return nil
	}
	after := map[*stream]int{} // by stream: item of the last matmul, look-up only
	plans := map[int]*plan{}   // by the item behind which they go, -1 for the begin
	begin := -1
	for k := range r.items {
		x := &r.items[k]
		if x.bracket != nil {
			clear(after)
			begin = k
		}
		if x.plan == nil {
			continue
		}
		step, ok := x.plan.step.(library.Prefetcher)
		if !ok {
			continue
		}
		p := &plan{name: "fetch for " + x.plan.name, algo: "fetch"}
		step.AddPrefetchTo(&p.cmds, uint64(limit))
		at, seen := after[x.st]
		if !seen {
			at = begin
		}
		after[x.st] = k
		if p.cmds.Len() > 0 && plans[at] == nil && r.between(at, k) {
			plans[at] = p
			if log := r.d.opts.Log; log != nil {
				log.Info("fetch", "rank", r.d.spec.Rank, "name", x.plan.name, "behind", at)
			}
		}
	}
	if len(plans) == 0 {
		return nil
	}
	side, err := r.d.sideStream()
	if err != nil {
		return err
	}
	var out []item
	if p := plans[-1]; p != nil {
		out = append(out, item{st: side, plan: p})
	}
	for k, x := range r.items {
		out = append(out, x)
		if p := plans[k]; p != nil {
			out = append(out, item{st: x.st, record: side.mark}, item{st: side, wait: side.mark}, item{st: side, plan: p, inside: x.inside})
		}
	}
	r.items = out
	return nil
}

// between reports whether item k's stream has a call or a wait between the items.
func (r *recording) between(at, k int) bool {
	for i := at + 1; i < k; i++ {
		if x := &r.items[i]; x.st == r.items[k].st && x.record == 0 {
			return true
		}
	}
	return false
}

// sideStream makes the stream for fetches.
func (d *Device) sideStream() (*stream, error) {
	if d.side != nil {
		return d.side, nil
	}
	s, err := d.openStream("fetch", false)
	if err == nil {
		s.mark, err = d.own(s.life).Event(false)
	}
	if err != nil {
		return nil, err
	}
	d.side = s
	return s, nil
}

// early gives the commands of item k with an early launch, if it can begin before what
// is directly in front of it in its stream has ended: a generated kernel, which was
// launched after everything before it had ended, and writes nothing that is read early.
// What other streams wrote was waited for before that kernel began.
func (r *recording) early(k int) (*driver.Commands, bool) {
	x := &r.items[k]
	step, ok := x.plan.step.(library.DependentLauncher)
	if !ok || !r.d.early || x.inside {
		return nil, false
	}
	var front *plan
	for i := k - 1; i >= 0 && front == nil; i-- {
		y := &r.items[i]
		switch {
		case y.bracket != nil:
			return nil, false
		case y.st != x.st || y.record != 0: // recording an event takes no place in a stream
		case y.plan == nil:
			return nil, false
		default:
			front = y.plan
		}
	}
	if front == nil || len(front.writes) == 0 {
		return nil, false
	}
	ahead := step.Ahead()
	for _, m := range ahead {
		if slices.ContainsFunc(front.writes, m.Overlaps) {
			return nil, false
		}
	}
	if len(ahead) == 0 {
		return nil, false
	}
	c := &driver.Commands{}
	step.AddDependentTo(c)
	if log := r.d.opts.Log; log != nil {
		log.Info("early", "rank", r.d.spec.Rank, "name", x.plan.name, "front", front.name)
	}
	return c, true
}

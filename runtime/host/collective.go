package host

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Collective implements runtime.Device.
func (d *Device) Collective(s rt.Stream, c *rt.Collective) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	d.mu.Lock()
	ch := d.chans[c.Group]
	d.mu.Unlock()
	if ch == nil {
		return d.call(c.Name(), fmt.Errorf("no group %q", c.Group))
	}
	if err := c.Check(len(ch.members), ch.pos); err != nil {
		return d.call(c.Name(), err)
	}
	if err := d.inArena(c.Ins, c.Outs); err != nil {
		return d.call(c.Name(), err)
	}
	if err := resultsApart(c); err != nil {
		return d.call(c.Name(), err)
	}
	x := &exchange{d: d, ch: ch, c: c, staged: overlapping(c)}
	// A channel serves one call at a time, in the order of the calls: if the
	// group's last call went to another stream, this one waits for it.
	done := newCompletion()
	d.mu.Lock()
	before, other := ch.lastDone, ch.lastStream != s
	ch.lastStream, ch.lastDone = s, done
	d.mu.Unlock()
	st.push(func() error {
		if other && before != nil {
			if err := d.waitFor(before); err != nil {
				return err
			}
		}
		st.hook()
		if d.opts.WaitHook != nil {
			d.opts.WaitHook(c)
		}
		parts := x.rounds()
		for _, part := range parts {
			if err := part.run(); err != nil {
				return err
			}
		}
		for _, part := range parts {
			if err := part.unstage(); err != nil {
				return d.call(c.Name(), err)
			}
		}
		done.done()
		return nil
	})
	return nil
}

// sameWindow reports whether both name the same elements in the same order.
func sameWindow(a, b rt.Tensor) bool {
	return a.Off == b.Off && a.SameType(b) && slices.Equal(a.StridesOrDense(), b.StridesOrDense())
}

// touching reports whether the bytes that a and b span intersect.
func touching(a, b rt.Tensor) bool {
	alo, ahi, _ := a.Span()
	blo, bhi, _ := b.Span()
	return alo < bhi && blo < ahi
}

// resultsApart checks that no two results share bytes.
func resultsApart(c *rt.Collective) error {
	// Buckets can have hundreds of results: sort by span instead of comparing
	// all pairs.
	byStart := slices.Clone(c.Outs)
	slices.SortFunc(byStart, func(a, b rt.Tensor) int {
		alo, _, _ := a.Span()
		blo, _, _ := b.Span()
		return int(min(max(alo-blo, -1), 1))
	})
	for i := 1; i < len(byStart); i++ {
		if touching(byStart[i-1], byStart[i]) {
			return fmt.Errorf("results %v and %v overlap", byStart[i-1], byStart[i])
		}
	}
	return nil
}

// overlapping reports whether a result shares bytes with an operand in a way
// that would let this rank overwrite what peers still read. all_reduce alone
// works in place: every element is read and written by one rank only.
func overlapping(c *rt.Collective) bool {
	type span struct {
		lo, hi int64
		i      int
		out    bool
	}
	spans := make([]span, 0, 2*len(c.Ins))
	for i := range c.Ins {
		for _, out := range []bool{false, true} {
			t := c.Ins[i]
			if out {
				t = c.Outs[i]
			}
			lo, hi, _ := t.Span()
			if lo < hi {
				spans = append(spans, span{lo, hi, i, out})
			}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.lo-b.lo, -1), 1)) })
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if b.lo >= a.hi {
				break
			}
			if a.out == b.out {
				continue // two operands: both are only read
			}
			if c.Op == rt.AllReduce && a.i == b.i && sameWindow(c.Ins[a.i], c.Outs[a.i]) {
				continue
			}
			return true
		}
	}
	return false
}

// exchange is one collective in progress on this rank.
type exchange struct {
	d      *Device
	ch     *channel
	c      *rt.Collective
	total  int              // operands from here to the end of the call, over all rounds
	staged bool             // results go to scratch until no peer reads operands
	outs   []hostops.Tensor // where results go: the arena, or scratch
	firsts []int64          // of an all_reduce: where operands begin, laid end to end

	// Of members on other hosts, by position: what they send of each operand, and of an
	// all_reduce of each result.
	room, shares [][]hostops.Tensor
}

// rounds cuts an all_to_all with splits into calls whose splits fit into a
// descriptor; anything else is one call. Ranks that disagree on the number of
// operands find out in the first round, which says how many are to come.
func (x *exchange) rounds() []*exchange {
	n := len(x.c.Ins)
	if x.c.InSplits == nil || n <= maxSplits {
		x.total = n
		return []*exchange{x}
	}
	var parts []*exchange
	for lo := 0; lo < n; lo += maxSplits {
		hi := min(lo+maxSplits, n)
		c := *x.c
		c.Ins, c.Outs, c.InSplits, c.OutSplits = c.Ins[lo:hi], c.Outs[lo:hi], c.InSplits[lo:hi], c.OutSplits[lo:hi]
		parts = append(parts, &exchange{d: x.d, ch: x.ch, c: &c, staged: x.staged, total: n - lo})
	}
	return parts
}

// run is the protocol of protocol.go.
func (x *exchange) run() error {
	d, ch := x.d, x.ch
	ch.call++
	d.note(ch, x.c.Op, true)
	x.publish()
	if len(ch.far) > 0 && x.c.Op != rt.Barrier {
		x.expect()
	}
	if err := x.signalAndWait(nil); err != nil {
		return err
	}
	if err := x.compare(); err != nil {
		return err
	}
	if x.c.Op == rt.Barrier {
		d.note(ch, x.c.Op, false)
		return nil
	}
	x.outs = d.views(x.c.Outs)
	if x.staged {
		for i, t := range x.c.Outs {
			x.outs[i] = hostTensor(t, make([]byte, t.Bytes()))
		}
	}
	if len(ch.far) > 0 {
		if err := x.send(); err != nil {
			return d.call(x.c.Name(), err)
		}
		if err := x.signalAndWait(ch.far); err != nil {
			return err
		}
		if err := x.arrived(phaseOperands); err != nil {
			return d.call(x.c.Name(), err)
		}
	}
	if err := x.move(); err != nil {
		return d.call(x.c.Name(), err)
	}
	if err := x.signalAndWait(nil); err != nil {
		return err
	}
	if err := x.takeShares(); err != nil {
		return d.call(x.c.Name(), err)
	}
	d.note(ch, x.c.Op, false)
	return nil
}

// unstage copies results from scratch to the arena, once no peer reads operands.
func (x *exchange) unstage() error {
	if !x.staged {
		return nil
	}
	for i, t := range x.c.Outs {
		if err := hostops.Copy(x.d.view(x.d.spec.Rank, t), x.outs[i]); err != nil {
			return err
		}
	}
	return nil
}

// where says which call this is, for errors.
func (x *exchange) where() rendezvous.Where {
	return rendezvous.Where{Op: x.c.Name(), Rank: x.d.spec.Rank, Group: x.c.Group, Step: uint64(x.ch.call)}
}

// signalAndWait tells members at some positions, nil for all, that this rank has reached the
// channel's next epoch, and waits until they have. It starts behind its own position, so that
// members do not all write to the same peer first.
func (x *exchange) signalAndWait(some []int) error {
	d, ch := x.d, x.ch
	ch.epoch++
	if some == nil {
		some = ch.others
	}
	word := d.lay.inbox(ch.id, d.spec.Rank)
	first, _ := slices.BinarySearch(some, ch.pos)
	peers := make([]int, len(some))
	for i, p := range some {
		peers[i] = ch.members[p]
		d.put(ch.members[some[(first+i)%len(some)]], word, ch.epoch)
	}
	return d.await(&wait{at: x.where(), peers: peers,
		word: func(p int) int { return d.lay.inbox(ch.id, p) }, want: ch.epoch})
}

// move computes this rank's part of the results.
func (x *exchange) move() error {
	for k := range x.c.Ins {
		var err error
		switch x.c.Op {
		case rt.AllReduce:
			// Below, over all operands at once.
		case rt.AllGather:
			err = x.allGather(k)
		case rt.ReduceScatter:
			err = x.reduceScatter(k)
		case rt.AllToAll:
			err = x.allToAll(k)
		case rt.Broadcast:
			err = x.copy(x.outs[k], k, x.c.Root)
		case rt.CollectivePermute:
			err = x.permute(k)
		}
		if err != nil {
			return err
		}
	}
	if x.c.Op == rt.AllReduce {
		return x.allReduce()
	}
	return nil
}

// copy brings what this rank needs of a member's operand k to dst.
func (x *exchange) copy(dst hostops.Tensor, k, from int) error {
	src, err := x.part(k, from)
	if err != nil {
		return err
	}
	return hostops.Copy(dst, src)
}

// parts are what this rank needs of all members' operand k.
func (x *exchange) parts(k int) (ins []hostops.Tensor, err error) {
	ins = make([]hostops.Tensor, len(x.ch.members))
	for i := range ins {
		if ins[i], err = x.part(k, i); err != nil {
			return nil, err
		}
	}
	return ins, nil
}

// allReduce reduces this rank's share of all operands, in the order of the subgroup, and
// brings it into everyone's results: each element is computed once, so all ranks hold the
// same bits. When staged, every member computes everything for itself.
func (x *exchange) allReduce() error {
	n := len(x.ch.members)
	var result []byte // for other hosts
	for k := range x.c.Ins {
		lo, hi := x.share(k, x.ch.pos)
		if lo >= hi {
			continue
		}
		ins, err := x.parts(k)
		if err != nil {
			return err
		}
		out, err := flat(x.outs[k], lo, hi)
		if err != nil {
			return err
		}
		if err := hostops.Reduce(x.c.Reduce, out, ins); err != nil {
			return err
		}
		if !inRow(x.outs[k]) { // out is a copy
			if err := hostops.CopyRange(x.outs[k], lo, out, 0, hi-lo); err != nil {
				return err
			}
		}
		if x.staged {
			continue
		}
		for i := 1; i < n; i++ {
			peer := x.ch.members[(x.ch.pos+i)%n]
			if x.d.links[peer] != nil {
				continue
			}
			if err := hostops.CopyRange(x.d.view(peer, x.c.Outs[k]), lo, out, 0, hi-lo); err != nil {
				return err
			}
		}
		if len(x.ch.far) > 0 {
			if result, err = appendDense(result, out); err != nil {
				return err
			}
		}
	}
	for _, to := range x.ch.far {
		x.post(to, phaseResults, result)
	}
	return nil
}

// takeShares brings what members on other hosts have reduced into this rank's results.
func (x *exchange) takeShares() error {
	if err := x.arrived(phaseResults); err != nil {
		return err
	}
	for _, from := range x.ch.far {
		for k, t := range x.shares[from] {
			lo, _ := x.share(k, from)
			if err := hostops.CopyRange(x.outs[k], lo, t, 0, t.NumElems()); err != nil {
				return err
			}
		}
	}
	return nil
}

// allGather reads the members' operands, its own first and then in rotation.
func (x *exchange) allGather(k int) error {
	n := len(x.ch.members)
	part := int64(0)
	if dim := x.c.Dim; dim < len(x.c.Ins[k].Shape) {
		part = x.c.Ins[k].Shape[dim]
	}
	for i := range n {
		m := (x.ch.pos + i) % n
		dst, err := x.outs[k].Narrow(x.c.Dim, int64(m)*part, int64(m+1)*part)
		if err == nil {
			err = x.copy(dst, k, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reduceScatter reduces this rank's part of the members' operands.
func (x *exchange) reduceScatter(k int) error {
	ins, err := x.parts(k)
	if err != nil {
		return err
	}
	return hostops.Reduce(x.c.Reduce, x.outs[k], ins)
}

// allToAll reads from every member the rows that are for this rank.
func (x *exchange) allToAll(k int) error {
	n := len(x.ch.members)
	starts := make([]int64, n+1) // rows of the result
	for i := range n {
		starts[i+1] = starts[i] + x.c.Ins[k].Shape[0]/int64(n)
		if x.c.OutSplits != nil {
			starts[i+1] = starts[i] + x.c.OutSplits[k][i]
		}
	}
	for j := range n {
		i := (x.ch.pos + j) % n
		if starts[i] == starts[i+1] {
			continue
		}
		dst, err := x.outs[k].Narrow(0, starts[i], starts[i+1])
		if err == nil {
			err = x.copy(dst, k, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rowStrides returns strides that stay right when dimension 0 changes its size.
func rowStrides(t rt.Tensor) []int64 {
	if t.Strides != nil || len(t.Shape) == 0 {
		return t.Strides
	}
	// Those of a dense tensor do not depend on dimension 0.
	return t.StridesOrDense()
}

// permute reads the operand of this rank's source, if it has one.
func (x *exchange) permute(k int) error {
	if from := x.source(x.ch.pos); from >= 0 {
		return x.copy(x.outs[k], k, from)
	}
	return hostops.Run("full", rt.A("value", 0), x.outs[k:k+1], nil)
}

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
	ch.epoch++
	if err := x.signalAndWait(); err != nil {
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
	if err := x.move(); err != nil {
		return d.call(x.c.Name(), err)
	}
	ch.epoch++
	if err := x.signalAndWait(); err != nil {
		return err
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

// signalAndWait tells all members that this rank has reached the channel's epoch
// and waits until they have. It starts behind its own position, so that members
// do not all write to the same peer first.
func (x *exchange) signalAndWait() error {
	d, ch := x.d, x.ch
	n := len(ch.members)
	word := d.lay.inbox(ch.id, d.spec.Rank)
	for i := 1; i < n; i++ {
		d.put(ch.members[(ch.pos+i)%n], word, ch.epoch)
	}
	peers := make([]int, 0, n-1)
	for i, m := range ch.members {
		if i != ch.pos {
			peers = append(peers, m)
		}
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
			err = hostops.Copy(x.outs[k], x.in(x.c.Root, k))
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

// in is operand k of the member at a position.
func (x *exchange) in(pos, k int) hostops.Tensor {
	return x.d.view(x.ch.members[pos], x.c.Ins[k])
}

// allReduce deals the elements of all operands, laid end to end, to the members
// in equal shares. A member reduces its share, in the order of the subgroup, and
// writes it into everyone's results: each element is computed once, so all ranks
// hold the same bits. When staged, every member computes everything for itself.
func (x *exchange) allReduce() error {
	n := int64(len(x.ch.members))
	var total int64
	for _, t := range x.c.Ins {
		total += t.NumElems()
	}
	pos := int64(x.ch.pos)
	lo, hi := total/n*pos+min(pos, total%n), total/n*(pos+1)+min(pos+1, total%n)
	if x.staged {
		lo, hi = 0, total
	}
	var first int64 // index of the operand's first element
	for k, t := range x.c.Ins {
		size := t.NumElems()
		a, b := max(lo-first, 0), min(hi-first, size)
		first += size
		if a >= b {
			continue
		}
		ins := make([]hostops.Tensor, n)
		for i := range ins {
			ins[i] = x.in(i, k)
		}
		if err := hostops.ReduceRange(x.c.Reduce, x.outs[k], ins, a, b); err != nil {
			return err
		}
		if x.staged {
			continue
		}
		for i := int64(1); i < n; i++ {
			peer := x.d.view(x.ch.members[(pos+i)%n], x.c.Outs[k])
			if err := hostops.CopyRange(peer, a, x.outs[k], a, b-a); err != nil {
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
		if err != nil {
			return err
		}
		if err := hostops.Copy(dst, x.in(m, k)); err != nil {
			return err
		}
	}
	return nil
}

// reduceScatter reduces this rank's part of the members' operands.
func (x *exchange) reduceScatter(k int) error {
	part := x.c.Outs[k].Shape[x.c.Dim]
	ins := make([]hostops.Tensor, len(x.ch.members))
	for i := range ins {
		var err error
		if ins[i], err = x.in(i, k).Narrow(x.c.Dim, int64(x.ch.pos)*part, int64(x.ch.pos+1)*part); err != nil {
			return err
		}
	}
	return hostops.Reduce(x.c.Reduce, x.outs[k], ins)
}

// allToAll reads from every member the rows that are for this rank. Where they
// start follows from the member's own splits, which its descriptor carries.
func (x *exchange) allToAll(k int) error {
	n := len(x.ch.members)
	var at int64 // row of the result
	starts := make([]int64, n+1)
	for i := range n {
		rows := x.c.Ins[k].Shape[0] / int64(n)
		if x.c.OutSplits != nil {
			rows = x.c.OutSplits[k][i]
		}
		starts[i], at = at, at+rows
	}
	starts[n] = at
	for j := range n {
		i := (x.ch.pos + j) % n
		rows := starts[i+1] - starts[i]
		if rows == 0 {
			continue
		}
		from := int64(x.ch.pos) * rows
		in := x.c.Ins[k]
		if x.c.InSplits != nil {
			splits := x.splits(i, k)
			from = 0
			in.Shape = slices.Clone(in.Shape)
			in.Shape[0] = 0 // the member's own number of rows
			for p, s := range splits {
				if p < x.ch.pos {
					from += int64(s)
				}
				in.Shape[0] += int64(s)
			}
			in.Strides = rowStrides(x.c.Ins[k])
			if err := x.d.inArena([]rt.Tensor{in}); err != nil {
				return fmt.Errorf("operand of rank %d: %w", x.ch.members[i], err)
			}
		}
		src, err := x.d.view(x.ch.members[i], in).Narrow(0, from, from+rows)
		if err != nil {
			return err
		}
		dst, err := x.outs[k].Narrow(0, starts[i], starts[i+1])
		if err != nil {
			return err
		}
		if err := hostops.Copy(dst, src); err != nil {
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
	for i := 0; i < len(x.c.Pairs); i += 2 {
		if x.c.Pairs[i+1] == int64(x.ch.pos) {
			return hostops.Copy(x.outs[k], x.in(int(x.c.Pairs[i]), k))
		}
	}
	return hostops.Run("full", rt.A("value", 0), x.outs[k:k+1], nil)
}

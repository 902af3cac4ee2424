package eager

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// Collectives for callers without a compiled program. Each method of Comm enqueues one
// collective on a stream of its rank and returns at once with a handle; every rank of the
// group makes the same calls in the same order, with as many elements of the same types.
//
// Operands are given one by one or many at a time: a bucket goes in as few launches as
// its types and its number (kernels.MaxSegs) allow, without being packed. Those whose
// Src and Dst are in symmetric memory go as Op.Symmetric promises: at the same offset on
// every rank, apart from results or operands in place of a slice. So an operand is in
// symmetric memory on all ranks or on none. The others travel as packets through the
// group's scratch, in as many launches as that needs.
//
// ctx is looked at before anything is enqueued; what blocks is Work.Wait, which has one
// of its own. A call that fails on one rank leaves the others waiting until their
// deadline: Abort tells them at once.
//
// A call that was made before with the same arguments costs the host a look-up and one
// crossing into the driver, and no allocation.

// AllReduce reduces the operands of all ranks, element by element and in the order of
// ranks, into the result of each. Avg is for floats.
func (m *Comm) AllReduce(ctx context.Context, s driver.Stream, red kernels.Reduction, ops ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.AllReduce, red: red}, ops, nil)
}

// AllGather puts the operands of all ranks one after the other into the result of each,
// which has n times as many elements. In place, the buffer is the result, and its n-th
// part with this rank's number is the operand; full.Slice gives it.
func (m *Comm) AllGather(ctx context.Context, s driver.Stream, ops ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.AllGather}, ops, nil)
}

// ReduceScatter reduces the operands of all ranks, and gives each rank the n-th part with
// its number. In place, that part of the buffer is overwritten, and it alone.
func (m *Comm) ReduceScatter(ctx context.Context, s driver.Stream, red kernels.Reduction, ops ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.ReduceScatter, red: red}, ops, nil)
}

// AllToAll sends the n-th parts of an operand to the ranks, one each, and puts what comes
// from them one after the other.
func (m *Comm) AllToAll(ctx context.Context, s driver.Stream, ops ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.AllToAll}, ops, nil)
}

// AllToAllV is AllToAll with a size for every pair of ranks: pieces[r].Src goes to group
// rank r and pieces[r].Dst comes from it. There are as many pieces as ranks; pieces of no
// elements are allowed, and others must be as long as their other end says.
func (m *Comm) AllToAllV(ctx context.Context, s driver.Stream, pieces ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.AllToAllV}, pieces, nil)
}

// Broadcast copies the operands of a group rank, root, into the results of all. The Src of
// the others is not read, and no Src need be in symmetric memory where the results are.
func (m *Comm) Broadcast(ctx context.Context, s driver.Stream, root int, ops ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.Broadcast, root: root}, ops, nil)
}

// Reduce is AllReduce with a result on one group rank, root, only. The Dst of the others
// is left alone. In symmetric memory it has the offset of the root's all the same.
func (m *Comm) Reduce(ctx context.Context, s driver.Stream, red kernels.Reduction, root int, ops ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.Reduce, red: red, root: root}, ops, nil)
}

// Permute copies operands from group rank to group rank: each pair is from and to. A rank
// may send to many and receives from one at most; who receives nothing keeps its Dst. No
// Dst may overlap a Src.
func (m *Comm) Permute(ctx context.Context, s driver.Stream, pairs [][2]int, ops ...symm.Operand) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.Permute}, ops, pairs)
}

// Barrier lets the stream go on when the streams of all ranks have got here, and what they
// did before is visible.
func (m *Comm) Barrier(ctx context.Context, s driver.Stream) (Work, error) {
	return m.collective(ctx, s, eagerCall{kind: kernels.Barrier}, nil, nil)
}

// eagerCall is what a call is besides its operands.
type eagerCall struct {
	kind kernels.Collective
	red  kernels.Reduction
	root int
}

// eagerPlan is a call that has been planned: its launches and the recording of an event.
type eagerPlan struct {
	call  eagerCall
	ops   []symm.Operand
	pairs [][2]int
	cmds  driver.Commands
	event int    // the word that holds the event
	num   uint32 // as in Prepared
}

// MaxPlans bounds how many plans a Comm keeps. A plan has one of planWays places by its
// hash, which new ones take in turn: with one alone, a step of a hundred calls would plan a
// third of them anew each time.
const (
	MaxPlans = 512
	planWays = 4
)

// planSet is the places of a hash.
type planSet struct {
	plans [planWays]*eagerPlan
	next  int // that a new plan takes
}

// find gives the plan of a call, nil if there is none.
func (s *planSet) find(call eagerCall, ops []symm.Operand, pairs [][2]int) *eagerPlan {
	for _, p := range s.plans {
		if p != nil && p.call == call && slices.Equal(p.ops, ops) && slices.Equal(p.pairs, pairs) {
			return p
		}
	}
	return nil
}

func (s *planSet) put(p *eagerPlan) {
	s.plans[s.next] = p
	s.next = (s.next + 1) % planWays
}

// collective plans a call, unless it has been, and enqueues it.
func (m *Comm) collective(ctx context.Context, s driver.Stream, call eagerCall, ops []symm.Operand, pairs [][2]int) (Work, error) {
	if err := m.takes(ctx, s); err != nil {
		return Work{}, err
	}
	if err := m.Begin(); err != nil {
		return Work{}, err
	}
	defer m.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	set := &m.plans[call.hash(ops)%(MaxPlans/planWays)]
	p := set.find(call, ops, pairs)
	if p == nil {
		var err error
		if p, err = m.planEager(call, slices.Clone(ops), slices.Clone(pairs)); err != nil {
			return Work{}, err
		}
		set.put(p)
	}
	w, err := m.newWork()
	if err != nil {
		return Work{}, err
	}
	words := p.cmds.On(s)
	words[p.event] = uint64(w.e.ev)
	if err := m.Run(s, words, p.num); err != nil {
		w.free()
		return Work{}, err
	}
	return w, nil
}

// takes reports whether a member takes a call on a stream at all.
func (m *Comm) takes(ctx context.Context, s driver.Stream) error {
	if m == nil {
		return symm.Invalid("comm", "it is nil")
	}
	if err := m.Usable(); err != nil {
		return err
	}
	if err := symm.CheckContext(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return symm.CheckStream(s)
}

// hash mixes what tells calls apart most often.
func (c eagerCall) hash(ops []symm.Operand) uint64 {
	h := uint64(c.kind)<<32 | uint64(c.red)<<16 | uint64(uint16(c.root))
	mix := func(v uint64) {
		h ^= v
		h *= 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	mix(uint64(len(ops)))
	for i := range ops {
		o := &ops[i]
		mix(uint64(o.Src.At))
		mix(uint64(o.Dst.At))
		mix(o.Src.Count<<8 | uint64(o.Src.DType))
	}
	return h
}

// planEager checks a call and makes its commands.
func (m *Comm) planEager(call eagerCall, ops []symm.Operand, pairs [][2]int) (*eagerPlan, error) {
	p := &eagerPlan{call: call, ops: ops, pairs: pairs}
	if err := m.checkOperands(call.kind, ops); err != nil {
		return nil, err
	}
	switch call.kind {
	case kernels.Barrier:
		if err := p.add(m.Prepare(coll.Op{Kind: kernels.Barrier})); err != nil {
			return nil, err
		}
	case kernels.AllToAllV:
		send, recv := make([]coll.Piece, len(ops)), make([]coll.Piece, len(ops))
		for r, o := range ops {
			send[r], recv[r] = coll.Piece{At: o.Src.At, Bytes: o.Src.Bytes()}, coll.Piece{At: o.Dst.At, Bytes: o.Dst.Bytes()}
		}
		if err := p.add(m.PrepareAllToAllV(send, recv)); err != nil {
			return nil, err
		}
	default:
		for _, op := range m.sortOut(call, ops, pairs) {
			if err := p.add(m.Prepare(op)); err != nil {
				return nil, err
			}
		}
	}
	p.cmds.Record(driver.Main, 0)
	p.event = p.cmds.Len() - 1
	return p, nil
}

// add takes over what has been prepared.
func (p *eagerPlan) add(o *coll.Prepared, err error) error {
	if err == nil {
		o.AddTo(&p.cmds)
		p.num = max(p.num, o.Number())
	}
	return err
}

// sortOut makes operations of a bucket: of one element type each, whose tensors are all in
// symmetric memory or all not, and no more than a launch takes. Which these are depends on
// the operands' types, order and kind of memory only, which ranks have in common.
func (m *Comm) sortOut(call eagerCall, ops []symm.Operand, pairs [][2]int) []coll.Op {
	type class struct {
		t         symm.DType
		symmetric bool
	}
	n := uint64(m.Group.Size())
	byClass := map[class]int{} // the operation that takes more of the class
	var out []coll.Op
	for _, o := range ops {
		if o.Src.Count == 0 && o.Dst.Count == 0 {
			continue
		}
		t := m.tensor(call.kind, o, n)
		// The sources of a broadcast say nothing: where they are not read they may be anything.
		c := class{o.Src.DType, m.Rank.Symmetric(o.Dst) && (call.kind == kernels.Broadcast || m.Rank.Symmetric(o.Src))}
		if call.kind == kernels.AllToAll && o.Src == o.Dst {
			c.symmetric = false // peers would read what has been overwritten; packets are sent before any is taken
		}
		at, ok := byClass[c]
		if !ok || len(out[at].Tensors) == kernels.MaxSegs {
			at = len(out)
			byClass[c] = at
			out = append(out, coll.Op{Kind: call.kind, Red: call.red, DType: c.t, Symmetric: c.symmetric, Root: call.root, Pairs: pairs})
		}
		out[at].Tensors = append(out[at].Tensors, t)
	}
	return out
}

// tensor is an operand as Op takes it. In place, a gather's operand and a scatter's result
// are this rank's part of the buffer.
func (m *Comm) tensor(kind kernels.Collective, o symm.Operand, n uint64) coll.Tensor {
	t := coll.Tensor{Src: o.Src.At, Dst: o.Dst.At, Bytes: o.Src.Bytes()}
	switch kind {
	case kernels.AllGather:
		t.Bytes = o.Dst.Bytes() / n
		if o.Src == o.Dst {
			t.Src += driver.Ptr(uint64(m.Index) * t.Bytes)
		}
	case kernels.ReduceScatter:
		t.Bytes = o.Src.Bytes() / n
		if o.Src == o.Dst {
			t.Dst += driver.Ptr(uint64(m.Index) * t.Bytes)
		}
	case kernels.AllToAll:
		t.Bytes /= n
	}
	return t
}

// checkOperands checks sizes, types and overlaps. What depends on kernels Prepare checks.
func (m *Comm) checkOperands(kind kernels.Collective, ops []symm.Operand) error {
	n := uint64(m.Group.Size())
	fail := func(i int, format string, args ...any) error {
		return &kernels.PlanError{Op: kind, Reason: fmt.Sprintf("operand %d: ", i) + fmt.Sprintf(format, args...)}
	}
	if kind == kernels.AllToAllV && uint64(len(ops)) != n {
		return &kernels.PlanError{Op: kind, Reason: fmt.Sprintf("%d pieces in a group of %d", len(ops), n)}
	}
	for i, o := range ops {
		if why := o.Src.Check(); why != nil {
			return fail(i, "source: %s", why)
		}
		if why := o.Dst.Check(); why != nil {
			return fail(i, "result: %s", why)
		}
		if o.Src.DType != o.Dst.DType {
			return fail(i, "a source of %v and a result of %v", o.Src.DType, o.Dst.DType)
		}
		if why := m.checkCounts(kind, o, n); why != "" {
			return fail(i, "%s", why)
		}
	}
	return m.checkOverlaps(kind, ops)
}

// checkCounts says what is wrong with an operand's counts in a group of n.
func (m *Comm) checkCounts(kind kernels.Collective, o symm.Operand, n uint64) string {
	src, dst := o.Src.Count, o.Dst.Count
	inPlace := o.Src == o.Dst
	switch {
	case kind == kernels.AllToAllV:
		return ""
	case kind == kernels.AllToAll || inPlace && (kind == kernels.AllGather || kind == kernels.ReduceScatter):
		if src != dst || src%n != 0 {
			return fmt.Sprintf("%d and %d elements: equal multiples of the %d ranks are needed", src, dst, n)
		}
	case kind == kernels.AllGather:
		if dst%n != 0 || dst/n != src {
			return fmt.Sprintf("%d elements of %d ranks do not make the result's %d", src, n, dst)
		}
	case kind == kernels.ReduceScatter:
		if src%n != 0 || src/n != dst {
			return fmt.Sprintf("the %d elements are no %d for each of %d ranks", src, dst, n)
		}
	case src != dst:
		return fmt.Sprintf("%d elements into %d", src, dst)
	}
	return ""
}

// checkOverlaps sees to it that no result shares bytes with another result, or with an
// operand but in the ways in place that the methods name.
func (m *Comm) checkOverlaps(kind kernels.Collective, ops []symm.Operand) error {
	type span struct {
		symm.Buffer
		i   int
		out bool
	}
	list := make([]span, 0, 2*len(ops))
	for i, o := range ops {
		for _, s := range [...]span{{o.Src, i, false}, {o.Dst, i, true}} {
			if s.Count > 0 {
				list = append(list, s)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b span) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	for i, a := range list {
		for _, b := range list[i+1:] {
			if b.At >= a.End() {
				break
			}
			if !a.out && !b.out || a.i == b.i && a.out != b.out && m.inPlace(kind, ops[a.i]) {
				continue
			}
			what := [2]string{"source", "result"}
			name := func(s span) string {
				if s.out {
					return fmt.Sprintf("%s %d", what[1], s.i)
				}
				return fmt.Sprintf("%s %d", what[0], s.i)
			}
			return &kernels.PlanError{Op: kind, Reason: fmt.Sprintf("%s (%v) overlaps %s (%v)", name(a), a.Buffer, name(b), b.Buffer)}
		}
	}
	return nil
}

// inPlace reports whether an operand overlaps its own result in a way that is served.
func (m *Comm) inPlace(kind kernels.Collective, o symm.Operand) bool {
	part := func(full, part symm.Buffer) bool {
		return part.At == full.At+driver.Ptr(uint64(m.Index)*part.Bytes())
	}
	switch kind {
	case kernels.Permute, kernels.AllToAllV:
		return false
	case kernels.AllGather:
		return o.Src == o.Dst || part(o.Dst, o.Src)
	case kernels.ReduceScatter:
		return o.Src == o.Dst || part(o.Src, o.Dst)
	}
	return o.Src == o.Dst
}

package coll

import (
	"errors"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// Tensor is one operand of a collective: what this rank gives and what it gets.
// Bytes is the piece of one rank, as in kernels.Seg.
type Tensor struct {
	Src, Dst driver.Ptr
	Bytes    uint64
}

// Op is a collective call.
type Op struct {
	Kind    kernels.Collective
	Red     kernels.Reduction
	DType   dtype.DType
	Tensors []Tensor
	// Symmetric promises that every Src and Dst, but not the Src of a Broadcast, is in
	// symmetric memory at the same offset on every rank, which the direct protocol needs.
	Symmetric bool
	// Dsts, of a Permute of tensors that are not at the same offset on every rank, says where
	// they do: by tensor and group rank, where in this rank's memory the Dst of that one would be.
	Dsts [][]driver.Ptr
	Algo kernels.Algo
	// Overlapped says that compute overlaps with the collective: what is large enough goes by
	// copies that need no multiprocessor, see overlapped.go. It needs symmetric tensors and
	// GroupOptions.Staging; without them, and for small calls, it changes nothing. With
	// Algo Engine all tensors go that way, however small.
	Overlapped bool
	Kernels    bool     // that no copy engine is preferred, whose flags not every place allows
	Part       int      // of staging, in [0, StagingParts), that a reduction overlapped with compute begins with; alike on all ranks. See Prepared.Parts
	Root       int      // of Broadcast and Reduce: a group rank. A Reduce leaves the others' Dst alone
	Pairs      [][2]int // of Permute: from and to. Who receives nothing keeps its Dst; no Dst may overlap a Src
	Blocks     int
	Threads    int
}

// Prepared is a collective planned for one member, ready to be launched any
// number of times.
type Prepared struct {
	m    *Member
	l    *kernels.Launch // nil when nothing need run, or when cmds does it
	f    driver.Func
	buf  []byte
	cmds *driver.Commands // of a collective of several steps

	num   uint32          // of a collective without kernels, else 0
	ahead driver.Commands // of a reduce_scatter overlapped with compute, see AddAhead; else empty
	parts int
}

// Prepare plans op for this member: kernel, grid and arguments. The plan is the
// same on every rank. Several threads may prepare calls; enqueueing what one of them
// prepared is another's right, too.
func (m *Member) Prepare(op Op) (*Prepared, error) {
	if err := m.Begin(); err != nil {
		return nil, err
	}
	defer m.Done()
	if err := m.checkOp(&op); err != nil {
		return nil, err
	}
	m.planMu.Lock()
	defer m.planMu.Unlock()
	return m.prepare(op)
}

func (m *Member) prepare(op Op) (*Prepared, error) {
	if op.Kind == kernels.Barrier {
		return m.prepareBarrier()
	}
	segs := make([]kernels.Seg, len(op.Tensors))
	for i, t := range op.Tensors {
		segs[i] = kernels.Seg{Src: uint64(t.Src), Dst: uint64(t.Dst), Bytes: t.Bytes}
		if op.Symmetric {
			if err := m.inArena(op, t); err != nil {
				return nil, err
			}
		}
	}
	if op.Kind == kernels.Broadcast || op.Kind == kernels.Permute || op.Kind == kernels.Reduce {
		return m.prepareRooted(op)
	}
	if op.Overlapped && (op.Algo == kernels.Engine || op.Algo == kernels.Auto) {
		if p, err := m.prepareOverlapped(op); p != nil || err != nil {
			return p, err
		}
	}
	call := kernels.Call{Op: op.Kind, Red: op.Red, DType: op.DType, N: m.Group.Size(), Segs: segs, Symmetric: op.Symmetric,
		Algo: op.Algo, Multicast: m.HasMulticast(), RankOrder: m.Group.rankOrder, Blocks: op.Blocks, Threads: op.Threads}
	if op.Algo == kernels.Engine || op.Algo == kernels.Auto && m.preferEngine(op) && !call.PrefersMulticast(m.Group.tuning) {
		return m.prepareEngine(op)
	}
	l, err := kernels.Plan(call, m.Group.sc, m.Group.tuning)
	if err != nil && op.Algo == kernels.Auto && !op.Symmetric {
		var room *kernels.ScratchError
		if errors.As(err, &room) {
			return m.inParts(op)
		}
	}
	if err != nil || l == nil {
		return &Prepared{m: m}, err
	}
	return m.finish(l, symm.KindOf(op.Kind))
}

// preferEngine says whether copy engines are the fastest for op.
func (m *Member) preferEngine(op Op) bool {
	if m.engine == nil || !op.Symmetric || op.Kernels {
		return false
	}
	// Each tensor is copied by itself, so the smallest one decides.
	least := uint64(math.MaxUint64)
	for _, t := range op.Tensors {
		least = min(least, t.Bytes)
	}
	if op.Kind != kernels.AllReduce && len(op.Tensors) > 0 {
		least *= uint64(m.Group.Size())
	}
	t := m.Group.tuning
	limit := t.EngineMove
	switch op.Kind {
	case kernels.AllReduce:
		limit = t.EngineReduce
		for _, o := range op.Tensors {
			if o.Src == o.Dst {
				limit = t.EngineInPlace
			}
		}
	case kernels.ReduceScatter: // its pieces would have to be staged
		return false
	}
	return limit > 0 && len(op.Tensors) > 0 && least >= limit
}

func (m *Member) prepareBarrier() (*Prepared, error) {
	p := &Prepared{m: m, cmds: &driver.Commands{}}
	return p, m.AddSignal(p.cmds, driver.Main, symm.KindOf(kernels.Barrier), "barrier", chanBarrier, m.AllPeers())
}

// SentTo is where a matmul puts the pieces of a reduce_scatter with the protocol kernels.Sent, of so many
// bytes each, by group rank; the own one is at own. Peers' staging is free once the group's calls
// before have ended on this rank.
func (m *Member) SentTo(own driver.Ptr, bytes uint64) []driver.Ptr {
	to := make([]driver.Ptr, m.Group.Size())
	for i, rank := range m.Group.Ranks() {
		to[i] = m.Group.World().Addr(rank, m.Group.sc.Staging+uint64(m.Index)*bytes)
	}
	to[m.Index] = own
	return to
}

// finish adds what depends on the rank to a launch of a call of that kind.
func (m *Member) finish(l *kernels.Launch, k symm.CallKind) (*Prepared, error) {
	f, err := m.Rank.Func(l.Image, l.Kernel)
	if err != nil {
		return nil, err
	}
	a, own := &l.Args, m.Args(k, 0)
	a.Peer, a.Ctl, a.Host, a.Timeout, a.Rank, a.Seq = own.Peer, own.Ctl, own.Host, own.Timeout, own.Rank, own.Seq
	if l.Algo == kernels.Multicast {
		a.Scratch = uint64(m.Group.MulticastBase())
	}
	return &Prepared{m: m, l: l, f: f, buf: a.Pack(nil, l.Segs)}, nil
}

// PrepareOwn plans a call of a kernel that is not this package's: add adds it to c, given the
// arguments that depend on the rank.
func (m *Member) PrepareOwn(kind kernels.Collective, add func(a *kernels.Args, c *driver.Commands) error) (*Prepared, error) {
	if err := m.Begin(); err != nil {
		return nil, err
	}
	defer m.Done()
	a, p := m.Args(symm.KindOf(kind), 0), &Prepared{m: m, cmds: &driver.Commands{}}
	return p, add(&a, p.cmds)
}

// Piece is a part of an uneven all_to_all.
type Piece struct {
	At    driver.Ptr
	Bytes uint64
}

// PrepareAllToAllV plans an all_to_all with a size of its own for every pair of ranks:
// send[d] goes to group rank d, recv[s] comes from it, and recv[s].Bytes equals
// send[this rank].Bytes there. Pieces of no bytes are allowed. Pieces may be anywhere and
// be of any size: what is too large for packets goes through the group's scratch in
// chunks, unless that is too small for them (GroupOptions.Flagged of 4 KiB for each rank
// is enough).
func (m *Member) PrepareAllToAllV(send, recv []Piece) (*Prepared, error) {
	if err := m.Begin(); err != nil {
		return nil, err
	}
	defer m.Done()
	return m.uneven(symm.KindOf(kernels.AllToAllV), send, recv)
}

// uneven is PrepareUneven as a part of a call of that kind.
func (m *Member) uneven(k symm.CallKind, send, recv []Piece) (*Prepared, error) {
	return m.unevenTable(k, send, recv, 0)
}

// unevenTable is uneven, with the table in memory if that is not 0.
func (m *Member) unevenTable(k symm.CallKind, send, recv []Piece, table driver.Ptr) (*Prepared, error) {
	n := m.Group.Size()
	if len(send) != n || len(recv) != n {
		return nil, &kernels.PlanError{Op: kernels.AllToAllV, Reason: fmt.Sprintf("%d pieces to send and %d to receive in a group of %d", len(send), len(recv), n)}
	}
	var t kernels.Table
	for r := range send {
		t.Src[r], t.Send[r] = uint64(send[r].At), send[r].Bytes
		t.Dst[r], t.Recv[r] = uint64(recv[r].At), recv[r].Bytes
	}
	if table != 0 {
		t.Send[m.Index], t.Recv[m.Index] = 0, 0 // of bounds nothing follows
	}
	l, err := kernels.PlanAllToAllV(t, n, m.Index, m.Group.sc)
	if err != nil {
		return nil, err
	}
	if table != 0 {
		l.Image, l.Kernel = "alltoall_read", "all_to_all_uneven_read"
	}
	f, err := m.Rank.Func(l.Image, l.Kernel)
	if err != nil {
		return nil, err
	}
	a := m.Args(k, 0)
	a.Scratch, a.Half, a.Slot, a.Region = l.Args.Scratch, l.Args.Half, l.Args.Slot, l.Args.Region
	a.Per, a.Units = l.Args.Per, l.Args.Units
	p := &Prepared{m: m, cmds: &driver.Commands{}}
	args := a.PackAllToAllV(nil, t)
	if table != 0 {
		args = a.PackTable(nil, uint64(table))
	}
	p.cmds.Launch(driver.Main, f, l.Grid, l.Block, 0, args)
	return p, nil
}

// PrepareAllToAllVDynamic is PrepareUneven where kernels have put the table into memory before:
// kernels.Table's columns one after the other. The pieces here are the largest that there can be.
func (m *Member) PrepareAllToAllVDynamic(table driver.Ptr, send, recv []Piece) (*Prepared, error) {
	if err := m.Begin(); err != nil {
		return nil, err
	}
	defer m.Done()
	return m.unevenTable(symm.KindOf(kernels.AllToAllV), send, recv, table)
}

// inArena checks that a tensor that is said to be symmetric is in this rank's part.
func (m *Member) inArena(op Op, t Tensor) error {
	w, n := m.Rank.World, uint64(m.Group.Size())
	src, dst := t.Bytes, t.Bytes
	switch op.Kind {
	case kernels.AllGather:
		dst *= n
	case kernels.ReduceScatter:
		src *= n
	case kernels.AllToAll:
		src, dst = src*n, dst*n
	}
	if op.Kind == kernels.Broadcast { // peers do not touch its source
		t.Src = t.Dst
	}
	for _, p := range []struct {
		at    driver.Ptr
		bytes uint64
	}{{t.Src, src}, {t.Dst, dst}} {
		if !m.Rank.Holds(p.at, p.bytes) {
			lo, hi := w.Addr(m.Rank.ID, 0), w.Addr(m.Rank.ID, w.Bytes())
			return fmt.Errorf("%v: %d bytes at %#x are not in rank %d's symmetric memory [%#x, %#x)", op.Kind, p.bytes, uint64(p.at), m.Rank.ID, uint64(lo), uint64(hi))
		}
	}
	return nil
}

// Launch is the plan, nil when the call moves nothing.
func (p *Prepared) Launch() *kernels.Launch { return p.l }

// Enqueue launches the collective on a stream of the member's rank. It does not wait for
// it, but the driver queues about a thousand operations of a stream and then waits for
// room. A call by copy engines has several for each round through staging, so where a
// process has several ranks and staging is less than a hundredth of a tensor, each rank's
// calls want a goroutine of their own: else the rank that is enqueued first waits for one
// that is not enqueued yet.
// The group's calls on a rank follow each other in the order of these calls, whatever
// streams they are in: see cuda/symm/order.go.
func (p *Prepared) Enqueue(s driver.Stream) error {
	if p.l == nil && p.cmds == nil {
		if p.m == nil {
			return symm.Invalid("prepared", "it is empty: Member.Prepare makes one")
		}
		return p.m.Usable()
	}
	if s == 0 {
		return symm.CheckStream(s)
	}
	if err := p.m.Begin(); err != nil {
		return err
	}
	defer p.m.Done()
	t, d := p.m.Calls(), p.m.Rank.World.Driver()
	if err := t.Begin(s); err != nil {
		return err
	}
	if p.num != 0 {
		p.m.last.Store(p.num)
	}
	var err error
	if p.cmds != nil {
		err = d.Run(p.m.Rank.Ctx, p.cmds.On(s))
	} else {
		err = d.Launch(p.m.Rank.Ctx, s, p.f, p.l.Grid, p.l.Block, 0, p.buf)
	}
	if err != nil {
		t.EndFailed(s)
		return err
	}
	return t.End(s)
}

// Number is what a timeout tells of a collective without kernels, 0 for others.
func (p *Prepared) Number() uint32 { return p.num }

// Run enqueues a command buffer that holds calls of the group, bound to s, in turn with its
// others. num is the greatest Number of the calls. It is for use within a call.
func (m *Member) Run(s driver.Stream, words []uint64, num uint32) error {
	t := m.Calls()
	if err := t.Begin(s); err != nil {
		return err
	}
	if num != 0 {
		m.last.Store(num)
	}
	if err := m.Rank.World.Driver().Run(m.Rank.Ctx, words); err != nil {
		t.EndFailed(s)
		return err
	}
	return t.End(s)
}

// AddTo adds the collective to a command buffer, whose Main is its stream. Unlike
// Enqueue the buffer does not look whether the group is broken, and the caller sees to
// it that it runs after the group's calls before it.
func (p *Prepared) AddTo(c *driver.Commands) {
	if p.cmds != nil {
		p.m.Calls().Lock()
		defer p.m.Calls().Unlock()
	}
	switch {
	case p.cmds != nil:
		c.Append(p.cmds)
	case p.l != nil:
		c.Launch(driver.Main, p.f, p.l.Grid, p.l.Block, 0, p.buf)
	}
}

// Parts is how many parts of staging a collective overlapped with compute fills in turn. A call
// behind it that begins with the part after the last one need not wait for the reductions.
func (p *Prepared) Parts() int { return p.parts }

// AddAhead is AddTo for a collective whose last part, the reduction of what came in, takes
// place in Member.Tail: Main goes on before. It reports false, with nothing added, for
// others. The caller sees to it that what follows in Main, but for further calls of
// AddAhead, comes after Member.Join, as does what touches the operands or results.
func (p *Prepared) AddAhead(c *driver.Commands) bool {
	if p.ahead.Len() == 0 {
		return false
	}
	c.Append(&p.ahead)
	return true
}

// ReductionStream is the stream that reduces. Events recorded in it come after all that was added
// by AddAhead. It is zero in a group without GroupOptions.Staging, which has none.
func (m *Member) ReductionStream() driver.Stream {
	if m.Usable() != nil || m.engine == nil {
		return 0
	}
	return m.engine.in
}

// Enqueue plans and launches op.
func (m *Member) Enqueue(s driver.Stream, op Op) error {
	p, err := m.Prepare(op)
	if err != nil {
		return err
	}
	return p.Enqueue(s)
}

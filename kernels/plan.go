package kernels

import "fmt"

// Launch is a planned call: which kernel of which image, its grid and its arguments.
type Launch struct {
	Image, Kernel string
	Algo          Algo
	Grid, Block   int
	Segs          int // segments the kernel's argument structure holds
	Args          Args
}

// Plan chooses protocol, kernel and grid for c and fills in everything of the
// arguments that does not depend on the rank. A call of zero bytes gives a nil
// launch: nothing need run. It is deterministic and the same on every rank.
func Plan(c Call, sc Scratch, t Tuning) (*Launch, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Segs = nonEmpty(c.Segs)
	if len(c.Segs) == 0 {
		return nil, nil
	}
	var total uint64
	for _, s := range c.Segs {
		total += s.Bytes
	}
	algo, err := choose(&c, t, total, sc)
	if err != nil {
		return nil, err
	}
	l := &Launch{Algo: algo, Segs: 1, Block: c.Threads}
	a := &l.Args
	a.N, a.Op, a.DType, a.Segs = uint32(c.N), uint32(c.Red), uint32(c.DType), c.Segs
	if !c.reduces() {
		a.Op = 0
	}
	unit := uint64(16)
	if algo == LL {
		unit = 8
	}
	if err := a.SetUnits(unit); err != nil {
		return nil, &PlanError{c.Op, err.Error()}
	}
	n := uint32(c.N)
	switch algo {
	case OneShot, TwoShot:
		a.Scratch, a.Half, a.Region = sc.Poisoned, 2*sc.Region, sc.Region
		a.Slot = sc.slot(algo, c.N)
	case Push:
		a.Scratch = sc.Staging
	case Sent:
		a.Scratch, a.Slot = sc.Staging, a.Segs[0].Bytes
	case Multicast: // the scratch is the address that means all ranks, which the caller has
	case LL:
		a.Scratch, a.Half = sc.Flagged, sc.FlaggedHalf
		a.Slot = sc.slot(algo, c.N)
	}
	work := a.Units // threads that find work
	if algo == TwoShot || (algo == Direct || algo == Push || algo == Multicast) && c.Op == AllReduce {
		a.Per = (a.Units + n - 1) / n
		work = a.Per
	}
	if (algo == OneShot || algo == TwoShot || algo == LL) && uint64(work)*16 > a.Slot {
		return nil, &ScratchError{PlanError{c.Op, fmt.Sprintf("%d bytes do not fit in the scratch for %v packets of %d ranks: put the tensors in symmetric memory or split the call", total, algo, c.N)}}
	}
	if algo == TwoShot && (n-1)*a.Per >= a.Units {
		return nil, &PlanError{c.Op, fmt.Sprintf("%d units leave a rank of %d without a slice: too small for two shots", a.Units, n)}
	}
	l.shape(&c, t, work, sc)
	l.name(&c)
	return l, nil
}

func nonEmpty(segs []Seg) []Seg {
	out := make([]Seg, 0, len(segs))
	for _, s := range segs {
		if s.Bytes > 0 {
			out = append(out, s)
		}
	}
	return out
}

func choose(c *Call, t Tuning, total uint64, sc Scratch) (Algo, error) {
	switch {
	case c.Algo == Direct && !c.Symmetric:
		return 0, &PlanError{c.Op, "the direct protocol needs tensors in symmetric memory"}
	case c.Algo == Push && !(c.fast() && c.reduces() && c.Symmetric && sc.StagingSize >= uint64(c.N)*pushStaging):
		return 0, &PlanError{c.Op, "the push protocol needs a sum of common floats on 2, 4 or 8 ranks, symmetric memory and staging"}
	case c.Algo == Multicast && !c.multicast():
		return 0, &PlanError{c.Op, "multicast serves all_gather, and sums of common floats in any order, of symmetric memory in a group that has it"}
	case c.Algo == Engine || c.Algo > Sent:
		return 0, &PlanError{c.Op, fmt.Sprintf("no kernels have the protocol %v", c.Algo)}
	case c.Algo == Sent && !c.sent(total, sc):
		return 0, &PlanError{c.Op, "what matmuls send needs a sum of one tensor of bf16 or f16 on 2, 4 or 8 ranks, aligned to 16 bytes, that fits into staging"}
	case c.Algo == OneShot && !(c.fast() && c.reduces()), c.Algo == TwoShot && !(c.fast() && c.Op == AllReduce):
		return 0, &PlanError{c.Op, fmt.Sprintf("the %v protocol does not serve %v %v on %d ranks", c.Algo, c.Red, c.DType, c.N)}
	case c.Algo != Auto:
		return c.Algo, nil
	}
	full := c.full(total)
	if c.prefersMulticast(&t, full) {
		return Multicast, nil
	}
	limit, packets := t.OneShot, LL
	switch c.Op {
	case AllReduce:
		if c.fast() {
			packets = OneShot
		}
	case ReduceScatter:
		limit = t.PacketReduce
		if c.fast() {
			packets = OneShot
		}
	case AllGather:
		limit = t.PacketGather
	case AllToAll:
		limit = t.PacketAll
	}
	// Segments are padded to whole units, so leave room for one more of each.
	units := total + 16*uint64(len(c.Segs))
	wire := units
	if packets == LL {
		wire *= 2 // eight bytes of data travel in sixteen
	}
	if full <= limit && wire <= sc.slot(packets, c.N) {
		return packets, nil
	}
	if c.Op == AllReduce && c.fast() && (full <= t.TwoShot || !c.Symmetric) && units/uint64(c.N)+16 <= sc.slot(TwoShot, c.N) {
		return TwoShot, nil
	}
	push := t.Push
	if c.Op == ReduceScatter {
		push = t.PushScatter
	}
	if c.reduces() && c.fast() && c.Symmetric && full > push && sc.StagingSize >= uint64(c.N)*pushStaging {
		return Push, nil
	}
	if c.Symmetric {
		return Direct, nil
	}
	return packets, nil
}

// shape sets grid and block. Packet kernels give every thread one unit, in the
// smallest blocks that keep the grid small; the others stream.
func (l *Launch) shape(c *Call, t Tuning, work uint32, sc Scratch) {
	most, per := 128, 1
	switch l.Algo {
	case Direct, Multicast, Sent:
		most, per = t.Blocks, 4
		if c.Op == AllToAll {
			work *= uint32(c.N)
			if work <= 128*4*512 { // fewer blocks, with more than one tile each, finish sooner
				most = min(most, 64)
			}
		}
	case Push:
		l.Block, per = 512, PushUnits/512
		if c.Op == ReduceScatter {
			per = ScatterUnits / 512
		}
		most = t.PushBlocks
	case OneShot:
		if c.Op == ReduceScatter {
			most = 256
		}
	}
	if l.Block == 0 {
		l.Block = 512
		for l.Algo != Direct && l.Algo != Multicast && l.Algo != Sent && l.Block > 64 && int(work) <= l.Block/2*64 {
			l.Block /= 2
		}
		if l.Algo == LL && work <= 256 { // one block, no more
			l.Block = max(64, (int(work)+31)&^31)
		}
	}
	if c.Blocks > 0 {
		most = c.Blocks
	}
	most = min(most, MaxBlocks)
	if l.Algo == Push { // every block has slots of its own
		most = min(most, int(sc.StagingSize/(uint64(c.N)*pushStaging)))
	}
	l.Grid = max(1, min(sc.share(most), (int(work)+l.Block*per-1)/(l.Block*per)))
}

// name finds the kernel: specialised where one exists, with or without a segment table.
func (l *Launch) name(c *Call) {
	files := [...]string{AllReduce: "allreduce", AllGather: "allgather", ReduceScatter: "reducescatter", AllToAll: "alltoall"}
	suffix := map[Algo]string{OneShot: "_oneshot", TwoShot: "_twoshot", LL: "_ll", Direct: "_direct", Push: "_push", Multicast: "_multicast", Sent: "_sent"}[l.Algo]
	l.Image = files[c.Op] + suffix
	if c.Op == ReduceScatter && l.Algo == OneShot {
		l.Image = "reducescatter_ll"
	}
	l.Kernel = c.Op.String() + suffix
	if l.Algo == Multicast { // for groups of any size
		if c.reduces() {
			l.Kernel += fmt.Sprintf("_%v", c.DType)
		}
	} else if c.reduces() {
		if l.Algo != LL && c.fast() {
			l.Kernel += fmt.Sprintf("_%v_n%d", c.DType, c.N)
		}
	} else if (c.N == 2 || c.N == 4 || c.N == 8) && !(c.Op == AllToAll && l.Algo == Direct) {
		l.Kernel += fmt.Sprintf("_n%d", c.N)
	}
	if len(c.Segs) > 1 {
		l.Kernel += "_segs"
		l.Segs = MaxSegs
	}
}

// StagedUnit is the unit of the kernel that PlanStaged plans for c, in bytes.
func StagedUnit(c Call) uint64 {
	if c.fast() {
		return 16
	}
	return 8
}

// PlanStaged plans the kernel that folds pieces which are in staging memory. The
// caller fills in everything of the arguments but segments, units, type and
// reduction. c has at most MaxSegs segments: of each its own piece, the result and the
// bytes of a piece. In staging, those of a rank are contiguous, each on a
// multiple of StagedUnit.
func PlanStaged(c Call) (*Launch, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	l := &Launch{Image: "staged", Kernel: "staged_any", Algo: Engine, Segs: 1, Block: 512}
	a := &l.Args
	a.N, a.Op, a.DType, a.Segs = uint32(c.N), uint32(c.Red), uint32(c.DType), c.Segs
	if c.fast() {
		l.Kernel = fmt.Sprintf("staged_%v_n%d", c.DType, c.N)
	}
	if len(c.Segs) > 1 {
		l.Kernel, l.Segs = l.Kernel+"_segs", MaxSegs
	}
	if err := a.SetUnits(StagedUnit(c)); err != nil {
		return nil, &PlanError{c.Op, err.Error()}
	}
	l.Grid = max(1, min(int(a.Units+2047)/2048, 128))
	if c.Blocks > 0 {
		l.Grid = min(l.Grid, c.Blocks)
	}
	return l, nil
}

package kernels

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Collective is the kind of a collective.
type Collective uint8

// The collectives that have kernels.
const (
	AllReduce Collective = iota
	AllGather
	ReduceScatter
	AllToAll
	Barrier
	AllToAllUneven
	Broadcast // these three are made of the others' kernels and of copies
	Permute
	Reduce
	AllGatherMatmul // a matmul that gathers its left operand, see NewGatheringMatmul
)

var collectiveNames = [...]string{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "all_to_all_uneven",
	"broadcast", "collective_permute", "reduce", "all_gather_matmul"}

// String is the collective's name in kernels and errors.
func (c Collective) String() string {
	if int(c) < len(collectiveNames) {
		return collectiveNames[c]
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// Reduction is how elements are combined. Bits equal the device's.
type Reduction uint8

// The reductions. Avg is for floats only.
const (
	Sum Reduction = iota
	Avg
	Prod
	Min
	Max
)

// String is the reduction's name.
func (r Reduction) String() string {
	if r <= Max {
		return [...]string{"sum", "avg", "prod", "min", "max"}[r]
	}
	return fmt.Sprintf("reduction(%d)", uint8(r))
}

// Algo is a protocol.
type Algo uint8

// The protocols. Auto lets Plan choose by size.
const (
	Auto      Algo = iota
	OneShot        // packets that are their own flags, one hop
	TwoShot        // the same, two hops
	LL             // packets with flags, one hop, any type and group size
	Direct         // reads and writes the peers' tensors between two barriers
	Push           // writes into peers' staging and results, in chunks
	Engine         // copy engines move the bytes; not planned here
	Multicast      // the switches of NVLink add and copy; only where a group has it, see Call.Multicast
	Sent           // of ReduceScatter: matmuls have sent the pieces, see NewScatteringMatmul. Seg.Src is the own one
)

// String is the protocol's name.
func (a Algo) String() string {
	if a <= Sent {
		return [...]string{"auto", "oneshot", "twoshot", "ll", "direct", "push", "engine", "multicast", "sent"}[a]
	}
	return fmt.Sprintf("algo(%d)", uint8(a))
}

// Scratch is the layout of a group's scratch on every rank, as offsets from the
// symmetric base. Poisoned is 4*Region bytes (two halves of two regions), Flagged
// 2*FlaggedHalf.
type Scratch struct {
	Ctl         uint64
	Poisoned    uint64
	Region      uint64
	Flagged     uint64
	FlaggedHalf uint64
	Staging     uint64 // StagingSize bytes that hold no state between calls, or none
	StagingSize uint64
	Sharing     int // ranks that share a device; 0 is 1
}

// resident is how many threads of kernels that wait for peers a device holds at once: two
// blocks of 512 on each multiprocessor of those that the planner's grids are for. Blocks that
// have to wait for room wait for ever, if it is taken by blocks that wait for them.
const resident = 256 * 512

// slot is the bytes of one source's slot for a packet protocol. One shot needs one
// region only and takes both of a half together.
func (sc Scratch) slot(a Algo, n int) uint64 {
	switch a {
	case OneShot:
		return 2 * sc.Region / uint64(n) &^ 15
	case TwoShot:
		return sc.Region / uint64(n) &^ 15
	}
	return sc.FlaggedHalf / uint64(n) &^ 15
}

// pushStaging is the bytes of staging that a block of the push protocol has for each
// source, in all_reduce and in reduce_scatter.
const pushStaging = 16 * PushUnits * PushDepth

// Call is a collective to be planned. Segs are the tensors of the bucket.
type Call struct {
	Op        Collective
	Red       Reduction
	DType     dtype.DType
	N         int
	Segs      []Seg
	Symmetric bool // every source and destination lies at the same offset on every rank
	Algo      Algo
	// Multicast says that the ranks' symmetric memory can be reached through multicast,
	// RankOrder that sums in another order than that of the ranks will not do, which are
	// all sums through multicast.
	Multicast, RankOrder bool

	Blocks  int // grid, 0 for the planner's
	Threads int // block, 0 for the planner's
}

// Launch is a planned call: which kernel of which image, its grid and its arguments.
type Launch struct {
	Image, Kernel string
	Algo          Algo
	Grid, Block   int
	Segs          int // segments the kernel's argument structure holds
	Args          Args
}

// fast says whether the kernels specialised for sums of common floats serve c.
func (c *Call) fast() bool {
	switch c.DType {
	case dtype.F32, dtype.BF16, dtype.F16:
	default:
		return false
	}
	return (c.N == 2 || c.N == 4 || c.N == 8) && (c.Red == Sum || c.Red == Avg)
}

// multicast says whether the kernels that use multicast may serve c.
func (c *Call) multicast() bool {
	if !c.Multicast || !c.Symmetric {
		return false
	}
	common := c.DType == dtype.F32 || c.DType == dtype.BF16 || c.DType == dtype.F16
	return c.Op == AllGather || c.Op == AllReduce && c.Red == Sum && common && !c.RankOrder
}

// sent says whether matmuls may have sent the pieces of c.
func (c *Call) sent(total uint64, sc Scratch) bool {
	return c.Op == ReduceScatter && c.fast() && c.DType != dtype.F32 && len(c.Segs) == 1 && c.Segs[0].align() == 4 &&
		total <= sc.StagingSize/uint64(c.N)
}

func (c *Call) prefersMulticast(t *Tuning, full uint64) bool {
	limit := t.MulticastGather
	if c.Op == AllReduce {
		limit = t.MulticastReduce
	}
	return limit > 0 && full >= limit && c.multicast()
}

// PrefersMulticast says whether Plan with Auto would choose multicast for c.
func (c *Call) PrefersMulticast(t Tuning) bool {
	var total uint64
	for _, s := range c.Segs {
		total += s.Bytes
	}
	return c.prefersMulticast(&t, c.full(total))
}

// full is the bytes of operand or result, whichever is larger, of total bytes a piece.
func (c *Call) full(total uint64) uint64 {
	if c.Op != AllReduce {
		total *= uint64(c.N)
	}
	return total
}

// Reduces says whether kernels compute the reduction in the element type itself. The
// integers that came later than the kernels have none; see ReduceAs.
func Reduces(red Reduction, t dtype.DType) bool {
	return t.Valid() && t < dtype.Bool && (red != Avg || t.IsFloat())
}

// ReduceAs is the element type in which kernels give the bits of the reduction in t, if
// there is one: integers wrap to the same bits with a sign or without, and a bool is the
// byte 0 or 1.
func ReduceAs(red Reduction, t dtype.DType) (as dtype.DType, ok bool) {
	as = t
	switch wraps := red == Sum || red == Prod; {
	case t == dtype.Bool && (red == Min || red == Max):
		as = dtype.U8
	case t == dtype.U32 && wraps:
		as = dtype.I32
	case t == dtype.U64 && wraps:
		as = dtype.I64
	}
	return as, Reduces(red, as)
}

func (c *Call) reduces() bool { return c.Op == AllReduce || c.Op == ReduceScatter }

func (c *Call) check() error {
	fail := func(format string, args ...any) error {
		return &PlanError{c.Op, fmt.Sprintf(format, args...)}
	}
	if c.N < 2 || c.N > MaxRanks {
		return fail("a group of %d ranks: kernels serve 2 to %d", c.N, MaxRanks)
	}
	if c.Op > AllToAll {
		return fail("no kernel of its own")
	}
	if !c.DType.Valid() {
		return fail("element type %v", c.DType)
	}
	if len(c.Segs) == 0 || len(c.Segs) > MaxSegs {
		return fail("%d tensors in one launch: 1 to %d are possible", len(c.Segs), MaxSegs)
	}
	if c.reduces() {
		if c.Red > Max {
			return fail("unknown reduction %v", c.Red)
		}
		if c.DType == dtype.Bool {
			return fail("bool cannot be reduced")
		}
		if c.Red == Avg && !c.DType.IsFloat() {
			return fail("avg of %v: only floats can be averaged", c.DType)
		}
		if !Reduces(c.Red, c.DType) {
			return NewTypeError(c.Op, c.Red, c.DType)
		}
	}
	size := uint64(c.DType.Size())
	for i, s := range c.Segs {
		if s.Bytes%size != 0 {
			return fail("tensor %d has %d bytes, no multiple of an element of %v", i, s.Bytes, c.DType)
		}
		if (s.Src|s.Dst)%size != 0 {
			return fail("tensor %d at %#x -> %#x is not aligned to an element of %v", i, s.Src, s.Dst, c.DType)
		}
	}
	return nil
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
		return nil, &RoomError{PlanError{c.Op, fmt.Sprintf("%d bytes do not fit in the scratch for %v packets of %d ranks: put the tensors in symmetric memory or split the call", total, algo, c.N)}}
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
	if sc.Sharing > 1 {
		most = max(1, min(most, resident/(l.Block*sc.Sharing)))
	}
	if sc.Sharing > 1 && l.Algo == Sent { // a matmul that others wait for needs multiprocessors of its own, two in a cluster
		most = max(1, min(most, partsFor/2/sc.Sharing))
	}
	l.Grid = max(1, min(most, (int(work)+l.Block*per-1)/(l.Block*per)))
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

// PlanStaged plans the kernel that folds pieces which lie in staging memory. The
// caller fills in everything of the arguments but segments, units, type and
// reduction. c has at most MaxSegs segments: of each its own piece, the result and the
// bytes of a piece. In staging, those of a rank lie one behind the other, each on a
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

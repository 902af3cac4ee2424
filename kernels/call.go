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
	AllToAllV
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

// sharedBlocks is how many blocks of kernels that wait for peers all ranks of a device have
// together, in one group: on a quarter of its multiprocessors at most. A rank has kernels of several
// groups at once, and the others are for what these wait for: a matmul or a convolution may need whole
// multiprocessors, or two that are neighbours, and waits for ever if each holds a block that waits for it.
const sharedBlocks = partsFor / 4

// share is how many of so many blocks a rank has where it shares its device.
func (sc Scratch) share(blocks int) int {
	if sc.Sharing > 1 {
		return max(1, min(blocks, sharedBlocks/sc.Sharing))
	}
	return blocks
}

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
	Symmetric bool // every source and destination is at the same offset on every rank
	Algo      Algo
	// Multicast says that the ranks' symmetric memory can be reached through multicast,
	// RankOrder that sums in another order than that of the ranks will not do, which are
	// all sums through multicast.
	Multicast, RankOrder bool

	Blocks  int // grid, 0 for the planner's
	Threads int // block, 0 for the planner's
}

// fast reports whether the kernels specialised for sums of common floats serve c.
func (c *Call) fast() bool {
	switch c.DType {
	case dtype.F32, dtype.BF16, dtype.F16:
	default:
		return false
	}
	return (c.N == 2 || c.N == 4 || c.N == 8) && (c.Red == Sum || c.Red == Avg)
}

// multicast reports whether the kernels that use multicast may serve c.
func (c *Call) multicast() bool {
	if !c.Multicast || !c.Symmetric {
		return false
	}
	common := c.DType == dtype.F32 || c.DType == dtype.BF16 || c.DType == dtype.F16
	return c.Op == AllGather || c.Op == AllReduce && c.Red == Sum && common && !c.RankOrder
}

// sent reports whether matmuls may have sent the pieces of c.
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

// PrefersMulticast reports whether Plan with Auto would choose multicast for c.
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

// Reduces reports whether kernels compute the reduction in the element type itself. The
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

package kernels

import "fmt"

// Co-resident kernels are those that begin at once on multiprocessors which matmuls
// hold: small blocks with few registers and little shared memory (see src/coresident.h).
// They wait for no peer, so any grid size works.

// CoresidentBlocks is the largest grid of a co-resident kernel: a block for every
// multiprocessor of an H100 or H200.
//
// What a matmul's block leaves of a multiprocessor is given out twice, it seems, and
// again only when that block has left: in measurements two co-resident kernels of 132 blocks
// began at once while one matmul ran, or one of 264, and the next waited for the
// matmul's end. So kernels with little work get few blocks, and many of them find
// room. Fewer for large copies lose: while some matmuls run, a block copies only 1.1 bytes a
// nanosecond, and the own part of a gather by 57 blocks took twice as long as the links.
const CoresidentBlocks = 132

// A block gets so many units at the least: a few times of what is under way in it.
const (
	coresidentCopyUnits   = 4096 // 64 KiB, about 20 us while a matmul runs
	coresidentReduceUnits = 1024
)

const (
	coresidentImage = "coresident"
	coresidentBlock = 32
)

// PlanCoresidentCopy plans a kernel that copies the bytes of every segment within the
// device, with any alignment. The ranges of a launch must not overlap; segments
// that are in place already, or empty, are left out. It gives a nil launch when
// nothing is left. There are at most MaxSegs segments. A launch with two addresses
// that differ modulo 16 is several times slower. The arguments that depend on the
// rank are the caller's to fill in, though the kernel needs none of them.
func PlanCoresidentCopy(segs []Seg) (*Launch, error) {
	fail := func(reason string) (*Launch, error) { return nil, &PlanError{AllGather, reason} }
	l := &Launch{Image: coresidentImage, Kernel: "coresident_copy", Algo: Engine, Block: coresidentBlock, Segs: 1}
	even := true
	for _, s := range segs {
		if s.Bytes > 0 && s.Src != s.Dst {
			l.Args.Segs = append(l.Args.Segs, s)
			even = even && (s.Src^s.Dst)%16 == 0
		}
	}
	if !even {
		l.Kernel = "coresident_copy_any"
	}
	switch n := len(l.Args.Segs); {
	case n == 0:
		return nil, nil
	case n > MaxSegs:
		return fail(fmt.Sprintf("%d copies in one launch: at most %d are possible", n, MaxSegs))
	case n > 1:
		l.Kernel, l.Segs = l.Kernel+"_segs", MaxSegs
	}
	for i, s := range l.Args.Segs {
		if s.Src < s.Dst+s.Bytes && s.Dst < s.Src+s.Bytes {
			return fail(fmt.Sprintf("copy %d: %d bytes at %#x and %#x overlap", i, s.Bytes, s.Src, s.Dst))
		}
	}
	if err := l.Args.SetUnits(16); err != nil {
		return fail(err.Error())
	}
	l.Grid = coresidentGrid(l.Args.Units, coresidentCopyUnits)
	return l, nil
}

// PlanCoresidentReduce plans the kernel that reduces pieces which are in staging memory, with
// the bits of PlanStaged's. c has one segment: the own piece, the result, which may
// be the own piece's place, and the bytes of a piece. The caller fills in what
// depends on the rank, and Args.Scratch and Args.Slot: multiples of 16, as the base.
// c.Blocks bounds the grid if it is not 0. A call of zero bytes gives a nil launch.
//
// Its kernels sum and average f32, bf16 and f16 of 2, 4 and 8 ranks at addresses
// aligned to 16. For all others the plan is PlanStaged's, whose kernel waits for
// multiprocessors but then is much faster than a co-resident one with their arithmetic.
func PlanCoresidentReduce(c Call) (*Launch, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if !c.reduces() || len(c.Segs) != 1 {
		return nil, &PlanError{c.Op, fmt.Sprintf("a reduction of %d tensors: it takes one, of a reduction", len(c.Segs))}
	}
	s := c.Segs[0]
	if s.Bytes == 0 {
		return nil, nil
	}
	if !c.fast() || (s.Src|s.Dst)%16 != 0 {
		return PlanStaged(c)
	}
	l := &Launch{Image: coresidentImage, Kernel: fmt.Sprintf("coresident_reduce_%v_n%d", c.DType, c.N), Algo: Engine, Block: coresidentBlock, Segs: 1}
	a := &l.Args
	a.N, a.Op, a.DType, a.Segs = uint32(c.N), uint32(c.Red), uint32(c.DType), []Seg{s}
	if err := a.SetUnits(16); err != nil {
		return nil, &PlanError{c.Op, err.Error()}
	}
	l.Grid = coresidentGrid(a.Units, coresidentReduceUnits)
	if c.Blocks > 0 {
		l.Grid = min(l.Grid, c.Blocks)
	}
	return l, nil
}

// coresidentGrid gives every block at least so many units, if there are enough.
func coresidentGrid(units, least uint32) int {
	return max(1, min(CoresidentBlocks, int((uint64(units)+uint64(least)-1)/uint64(least))))
}

package gemm

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/machine"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/prelude"
)

//go:embed grouped.cu
var groupedSource string

// Sizes of grouped.cu.
const (
	groupedSide   = 128 // of a block's tile
	groupedBlock  = 128
	groupedShared = 4 * 2 * 8192
)

// grouped is a checked call of "grouped_matmul": groups of rows of a, with a matrix of b for
// each, or of inner indices of both. Groups of columns are groups of rows of the transposed matmul.
type grouped struct {
	typ                       dtype.DType
	inner                     bool
	rows, cols, depth, groups int64
	a, b, out                 strided // inner elements of out are its columns
	ends                      library.Tensor
}

// strided is an operand or the result: strides of its outer and inner elements, and of groups.
type strided struct {
	at                  driver.Ptr
	outer, inner, group int64
	inside, wide        bool // inner elements are contiguous; 8 contiguous elements can be copied at once
}

// groupedOf reads a call. What the kernel does not do wraps library.ErrNotServed; what
// contradicts the op table is a *CallError.
func groupedOf(c *library.Call) (*grouped, error) {
	bad := func(format string, args ...any) error {
		return &CallError{Op: c.Op, Reason: fmt.Sprintf(format, args...)}
	}
	if len(c.Ins) != 3 || len(c.Outs) != 1 {
		return nil, bad("%d operands and %d results", len(c.Ins), len(c.Outs))
	}
	a, b, ends, out := c.Ins[0], c.Ins[1], c.Ins[2], c.Outs[0]
	ra, rb := len(a.Shape), len(b.Shape)
	if min(ra, rb) != 2 || max(ra, rb) > 3 || len(ends.Shape) != 1 {
		return nil, bad("%v x %v, ends %v", a.Shape, b.Shape, ends.Shape)
	}
	p := &grouped{typ: a.DType, inner: ra == rb, rows: a.Shape[ra-2], cols: b.Shape[rb-1], depth: a.Shape[ra-1], groups: ends.Shape[0], ends: ends}
	want := []int64{p.rows, p.cols}
	if p.inner {
		want = []int64{p.groups, p.rows, p.cols}
	}
	if b.Shape[rb-2] != p.depth || ra == 3 && a.Shape[0] != p.groups || rb == 3 && b.Shape[0] != p.groups || !slices.Equal(out.Shape, want) {
		return nil, bad("%v x %v in %d groups -> %v", a.Shape, b.Shape, p.groups, out.Shape)
	}
	if a.DType != dtype.BF16 && a.DType != dtype.F16 || b.DType != a.DType || out.DType != a.DType || ends.DType != dtype.I32 && ends.DType != dtype.I64 {
		return nil, fmt.Errorf("%w: %s of %v and %v to %v, ends %v", library.ErrNotServed, c.Op, a.DType, b.DType, out.DType, ends.DType)
	}
	if max(p.rows, p.cols, p.depth, p.groups) > math.MaxInt32-1024 {
		return nil, fmt.Errorf("%w: %s %v x %v", library.ErrNotServed, c.Op, a.Shape, b.Shape)
	}
	p.a, p.b, p.out = stridedOf(a), stridedOf(b), stridedOf(out)
	p.b.outer, p.b.inner = p.b.inner, p.b.outer
	if ra > rb {
		p.a, p.b, p.rows, p.cols = p.b, p.a, p.cols, p.rows
		p.out.outer, p.out.inner = p.out.inner, p.out.outer
	}
	p.a.arrange(p.rows, p.depth, p.groups)
	p.b.arrange(p.cols, p.depth, p.groups)
	p.out.arrange(p.rows, p.cols, p.groups)
	if blocks, across, _ := p.blocks(); !p.inner && across > 0 && blocks/across > math.MaxInt32/groupedSide { // rows that blocks count
		return nil, fmt.Errorf("%w: %s of %d rows in %d groups", library.ErrNotServed, c.Op, p.rows, p.groups)
	}
	return p, nil
}

func stridedOf(t library.Tensor) strided {
	s := strided{at: t.At}
	n := len(t.Strides)
	if n == 3 {
		s.group = t.Strides[0]
	}
	s.outer, s.inner = t.Strides[n-2], t.Strides[n-1]
	return s
}

// arrange finds which elements are contiguous. Strides of single elements do not count.
func (s *strided) arrange(outer, inner, groups int64) {
	for _, d := range []struct {
		size   int64
		stride *int64
	}{{outer, &s.outer}, {inner, &s.inner}, {groups, &s.group}} {
		if d.size == 1 {
			*d.stride = 0
		}
	}
	aligned := s.at%16 == 0 && s.group%8 == 0
	s.wide = aligned && s.inner == 1 && s.outer%8 == 0
	s.inside = s.wide || s.outer != 1
	if !s.inside {
		s.wide = aligned && s.inner%8 == 0
	}
}

// on is the kernel's source on a machine.
func (p *grouped) on(machine string) string {
	is := map[bool]int{true: 1}
	return fmt.Sprintf("#define BF16 %d\n#define INNER %d\n#define A_INNER %d\n#define A_WIDE %d\n#define B_INNER %d\n#define B_WIDE %d\n#define OUT_WIDE %d\n#define OUT_DOWN %d\n#define ENDS %s\n%s%s",
		is[p.typ == dtype.BF16], is[p.inner], is[p.a.inside], is[p.a.wide], is[p.b.inside], is[p.b.wide], is[p.out.inside && p.out.wide && p.cols%8 == 0], is[!p.out.inside],
		map[dtype.DType]string{dtype.I32: "int", dtype.I64: "i64"}[p.ends.DType], machine, groupedSource)
}

// blocks is how many there are at most, whatever the ends, how many tiles are adjacent, and
// how many are of a matmul.
func (p *grouped) blocks() (blocks, across, tiles int64) {
	count := func(n int64) int64 { return (n + groupedSide - 1) / groupedSide }
	across = count(p.cols)
	tiles = across * count(p.rows)
	if p.inner {
		return p.groups * tiles, across, tiles
	}
	lost := int64(groupedSide - 1) // rows of a group's last tile, and before its first row
	if p.a.wide && !p.a.inside {
		lost += 7
	}
	return (p.rows + min(p.groups+1, p.rows)*lost) / groupedSide * across, across, tiles
}

// params is struct args of grouped.cu.
func (p *grouped) params(across, tiles int64) []byte {
	var out []byte
	for _, n := range []int64{int64(p.a.at), p.a.outer, p.a.inner, p.a.group, int64(p.b.at), p.b.outer, p.b.inner, p.b.group,
		int64(p.ends.At), int64(p.out.at), p.ends.Strides[0], p.out.outer, p.out.inner, p.out.group} {
		out = binary.LittleEndian.AppendUint64(out, uint64(n))
	}
	for _, n := range []int64{p.rows, p.cols, p.depth, p.groups, across, tiles} {
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
	}
	return out
}

// planGrouped is Plan of "grouped_matmul".
func (l *Library) planGrouped(c *library.Call) (library.Step, error) {
	p, err := groupedOf(c)
	if err != nil {
		return nil, err
	}
	blocks, across, tiles := p.blocks()
	if blocks > math.MaxInt32 || tiles > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %s %v of more tiles than a launch can have", library.ErrNotServed, c.Op, c.Outs[0].Shape)
	}
	if l.host != nil {
		return library.OnHost(l.host, "gemm", c), nil
	}
	s := &step{name: "grouped"}
	if blocks == 0 {
		return s, nil
	}
	u := &library.Unit{Name: "grouped_" + prelude.Type(p.typ), Source: p.on(machine.Source), Options: []string{"--std=c++17"}}
	f, err := l.code.Function(u, "grouped", groupedShared)
	if err != nil {
		return nil, err
	}
	s.cmds.Launch(driver.Main, f, int(blocks), groupedBlock, groupedShared, p.params(across, tiles))
	return s, l.code.Load(f, &s.cmds)
}

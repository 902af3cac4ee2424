package kernels

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Matmul is the launch of a matmul of src/matmul.h: D = A B, row by row, of BF16 or F16.
type Matmul struct {
	Image, Name                  string
	Grid, Block, Cluster, Shared int
	// Boxes of the tensor maps of A, B and D, innermost first. Each map's dimensions are
	// those of the matrix as it is in memory, and the batch.
	A, B, D [2]uint32
	args    [5]uint32 // rows, cols, depth, batch, band
}

// gatherUnits is how many units of 16 bytes the blocks of a matmul that gathers send at a time.
const gatherUnits = 2048

// MatmulShape is what a matmul multiplies: Batch times A of M by K and B of K by N. TransA
// says that A is column-major, TransB that B does.
type MatmulShape struct {
	DType          dtype.DType
	M, N, K, Batch int64
	TransA, TransB bool
}

// Depth of a stage, as in src/matmul.h, and the threads of a block.
const (
	matmulDepth   = 64
	matmulThreads = 384
	matmulBand    = 2048 // rows that are computed before the next column of tiles, for the cache
)

// MatmulTile is a way of cutting a matmul that there are kernels for, as in src/matmul.h: the rows
// and columns of a tile, a block's stages, the columns and the turns of the slices that results
// leave through; a cluster's blocks along rows and columns, and the parts of K it has.
type MatmulTile struct {
	Rows, Columns, Stages, Width, Turns int64
	ClusterRows, ClusterColumns, Split  int64
	// What a step of 64 of K and a tile's end take of a multiprocessor, in microseconds on
	// an H200 at the rate that its power allows. They rank tiles, and stand for no time.
	step, end float64
}

// MatmulTiles lists all tiles.
func MatmulTiles() []MatmulTile {
	return []MatmulTile{
		{256, 176, 3, 88, 2, 1, 1, 1, 1.045, 3.0},
		{256, 160, 3, 40, 4, 1, 1, 1, 0.965, 4.0},
		{256, 128, 4, 64, 2, 1, 2, 1, 0.796, 2.0},
		{128, 256, 4, 64, 2, 2, 1, 1, 0.761, 3.1},
		{128, 256, 4, 64, 2, 1, 1, 1, 0.751, 3.0},
		{128, 224, 4, 56, 2, 2, 1, 1, 0.656, 4.2},
		{128, 192, 5, 64, 1, 2, 1, 1, 0.553, 2.3},
		{128, 176, 5, 88, 1, 2, 1, 1, 0.521, 1.9},
		{128, 160, 5, 40, 2, 2, 1, 1, 0.467, 3.2},
		{128, 128, 6, 64, 2, 2, 1, 1, 0.385, 1.6},
		{128, 128, 6, 64, 2, 1, 1, 1, 0.38, 1.8},
		{128, 64, 8, 64, 2, 1, 1, 1, 0.23, 4.2},
		{128, 128, 6, 64, 2, 1, 1, 2, 0.44, 4.6},
		{128, 64, 8, 64, 2, 1, 1, 2, 0.268, 4.5},
		{64, 64, 12, 64, 2, 2, 1, 1, 0.177, 4.1},
		{64, 64, 12, 64, 2, 1, 1, 1, 0.141, 4.1},
	}
}

// partsFor are the multiprocessors that the parts of K are chosen for, so that the results have
// the same bits on any number of them.
const partsFor = 132

// NewMatmul picks tiles and a grid for up to sms multiprocessors: the tiles whose waves take
// the shortest time. Sizes are positive and below 2^31.
func NewMatmul(s MatmulShape, sms int) (*Matmul, error) {
	like := s.best(partsFor, nil)
	return s.Tiled(s.best(sms, like.sumsAs), sms)
}

// NewGatheringMatmul is NewMatmul for rows of n ranks, s.M of each, which are gathered while it
// computes (src/gather.h). Its results have the bits of the matmul of all rows, unless the tiles that
// are fastest for that cut its sums over blocks: no kernel that gathers does.
func NewGatheringMatmul(s MatmulShape, n, sms int) (*Matmul, error) {
	all := s
	all.M *= int64(n)
	like := all.best(partsFor, (*MatmulTile).whole)
	s.Batch = int64(n)
	switch {
	case s.TransA || all.Batch != 1:
		return nil, fmt.Errorf("no kernel gathers columns, or batches: %d of %d rows", all.Batch, s.M)
	case s.M*s.K%8 != 0 || s.M*s.K >= 1<<34:
		return nil, fmt.Errorf("no kernel gathers %d x %d in units of 16 bytes", s.M, s.K)
	}
	m, err := s.Tiled(s.best(sms, like.sumsAs), min(sms, MaxBlocks))
	if err != nil {
		return nil, err
	}
	m.Image, m.Name = m.Image+"_gather", m.Name+"_gather"
	m.Shared += 32 // Sending of src/gather.h
	return m, nil
}

// NewScatteringMatmul is NewMatmul for results that belong to n ranks, s.M rows to each, which go into the
// memory of these: those of rank first first, of the others in turn. Its results have the bits of
// the matmul of all rows.
func NewScatteringMatmul(s MatmulShape, n, sms int) (*Matmul, error) {
	all := s
	all.M *= int64(n)
	if all.Batch != 1 || n > MaxRanks {
		return nil, fmt.Errorf("no kernel scatters batches, or to %d ranks", n)
	}
	like := all.best(partsFor, nil)
	s.Batch = int64(n)
	m, err := s.Tiled(s.best(sms, like.sumsAs), sms)
	if err == nil {
		m.Image, m.Name = m.Image+"_scatter", m.Name+"_scatter"
	}
	return m, err
}

// Gather sets what of a's arguments is not the rank's: the own rows, and where those of rank 0 are.
func (m *Matmul) Gather(a *Args, own, gathered, bytes uint64) []byte {
	a.Units, a.Per, a.Segs = uint32(bytes/16), gatherUnits, []Seg{{Src: own, Dst: gathered, Bytes: bytes}}
	return a.Pack(nil, 1)
}

// best is the fastest tile, of those that serve if that is not nil.
func (s *MatmulShape) best(sms int, serves func(*MatmulTile) bool) (best MatmulTile) {
	least := 0.0
	for _, t := range MatmulTiles() {
		if serves != nil && !serves(&t) || t.Split > divUp(s.K, matmulDepth) {
			continue
		}
		if time := s.Time(t, sms); best.Columns == 0 || time < least {
			best, least = t, time
		}
	}
	return best
}

func (t *MatmulTile) cluster() int64 { return t.ClusterRows * t.ClusterColumns * t.Split }

// resident is how many clusters run at the same time, one at least.
func (t *MatmulTile) resident(sms int) int64 { return max(1, int64(sms)/t.cluster()) }

// whole reports whether a block sums over all of K.
func (t *MatmulTile) whole() bool { return t.Split == 1 }

// sumsAs reports whether tiles cut the sum over K in the same parts.
func (t *MatmulTile) sumsAs(o *MatmulTile) bool {
	return t.Split == o.Split && (t.Rows == 64) == (o.Rows == 64)
}

// String is the end of the names of a tile's kernels.
func (t MatmulTile) String() string {
	return fmt.Sprintf("%dx%d_%dx%dx%d", t.Rows, t.Columns, t.ClusterRows, t.ClusterColumns, t.Split)
}

// Time is about what the tiles of t take, in microseconds.
func (s *MatmulShape) Time(t MatmulTile, sms int) float64 {
	rows, cols := s.clusters(t)
	waves := divUp(rows*cols*s.Batch, t.resident(sms))
	return float64(waves) * (float64(divUp(divUp(s.K, matmulDepth), t.Split))*t.step + t.end)
}

// clusters is how many rows and columns of clusters of tiles a result has.
func (s *MatmulShape) clusters(t MatmulTile) (rows, cols int64) {
	return divUp(s.M, t.Rows*t.ClusterRows), divUp(s.N, t.Columns*t.ClusterColumns)
}

// Tiled is a matmul by the tiles of t on up to sms multiprocessors.
func (s *MatmulShape) Tiled(t MatmulTile, sms int) (*Matmul, error) {
	typ, ok := map[dtype.DType]string{dtype.BF16: "bf16", dtype.F16: "f16"}[s.DType]
	if !ok || min(s.M, s.N, s.K, s.Batch) <= 0 || max(s.M, s.N, s.K, s.Batch) >= 1<<31 {
		return nil, fmt.Errorf("no kernel for matmuls of %v, %d times %d x %d x %d", s.DType, s.Batch, s.M, s.K, s.N)
	}
	rows, cols := s.clusters(t)
	tiles, depth := rows*cols*s.Batch, divUp(s.K, matmulDepth)
	if tiles >= 1<<31 || t.Split > depth {
		return nil, fmt.Errorf("a matmul of %d tiles of %v, %d steps of K", tiles, t, depth)
	}
	letter := map[bool]string{false: "n", true: "t"}
	m := &Matmul{
		Image: "matmul_" + typ,
		Name:  fmt.Sprintf("matmul_%s_%s%s_%v", typ, letter[s.TransA], letter[s.TransB], t),
		Grid:  int(min(tiles, t.resident(sms)) * t.cluster()), Block: matmulThreads, Cluster: int(t.cluster()),
		A: [2]uint32{matmulDepth, uint32(t.Rows / t.ClusterColumns)}, B: [2]uint32{64, matmulDepth}, D: [2]uint32{uint32(t.Width), 64},
		args: [5]uint32{uint32(rows), uint32(cols), uint32(depth), uint32(s.Batch), uint32(matmulBand / (t.Rows * t.ClusterRows))},
	}
	if s.TransA {
		m.A = [2]uint32{64, matmulDepth}
	}
	columns := divUp(t.Columns, 64) * 64
	if s.TransB {
		m.B = [2]uint32{matmulDepth, uint32(t.Columns / t.ClusterRows)}
		columns = t.Columns
	}
	m.Shared = int(t.Stages*((t.Rows+columns)*matmulDepth*2+16) + 2*t.Turns*64*t.Width*2)
	return m, nil
}

// Tiles is the kernel's last parameter, behind the encoded maps of A, B and D.
func (m *Matmul) Tiles() []byte {
	var out []byte
	for _, v := range m.args {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

// divUp is n / unit, rounded up.
func divUp(n, unit int64) int64 { return (n + unit - 1) / unit }

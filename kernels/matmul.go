package kernels

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Matmul is the launch of a matmul of matmul.h: D = A B, row by row, of BF16 or F16.
type Matmul struct {
	Image, Name                  string
	Grid, Block, Cluster, Shared int
	// Boxes of the tensor maps of A, B and D, innermost first. Each map's dimensions are
	// those of the matrix as it lies in memory, and the batch.
	A, B, D [2]uint32
	args    [5]uint32 // rows, cols, depth, batch, band
}

// MatmulShape is what a matmul multiplies: Batch times A of M by K and B of K by N. TransA
// says that A lies column by column, TransB that B does.
type MatmulShape struct {
	DType          dtype.DType
	M, N, K, Batch int64
	TransA, TransB bool
}

// Rows of a tile and depth of a stage, as in matmul.h, and the threads of a block.
const (
	matmulRows, matmulDepth = 128, 64
	matmulThreads           = 384
)

// matmulTile is a width of tiles that there are kernels for.
type matmulTile struct {
	columns, stages, cluster int64
	// What a step of 64 of K and a tile's end take of a multiprocessor, in microseconds on
	// an H200 at the rate that its power allows. They rank tiles, and stand for no time.
	step, end float64
}

var matmulTiles = []matmulTile{
	{256, 4, 2, 0.66, 1.5},
	{256, 4, 1, 0.68, 1.5},
	{128, 6, 2, 0.35, 1.2},
	{128, 6, 1, 0.37, 1.2},
	{64, 8, 1, 0.25, 1.0},
}

// NewMatmul picks tiles and a grid for up to sms multiprocessors: the tiles whose rounds take
// the shortest time. Sizes are positive and below 2^31.
func NewMatmul(s MatmulShape, sms int) (*Matmul, error) {
	typ, ok := map[dtype.DType]string{dtype.BF16: "bf16", dtype.F16: "f16"}[s.DType]
	if !ok || min(s.M, s.N, s.K, s.Batch) <= 0 || max(s.M, s.N, s.K, s.Batch) >= 1<<31 || sms < 2 {
		return nil, fmt.Errorf("no kernel for matmuls of %v, %d times %d x %d x %d on %d multiprocessors", s.DType, s.Batch, s.M, s.K, s.N, sms)
	}
	var best matmulTile
	var rows, cols, tiles int64
	depth, least := up(s.K, matmulDepth), 0.0
	for _, t := range matmulTiles {
		r, c := up(s.M, matmulRows*t.cluster), up(s.N, t.columns)
		if t.cluster > 1 && up(s.M, matmulRows)%t.cluster != 0 {
			continue // half of a cluster would compute nothing
		}
		n := r * c * s.Batch
		rounds := up(n, max(int64(sms)/t.cluster, 1))
		if time := float64(rounds) * (float64(depth)*t.step + t.end); best.columns == 0 || time < least {
			best, rows, cols, tiles, least = t, r, c, n, time
		}
	}
	if tiles >= 1<<31 {
		return nil, fmt.Errorf("a matmul of %d tiles", tiles)
	}
	letter := map[bool]string{false: "n", true: "t"}
	m := &Matmul{
		Image: "matmul_" + typ,
		Name:  fmt.Sprintf("matmul_%s_%s%s_%d_%d", typ, letter[s.TransA], letter[s.TransB], best.columns, best.cluster),
		Grid:  int(min(tiles, int64(sms)/best.cluster) * best.cluster), Block: matmulThreads, Cluster: int(best.cluster),
		Shared: int(best.stages*(matmulRows+best.columns)*matmulDepth*2 + 4*64*128 + best.stages*16),
		A:      [2]uint32{matmulDepth, matmulRows}, B: [2]uint32{64, matmulDepth}, D: [2]uint32{64, 64},
		args: [5]uint32{uint32(rows), uint32(cols), uint32(depth), uint32(s.Batch), uint32(16 / best.cluster)},
	}
	if s.TransA {
		m.A = [2]uint32{64, matmulDepth}
	}
	if s.TransB {
		m.B = [2]uint32{matmulDepth, uint32(best.columns / best.cluster)}
	}
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

// up is n / unit, rounded up.
func up(n, unit int64) int64 { return (n + unit - 1) / unit }

package kernels

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Every tile has its kernels in the images, fits into shared memory, and cuts operands into boxes
// that the copy unit takes.
func TestMatmulTiles(t *testing.T) {
	set, err := NewSet()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		for _, tile := range MatmulTiles() {
			for layout := range 4 {
				s := MatmulShape{d, 1000, 2000, 3000, 2, layout&1 != 0, layout&2 != 0}
				m, err := s.Tiled(tile, 132)
				if err != nil {
					t.Fatal(err)
				}
				ptx, err := set.Image(m.Image, 90, true)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(ptx), ".entry "+m.Name+"(") {
					t.Errorf("no kernel %s", m.Name)
				}
				if m.Shared > 227<<10 || m.Grid%m.Cluster != 0 || m.Grid > 132 {
					t.Errorf("%s: %d bytes of shared memory, %d blocks in clusters of %d", m.Name, m.Shared, m.Grid, m.Cluster)
				}
				for _, box := range [][2]uint32{m.A, m.B, m.D} {
					if box[0]*2%16 != 0 || box[0] != 64 && box[0]/8%2 == 0 || box[1] > 256 || box[0] == 64 && box[1]%8 != 0 {
						t.Errorf("%s: box %v", m.Name, box)
					}
				}
			}
		}
	}
}

// Sums are cut as the shape has it: on fewer multiprocessors results have the same bits.
func TestMatmulParts(t *testing.T) {
	cut := false
	for _, m := range []int64{1, 100, 512, 2048, 32000} {
		for _, n := range []int64{8, 256, 1000, 4096} {
			for _, k := range []int64{8, 512, 4096} {
				s := MatmulShape{DType: dtype.BF16, M: m, N: n, K: k, Batch: 1}
				want := s.best(partsFor, nil)
				cut = cut || want.Split > 1 || want.Rows < 128
				for _, sms := range []int{1, 7, 64, 131, 200} {
					if got := s.best(sms, &want); !got.sumsAs(&want) {
						t.Errorf("%+v: %v on %d multiprocessors, %v on %d", s, got, sms, want, partsFor)
					}
				}
			}
		}
	}
	if !cut {
		t.Error("no sum is cut")
	}
}

// Matmuls that gather have kernels, fit into shared memory, and sum as the matmul of all rows does, on any
// number of multiprocessors. What cuts its sums over blocks does not gather.
func TestGatheringMatmul(t *testing.T) {
	set, err := NewSet()
	if err != nil {
		t.Fatal(err)
	}
	served, cut := 0, 0
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		ptx, err := set.Image("matmul_"+d.String()+"_gather", 90, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []MatmulShape{{d, 1, 8, 8, 1, false, false}, {d, 512, 1536, 4096, 1, false, true}, {d, 2048, 14336, 8192, 1, false, false}, {d, 64, 256, 4096, 1, false, true}, {d, 100, 1000, 512, 1, false, false}, {d, 64, 64, 1 << 17, 1, false, false}} {
			for _, n := range []int{2, 4, 16} {
				all := s
				all.M *= int64(n)
				like := all.best(partsFor, nil)
				for _, sms := range []int{1, 66, 132, 1000} {
					m, err := NewGatheringMatmul(s, n, sms)
					if (err != nil) != (like.Split > 1) {
						t.Errorf("%+v by %d ranks, tiles %v: %v", s, n, like, err)
					}
					if err != nil {
						cut++
						continue
					}
					served++
					if !strings.Contains(string(ptx), ".entry "+m.Name+"(") {
						t.Errorf("no kernel %s", m.Name)
					}
					if rows := strings.Contains(m.Name, "_64x"); rows != (like.Rows == 64) {
						t.Errorf("%+v by %d ranks: %s sums otherwise than %v", s, n, m.Name, like)
					}
					if m.Shared > 227<<10 || m.Grid%m.Cluster != 0 || m.Grid > min(sms+1, MaxBlocks) || m.args[3] != uint32(n) {
						t.Errorf("%s: %d bytes of shared memory, %d blocks in clusters of %d, %d ranks", m.Name, m.Shared, m.Grid, m.Cluster, m.args[3])
					}
					var a Args
					m.Gather(&a, 64, 4096, uint64(2*s.M*s.K))
					if int64(a.Units)*8 != s.M*s.K || a.Per == 0 || len(a.Segs) != 1 {
						t.Errorf("%+v: %+v", s, a)
					}
				}
			}
		}
	}
	if served == 0 || cut == 0 {
		t.Errorf("%d served, %d cut", served, cut)
	}
	for _, s := range []MatmulShape{{dtype.BF16, 64, 64, 64, 1, true, false}, {dtype.BF16, 64, 64, 64, 2, false, false}, {dtype.BF16, 3, 64, 3, 1, false, false}, {dtype.F32, 64, 64, 64, 1, false, false}, {dtype.BF16, 1 << 24, 64, 1 << 13, 1, false, false}} {
		if m, err := NewGatheringMatmul(s, 2, 132); err == nil {
			t.Errorf("%+v by %s", s, m.Name)
		}
	}
}

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

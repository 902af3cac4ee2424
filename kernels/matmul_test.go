package kernels

import (
	"fmt"
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
					if got := s.best(sms, want.sumsAs); !got.sumsAs(&want) {
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

// kernelsOf lists the matmuls that carry a collective.
func kernelsOf(t *testing.T, what string) map[dtype.DType]map[string]bool {
	t.Helper()
	set, err := NewSet()
	if err != nil {
		t.Fatal(err)
	}
	kernels := map[dtype.DType]map[string]bool{}
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		ptx, err := set.Image("matmul_"+d.String()+"_"+what, 90, true)
		if err != nil {
			t.Fatal(err)
		}
		kernels[d] = map[string]bool{}
		for _, entry := range strings.Split(string(ptx), ".entry ")[1:] {
			kernels[d][entry[:strings.Index(entry, "(")]] = true
		}
	}
	return kernels
}

// Whatever the kernels multiply they scatter, too: by kernels that there are, that fit into shared memory, and that
// sum as the matmul of all rows does, on any number of multiprocessors.
func TestScatteringMatmul(t *testing.T) {
	kernels := kernelsOf(t, "scatter")
	for _, rows := range []int64{1, 64, 136, 1000, 8192} {
		for _, cols := range []int64{8, 64, 1536, 14336} {
			for _, depth := range []int64{8, 512, 4096, 1 << 17} {
				for i, n := range []int{2, 3, 4, 16} {
					s := MatmulShape{[]dtype.DType{dtype.BF16, dtype.F16}[i%2], rows, cols, depth, 1, i == 1, i < 2}
					all := s
					all.M *= int64(n)
					for _, sms := range []int{1, 66, 132} {
						m, err := NewScatteringMatmul(s, n, sms)
						alone, errAlone := NewMatmul(all, sms)
						if err != nil || errAlone != nil {
							t.Fatalf("%+v by %d ranks: %v, %v", s, n, err, errAlone)
						}
						split := func(m *Matmul) string { return strings.Split(m.Name, "_")[4][len("1x1"):] }
						if !kernels[s.DType][m.Name] || m.Shared > 227<<10 || m.args[3] != uint32(n) ||
							split(m) != split(alone) || strings.Contains(m.Name, "_64x") != strings.Contains(alone.Name, "_64x") {
							t.Errorf("%+v by %d ranks on %d multiprocessors: %s, %d bytes of shared memory, alone %s", s, n, sms, m.Name, m.Shared, alone.Name)
						}
					}
				}
			}
		}
	}
	for _, s := range []MatmulShape{{dtype.BF16, 64, 64, 64, 2, false, false}, {dtype.F32, 64, 64, 64, 1, false, false}} {
		if m, err := NewScatteringMatmul(s, 2, 132); err == nil {
			t.Errorf("%+v by %s", s, m.Name)
		}
	}
}

// What matmuls have sent is folded by a kernel that leaves multiprocessors to the matmuls of ranks that share its
// device, two of them side by side for a cluster, even if all other ranks wait in theirs.
func TestSentPlan(t *testing.T) {
	sc := Scratch{Staging: 1 << 20, StagingSize: 64 << 20}
	call := func(n int, bytes uint64) Call {
		return Call{Op: ReduceScatter, DType: dtype.BF16, N: n, Segs: []Seg{{Src: 4096, Dst: 8192, Bytes: bytes}}, Algo: Sent}
	}
	for _, n := range []int{2, 4, 8} {
		for _, sharing := range []int{1, 2, 4, 8} {
			sc.Sharing = sharing
			l, err := Plan(call(n, 8<<20), sc, DefaultTuning(n))
			if err != nil {
				t.Fatal(err)
			}
			if l.Args.Scratch != sc.Staging || l.Args.Slot != 8<<20 || l.Kernel != fmt.Sprintf("reduce_scatter_sent_bf16_n%d", n) {
				t.Errorf("%d ranks: %+v", n, l)
			}
			if sharing > 1 && sharing*l.Grid > sharedBlocks || sharing == 1 && l.Grid < 64 {
				t.Errorf("%d ranks, %d of a device: %d blocks", n, sharing, l.Grid)
			}
		}
	}
	sc.Sharing = 1
	odd := call(2, 1<<20)
	odd.Segs[0].Dst += 8
	two := call(2, 1<<20)
	two.Segs = append(two.Segs, two.Segs[0])
	wide := call(2, 1<<20)
	wide.DType = dtype.F32
	for _, c := range []Call{call(3, 1<<20), call(2, 64<<20), odd, two, wide} {
		if l, err := Plan(c, sc, DefaultTuning(c.N)); err == nil {
			t.Errorf("%+v: %s", c, l.Kernel)
		}
	}
}

// Whatever rows of several ranks the kernels multiply they gather, too: by kernels that there are, that fit
// into shared memory, and that sum as the matmul of all rows does if that cuts no sums over blocks, on any
// number of multiprocessors.
func TestGatheringMatmul(t *testing.T) {
	kernels := kernelsOf(t, "gather")
	uncut, cut := 0, 0
	for _, rows := range []int64{1, 7, 64, 136, 512, 1000, 2048, 8192} {
		for _, cols := range []int64{8, 64, 256, 1024, 1536, 3584, 14336, 32000} {
			for _, depth := range []int64{8, 64, 512, 1024, 4096, 14336, 1 << 17} {
				for i, n := range []int{2, 3, 4, 16} {
					s := MatmulShape{[]dtype.DType{dtype.BF16, dtype.F16}[i%2], rows, cols, depth, 1, false, i < 2}
					all := s
					all.M *= int64(n)
					like := all.best(partsFor, nil)
					if like.Split == 1 {
						uncut++
					} else {
						cut++
					}
					for _, sms := range []int{1, 66, 132, 1000} {
						checkGathering(t, s, n, sms, &like, kernels[s.DType])
					}
				}
			}
		}
	}
	if uncut == 0 || cut == 0 {
		t.Errorf("%d shapes whose sums are not cut, %d whose are", uncut, cut)
	}
	for _, s := range []MatmulShape{{dtype.BF16, 64, 64, 64, 1, true, false}, {dtype.BF16, 64, 64, 64, 2, false, false}, {dtype.BF16, 3, 64, 3, 1, false, false}, {dtype.F32, 64, 64, 64, 1, false, false}, {dtype.BF16, 1 << 24, 64, 1 << 13, 1, false, false}} {
		if m, err := NewGatheringMatmul(s, 2, 132); err == nil {
			t.Errorf("%+v by %s", s, m.Name)
		}
	}
}

// checkGathering checks a matmul that gathers where like are the tiles of one that does not.
func checkGathering(t *testing.T, s MatmulShape, n, sms int, like *MatmulTile, kernels map[string]bool) {
	m, err := NewGatheringMatmul(s, n, sms)
	if err != nil {
		t.Errorf("%+v by %d ranks, tiles %v: %v", s, n, like, err)
		return
	}
	if !kernels[m.Name] {
		t.Errorf("no kernel %s", m.Name)
	}
	if rows := strings.Contains(m.Name, "_64x"); like.Split == 1 && rows != (like.Rows == 64) {
		t.Errorf("%+v by %d ranks: %s sums otherwise than %v", s, n, m.Name, like)
	}
	if other, err := NewGatheringMatmul(s, n, 132); err != nil || strings.Contains(m.Name, "_64x") != strings.Contains(other.Name, "_64x") {
		t.Errorf("%+v by %d ranks: %s on %d multiprocessors, %+v on 132: %v", s, n, m.Name, sms, other, err)
	}
	if m.Shared > 227<<10 || m.Grid%m.Cluster != 0 || m.Grid > max(min(sms, MaxBlocks), m.Cluster) || m.args[3] != uint32(n) {
		t.Errorf("%s: %d bytes of shared memory, %d blocks in clusters of %d, %d ranks", m.Name, m.Shared, m.Grid, m.Cluster, m.args[3])
	}
	var a Args
	m.Gather(&a, 64, 4096, uint64(2*s.M*s.K))
	if int64(a.Units)*8 != s.M*s.K || a.Per == 0 || len(a.Segs) != 1 {
		t.Errorf("%+v: %+v", s, a)
	}
}

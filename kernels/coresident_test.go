package kernels

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// TestCoresidentPlans checks over all types, reductions and sizes of groups that plans
// name kernels that exist, with the arguments these take and no more than a warp.
func TestCoresidentPlans(t *testing.T) {
	have := entries(t, 80)
	look := func(l *Launch) {
		t.Helper()
		takes(t, have, l)
		if l.Image != "coresident" || l.Block != 32 || l.Grid < 1 || l.Grid > CoresidentBlocks {
			t.Fatalf("%s of %s: %d x %d", l.Kernel, l.Image, l.Grid, l.Block)
		}
	}
	folds := map[string]bool{}
	for _, dt := range dtype.All() {
		for red := Sum; red <= Max; red++ {
			for n := 2; n <= MaxRanks; n++ {
				for _, src := range []uint64{0, 8} {
					for _, bytes := range []uint64{8, 4096, 64 << 20} {
						l, err := PlanCoresidentReduce(Call{Op: ReduceScatter, DType: dt, Red: red, N: n, Segs: []Seg{{Src: src, Dst: 1 << 30, Bytes: bytes}}})
						if !Reduces(red, dt) {
							if err == nil {
								t.Fatalf("%v of %v was planned", red, dt)
							}
							continue
						}
						if err != nil {
							t.Fatal(err)
						}
						if l.Image == "staged" {
							if c := (&Call{DType: dt, Red: red, N: n}); c.fast() && src%16 == 0 {
								t.Fatalf("%v of %v on %d ranks is not co-resident", red, dt, n)
							}
							continue
						}
						look(l)
						folds[l.Kernel] = true
						if src%16 != 0 {
							t.Fatalf("%s at %#x", l.Kernel, src)
						}
					}
				}
			}
		}
	}
	if len(folds) != 9 {
		t.Errorf("plans name %d kernels of folds, not 9: %v", len(folds), folds)
	}
	for _, n := range []int{1, 2, MaxSegs, -1, -2} { // of any alignment below 0
		any := n < 0
		n = max(n, -n)
		var segs []Seg
		for i := range n {
			segs = append(segs, Seg{Src: uint64(i) << 24, Dst: 1<<40 + uint64(i)<<24, Bytes: uint64(i + 1)})
		}
		if any {
			segs[n-1].Src++
		}
		l, err := PlanCoresidentCopy(segs)
		if err != nil {
			t.Fatal(err)
		}
		look(l)
		if any != strings.HasPrefix(l.Kernel, "coresident_copy_any") {
			t.Errorf("%s for %+v", l.Kernel, segs)
		}
		if len(l.Args.Segs) != n {
			t.Errorf("%d of %d copies", len(l.Args.Segs), n)
		}
	}
}

func TestCoresidentEdges(t *testing.T) {
	in := Seg{Src: 64, Dst: 64, Bytes: 100}
	if l, err := PlanCoresidentCopy([]Seg{in, {Src: 1, Dst: 2}}); l != nil || err != nil {
		t.Errorf("nothing to copy: %v %v", l, err)
	}
	if l, err := PlanCoresidentCopy([]Seg{in, {Src: 0, Dst: 1008, Bytes: 10}}); err != nil || l.Kernel != "coresident_copy" || l.Args.Units != 1 {
		t.Errorf("one copy of ten bytes: %+v %v", l, err)
	}
	if l, err := PlanCoresidentReduce(Call{Op: AllReduce, DType: dtype.F32, N: 2, Segs: []Seg{{Src: 16, Dst: 32}}}); l != nil || err != nil {
		t.Errorf("nothing to fold: %v %v", l, err)
	}
	fold := Call{Op: AllReduce, DType: dtype.F32, N: 2, Blocks: 7, Segs: []Seg{{Src: 1 << 20, Dst: 1 << 30, Bytes: 1 << 20}}}
	if l, err := PlanCoresidentReduce(fold); err != nil || l.Grid != 7 {
		t.Errorf("seven blocks: %+v %v", l, err)
	}
	for bytes, want := range map[uint64]int{16: 1, 64 << 10: 1, 1 << 20: 16, 1<<20 + 1: 17, 64 << 20: CoresidentBlocks} {
		l, err := PlanCoresidentCopy([]Seg{{Src: 0, Dst: 1 << 40, Bytes: bytes}})
		if err != nil || l.Grid != want {
			t.Errorf("%d bytes: %+v %v, want %d blocks", bytes, l, err, want)
		}
	}
	two, gather, large := fold, fold, fold
	two.Segs = []Seg{fold.Segs[0], fold.Segs[0]}
	gather.Op = AllGather
	large.Segs = []Seg{{Src: 0, Dst: 1 << 40, Bytes: 1 << 36}}
	for _, c := range []Call{two, gather, large} {
		var pe *PlanError
		if _, err := PlanCoresidentReduce(c); !errors.As(err, &pe) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, segs := range [][]Seg{
		{{Src: 0, Dst: 8, Bytes: 9}},
		{{Src: 8, Dst: 0, Bytes: 9}},
		{{Src: 0, Dst: 1 << 40, Bytes: 1 << 36}},
		make33(),
	} {
		var pe *PlanError
		if _, err := PlanCoresidentCopy(segs); !errors.As(err, &pe) {
			t.Errorf("%d copies: %v", len(segs), err)
		}
	}
}

func make33() []Seg {
	var segs []Seg
	for i := range MaxSegs + 1 {
		segs = append(segs, Seg{Src: uint64(i) * 64, Dst: 1<<20 + uint64(i)*64, Bytes: 64})
	}
	return segs
}

// TestCoresidentFits checks that no co-resident kernel takes more registers than matmuls leave to a
// warp (TestImagesHold: nor spills more than is allowed).
func TestCoresidentFits(t *testing.T) {
	m, err := ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	im, err := m.Find("coresident", 90)
	if err != nil {
		t.Fatal(err)
	}
	if im.Cubin == "" {
		t.Fatal("co-resident kernels have no machine code: what the driver makes of their PTX may take more registers")
	}
	for name := range entries(t, 90) {
		if !strings.HasPrefix(name, "coresident_") {
			continue
		}
		if r, ok := m.Resources[name]; !ok || r.Registers > 32 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestStagedPlans checks that the plans of reductions of one and of several tensors name
// kernels that exist, with the arguments these take.
func TestStagedPlans(t *testing.T) {
	have := entries(t, 80)
	named := map[string]bool{}
	for _, dt := range dtype.All() {
		for red := Sum; red <= Max; red++ {
			for n := 2; n <= MaxRanks; n++ {
				for _, tensors := range []int{1, 2, MaxSegs, MaxSegs + 1} {
					c := Call{Op: ReduceScatter, DType: dt, Red: red, N: n}
					for i := range tensors {
						c.Segs = append(c.Segs, Seg{Src: uint64(i) << 20, Dst: 1<<40 + uint64(i)<<20, Bytes: uint64(dt.Size() * (i + 1))})
					}
					l, err := PlanStaged(c)
					if tensors > MaxSegs || !Reduces(red, dt) {
						var pe *PlanError
						if !errors.As(err, &pe) {
							t.Fatalf("%v of %v, %d tensors: %v", red, dt, tensors, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					takes(t, have, l)
					named[l.Kernel] = true
				}
			}
		}
	}
	if len(named) != 20 {
		t.Errorf("plans name %d kernels, not 20: %v", len(named), named)
	}
}

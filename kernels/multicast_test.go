package kernels

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// TestMulticastPlans plans every call through multicast, asked for and by tuning: who may
// have it gets a kernel that is there, with its arguments, and nobody else gets one.
func TestMulticastPlans(t *testing.T) {
	have := entries(t, 90)
	serves := func(c Call) bool {
		switch {
		case !c.Symmetric || !c.Multicast:
			return false
		case c.Op == AllGather:
			return true
		}
		return c.Op == AllReduce && c.Red == Sum && !c.RankOrder && (c.DType == dtype.F32 || c.DType == dtype.BF16 || c.DType == dtype.F16)
	}
	used := map[string]bool{}
	for _, algo := range []Algo{Auto, Multicast} {
		tune := DefaultTuning(4)
		if algo == Auto {
			tune.MulticastReduce, tune.MulticastGather = 1, 1
		}
		for _, op := range []Collective{AllReduce, AllGather, ReduceScatter, AllToAll} {
			for _, dt := range dtype.All() {
				for _, red := range []Reduction{Sum, Avg, Max} {
					for bits := range 8 {
						for _, n := range []int{2, 3, 4, 8, 16} {
							for _, segs := range []int{1, 3} {
								c := Call{Op: op, DType: dt, Red: red, N: n, Algo: algo, Symmetric: bits&1 == 0, Multicast: bits&2 == 0, RankOrder: bits&4 == 0}
								for range segs {
									c.Segs = append(c.Segs, Seg{Src: 1 << 20, Dst: 1 << 30, Bytes: 4096})
								}
								if c.check() != nil {
									continue
								}
								l, err := Plan(c, scratch(n), tune)
								if got := l != nil && l.Algo == Multicast; got != serves(c) {
									t.Fatalf("%+v: %+v %v", c, l, err)
								}
								var pe *PlanError
								if err != nil && !errors.As(err, &pe) || c.PrefersMulticast(tune) != (serves(c) && algo == Auto) {
									t.Fatalf("%+v: %v", c, err)
								}
								if !serves(c) {
									continue
								}
								used[l.Kernel] = true
								takes(t, have, l)
								if !UsesMulticast(l.Image) {
									t.Fatalf("%s does not use multicast", l.Image)
								}
							}
						}
					}
				}
			}
		}
	}
	for name := range have {
		if strings.Contains(name, "_multicast") && !used[name] {
			t.Errorf("no call has kernel %s", name)
		}
	}
	if len(used) != 8 {
		t.Errorf("%d kernels were planned: %v", len(used), used)
	}
}

// TestMulticastIsOff: by default no call of a group that has multicast goes through it,
// whatever its size, and calibrations that differ in it only have different digests.
func TestMulticastIsOff(t *testing.T) {
	for n := 2; n <= MaxRanks; n++ {
		if tune := DefaultTuning(n); tune.MulticastReduce != 0 || tune.MulticastGather != 0 {
			t.Errorf("n=%d: %+v", n, tune)
		}
		for _, op := range []Collective{AllReduce, AllGather} {
			for bytes := uint64(16); bytes <= 1<<32; bytes *= 16 {
				l, err := Plan(Call{Op: op, DType: dtype.F32, N: n, Symmetric: true, Multicast: true, Segs: []Seg{{Bytes: bytes}}}, scratch(n), DefaultTuning(n))
				if err != nil || l.Algo == Multicast {
					t.Errorf("%v n=%d %d bytes: %v %v", op, n, bytes, l, err)
				}
			}
		}
	}
	digests := map[string]bool{(*Calibration)(nil).Digest(): true}
	for i := range 2 {
		tune := DefaultTuning(4)
		*[]*uint64{&tune.MulticastReduce, &tune.MulticastGather}[i] = 1 << 20
		c := &Calibration{Groups: map[int]Tuning{4: tune}}
		digests[c.Digest()] = true
	}
	if len(digests) != 3 {
		t.Errorf("three calibrations have %d digests", len(digests))
	}
}

package interp

import (
	"context"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// small reports whether a verified module is cheap to run.
func small(m *ir.Module) bool {
	if m.World > 8 || len(m.Funcs()) == 0 {
		return false
	}
	order := m.Funcs()[0].Order()
	if len(order) > 100 {
		return false
	}
	total := int64(0)
	for _, n := range order {
		for _, v := range n.Results() {
			ts, _ := tensorTypes(v)
			for _, t := range ts {
				total += m.Bound(t.Shape().NumElems())
				if total > 1<<16 {
					return false
				}
			}
		}
	}
	return true
}

// Whatever verifies either runs or ends in an error; and it gives the same bytes
// with and without poison.
func FuzzRun(f *testing.F) {
	for _, c := range collectiveCases {
		f.Add(c.text, uint64(1))
	}
	for _, s := range []string{uneven, symbolic, lookups, inFlight} {
		f.Add(s, uint64(2))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		m, err := ir.Parse("fuzz.ir", text)
		if err != nil || m.Verify() != nil || !small(m) {
			return
		}
		fn := m.Funcs()[0]
		in, err := RandomInputs(fn, seed, RandomOptions{})
		if err != nil {
			return
		}
		o := Options{SkipVerify: true, MemoryLimit: 1 << 24}
		a, err := Run(context.Background(), fn, in, o)
		if err != nil {
			return
		}
		o.Poison = true
		b, err := Run(context.Background(), fn, in, o)
		if err != nil {
			t.Fatalf("fails with poison only: %v", err)
		}
		for r := range a {
			for i := range a[r] {
				if !Equal(a[r][i], b[r][i]) {
					t.Fatalf("rank %d output %d differs under poison", r, i)
				}
			}
		}
	})
}

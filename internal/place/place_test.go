package place

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/internal/pack"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/sim"
)

func TestAlign(t *testing.T) {
	if want := [2]int64{program.Align, sim.Align}; want != [2]int64{Align, Align} {
		t.Errorf("buffers are aligned to %d, programs to %d, storages of the simulator to %d", Align, program.Align, sim.Align)
	}
}

// dead is the definition of a dead operand, written out: no node but n touches the
// storage at n or later, no collective but n has it in flight then, and it is
// neither an output nor the caller's.
func dead(f *ir.Func, st *ir.Storages, n *ir.Node, s ir.StorageID) bool {
	holds := func(v *ir.Value) bool {
		return slices.ContainsFunc(st.Of(v), func(p ir.Placement) bool { return p.Storage == s })
	}
	root, _ := st.Root(s)
	if d := root.Def(); d.Op() == ir.OpInput && (root.Type().IsAsync() || d.Role() != ir.RoleSaved && d.Role() != ir.RoleTangent) {
		return false
	}
	for _, u := range f.Order() {
		if u == n || !slices.ContainsFunc(u.Args(), holds) && !slices.ContainsFunc(u.Results(), holds) {
			continue
		}
		until := u.At()
		if u.Op().IsCollective() {
			until = len(f.Order())
			for _, x := range u.Result(0).Uses() {
				if x.Node.Op() == ir.OpWaitTensor {
					until = x.Node.At()
				}
			}
		}
		if until > n.At() {
			return false
		}
	}
	return true
}

// On random programs, what InPlace allows is dead by definition and of the
// result's layout, and a dead operand of an elementwise operation alone is allowed.
func TestInPlaceAgreesWithDefinition(t *testing.T) {
	allowed, refused := 0, 0
	for seed := range uint64(150) {
		m, err := gen.Module(seed, gen.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Funcs() {
			st, err := ir.ComputeStorages(f)
			if err != nil {
				continue
			}
			a, err := Analyse(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range f.Order() {
				if len(n.Results()) != 1 || n.Op().Class() == ir.ClassView || n.Op() == ir.OpWaitTensor {
					continue
				}
				ts := n.Result(0).Type().Tensors()
				for k := range ts {
					for i, v := range n.Args() {
						if v.Type().IsAsync() {
							continue
						}
						s := st.Of(v)[0].Storage
						e := a.InPlace(n, k, i)
						if e == nil {
							allowed++
							if !dead(f, st, n, s) || !v.Type().Equal(ts[k]) {
								t.Fatalf("seed %d: %%%s may lie in place of operand %d, which is not dead\n%s", seed, n.Name(), i, m)
							}
							continue
						}
						refused++
						if n.Op().Info().Elementwise && len(n.Args()) == 1 && v.Type().Equal(ts[k]) && dead(f, st, n, s) && e.Hazard != Opaque {
							t.Fatalf("seed %d: %v, but it is dead\n%s", seed, e, m)
						}
					}
				}
			}
		}
	}
	if allowed < 100 || refused < 100 {
		t.Errorf("the sample is lopsided: %d allowed, %d refused", allowed, refused)
	}
}

// A plan survives as annotations, is correct, and is not taken for another function's.
func TestAnnotatedPlan(t *testing.T) {
	for seed := range uint64(50) {
		m, err := gen.Module(seed, gen.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Funcs() {
			l, err := Of(f)
			if err != nil {
				continue
			}
			plan, err := l.Place(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			l.Annotate(plan.Offsets)
			again, ok, err := l.Annotated()
			if err != nil || !ok || !slices.Equal(again.Offsets, plan.Offsets) || again.Height != plan.Height {
				t.Fatalf("seed %d: %v, %v: wrote %+v, read %+v", seed, ok, err, plan, again)
			}
			if plan.Height < plan.Bound {
				t.Errorf("seed %d: an arena of %d below its bound %d", seed, plan.Height, plan.Bound)
			}
			for _, n := range f.Order() {
				if n.Meta().Has(OffsetKey) {
					f.SetMeta(n, n.Meta().With(OffsetKey, attr.Ints(plan.Height, plan.Height+Align/2)))
					break
				}
			}
			if _, _, err := l.Annotated(); err == nil && len(l.Buffers) > 0 && plan.Height > 0 && l.Buffers[0].Size() > 0 {
				continue // one buffer alone may be above all others
			} else if err != nil && !strings.Contains(err.Error(), "stale") {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}
}

// Capacity errors keep the packer's and name the function's tensors.
func TestCapacityError(t *testing.T) {
	m, err := ir.Parse("t.ir", "world 1\nfunc @f(%x: f32[256]) -> (f32[256]) {\n  %a = neg %x : f32[256]\n  return %a\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Of(m.Funcs()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Place(t.Context(), 1024)
	var full *pack.CapacityError
	if !errors.As(err, &full) || full.Height != 2048 || !full.Proved {
		t.Fatalf("got %v, want a *pack.CapacityError", err)
	}
	for _, want := range []string{"needs 2048 bytes and may have 1024", "%a: f32[256], 1024 bytes", "%x: f32[256]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
	if _, err := l.Place(t.Context(), 2048); err != nil {
		t.Error(err)
	}
}

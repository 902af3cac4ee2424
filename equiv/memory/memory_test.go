package memory_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv/memory"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// Plans in which one value lies elsewhere are refused where package place, which goes by
// lifetimes, finds an overlap, and no plan is refused that it accepts.
func TestMemoryMutants(t *testing.T) {
	seeds := uint64(120)
	if testing.Short() {
		seeds = 30
	}
	refused, fine, unread := 0, 0, 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 9))
		m, err := gen.Module(seed, gen.Config{Nodes: 12 + r.IntN(30), World: 4, Alike: r.IntN(2) == 0, Effects: r.IntN(2) == 0, Flights: r.IntN(2) == 0})
		if err != nil {
			t.Fatal(err)
		}
		p, err := standard.Table().Parse([]string{"default", "cuda"}[r.IntN(2)])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&passes.Manager{}).Run(m, p); err != nil {
			t.Fatal(err)
		}
		if err := memory.Check(m.Funcs()[0]); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, m)
		}
		for at := range m.Funcs()[0].Order() {
			c := m.Clone()
			f := c.Funcs()[0]
			key, ok := misplace(r, f, f.Order()[at])
			if !ok {
				continue
			}
			l, wrong := place.Of(f)
			if wrong == nil {
				_, _, wrong = l.Annotated()
			}
			switch err := memory.Check(f); {
			case wrong == nil && err != nil:
				t.Errorf("seed %d: a plan in which %s of node %d changed is refused: %v\n%s", seed, key, at, err, c)
			case wrong == nil:
				fine++
			case err != nil:
				refused++
			case strings.Contains(wrong.Error(), "live at the same time"):
				unread++ // bytes that nobody reads, or that are the same value's
			default:
				t.Errorf("seed %d: a plan in which %s of node %d changed is accepted: %v\n%s", seed, key, at, wrong, c)
			}
		}
	}
	t.Logf("%d wrong plans refused, %d other plans accepted, %d overlap only where nobody reads", refused, fine, unread)
	if refused < 200 || unread > refused/4 {
		t.Errorf("%d wrong plans refused, %d accepted", refused, unread)
	}
}

// misplace puts a result of n where another value lies, or in place of an operand.
func misplace(r *rand.Rand, f *ir.Func, n *ir.Node) (key string, ok bool) {
	key = "offset"
	if r.IntN(3) == 0 {
		key = "inplace"
	}
	list := slices.Clone(n.Meta().Ints(key))
	if len(list) == 0 && key == "inplace" && len(n.Results()) == 1 && n.Meta().Has("offset") && len(n.Args()) > 0 && !n.Result(0).Type().IsAsync() {
		f.SetMeta(n, n.Meta().With(key, attr.Ints(r.Int64N(int64(len(n.Args()))))).With("offset", attr.Ints(-1)))
		return key, true
	}
	if len(list) == 0 {
		return key, false
	}
	k := r.IntN(len(list))
	if list[k] < 0 {
		return key, false
	}
	if key == "inplace" {
		list[k] = (list[k] + 1) % int64(max(1, len(n.Args())))
		f.SetMeta(n, n.Meta().With(key, attr.Ints(list...)))
		return key, true
	}
	var all []int64
	for _, o := range f.Order() {
		for _, at := range o.Meta().Ints(key) {
			if at >= 0 {
				all = append(all, at)
			}
		}
	}
	list[k] = all[r.IntN(len(all))]
	f.SetMeta(n, n.Meta().With(key, attr.Ints(list...)))
	return key, true
}

// Within a region a result may not take the place of an operand that a node behind it reads by
// another name, nor of one that its operation reads by rows.
func TestRegionsInPlace(t *testing.T) {
	for _, c := range []struct {
		nodes string
		fine  bool
	}{
		{"%n = add %m, %x : f32[4,8] !{fusion=0, inplace=[0]}\n%z = mul %n, %x : f32[4,8] !{fusion=0}", true},
		{"%n = add %m, %x : f32[4,8] !{fusion=0, inplace=[0]}\n%z = mul %m, %x : f32[4,8] !{fusion=0}", false},
		{"%n = add %m, %x : f32[4,8] !{fusion=0, inplace=[0]}\n%z = mul %a, %x : f32[4,8] !{fusion=0}", false},
		{"%n = softmax %m {dim=1} : f32[4,8] !{fusion=0, inplace=[0]}\n%z = mul %x, %x : f32[4,8] !{fusion=0}", false},
	} {
		m, err := ir.Parse("test", "world 1\nfunc @f(%x: f32[4,8]) -> (f32[4,8], f32[4,8]) {\n%m = neg %x : f32[4,8]\n%a = alias %m : f32[4,8]\n"+c.nodes+"\nreturn %n, %z\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := memory.Check(m.Func("f")); (err == nil) != c.fine {
			t.Errorf("%s: %v", c.nodes, err)
		}
		if _, err := place.Of(m.Func("f")); (err == nil) != c.fine {
			t.Errorf("package place: %s: %v", c.nodes, err)
		}
	}
}

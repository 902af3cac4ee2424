package equiv_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/cases"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"

	"github.com/rogpeppe/go-internal/diff"
)

// mutation is a way in which a pass could be wrong: it changes node n of a pass's result,
// or returns false.
type mutation struct {
	name  string
	apply func(r *rand.Rand, n *ir.Node) bool
}

var mutations = []mutation{
	{"swapped operands", func(_ *rand.Rand, n *ir.Node) bool {
		f := n.Func()
		for i := 1; i < len(n.DeclaredArgs()); i++ {
			if a, b := n.Arg(0), n.Arg(i); a != b && a.Type().Equal(b.Type()) {
				f.SetArg(n, 0, b)
				f.SetArg(n, i, a)
				return true
			}
		}
		return false
	}},
	{"another operand", func(r *rand.Rand, n *ir.Node) bool {
		if len(n.DeclaredArgs()) == 0 {
			return false
		}
		i := r.IntN(len(n.DeclaredArgs()))
		for m := n.Prev(); m != nil; m = m.Prev() {
			for _, v := range m.DeclaredResults() {
				if v != n.Arg(i) && v.Type().Equal(n.Arg(i).Type()) && !v.Type().IsAsync() {
					n.Func().SetArg(n, i, v)
					return true
				}
			}
		}
		return false
	}},
	{"operand from before a write", func(_ *rand.Rand, n *ir.Node) bool {
		for i, a := range n.DeclaredArgs() {
			if a.IsVersion() {
				n.Func().SetArg(n, i, a.Before())
				return true
			}
		}
		return false
	}},
	{"wrong group", func(_ *rand.Rand, n *ir.Node) bool {
		if n.Group() == nil {
			return false
		}
		for _, g := range n.Func().Module().Groups() {
			if g != n.Group() && g.Size() == n.Group().Size() {
				n.Func().SetGroup(n, g)
				return true
			}
		}
		return false
	}},
	{"wrong dim", func(_ *rand.Rand, n *ir.Node) bool {
		d, ok := n.Attrs().Get("dim")
		if k, is := d.AsInt(); ok && is {
			n.Func().SetAttrs(n, n.Attrs().With("dim", attr.Int(1-k)))
			return k < 2
		}
		return false
	}},
	{"off by one", func(_ *rand.Rand, n *ir.Node) bool {
		switch n.Op() {
		case ir.OpSlice:
			a := n.Attrs()
			by := int64(1)
			if a.Int("start", 0) > 0 {
				by = -1
			}
			n.Func().SetAttrs(n, a.With("start", attr.Int(a.Int("start", 0)+by)).With("end", attr.Int(a.Int("end", 0)+by)))
			return a.Has("end")
		case ir.OpSelect, ir.OpBroadcast, ir.OpIota:
			key := map[ir.Op]string{ir.OpSelect: "index", ir.OpBroadcast: "root", ir.OpIota: "start"}[n.Op()]
			at := n.Attrs().Int(key, 0)
			if at > 0 {
				at -= 2
			}
			n.Func().SetAttrs(n, n.Attrs().With(key, attr.Int(at+1)))
			return true
		}
		return false
	}},
	{"wrong order of dimensions or pairs", func(_ *rand.Rand, n *ir.Node) bool {
		for _, key := range []string{"dims", "pairs"} {
			if l := n.Attrs().Ints(key); len(l) > 1 && n.Op() != ir.OpIndexPut {
				l = slices.Clone(l)
				l[0], l[1] = l[1], l[0]
				n.Func().SetAttrs(n, n.Attrs().With(key, attr.Ints(l...)))
				return true
			}
		}
		return false
	}},
	{"wrong reduction", func(_ *rand.Rand, n *ir.Node) bool {
		to, ok := map[ir.Reduction]string{ir.Sum: "avg", ir.Avg: "sum", ir.Min: "max", ir.Max: "min", ir.Product: "sum"}[n.Reduction()]
		if ok {
			n.Func().SetAttrs(n, n.Attrs().With("reduce", attr.String(to)))
		}
		return ok
	}},
	{"wrong constant", func(_ *rand.Rand, n *ir.Node) bool {
		for _, key := range []string{"scalar", "value", "min", "max", "step"} {
			v, ok := n.Attrs().Get(key)
			if !ok {
				continue
			}
			w := attr.Value{}
			if k, is := v.AsInt(); is {
				w = attr.Int(k + 1)
			} else if x, is := v.AsFloat(); is {
				w = attr.Float(x + 1)
			}
			n.Func().SetAttrs(n, n.Attrs().With(key, w))
			return true
		}
		return false
	}},
	{"wrong operation", func(_ *rand.Rand, n *ir.Node) bool {
		to, ok := map[ir.Op]ir.Op{ir.OpAdd: ir.OpSub, ir.OpSub: ir.OpAdd, ir.OpMul: ir.OpAdd, ir.OpMaximum: ir.OpMinimum, ir.OpMinimum: ir.OpMaximum, ir.OpNeg: ir.OpAbs,
			ir.OpRelu: ir.OpNeg, ir.OpEq: ir.OpNe, ir.OpSum: ir.OpMean, ir.OpMean: ir.OpSum, ir.OpTanh: ir.OpSigmoid, ir.OpSigmoid: ir.OpTanh, ir.OpFloor: ir.OpNeg}[n.Op()]
		if ok {
			n.Func().SetOp(n, to)
		}
		return ok
	}},
	{"dropped operation", func(_ *rand.Rand, n *ir.Node) bool {
		if len(n.DeclaredResults()) != 1 || len(n.DeclaredArgs()) == 0 || n.Op().IsView() {
			return false
		}
		for _, a := range n.DeclaredArgs() {
			if v := n.Result(0); a.Type().Equal(v.Type()) && !v.Type().IsAsync() {
				n.Func().ReplaceUses(v, a)
				return true
			}
		}
		return false
	}},
	{"dropped effect", func(_ *rand.Rand, n *ir.Node) bool {
		if n.Op() != ir.OpCall || n.Effects() == 0 || len(n.DeclaredResults()) > 0 {
			return false
		}
		for _, v := range n.Results() { // its versions
			n.Func().ReplaceUses(v, v.Before())
		}
		n.Func().Remove(n)
		return true
	}},
	{"order of effects", func(_ *rand.Rand, n *ir.Node) bool {
		if n.Op() != ir.OpCall || n.Effects() == 0 {
			return false
		}
		for m := n.Prev(); m != nil; m = m.Prev() {
			if m.Op() == ir.OpCall && m.Effects()&n.Effects() != 0 {
				n.Func().MoveBefore(n, m)
				return true
			}
		}
		return false
	}},
	{"moved across a call", func(_ *rand.Rand, n *ir.Node) bool {
		for m := n.Prev(); m != nil && n.Op() != ir.OpReturn && n.Op() != ir.OpCall; m = m.Prev() {
			if m.Op() == ir.OpCall && m.Effects() != 0 {
				n.Func().MoveBefore(n, m)
				return true
			}
		}
		return false
	}},
	{"swapped members", func(_ *rand.Rand, n *ir.Node) bool {
		rs := n.DeclaredResults()
		for i := 1; i < len(rs); i++ {
			if rs[0].Type().Equal(rs[i].Type()) && n.Op() == ir.OpWaitTensor {
				first := slices.Clone(rs[0].Uses())
				n.Func().ReplaceUses(rs[i], rs[0])
				for _, u := range first {
					n.Func().SetArg(u.Node, u.Index, rs[i])
				}
				return true
			}
		}
		return false
	}},
}

// listed is how many programs' equivalent mutants testdata/equivalent.txt lists.
const listed = 40

var programs = cases.Flag("programs", 100, 300, "how many random programs TestMutants makes mutants of")

// Mutants of what passes make are refused, by the verifier or by a proof that fails: all
// of those that by execution change a result, what is left in an input, what calls that
// communicate are given, or on which side of such a call a collective stands. The others
// of the first programs are listed with the reason why nothing is changed.
func TestMutants(t *testing.T) {
	programs := programs()
	if testing.Short() {
		programs = listed
	}
	caught, alike := map[string]int{}, map[string]int{}
	var list []string
	for seed := range programs {
		before, after := passed(t, seed)
		was := observe(before, after, seed)
		for at := range after.Funcs()[0].Order() {
			for k, mu := range mutations {
				r := rand.New(rand.NewPCG(seed, uint64(at*len(mutations)+k)))
				if r.IntN(2) > 0 {
					continue
				}
				m := after.Clone()
				n := m.Funcs()[0].Order()[at]
				op := n.Op()
				if !mu.apply(r, n) {
					continue
				}
				refused := m.Verify()
				if refused == nil {
					_, refused = equiv.Check(before.Funcs()[0], m.Funcs()[0], equiv.Options{})
				}
				harm := was.differs(m)
				switch {
				case harm != nil && refused == nil:
					t.Errorf("seed %d, %s at node %d is proved equal: %v\nbefore:\n%s\nmutant:\n%s", seed, mu.name, at, harm, before, m)
				case harm != nil:
					caught[mu.name]++
				default:
					alike[mu.name]++
					if seed < listed {
						list = append(list, fmt.Sprintf("%s of %s, program %d, node %d: %s", mu.name, op.Name(), seed, at, reason(refused)))
					}
				}
			}
		}
	}
	harmful, equivalent := 0, 0
	for _, mu := range mutations {
		harmful, equivalent = harmful+caught[mu.name], equivalent+alike[mu.name]
		t.Logf("%4d harmful, all caught, %3d equivalent: %s", caught[mu.name], alike[mu.name], mu.name)
		if caught[mu.name] == 0 && !testing.Short() {
			t.Errorf("no mutant by %s does harm", mu.name)
		}
	}
	t.Logf("%d harmful, %d caught, %d equivalent (those of the first %d programs listed)", harmful, harmful, equivalent, listed)
	if harmful < 200 {
		t.Errorf("only %d mutants do harm", harmful)
	}
	slices.Sort(list)
	sameList(t, "testdata/equivalent.txt", strings.Join(list, "\n")+"\n")
}

// reason says why a mutant does no harm.
func reason(refused error) string {
	var illegal *diag.Error
	switch {
	case refused == nil:
		return "proved equal"
	case errors.As(refused, &illegal):
		return "refused by the verifier, no input tells"
	case strings.Contains(refused.Error(), "storage of"):
		return "refused: results share storages, which copies do not show"
	}
	return "refused, no input tells"
}

var update = flag.Bool("update", false, "rewrite testdata/equivalent.txt")

func sameList(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s lists others; to accept: go test ./equiv -run TestMutants -update, then read what changed\n%s", file, diff.Diff(file, want, "now", []byte(text)))
	}
}

// passed is a random program and what passes make of it, proved.
func passed(t *testing.T, seed uint64) (before, after *ir.Module) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	var err error
	if seed%2 == 0 {
		before, err = gen.Algebra(seed, gen.AlgebraConfig{Nodes: 6 + r.IntN(14), Writes: r.IntN(2) == 0})
	} else {
		before, err = gen.Module(seed, gen.Config{Nodes: 12 + r.IntN(20), World: 4, Effects: true, Alike: r.IntN(2) == 0, MaxDim: 64})
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := standard.Table().Parse([]string{"default", "cuda", "canonicalize,simplify-collectives,bucket{mode=all}", "order-only"}[r.IntN(4)])
	if err != nil {
		t.Fatal(err)
	}
	after = before.Clone()
	if _, err = (&passes.Manager{Validate: passes.ValidateAlways}).Run(after, p); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return before, after
}

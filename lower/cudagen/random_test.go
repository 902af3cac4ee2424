package cudagen_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/cases"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/test/progen"
)

var (
	randomPrograms = cases.Flag("cudagen.programs", 120, 360, "how many programs TestRandomPrograms makes")
	randomSeed     = flag.Uint64("cudagen.seed", 0, "first seed of TestRandomPrograms")
)

// The kernels of programs of the other generator give what the interpreter gives, each kernel alone.
func TestRandomPrograms(t *testing.T) {
	const each = 60 // programs in a translation unit
	n, all := int(randomPrograms()), 0
	for first := 0; first < n; first += each {
		var trials []*trial
		for i := first; i < min(first+each, n); i++ {
			seed := *randomSeed + uint64(i)
			m, err := ir.Parse(fmt.Sprint("seed ", seed), progen.New(seed).Text)
			if err != nil {
				t.Fatal(err)
			}
			p, err := standard.Table().Parse([]string{"cuda", "fuse{kernels=true}"}[i%2])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := (&passes.Manager{}).Run(m, p); err != nil {
				continue // progen says which may be refused
			}
			for k, f := range m.Funcs() {
				trials = append(trials, trialsOf(t, f, fmt.Sprintf("seed%d_%d", seed, k), seed)...)
			}
		}
		compiles(t, trials)
		compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), false)
		together(t, trials, "-DEXACT_MATH")
		all += len(trials)
	}
	t.Logf("%d kernels", all)
	if all < 2*n {
		t.Errorf("%d kernels of %d programs", all, n)
	}
}

// trialsOf are the kernels of a function's launches, but of those that read views with strides that
// their operands would not have alone.
func trialsOf(t *testing.T, f *ir.Func, name string, seed uint64) (trials []*trial) {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		t.Fatal(err)
	}
	launches := regions(t, f)
	for _, n := range singles(f) {
		if n.Op() != ir.OpRand && n.Op() != ir.OpCall {
			launches = append(launches, []*ir.Node{n})
		}
	}
	sizes := map[string]int64{}
	for _, s := range f.Module().Symbols() {
		sizes[s.Name] = s.Hint
	}
	for _, nodes := range launches {
		k, err := cudagen.Generate("k", st, nodes)
		if errors.Is(err, cudagen.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		g := alone(nodes, k.Outs)
		if g.Module().Verify() != nil {
			continue
		}
		ulp := int64(0)
		if slices.ContainsFunc(nodes, func(n *ir.Node) bool {
			return slices.ContainsFunc(n.Results(), func(v *ir.Value) bool { return v.Type().DType() == ir.F64 })
		}) {
			ulp = 4 // the machine's functions
		}
		at := sizes
		if len(k.Sizes) == 0 {
			at = nil
		}
		tr, err := newTrial(fmt.Sprintf("%s_%d", name, len(trials)), g, ulp, seed, at)
		if err != nil { // an index out of range, or a view of the operand that is no longer one
			t.Logf("%s: %v", name, err)
			continue
		}
		trials = append(trials, tr)
	}
	return trials
}

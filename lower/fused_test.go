package lower_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// forCUDA runs pipeline cuda on a copy of a module.
func forCUDA(t testing.TB, m *ir.Module) *ir.Module {
	t.Helper()
	m = m.Clone()
	p, err := standard.Table().Parse("cuda")
	if err != nil {
		t.Fatal(err)
	}
	g := passes.Manager{Costs: cost.TracedH200()}
	if _, err := g.Run(m, p); err != nil {
		t.Fatal(err)
	}
	return m
}

// withKernels lowers a function to kernels and checks the program.
func withKernels(t testing.TB, f *ir.Func) *program.Program {
	t.Helper()
	p, err := lower.FuncWith(f, lower.Options{Kernels: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := program.CheckWith(p, lower.CheckOptions())
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	return p
}

// tally counts what became of a program's launches.
type tally struct{ launches, fused, steps, kernels, temps, inPlace int }

func (c *tally) add(p *program.Program) {
	c.kernels += len(p.Kernels)
	for i := range p.Instrs {
		if p.Instrs[i].Kind != program.Launch {
			continue
		}
		c.launches++
		k := p.Kernel(&p.Instrs[i])
		if k == nil {
			continue
		}
		c.fused++
		for _, out := range p.Instrs[i].Outs {
			if len(k.Body) > 1 && slices.ContainsFunc(p.Instrs[i].Ins, func(in program.Tensor) bool { return in.Buffer == out.Buffer && in.Offset == out.Offset }) {
				c.inPlace++
			}
		}
		c.steps += len(k.Body)
		for _, s := range k.Body {
			for _, o := range s.Outs {
				if o.Param < 0 {
					c.temps++
				}
			}
		}
	}
}

// Random programs through pipeline cuda, as fused launches with source and without,
// give the interpreter's bits; values inside regions have no memory.
func TestFusedPrograms(t *testing.T) {
	seeds := uint64(80)
	if testing.Short() {
		seeds = 20
	}
	var all tally
	for seed := range seeds {
		m, err := gen.Module(seed, gen.Config{Nodes: 60, World: 2})
		if err != nil {
			t.Fatal(err)
		}
		lengthen(m, rand.New(rand.NewPCG(seed, 9)))
		after := forCUDA(t, m)
		for i, f := range after.Funcs() {
			if beyondHost(f) != "" {
				continue
			}
			all.add(withKernels(t, f))
			runsAsBefore(t, m.Funcs()[i], f, seed)
		}
	}
	t.Logf("%+v", all)
	if n := int(seeds); all.fused < n || all.steps < all.fused+n || all.temps < n/2 || all.inPlace < n/16 {
		t.Errorf("%d programs had %+v", n, all)
	}
}

// runsAsBefore lowers f, with and without kernels, and runs it on the host device with
// random inputs: all ranks must give the bits that the interpreter makes of before, the
// function before the passes.
func runsAsBefore(t *testing.T, before, f *ir.Func, seed uint64) {
	t.Helper()
	ctx := context.Background()
	in, err := interp.RandomInputs(before, seed, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(ctx, before, in, interp.Options{Poison: true, Calls: passtest.Calls()})
	if err != nil {
		t.Fatal(err)
	}
	for _, kernels := range []bool{false, true} {
		got, err := hostrun.GoroutinesWith(rt.Config{}, lower.Options{Kernels: kernels})(ctx, f, in)
		if err != nil {
			t.Fatalf("seed %d: @%s: %v", seed, f.Name, err)
		}
		for r := range want {
			for k := range want[r] {
				if !interp.Equal(got[r][k], want[r][k]) {
					t.Errorf("seed %d: @%s, kernels %v: rank %d output %d is %v, the interpreter's %v\n%s", seed, f.Name, kernels, r, k, got[r][k], want[r][k], f.Module())
				}
			}
		}
	}
}

// The traced steps through pipeline cuda give the interpreter's bits.
func TestTracedStepsFused(t *testing.T) {
	for _, name := range append([]string{"tiny_moe2"}, steps...) {
		t.Run(name, func(t *testing.T) {
			pair, err := step.Load(testdata+"graphs", name)
			if err != nil {
				t.Fatal(err)
			}
			in, err := interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := *pair
			var all tally
			for _, f := range []**ir.Func{&pair.Forward, &pair.Backward} {
				*f = forCUDA(t, (*f).Module()).Func((*f).Name)
				all.add(withKernels(t, *f))
			}
			t.Logf("%+v", all)
			compareWith(t, &want, pair, in, lower.Options{Kernels: true})
		})
	}
}

// Pipeline cuda and the lowering to kernels take every traced graph, and leave by name
// only what libraries compute and the pieces that the runtime copies.
func TestTracedGraphsToKernels(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testdata, "graphs", "*.graph.json.gz"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		f := forCUDA(t, imported(t, file)).Funcs()[0]
		p := withKernels(t, f)
		for i := range p.Instrs {
			in := &p.Instrs[i]
			if in.Kind == program.Launch && p.Kernel(in) == nil && !slices.Contains([]string{"matmul", "attention", "attention_backward", "shard"}, in.Op) {
				t.Errorf("%s: %%%s is a %s by name", file, in.Node, in.Op)
			}
		}
	}
}

// A launch whose results are all empty is left out of programs with kernels: there is
// no grid of no blocks.
func TestEmptyLaunch(t *testing.T) {
	m, err := ir.Parse("empty.ir", `world 1

func @f(%x: f32[0,8], %y: f32[4]) -> (f32[0,8], f32[4]) {
  %a = neg %x : f32[0,8]
  %b = neg %y : f32[4]
  return %a, %b
}
`)
	if err != nil {
		t.Fatal(err)
	}
	var c tally
	c.add(withKernels(t, m.Funcs()[0]))
	if c.launches != 1 || c.fused != 1 {
		t.Errorf("%+v, want one fused launch", c)
	}
}

// Launches that fill in equal constants share a kernel, since only its name differs.
func TestEqualConstantsShareAKernel(t *testing.T) {
	m, err := ir.Parse("constants.ir", `world 1
func @f() -> (i32[2], i32[2], i32[2]) {
  %a = constant {data="AQAAAAIAAAA="} : i32[2]
  %b = constant {data="AQAAAAIAAAA="} : i32[2]
  %c = constant {data="AQAAAAMAAAA="} : i32[2]
  return %a, %b, %c
}
`)
	if err != nil {
		t.Fatal(err)
	}
	p := withKernels(t, m.Funcs()[0])
	var names []string
	for i := range p.Instrs {
		if k := p.Kernel(&p.Instrs[i]); k != nil {
			names = append(names, k.Name)
		}
	}
	if want := []string{"k0", "k0", "k1"}; !slices.Equal(names, want) {
		t.Errorf("kernels %v, want %v", names, want)
	}
}

package equiv_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// fault is a mistake of a pass that places values, which overwrites what is read
// afterwards: it changes node n, or returns false.
type fault struct {
	name  string
	apply func(p *placed, n *ir.Node) bool
}

var faults = []fault{
	{"reused too early", func(p *placed, n *ir.Node) bool {
		v := p.readAfter(n)
		return v != nil && p.put(n, p.offset(v))
	}},
	{"overlapping offset", func(p *placed, n *ir.Node) bool {
		v := p.readAfter(n)
		return v != nil && p.put(n, p.offset(v)+p.size(v)/2)
	}},
	{"reused while a collective reads it", func(p *placed, n *ir.Node) bool {
		start := p.inFlight(n)
		if start == nil {
			return false
		}
		for i, a := range start.DeclaredArgs() {
			copied := start.Meta().Ints("operand_offset")
			if (i >= len(copied) || copied[i] < 0) && p.offset(a) >= 0 && a.Type().Contiguous() && !start.Meta().Has("inplace") {
				return p.put(n, p.offset(a))
			}
		}
		return false
	}},
	{"reused while a collective writes it", func(p *placed, n *ir.Node) bool {
		start := p.inFlight(n)
		if start == nil || start.Meta().Has("inplace") {
			return false
		}
		at := start.Meta().Ints("offset")
		return len(at) > 0 && at[0] >= 0 && !start.Result(0).Type().Tensors()[0].Shape().NumElems().Equal(ir.D(0)) && p.put(n, at[0])
	}},
	{"in place of what is read again", func(p *placed, n *ir.Node) bool {
		if !n.Op().Info().Elementwise || n.Meta().Has("fusion") || n.Meta().Has("inplace") {
			return false
		}
		for i, a := range n.DeclaredArgs() {
			if a.Type().Equal(n.Result(0).Type()) && p.size(a) > 0 && p.later(n, a) {
				meta := n.Meta().With("inplace", attr.Ints(int64(i)))
				if meta.Has("offset") {
					meta = meta.With("offset", attr.Ints(-1))
				}
				p.f.SetMeta(n, meta)
				return true
			}
		}
		return false
	}},
}

// placed is a function behind plan-memory.
type placed struct {
	f *ir.Func
	r *rand.Rand
}

func (p *placed) size(v *ir.Value) int64 { return p.f.Module().Bound(v.Type().Extent()) }

// offset is where a value that is a storage of its own lies, -1 for others.
func (p *placed) offset(v *ir.Value) int64 {
	n := v.Def()
	if l := n.Meta().Ints("offset"); v.Aliases() == nil && len(l) == 1 && !v.Type().IsAsync() && p.size(v) > 0 {
		return l[0]
	}
	return -1
}

// put places the only result of n.
func (p *placed) put(n *ir.Node, at int64) bool {
	if len(n.DeclaredResults()) != 1 || p.offset(n.Result(0)) < 0 || p.offset(n.Result(0)) == at {
		return false
	}
	p.f.SetMeta(n, n.Meta().With("offset", attr.Ints(at)))
	return true
}

// later reports whether another launch than n's reads v behind n.
func (p *placed) later(n *ir.Node, v *ir.Value) bool {
	region, fused := n.Meta().Get("fusion")
	return slices.ContainsFunc(v.Uses(), func(u ir.Use) bool {
		other, ok := u.Node.Meta().Get("fusion")
		return u.Node.At() > n.At() && !u.Node.Op().IsView() && u.Index < len(u.Node.DeclaredArgs()) && !(fused && ok && other.Equal(region))
	})
}

// readAfter is a value that n does not make and that is read behind n.
func (p *placed) readAfter(n *ir.Node) *ir.Value {
	order := p.f.Order()[:n.At()]
	for _, k := range p.r.Perm(len(order)) {
		for _, v := range order[k].DeclaredResults() {
			if p.offset(v) >= 0 && p.later(n, v) {
				return v
			}
		}
	}
	return nil
}

// inFlight is a collective that starts before n and is waited for behind it.
func (p *placed) inFlight(n *ir.Node) *ir.Node {
	for m := n.Prev(); m != nil; m = m.Prev() {
		if m.Op().IsCollective() && slices.ContainsFunc(m.Result(0).Uses(), func(u ir.Use) bool { return u.Node.Op() == ir.OpWaitTensor && u.Node.At() > n.At() }) {
			return m
		}
	}
	return nil
}

// Faults of passes that place values are caught by the manager, whose pass plan-memory
// or reuse-buffers makes them: one in each program, wherever one can be.
func TestPlacementFaults(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 40
	}
	for _, fl := range faults {
		caught := 0
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 21))
			m, err := gen.Module(seed, gen.Config{Nodes: 16 + r.IntN(30), World: 4, Alike: r.IntN(2) == 0, Effects: r.IntN(2) == 0, Flights: r.IntN(2) == 0})
			if err != nil {
				t.Fatal(err)
			}
			made := false
			faulty := passes.Pass{Name: "faulty", Doc: "A pass that makes a fault.", Places: true, Run: func(_ *passes.Context, f *ir.Func) error {
				p := &placed{f, r}
				order := slices.Clone(f.Order())
				for _, k := range r.Perm(len(order)) {
					if n := order[k]; !made && n.Op() != ir.OpInput && n.Op() != ir.OpReturn && !n.Op().IsCollective() {
						made = fl.apply(p, n)
					}
				}
				return nil
			}}
			table, err := standard.Table().Extend([]passes.Pass{faulty}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := table.Parse([]string{"default,faulty", "cuda,faulty", "canonicalize,overlap,fuse,reuse-buffers,plan-memory,faulty", "canonicalize,reuse-buffers,faulty"}[r.IntN(4)])
			if err != nil {
				t.Fatal(err)
			}
			_, err = (&passes.Manager{Validate: passes.ValidateAlways}).Run(m, p)
			var no *equiv.Error
			switch {
			case !made && err != nil:
				t.Fatalf("seed %d: %v", seed, err)
			case made && !errors.As(err, &no):
				t.Errorf("seed %d, %s: %v\n%s", seed, fl.name, err, m)
			case made:
				caught++
			}
		}
		t.Logf("%3d caught: %s", caught, fl.name)
		if caught < int(seeds)/10 {
			t.Errorf("only %d programs have a place for a fault: %s", caught, fl.name)
		}
	}
}

// Mutants of nodes in regions are caught like others: a region is its nodes, in both
// forms of fuse.
func TestRegionMutants(t *testing.T) {
	for _, pipeline := range []string{"canonicalize,fuse", "canonicalize,fuse{kernels=true}"} {
		harmful, regions := 0, 0
		for seed := range uint64(60) {
			before, err := gen.Module(seed, gen.Config{Nodes: 24, World: 4, Effects: seed%2 == 0, MaxDim: 64})
			if err != nil {
				t.Fatal(err)
			}
			p, err := standard.Table().Parse(pipeline)
			if err != nil {
				t.Fatal(err)
			}
			after := before.Clone()
			if _, err := (&passes.Manager{Validate: passes.ValidateAlways}).Run(after, p); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			was := observe(before, after, seed)
			for at, n := range after.Funcs()[0].Order() {
				if !n.Meta().Has("fusion") {
					continue
				}
				regions++
				for k, mu := range mutations {
					m := after.Clone()
					if !mu.apply(rand.New(rand.NewPCG(seed, uint64(at*len(mutations)+k))), m.Funcs()[0].Order()[at]) || was.differs(m) == nil {
						continue
					}
					harmful++
					refused := m.Verify()
					if refused == nil {
						_, refused = equiv.Check(before.Funcs()[0], m.Funcs()[0], equiv.Options{})
					}
					if refused == nil {
						t.Errorf("%s, seed %d, %s at node %d is proved equal\n%s\n%s", pipeline, seed, mu.name, at, before, m)
					}
				}
			}
		}
		t.Logf("%s: %d harmful mutants of %d nodes in regions, all caught", pipeline, harmful, regions)
		if harmful < 100 {
			t.Errorf("%s: only %d mutants do harm", pipeline, harmful)
		}
	}
}

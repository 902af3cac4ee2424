package lower_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// A predicate that refuses whatever exponentiates dissolves one region of two: its nodes
// are launches, and memory is planned for them.
func TestFuseAsksJudge(t *testing.T) {
	const text = `world 1

func @f(%x: f32[64,64], %y: f32[64,64]) -> (f32[64,64], f32[64,64]) {
  %a = neg %x : f32[64,64]
  %b = exp %a : f32[64,64]
  %c = matmul %b, %y : f32[64,64]
  %d = neg %c : f32[64,64]
  %e = relu %d : f32[64,64]
  return %c, %e
}
`
	fusable := func(*ir.Func) (func(nodes []*ir.Node) error, error) {
		return func(nodes []*ir.Node) error {
			for _, n := range nodes {
				if n.Op() == ir.OpExp {
					return errors.New("no powers")
				}
			}
			return nil
		}, nil
	}
	for _, c := range []struct {
		fusable func(*ir.Func) (func(nodes []*ir.Node) error, error)
		regions int
		refused float64
	}{{nil, 2, 0}, {lower.Fusable, 2, 0}, {fusable, 1, 1}} {
		m, err := ir.Parse("f.ir", text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := standard.Table().Parse("cuda")
		if err != nil {
			t.Fatal(err)
		}
		g := passes.Manager{Fusable: c.fusable}
		r, err := g.Run(m, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(m.String(), "fusion="); got != 2*c.regions {
			t.Errorf("%d nodes in regions, expected %d\n%s", got, 2*c.regions, m)
		}
		for _, s := range r.Steps {
			for _, v := range s.Stats {
				if v.Name == "refused-kernel" && v.Value != c.refused {
					t.Errorf("%v regions refused, expected %v", v.Value, c.refused)
				}
			}
		}
		withKernels(t, m.Funcs()[0])
	}
}

// A region that no kernel can compute is taken apart by the lowering, after its memory
// was planned; the rest keeps its kernels.
func TestTakenApart(t *testing.T) {
	m, err := ir.Parse("f.ir", `world 1

func @f(%x: f32[8,8], %y: f32[8,8]) -> (f32[8,8], f32[8]) {
  %a = neg %x : f32[8,8] !{fusion=0}
  %b = sum %a {dims=[0]} : f32[8] !{fusion=0}
  %c = sum %a {dims=[1]} : f32[8] !{fusion=0}
  %d = add %b, %c : f32[8] !{fusion=0}
  %e = neg %y : f32[8,8] !{fusion=1}
  %g = exp %e : f32[8,8] !{fusion=1}
  return %g, %d
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := optimised(t, m, "reuse-buffers,plan-memory").Funcs()[0]
	var before, after tally
	p, err := lower.Func(f)
	if err != nil {
		t.Fatal(err)
	}
	before.add(p)
	after.add(withKernels(t, f))
	if before.launches != 2 || after.launches != 5 || after.fused != 5 {
		t.Errorf("%+v with regions, %+v with one taken apart", before, after)
	}
}

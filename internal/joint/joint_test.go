package joint

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
)

const graphs = "../../testdata/graphs"

func count(f *ir.Func, c ir.Class) int {
	n := 0
	for _, x := range f.Order() {
		if x.Op().Class() == c {
			n++
		}
	}
	return n
}

// Collectives never merge, equal products do, and backward's inputs are gone
// except the tangents.
func TestJoin(t *testing.T) {
	merged := 0
	for _, name := range []string{"tiny_fsdp2", "tiny_tpsp2", "tiny_moe2", "llama8b_l4_fsdp4"} {
		f, p, err := Load(graphs, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []ir.Class{ir.ClassCollective, ir.ClassWait} {
			if got, want := count(f, c), count(p.Forward, c)+count(p.Backward, c); got != want {
				t.Errorf("%s: %d nodes of class %s, the pair has %d", name, got, c, want)
			}
		}
		for _, c := range []ir.Class{ir.ClassView, ir.ClassMemory, ir.ClassCompute} {
			got, most := count(f, c), count(p.Forward, c)+count(p.Backward, c)
			if got > most {
				t.Errorf("%s: %d nodes of class %s, the pair has %d", name, got, c, most)
			}
			merged += most - got
		}
		if got, want := len(f.Inputs()), len(p.Forward.Inputs())+1; got != want {
			t.Errorf("%s: %d inputs, want forward's and one tangent, %d", name, got, want)
		}
		if got, want := len(f.Return().Args()), 1+len(p.Backward.Return().Args()); got != want {
			t.Errorf("%s: %d results, want %d", name, got, want)
		}
	}
	if merged < 100 {
		t.Errorf("%d nodes merged", merged)
	}
}

// A result that backward takes as well stays one.
func TestJoinTakenResult(t *testing.T) {
	m, err := ir.Parse("pair.ir", `world 1
func @f(%x: f32[4] !{role="parameter"}) -> (f32[4], f32[4], f32[4]) {
  %y = tanh %x : f32[4]
  %z = exp %y : f32[4]
  return %z, %y, %z
}
func @b(%y: f32[4] !{role="saved"}, %z: f32[4] !{role="saved"}, %t: f32[4] !{role="tangent"}) -> (f32[4]) {
  %a = mul %t, %z : f32[4]
  %g = mul %a, %y : f32[4]
  return %g
}
`)
	if err != nil {
		t.Fatal(err)
	}
	j, err := Join("step", m.Func("f"), m.Func("b"))
	if err != nil {
		t.Fatal(err)
	}
	if r := j.Func("step").Return(); r.Meta().Int("forward", 0) != 1 || len(r.Args()) != 2 || r.Arg(0).Name() != "z" {
		t.Errorf("got %s", j)
	}
}

func TestJoinErrors(t *testing.T) {
	a, err := step.Load(graphs, "tiny_fsdp2")
	if err != nil {
		t.Fatal(err)
	}
	b, err := step.Load(graphs, "tiny_tp2")
	if err != nil {
		t.Fatal(err)
	}
	c, err := step.Load(graphs, "llama8b_l4_fsdp4")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join("x", a.Forward, b.Backward); err == nil {
		t.Error("halves of two steps were joined")
	}
	if _, err := Join("x", a.Forward, c.Backward); err == nil || !strings.Contains(err.Error(), "2 ranks") {
		t.Errorf("halves of two worlds: %v", err)
	}
	if _, _, err := Load(graphs, "llama8b_tp8_infer"); err == nil {
		t.Error("a step without backward was joined")
	}
}

package interp_test

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// stagesExample is the module of docs/ir.md.
func stagesExample(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/ir.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(doc), "```") {
		if strings.Contains(block, "stages @step") && strings.Contains(block, "func @second") {
			return block
		}
	}
	t.Fatal("docs/ir.md has no module with stages")
	return ""
}

func TestRunStages(t *testing.T) {
	m, err := ir.Parse("t.ir", stagesExample(t))
	if err != nil {
		t.Fatal(err)
	}
	x, w := []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}
	in := make([][]interp.Tensor, 2)
	for r, v := range [][]float64{x, w} {
		u, err := interp.FromFloats(ir.F32, v, 4)
		if err != nil {
			t.Fatal(err)
		}
		in[r] = []interp.Tensor{u}
	}
	for _, poison := range []bool{false, true} {
		out, err := interp.RunStages(t.Context(), m, m.Stages()[0], in, interp.Options{Poison: poison})
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range out[0][0].Float64s() {
			if want := x[i] * w[i]; got != want {
				t.Errorf("element %d is %v, want %v", i, got, want)
			}
		}
	}
	if _, err := interp.Run(t.Context(), m.Func("first"), in, interp.Options{}); err == nil {
		t.Error("a stage runs alone")
	}
}

// TestStagesStuck runs stages that nobody has verified.
func TestStagesStuck(t *testing.T) {
	text := stagesExample(t)
	send := "  %send = collective_permute %dh on @down {pairs=[1, 0]} : async f32[4]\n  %sent = wait_tensor %send : f32[4]\n"
	for _, c := range []struct{ was, is, want string }{
		{send, "", "wait for each other: @first at %dh"},
		{"%dh on @down {pairs=[1, 0]}", "%dh on @down {pairs=[0, 1]}", "@second issues %send"},
		{"%w on @up {pairs=[0, 1]}", "%w on @down {pairs=[1, 0]}", "@first at %sent, @second at %h"},
	} {
		m, err := ir.Parse("t.ir", strings.Replace(text, c.was, c.is, 1))
		if err != nil {
			t.Fatal(err)
		}
		if m.Verify() == nil {
			t.Errorf("without %q the module verifies", c.was)
		}
		u, err := interp.Fill(ir.F32, 1, 4)
		if err != nil {
			t.Fatal(err)
		}
		_, err = interp.RunStages(t.Context(), m, m.Stages()[0], [][]interp.Tensor{{u}, {u}}, interp.Options{SkipVerify: true})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("without %q: %v, want %q", c.was, err, c.want)
		}
	}
}

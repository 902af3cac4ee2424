package progen

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/export"
)

var exports = flag.Int("progen.exports", 40, "programs that TestExport makes")

// unsaid is what StableHLO has no words for, as errors say it.
var unsaid = []string{"a size that a run decides", "in place", "with whom it communicates", "no such operation", "equal pieces", "has gaps", "it has no result", "in the storage of an operand"}

// Programs that StableHLO can say compute the same as text that is read back.
func TestExport(t *testing.T) {
	said := 0
	for i := range *exports {
		c := New(*seed + uint64(i))
		m, failed := c.read()
		if failed != nil {
			t.Fatal(failed)
		}
		f := m.Funcs()[0]
		if slices.ContainsFunc(f.Order(), func(n *ir.Node) bool { return n.Effects()&ir.EffectRandom != 0 }) {
			continue // whose numbers are the interpreter's own
		}
		var b strings.Builder
		if err := export.Write(&b, f, export.Options{Barriers: i%2 == 0}); err != nil {
			if !strings.Contains(err.Error(), "export: %") || !containsAny(err.Error(), unsaid) {
				t.Errorf("seed %d: %v", c.Seed, err)
			}
			continue
		}
		said++
		if why := c.exported(t, f, b.String()); why != "" {
			t.Errorf("seed %d: %s\n%s\n%s", c.Seed, why, c.Text, b.String())
		}
	}
	t.Logf("%d of %d programs written", said, *exports)
	if said < *exports/5 {
		t.Errorf("%d of %d programs are written", said, *exports)
	}
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// exported says how the text's results differ from the function's: as it is written, and
// where the importer recognises attention.
func (c *Case) exported(t *testing.T, f *ir.Func, text string) string {
	in, err := Inputs(f, c.Seed, c.Symbols[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(t.Context(), f, in, c.options(c.Symbols[0]))
	if err != nil {
		t.Fatal(err)
	}
	m, err := stablehlo.Parse("written.mlir", text)
	if err != nil {
		return err.Error()
	}
	whole, err := m.Program()
	if err != nil {
		return err.Error()
	}
	m.AsWritten()
	p, err := m.Program()
	if err != nil {
		return err.Error()
	}
	attention := has(f, ir.OpAttention)
	if why := c.tells(t, p, attention, in, want); why != "" {
		return why
	}
	g := whole.Module.Funcs()[0]
	if !has(g, ir.OpAttention) || has(p.Module.Funcs()[0], ir.OpAttention) || attends16(g) {
		return ""
	}
	return c.tells(t, whole, true, in, want)
}

// tells says how a program's results differ; attention is in it, or in what it was written from.
func (c *Case) tells(t *testing.T, p *stablehlo.Program, attention bool, in, want [][]interp.Tensor) string {
	f := p.Module.Funcs()[0]
	got, err := interp.Run(t.Context(), f, in, c.options(nil))
	if err != nil {
		return err.Error()
	}
	most := 1e-5
	if has(f, ir.OpAttentionBackward) {
		most = 1e-3 // differences of numbers that are close
	}
	for r := range want {
		for k := range want[r] {
			excuse(got[r][k], want[r][k], attention)
			d, err := interp.Compare(got[r][k], want[r][k])
			if err != nil || !(d.Rel <= most) || math.IsNaN(d.Rel) {
				return fmt.Sprintf("rank %d, result %d: %v %v", r, k, d, err)
			}
		}
	}
	return ""
}

func has(f *ir.Func, o ir.Op) bool {
	return slices.ContainsFunc(f.Order(), func(n *ir.Node) bool { return n.Op() == o })
}

// attends16 says whether attention is in types of 16 bits: it does not round its scores and weights,
// which what it replaces does, and weights of scores of hundreds are then others.
func attends16(f *ir.Func) bool {
	return slices.ContainsFunc(f.Order(), func(n *ir.Node) bool {
		return n.Op() == ir.OpAttention && n.Result(0).Type().DType().Size() < 4
	})
}

// excuse takes out what may differ. Attention gives zeros for a query that sees no key, and does not
// read hidden keys: a softmax of scores that are all -Inf is NaN, and so is a weight of 0 of an
// infinite value. A mean's sum of float32 numbers overflows.
func excuse(got, want interp.Tensor, attention bool) {
	if got.DType != want.DType || len(got.Data) != len(want.Data) {
		return // which is told
	}
	size, gs := want.DType.Size(), got.Float64s()
	for i, w := range want.Float64s() {
		if attention && (math.IsNaN(w) || math.IsNaN(gs[i])) || math.IsInf(gs[i], 0) && math.Abs(w) > math.MaxFloat32/1000 {
			copy(got.Data[i*size:(i+1)*size], want.Data[i*size:])
		}
	}
}

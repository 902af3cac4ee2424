package pipeline_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// mutate breaks a stage in one place: another operand of the type, which an action of another
// micro-batch or a transfer may have, another factor, other rows, another reduction. It gives what
// was done, nothing if it found no place.
func mutate(r *rand.Rand, m *ir.Module) string {
	s := m.Stages()[0]
	f := m.Func(s.Funcs[r.IntN(len(s.Funcs))])
	order := f.Order()
	n := order[r.IntN(len(order))]
	a := n.Attrs()
	what := fmt.Sprintf("@%s: %s", f.Name, n)
	switch {
	case n.Op() == ir.OpSlice && r.IntN(2) == 0:
		rows := a.Int("end", 0) - a.Int("start", 0)
		if a.Int("start", 0) >= rows {
			rows = -rows
		}
		f.SetAttrs(n, a.With("start", attr.Int(a.Int("start", 0)+rows)).With("end", attr.Int(a.Int("end", 0)+rows)))
	case a.Has("scalar"):
		x, _ := a.Get("scalar")
		v, _ := x.AsFloat()
		f.SetAttrs(n, a.With("scalar", attr.Float(v*1.5)))
	case n.Op() == ir.OpAllReduce:
		f.SetAttrs(n, a.With("reduce", attr.String(map[string]string{"sum": "avg", "avg": "sum"}[a.Str("reduce", "")])))
	case len(n.Args()) > 0:
		i := r.IntN(len(n.Args()))
		var others []*ir.Value
		for _, o := range order {
			if o == n {
				break
			}
			for _, v := range o.Results() {
				if v != n.Arg(i) && v.Type().Equal(n.Arg(i).Type()) && !v.Type().IsAsync() {
					others = append(others, v)
				}
			}
		}
		if len(others) == 0 {
			return ""
		}
		v := others[r.IntN(len(others))]
		f.SetArg(n, i, v)
		what += fmt.Sprintf(" reads %%%s for operand %d", v.Name(), i)
	default:
		return ""
	}
	return what
}

// TestMutants breaks stages in one place each: where the numbers change, there is no proof.
func TestMutants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	wrong := 0
	for _, c := range []struct {
		options string
		data    int64
		micro   int64
	}{{"stages=2,micro-batches=3,schedule=1f1b", 1, 3}, {"stages=2,micro-batches=2,schedule=interleaved", 1, 2}, {"stages=2,micro-batches=2,schedule=zero-bubble,scatter-once=true", 2, 2}} {
		l := tiny(c.data, c.data, 1, ir.F64)
		step, err := l.Ranks()
		if err != nil {
			t.Fatal(err)
		}
		m, _ := cut(t, step, c.options)
		if c.data == 1 { // no result is reduced over ranks
			if _, err := equiv.CheckStages(step, m, m.Stages()[0], equiv.Options{}); err != nil {
				t.Fatalf("%s: %v", c.options, err)
			}
		}
		l = tiny(c.data*c.micro, c.data, 1, ir.F64)
		whole, err := l.Ranks()
		if err != nil {
			t.Fatal(err)
		}
		inputs, err := interp.RandomInputs(whole, 1, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		in := spread(t, m, whole, inputs)
		want, err := interp.RunStages(t.Context(), m, m.Stages()[0], in, interp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			b := m.Clone()
			what := mutate(r, b)
			if what == "" || b.Verify() != nil {
				continue
			}
			got, err := interp.RunStages(t.Context(), b, b.Stages()[0], in, interp.Options{})
			if err != nil {
				continue
			}
			differs := same(got, want, 1e-9) != nil
			_, err = equiv.CheckStages(step, b, b.Stages()[0], equiv.Options{Reassociate: true, Without: []string{"equal-elements"}})
			if differs && err == nil {
				t.Errorf("%s: proved, and the numbers differ: %s", c.options, what)
			} else if differs {
				wrong++
			}
		}
	}
	if wrong < 20 {
		t.Errorf("%d mutants have other numbers", wrong)
	}
}

// TestShapeOfStages breaks what a proof begins with.
func TestShapeOfStages(t *testing.T) {
	l := tiny(1, 1, 1, ir.BF16)
	step, err := l.Device(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := cut(t, step, "stages=2,micro-batches=3")
	text := m.String()
	for _, c := range []struct{ was, is, want string }{
		{"group @pp = [[0, 1]]", "group @pp = [[1, 0]]", "want the ranks of each stage in a row"},
		{"places=[0,", "places=[1,", "result"},
	} {
		if !strings.Contains(text, c.was) {
			t.Fatalf("there is no %s in\n%s", c.was, text[:2000])
		}
		b, err := ir.Parse("t.ir", strings.ReplaceAll(text, c.was, c.is))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := equiv.CheckStages(step, b, b.Stages()[0], equiv.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.is, err, c.want)
		}
	}
	if _, err := equiv.CheckStages(step, m, m.Stages()[0], equiv.Options{}); err != nil {
		t.Error(err)
	}
	l = tiny(1, 1, 1, ir.F32)
	other, err := l.Device(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := equiv.CheckStages(other, m, m.Stages()[0], equiv.Options{}); err == nil {
		t.Error("the stages of a step in bf16 are proved to be those of one in f32")
	}
}

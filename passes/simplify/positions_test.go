package simplify_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/standard"
)

// Programs in which rows travel instead of tables, by the rule that does it. The table has
// 256 rows, %v or %p are floats and %i positions.
var travellers = map[string]string{
	"combine-before-reduce": `world 2
group @g = [[0, 1]]

func @f(%v: f32[2,64], %i: IDS[2]) -> (f32[128,64]) {
  %z = full {value=0} : f32[256,64]
  %x = index_put %z, %v, %i {dims=[0], accumulate=true} : f32[256,64]
  %r = reduce_scatter.sum %x on @g {dim=0} : async f32[128,64]
  %w = wait_tensor %r : f32[128,64]
  return %w
}
`,
	"lookup-before-gather": `world 2
group @g = [[0, 1]]

func @f(%p: f32[128,64], %i: IDS[2]) -> (f32[2,64]) {
  %r = all_gather %p on @g {dim=0} : async f32[256,64]
  %w = wait_tensor %r : f32[256,64]
  %e = embedding %w, %i : f32[2,64]
  return %e
}
`,
}

// travelling are the forms of the rules, each of a program before and the options that
// select it.
var travelling = []struct{ rule, of, options string }{
	{"combine-before-reduce", "combine-before-reduce", ""},
	{"combine-before-reduce", "combine-before-reduce", "{gather-sums=true}"},
	{"scatter-add-before-reduce", "combine-before-reduce", "{reassociate=true}"},
	{"lookup-before-gather", "lookup-before-gather", ""},
}

func traveller(t *testing.T, of, ids string) *ir.Module {
	t.Helper()
	m, err := ir.Parse("traveller.ir", strings.ReplaceAll(travellers[of], "IDS", ids))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// simplified is m with collectives simplified, and how often a rule was used.
func simplified(t *testing.T, m *ir.Module, options, rule string) (*ir.Module, float64) {
	t.Helper()
	after := m.Clone()
	p, err := standard.Table().Parse("simplify-collectives" + options)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := (&passes.Manager{Validate: passes.ValidateAlways, Costs: passestest.Bandwidth{}}).Run(after, p)
	if err != nil {
		t.Fatal(err)
	}
	return after, rep.Steps[0].Stat(rule)
}

// Positions of types that have no meaning as such, or in which those of the table cannot
// be counted, stay where they are.
func TestNarrowPositionsStay(t *testing.T) {
	for _, c := range travelling {
		for _, ids := range []string{"i8", "u8"} {
			if _, uses := simplified(t, traveller(t, c.of, ids), c.options, c.rule); uses != 0 {
				t.Errorf("%s%s is used for positions of %s", c.rule, c.options, ids)
			}
		}
		for ids, want := range map[string]float64{"i32": 0, "i64": 1} {
			text := strings.NewReplacer("IDS", ids, "256", "4294967296", "128", "2147483648").Replace(travellers[c.of])
			m, err := ir.Parse("large.ir", text)
			if err != nil {
				t.Fatal(err)
			}
			if _, uses := simplified(t, m, c.options, c.rule); uses != want {
				t.Errorf("%s%s is used %v times for positions of %s in a table of 1<<32 rows, want %v", c.rule, c.options, uses, ids, want)
			}
		}
	}
}

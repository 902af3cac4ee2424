package passtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/bisect"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

const good = `A case.
-- flags --
-passes=swap
-- input.ir --
world 2
group @g = [[0, 1]]

func @f(%a: f32[4]) -> (f32[4]) {
  %x = neg %a : f32[4]
  %ar = all_reduce.sum %a on @g : async f32[4]
  %w = wait_tensor %ar : f32[4]
  %y = sub %x, %w : f32[4]
  return %y
}
-- want.ir --
world 2
group @g = [[0, 1]]

func @f(%a: f32[4]) -> (f32[4]) {
  %ar = all_reduce.sum %a on @g : async f32[4]
  %x = neg %a : f32[4]
  %w = wait_tensor %ar : f32[4]
  %y = sub %x, %w : f32[4]
  return %y
}
-- want.stats --
swap.moved 1
`

// config has a pass that is right, and some that are wrong in one way each.
func config(t *testing.T) *Config {
	pass := func(name string, run func(ctx *passes.Context, f *ir.Func) error) passes.Pass {
		return passes.Pass{Name: name, Doc: "Tests.", Stats: []passes.Stat{{Name: "moved", Doc: "moves"}, {Name: "other", Doc: "none"}}, Run: run}
	}
	swap := func(ctx *passes.Context, f *ir.Func) error {
		f.MoveBefore(f.Lookup("ar"), f.Lookup("x"))
		ctx.Count("moved", 1)
		return nil
	}
	table, err := passes.NewTable([]passes.Pass{
		pass("swap", swap),
		pass("lie", func(ctx *passes.Context, f *ir.Func) error {
			y := f.Lookup("y")
			f.SetArgs(y, y.Arg(1), y.Arg(0))
			return swap(ctx, f)
		}),
		pass("fail", func(*passes.Context, *ir.Func) error { return errors.New("no") }),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Config{Table: table, Package: "./x", Sections: map[string]Section{
		"want.count": func(c *Case) ([]byte, error) {
			return []byte(strings.Repeat("node\n", len(c.After.Funcs()[0].Order()))), nil
		},
		"want.broken": func(*Case) ([]byte, error) { return nil, errors.New("cannot") },
	}}
}

// The runner notices everything that it promises to: a test that cannot fail
// would be worse than none.
func TestCheck(t *testing.T) {
	cfg := config(t)
	for _, c := range []struct {
		name     string
		old, new string // what to replace in the good case
		want     string // a part of the only problem; empty for none
	}{
		{"good", "", "", ""},
		{"no comment", "A case.\n", "", "no comment"},
		{"unknown section", "-- want.stats --", "-- want.stat --", `unknown section "want.stat"`},
		{"section twice", "-- want.stats --\nswap.moved 1\n", "-- want.ir --\n", `"want.ir" appears twice`},
		{"no input", "-- input.ir --", "-- want.count --", "no section input.ir"},
		{"unknown flag", "-passes=swap", "-passes=swap -run=2", "unknown flag"},
		{"flag twice", "-passes=swap", "-passes=swap -passes=swap", "appears twice"},
		{"flag without value", "-passes=swap", "-passes=swap -x", "not of the form"},
		{"no passes", "-passes=swap", "-runs=2", "no -passes"},
		{"one run", "-passes=swap", "-passes=swap -runs=1", "at least 2 runs"},
		{"no reason", "-passes=swap", "-passes=swap -nointerp=", "give the reason"},
		{"bad tolerance", "-passes=swap", "-passes=swap -tolerance=-1", "not a tolerance"},
		{"unknown stat", "swap.moved 1", "swap.moves 1", `names "swap.moves"`},
		{"wrong stat", "swap.moved 1", "swap.moved 2", "-swap.moved 2\n+swap.moved 1"},
		{"wrong text", "-- want.ir --\nworld 2", "-- want.ir --\nworld 3", "-world 3\n+world 2"},
		{"not proved", "-passes=swap", "-passes=lie", "not proved equal"},
		{"wrong results", "-passes=swap", "-passes=lie -noproof=it-lies", "output 0 of @f on rank 0 is not what it was"},
		{"wrong within tolerance", "-passes=swap", "-passes=lie -noproof=it-lies -tolerance=9", "want.ir differs"},
		{"no reason for no proof", "-passes=swap", "-passes=swap -noproof=", "give the reason"},
		{"error", "-passes=swap", "-passes=fail", "@f: no"},
		{"no error", "-- want.ir --", "-- want.err --", "want.err excludes other wants"},
		{"unknown pass", "-passes=swap", "-passes=spaw", `no pass or pipeline "spaw"`},
		{"broken input", "wait_tensor %ar", "neg %ar", "still in flight"},
		{"section", "-- want.stats --\nswap.moved 1\n", "-- want.count --\nnode\nnode\nnode\nnode\nnode\nnode\n", ""},
		{"wrong section", "-- want.stats --\nswap.moved 1\n", "-- want.count --\nnode\n", "want.count differs"},
		{"failing section", "-- want.stats --\nswap.moved 1\n", "-- want.broken --\n", "want.broken: cannot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := good
			if c.old != "" {
				text = strings.Replace(good, c.old, c.new, 1)
			}
			_, problems := cfg.Check(c.name, []byte(text))
			all := strings.Join(problems, "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("problems:\n%s\nwant %q", all, c.want)
			}
		})
	}
}

// What -update would write is accepted, touches want sections only, and a case
// never turns from one about a result into one about an error.
func TestUpdate(t *testing.T) {
	cfg := config(t)
	blank := strings.Replace(good[:strings.Index(good, "-- want.ir --")], "A case.", "A case, to be blessed.", 1) + "-- want.ir --\n-- want.stats --\n-- want.report --\n"
	updated, problems := cfg.Check("blank", []byte(blank))
	if len(problems) == 0 {
		t.Error("an empty want.ir is accepted")
	}
	if _, problems = cfg.Check("updated", updated); len(problems) > 0 {
		t.Errorf("the updated case is refused: %v", problems)
	}
	if !strings.HasPrefix(string(updated), strings.TrimSuffix(blank, "-- want.ir --\n-- want.stats --\n-- want.report --\n")) || !strings.Contains(string(updated), "swap.moved 1\nswap.other 0\n") {
		t.Errorf("updated:\n%s", updated)
	}
	failing := strings.Replace(good, "-passes=swap", "-passes=fail", 1)
	if updated, _ := cfg.Check("failing", []byte(failing)); updated != nil {
		t.Errorf("a failing case would be rewritten:\n%s", updated)
	}
	wantErr := failing[:strings.Index(failing, "-- want.ir --")] + "-- want.err --\n"
	if updated, _ = cfg.Check("error", []byte(wantErr)); !strings.Contains(string(updated), "@f: no\nnote: after pass fail (1 of 1) on input.ir; rerun: lowerdump opt -passes='fail' 01-fail.in.ir\n") {
		t.Errorf("updated:\n%s", updated)
	}
	if _, problems := cfg.Check("error", updated); len(problems) > 0 {
		t.Errorf("the updated case is refused: %v", problems)
	}
	if updated, problems := cfg.Check("no error", []byte(strings.Replace(string(updated), "-passes=fail", "-passes=swap", 1))); updated != nil || len(problems) == 0 {
		t.Error("a case whose error is gone would be rewritten")
	}
}

// The bisect pattern and the limit reach the manager.
func TestBisectFlag(t *testing.T) {
	cfg := config(t)
	text := strings.Replace(good, "-passes=swap", "-passes=swap -bisect=12", 1)
	var se *bisect.SyntaxError
	_, problems := cfg.Check("pattern", []byte(text))
	if _, err := bisect.Parse("12"); !errors.As(err, &se) || len(problems) != 1 || problems[0] != err.Error() {
		t.Errorf("problems: %v", problems)
	}
	text = strings.Replace(good, "-passes=swap", "-passes=swap,swap -limit=1", 1)
	if _, problems := cfg.Check("limit", []byte(text)); len(problems) > 0 {
		t.Errorf("with a limit: %v", problems)
	}
}

func TestRunPattern(t *testing.T) {
	if got := runPattern("TestGolden/sink-waits/one"); got != "^TestGolden$/^sink-waits$/^one$" {
		t.Error(got)
	}
}

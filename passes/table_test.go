package passes_test

import (
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

func nothing(*passes.Context, *ir.Func) error { return nil }

// The standard table obeys its own rules: NewTable has checked it, every
// constraint has a reason, every option and statistic a doc, and the arena
// pipeline holds passes of order and buckets only.
func TestStandardTable(t *testing.T) {
	table := standard.Table()
	for _, c := range table.Constraints() {
		if len(c.Why) < 20 {
			t.Errorf("%s before %s gives no real reason: %q", c.Before, c.After, c.Why)
		}
	}
	for _, p := range table.Passes() {
		if len(p.Stats) == 0 {
			t.Errorf("%s counts nothing", p.Name)
		}
	}
	arena, err := table.Parse("order-only")
	if err != nil {
		t.Fatal(err)
	}
	for i := range arena.Len() {
		if !arena.Pass(i).OrderOnly {
			t.Errorf("pipeline order-only holds %s, which may change more than order and buckets", arena.Pass(i).Name)
		}
	}
	if _, err := table.Parse("default"); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := table.WriteDoc(&b, true); err != nil {
		t.Fatal(err)
	}
	for _, p := range table.Passes() {
		for _, want := range []string{p.Name, p.Doc} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("the documentation lacks %q", want)
			}
		}
		for _, o := range p.Options {
			if !strings.Contains(b.String(), o.Name+"="+o.Default) {
				t.Errorf("the documentation lacks option %s of %s", o.Name, p.Name)
			}
		}
	}
	for _, c := range table.Constraints() {
		if !strings.Contains(b.String(), c.Why) {
			t.Errorf("the documentation lacks the reason for %s before %s", c.Before, c.After)
		}
	}
}

func TestNewTableErrors(t *testing.T) {
	ok := passes.Pass{Name: "a", Doc: "Does.", Run: nothing}
	with := func(change func(*passes.Pass)) []passes.Pass {
		p := ok
		change(&p)
		return []passes.Pass{p, {Name: "b", Doc: "Does.", Run: nothing}}
	}
	same := func(*passes.Pass) {}
	for _, c := range []struct {
		name        string
		passes      []passes.Pass
		constraints []passes.Constraint
		pipelines   []passes.NamedPipeline
		want        string
	}{
		{"bad name", with(func(p *passes.Pass) { p.Name = "A b" }), nil, nil, "is not a name"},
		{"twice", with(func(p *passes.Pass) { p.Name = "b" }), nil, nil, "two passes are called b"},
		{"no function", with(func(p *passes.Pass) { p.Run = nil }), nil, nil, "has no function"},
		{"no sentence", with(func(p *passes.Pass) { p.Doc = "does" }), nil, nil, "is not one sentence"},
		{"bad default", with(func(p *passes.Pass) {
			p.Options = []passes.Option{{Name: "n", Kind: passes.KindInt, Default: "x", Doc: "d"}}
		}), nil, nil, "default of option n of a"},
		{"no kind", with(func(p *passes.Pass) { p.Options = []passes.Option{{Name: "n", Doc: "d"}} }), nil, nil, "has no kind"},
		{"option twice", with(func(p *passes.Pass) {
			o := passes.Option{Name: "n", Kind: passes.KindInt, Default: "1", Doc: "d"}
			p.Options = []passes.Option{o, o}
		}), nil, nil, "option n twice"},
		{"stat twice", with(func(p *passes.Pass) { p.Stats = []passes.Stat{{"s", "d"}, {"s", "d"}} }), nil, nil, "statistic s twice"},
		{"stat without doc", with(func(p *passes.Pass) { p.Stats = []passes.Stat{{"s", ""}} }), nil, nil, "needs a name"},
		{"no reason", with(same), []passes.Constraint{{Before: "a", After: "b", Why: " "}}, nil, "gives no reason"},
		{"unknown in constraint", with(same), []passes.Constraint{{Before: "a", After: "c", Why: "w"}}, nil, "not in the table"},
		{"itself", with(same), []passes.Constraint{{Before: "a", After: "a", Why: "w"}}, nil, "with itself"},
		{"cycle", with(same), []passes.Constraint{{Before: "a", After: "b", Why: "w"}, {Before: "b", After: "a", Why: "w"}}, nil, "form a cycle"},
		{"pipeline of nobody", with(same), nil, []passes.NamedPipeline{{"p", "d", "c"}}, "no pass or pipeline"},
		{"pipeline named as pass", with(same), nil, []passes.NamedPipeline{{"a", "d", "b"}}, "the name is taken"},
		{"pipeline without doc", with(same), nil, []passes.NamedPipeline{{"p", "", "b"}}, "needs a name"},
	} {
		if _, err := passes.NewTable(c.passes, c.constraints, c.pipelines); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := passes.NewTable(with(same), nil, nil); err != nil {
		t.Errorf("the table that the cases change is itself refused: %v", err)
	}
}

func TestParsePipeline(t *testing.T) {
	table, err := passes.NewTable([]passes.Pass{
		{Name: "first", Doc: "Does.", Run: nothing, Options: []passes.Option{
			{Name: "n", Kind: passes.KindInt, Default: "3", Doc: "d"},
			{Name: "size", Kind: passes.KindBytes, Default: "8MiB", Doc: "d"},
			{Name: "mode", Kind: passes.KindString, Default: "x", Choices: []string{"x", "y"}, Doc: "d"},
			{Name: "on", Kind: passes.KindBool, Default: "false", Doc: "d"},
			{Name: "f", Kind: passes.KindFloat, Default: "0.5", Doc: "d"},
		}},
		{Name: "second", Doc: "Does.", Run: nothing},
		{Name: "third", Doc: "Does.", Run: nothing},
	}, []passes.Constraint{
		{Before: "first", After: "second", Why: "first makes what second reads"},
		{Before: "first", After: "third", Needs: true, Why: "third needs what first makes"},
	}, []passes.NamedPipeline{{"both", "first and second", "first{n=7},second"}, {"twice", "first, and again", "first{f=1},first"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" first , second ", "first,second"},
		{"first{ n = 4 , size=1.5GiB}", "first{n=4,size=1.5GiB}"},
		{"first{}", "first"},
		{"both", "first{n=7},second"},
		{"both{n=4,on=true}", "first{n=4,on=true},second"},
		{"twice{n=4}", "first{n=4,f=1},first{n=4}"},
		{"first{mode=y},both", "first{mode=y},first{n=7},second"},
		{"first,third", "first,third"},
		{"second", "second"},
	} {
		p, err := table.Parse(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if p.String() != c.want {
			t.Errorf("%q reads as %q, want %q", c.text, p, c.want)
		}
		if again, err := table.Parse(p.String()); err != nil || again.String() != c.want {
			t.Errorf("%q does not read back: %v", p, err)
		}
	}
	for _, c := range []struct{ text, where, what string }{
		{"first,", "1:7", "expected the name of a pass"},
		{",first", "1:1", "expected the name of a pass"},
		{"frist", "1:1", `no pass or pipeline "frist"`},
		{"zeroth", "1:1", "have: first second third both"},
		{"firsts", "1:1", "did you mean first?"},
		{"secnd", "1:1", "did you mean second?"},
		{"first second", "1:1", `no pass or pipeline "first second"`},
		{"first{n=4} second", "1:12", "expected ','"},
		{"first{n=4", "1:10", "expected ',' or '}'"},
		{"first{n}", "1:7", "expected option=value"},
		{"first{=4}", "1:7", "expected option=value"},
		{"first{n=-1}", "1:9", `"-1": want integer`},
		{"first{n=1,n=2}", "1:11", "given twice"},
		{"first{m=1}", "1:7", `no option "m"`},
		{"first{size=8Mib}", "1:12", "want bytes"},
		{"first{mode=z}", "1:12", "want one of: x y"},
		{"first{on=yes}", "1:10", "want true or false"},
		{"first{f=inf}", "1:9", "want number"},
		{"second{n=1}", "1:8", "second has no options"},
		{"both{m=1}", "1:6", `both has no option "m"`},
		{"both{n=1,n=2}", "1:10", "given twice"},
		{"second,first", "1:8", "first must run before second"},
		{"first,second,first", "1:14", "why: first makes what second reads"},
		{"third", "1:1", "third needs first before it"},
	} {
		_, err := table.Parse(c.text)
		if err == nil || !strings.Contains(err.Error(), "pipeline:"+c.where+":") || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%q: %v, want %q at %s", c.text, err, c.what, c.where)
		}
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		n    int64
		want string
	}{{0, "0B"}, {512, "512B"}, {1 << 20, "1MiB"}, {3 << 29, "1.5GiB"}, {-2048, "-2KiB"}, {1 << 41, "2TiB"}} {
		if got := passes.Bytes(c.n); got != c.want {
			t.Errorf("Bytes(%d) = %s, want %s", c.n, got, c.want)
		}
	}
}

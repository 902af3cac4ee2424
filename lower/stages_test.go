package lower_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// stagesExample lowers the module of docs/ir.md.
func stagesExample(t *testing.T) program.Stages {
	t.Helper()
	doc, err := os.ReadFile("../docs/ir.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(doc), "```") {
		if !strings.Contains(block, "stages @step") || !strings.Contains(block, "func @second") {
			continue
		}
		m, err := ir.Parse("t.ir", block)
		if err != nil {
			t.Fatal(err)
		}
		s, err := lower.Stages(m, m.Stages()[0], lower.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Fatal("docs/ir.md has no module with stages")
	return nil
}

// TestCheckStages takes stages that fit and breaks them, each in a way of its own.
func TestCheckStages(t *testing.T) {
	text := stagesExample(t).String()
	second := strings.Index(text, "program @second")
	permutes := func(s string) (lines []string) {
		for _, l := range strings.SplitAfter(s, "\n") {
			if strings.Contains(l, "collective_permute") {
				lines = append(lines, l)
			}
		}
		return lines
	}(text[second:])
	if len(permutes) != 2 {
		t.Fatalf("the second stage has %d collectives:\n%s", len(permutes), text)
	}
	for name, c := range map[string]struct{ was, is, want string }{
		"as it is":       {"", "", ""},
		"no receive":     {permutes[0], "", "programs first and second issue 1 and 0 collectives on @up"},
		"other pairs":    {permutes[1], strings.Replace(permutes[1], "[1, 0]", "[0, 1]", 1), "collective 1 on @down is collective_permute {pairs=[1, 0]}"},
		"other type":     {permutes[0], strings.ReplaceAll(permutes[0], "f32[4]", "i32[4]"), "or of other types"},
		"other group":    {"group @down = [[0, 1]]", "group @down = [[1, 0]]", "the same groups"},
		"other arena":    {"arena ", "arena 1", "arenas of one size"},
		"one rank twice": {"on [[1]]", "on [[0]]", "rank 0 runs both"},
		"a rank too far": {"on [[1]]", "on [[2]]", "ranks of the world of 2"},
	} {
		broken := text[:second] + strings.Replace(text[second:], c.was, c.is, 1)
		s, err := program.ParseStages("t", broken)
		if err == nil {
			err = program.CheckStages(s)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestCheckStagesDeadlock lets the second stage send before it has received.
func TestCheckStagesDeadlock(t *testing.T) {
	s := stagesExample(t)
	p := s[1]
	var head, recv []program.Instr
	for _, in := range p.Instrs {
		if in.Kind == program.Collective && p.Groups[in.Group].Name == "up" {
			recv = append(recv, in)
		} else {
			head = append(head, in)
		}
	}
	// The receive comes last, on its stream behind the end of the send.
	p.Events++
	for _, in := range head {
		if in.Kind == program.Collective {
			head = append(head, program.Instr{Kind: program.Record, Stream: in.Stream, Event: p.Events - 1, Group: -1},
				program.Instr{Kind: program.Wait, Stream: recv[0].Stream, Event: p.Events - 1, Group: -1})
		}
	}
	p.Instrs = append(head, recv...)
	if err := program.CheckStages(s); err == nil || !strings.Contains(err.Error(), "wait for each other: first at") || !strings.Contains(err.Error(), "second at") {
		t.Errorf("got %v", err)
	}
}

// TestCheckStagesTurns lets the first stage sum what it receives ahead of what it sends: it could,
// but for the turns that collectives within a stage take.
func TestCheckStagesTurns(t *testing.T) {
	const head = `
group @up = [[0, 1]]
group @down = [[0, 1]]
group @own = [[0], [1]]
group @other = [[0], [1]]
stream @compute
stream @up on @up
stream @down on @down
stream @own on @own
stream @other on @other
events 2
arena 1024
buffer %x at 0 size 16
buffer %y at 512 size 16
body
`
	const received, sent = "@own wait 0\n@own all_reduce on @own (%y: f32[4]) -> (%y: f32[4]) {reduce=\"sum\"} from %received\n",
		"@other all_reduce on @other (%x: f32[4]) -> (%x: f32[4]) {reduce=\"sum\"} from %sent\n@other record 1\n"
	permute := func(group, pairs string) string {
		return "@" + group + " collective_permute on @" + group + " (%x: f32[4]) -> (%y: f32[4]) {pairs=" + pairs + "} from %" + group + "\n"
	}
	up, down := permute("up", "[0, 1]"), permute("down", "[1, 0]")
	second := "program @second world 2 on [[1]]" + head + up + "@up record 0\n@down wait 0\n" + down
	for own, want := range map[string]string{
		received + sent: "stages wait for each other: first at instruction",
		sent + received: "",
	} {
		s, err := program.ParseStages("t", "program @first world 2 on [[0]]"+head+down+"@down record 0\n"+own+"@up wait 1\n"+up+second)
		if err == nil {
			err = program.CheckStages(s)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q of\n%s", err, want, own)
		}
	}
}

// TestStagesRun runs the example, and loads it in ways that must fail.
func TestStagesRun(t *testing.T) {
	s := stagesExample(t)
	var in [][]interp.Tensor
	for r := range 2 {
		x, err := interp.FromFloats(ir.F32, []float64{1, 2, 3, 4 + float64(r)}, 4)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, []interp.Tensor{x})
	}
	out, err := hostrun.Stages(t.Context(), host.Options{}, "step", s, in)
	if err != nil {
		t.Fatal(err)
	}
	if got := out[0][0].Float64s(); got[0] != 1 || got[3] != 20 {
		t.Errorf("got %v", got)
	}
	if _, err := rt.ModuleOf(s[0]); err == nil || !strings.Contains(err.Error(), "is a stage") {
		t.Errorf("a stage alone: %v", err)
	}
	mods, err := rt.ModulesOf("step", s)
	if err != nil {
		t.Fatal(err)
	}
	others, err := rt.ModulesOf("other", s)
	if err != nil {
		t.Fatal(err)
	}
	for name, pick := range map[string]func(rank int) *rt.Module{
		"this stage is for ranks": func(int) *rt.Module { return mods[0] },
		"programs":                func(rank int) *rt.Module { return [][]*rt.Module{mods, changed(others)}[rank][rank] },
	} {
		err := host.Local(t.Context(), 2, rt.Config{}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
			return r.Add(ctx, pick(r.Info().Rank), nil)
		})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

// changed are modules of stages of which one was compiled from another text.
func changed(mods []*rt.Module) []*rt.Module {
	for _, m := range mods {
		m.Joint += "\n"
	}
	return mods
}

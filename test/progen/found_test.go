package progen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/found: look at every number")

// found is a program that once went wrong, and what it has to give.
//
// A case is a txtar archive: its comment says what it shows; program.ir is the
// program; inputs lists numbers by rank, one line for each input tensor and rank
// ("0: 1 2 3"), or else element i of input k is 1 + i + 100k on rank 0, and 10 more
// on the next; symbols lists sizes ("s=2"); passes is one more pipeline. want lists the outputs by rank, repeated
// numbers as NxCOUNT, or the beginning of the error after "refused: ".
type found struct {
	name    string
	file    string
	ar      *txtar.Archive
	c       Case
	want    string
	refused string
}

var foundPipelines = []string{"", "default", "cuda", "arena"}

func loadFound(t testing.TB) []*found {
	files, err := filepath.Glob("testdata/found/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var out []*found
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := &found{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), file: file, ar: ar}
		if err := f.load(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, f)
	}
	return out
}

func (f *found) section(name string) string {
	for _, s := range f.ar.Files {
		if s.Name == name {
			return string(s.Data)
		}
	}
	return ""
}

func (f *found) load() error {
	f.c = Case{Seed: 1, Text: f.section("program.ir")}
	f.want = f.section("want")
	f.refused, _ = strings.CutPrefix(strings.TrimSpace(f.want), "refused: ")
	if f.refused == strings.TrimSpace(f.want) {
		f.refused = ""
	}
	m, err := ir.Parse("case.ir", f.c.Text)
	if err != nil {
		return err
	}
	syms := map[string]int64{}
	for _, s := range m.Symbols() {
		syms[s.Name] = s.Hint
	}
	for _, w := range strings.Fields(f.section("symbols")) {
		name, v, _ := strings.Cut(w, "=")
		if syms[name], err = strconv.ParseInt(v, 10, 64); err != nil {
			return err
		}
	}
	lines := strings.Split(strings.TrimSpace(f.section("inputs")), "\n")
	var all []map[string]int64
	for r := range m.World {
		all = append(all, syms)
		var in []interp.Tensor
		for k, s := range interp.InputSlots(m.Funcs()[0]) {
			t, err := tensor(s.Type, syms)
			if err != nil {
				return err
			}
			size := t.DType.Size()
			var given []string
			for _, l := range lines {
				if rest, ok := strings.CutPrefix(l, fmt.Sprintf("%d: ", r)); ok {
					given = strings.Fields(rest)
				}
			}
			for i := 0; i < len(t.Data)/size; i++ {
				v := int64(1 + i + 100*k + 10*r)
				if i < len(given) {
					if v, err = strconv.ParseInt(given[i], 10, 64); err != nil {
						return err
					}
				}
				if t.DType.IsFloat() {
					dtype.StoreFloat(t.DType, t.Data[i*size:], float64(v))
				} else {
					dtype.StoreInt(t.DType, t.Data[i*size:], v)
				}
			}
			in = append(in, t)
		}
		f.c.Given = append(f.c.Given, in)
	}
	f.c.Symbols = [][]map[string]int64{all}
	return nil
}

// show writes outputs as want sections have them.
func show(outs [][]interp.Tensor) string {
	var b strings.Builder
	for r, ts := range outs {
		for k, t := range ts {
			fmt.Fprintf(&b, "rank %d output %d:", r, k)
			size := t.DType.Size()
			last, count := "", 0
			flush := func() {
				if count == 1 {
					b.WriteString(" " + last)
				} else if count > 1 {
					fmt.Fprintf(&b, " %sx%d", last, count)
				}
			}
			for i := 0; i < len(t.Data); i += size {
				var s string
				if t.DType.IsFloat() {
					s = strconv.FormatFloat(dtype.LoadFloat(t.DType, t.Data[i:]), 'g', -1, 64)
				} else {
					s = strconv.FormatInt(dtype.LoadInt(t.DType, t.Data[i:]), 10)
				}
				if s == last {
					count++
					continue
				}
				flush()
				last, count = s, 1
			}
			flush()
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Programs that once went wrong give what their cases say: on the interpreter, the
// host device and the fake CUDA device, without passes and behind the pipelines with
// names, or are refused with the position of what is wrong.
func TestFound(t *testing.T) {
	for _, f := range loadFound(t) {
		t.Run(f.name, func(t *testing.T) {
			got := f.interpreted(t)
			if *update {
				f.rewrite(t, got)
			}
			if got != f.want {
				t.Fatalf("got\n%s\nwant\n%s", got, f.want)
			}
			for _, p := range append(foundPipelines[:len(foundPipelines):len(foundPipelines)], strings.Fields(f.section("passes"))...) {
				f.c.Pipeline = p
				runs := Runs{Host: true, Validate: true}
				if !testing.Short() {
					runs.CUDA = FakeCUDA(p == "cuda")
				}
				fail := f.c.Check(t.Context(), runs)
				switch {
				case f.refused == "" && fail != nil:
					t.Errorf("-passes=%s: %v", p, fail)
				case f.refused != "" && (fail == nil || !strings.Contains(fail.Detail, f.refused)):
					t.Errorf("-passes=%s: got %v, want the error %q", p, fail, f.refused)
				}
			}
		})
	}
}

// interpreted is the want section that the program without passes has.
func (f *found) interpreted(t *testing.T) string {
	m, fail := f.c.read()
	if fail != nil {
		return refusal(fail.Detail)
	}
	out, err := interp.Run(t.Context(), m.Funcs()[0], f.c.Given, f.c.options(f.c.Symbols[0]))
	if err != nil {
		return refusal(err.Error())
	}
	return show(out)
}

func refusal(detail string) string {
	first, _, _ := strings.Cut(detail, "\n")
	return "refused: " + first + "\n"
}

func (f *found) rewrite(t *testing.T, got string) {
	for i := range f.ar.Files {
		if f.ar.Files[i].Name == "want" {
			f.ar.Files[i].Data = []byte(got)
		}
	}
	if err := os.WriteFile(f.file, txtar.Format(f.ar), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
}

// What a child is told through its environment: the number of ranks, and where to
// write what it finds.
const (
	envWorld   = "PROGEN_WORLD"
	envResults = "PROGEN_RESULTS"
)

func TestMain(m *testing.M) {
	if os.Getenv(launch.EnvChild) == "1" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, "FAILED:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The same programs on ranks that are processes.
func TestFoundOnProcesses(t *testing.T) {
	all := loadFound(t)
	for _, world := range []int{1, 2, 8} {
		dir := t.TempDir()
		spec := launch.Spec{World: world, Args: []string{"-test.run=^$"}, Env: []string{fmt.Sprintf("%s=%d", envWorld, world), envResults + "=" + dir}}
		if err := launch.Run(t.Context(), spec); err != nil {
			t.Fatalf("%d ranks: %v", world, err)
		}
		got := map[string]string{} // by case and pipeline; look-up only
		for r := range world {
			data, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(r)))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				name, rest, _ := strings.Cut(line, "\t")
				got[name] += rest
			}
		}
		for _, f := range all {
			for _, p := range foundPipelines {
				if f.refused == "" && len(f.c.Given) == world && got[f.name+" "+p] != f.want {
					t.Errorf("%s, -passes=%s: got\n%s\nwant\n%s", f.name, p, got[f.name+" "+p], f.want)
				}
			}
		}
	}
}

// child is one rank: it runs every case of its world behind every pipeline.
func child() error {
	world, err := strconv.Atoi(os.Getenv(envWorld))
	if err != nil {
		return err
	}
	type run struct {
		name string
		f    *found
		s    hostrun.Step
	}
	var runs []run
	var mods []*rt.Module
	for _, f := range loadFound(fatal{}) {
		if f.refused != "" || len(f.c.Given) != world {
			continue
		}
		for _, p := range foundPipelines {
			f.c.Pipeline = p
			m, fail := f.c.read()
			if fail == nil {
				m, fail = f.c.compile(context.Background(), m, Runs{})
			}
			if fail != nil {
				return fmt.Errorf("%s: %w", f.name, fail)
			}
			lowered, fail := f.c.lowered(m.Funcs()[0])
			if fail != nil {
				return fmt.Errorf("%s: %w", f.name, fail)
			}
			s, err := hostrun.OfProgram(lowered)
			if err != nil {
				return err
			}
			s.Module.Name += strconv.Itoa(len(runs)) // the world knows modules by name
			runs, mods = append(runs, run{f.name + " " + p, f, s}), append(mods, s.Module)
		}
	}
	ctx := context.Background()
	r, err := rt.Join(ctx, host.Opener(host.Options{}), rt.Config{Timeout: 30 * time.Second, Funcs: Funcs()}, mods...)
	if err != nil {
		return err
	}
	rank := r.Info().Rank
	var b strings.Builder
	for _, x := range runs {
		in, err := hostrun.Inputs(ctx, r, x.s.Module, x.f.c.Given[rank])
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		vs, err := rt.RunModule(ctx, r, x.s.Module, x.s.Run, in, rt.Options{Symbols: x.f.c.Symbols[0][rank], Seed: 1})
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		outs := make([][]interp.Tensor, rank+1)
		if outs[rank], err = hostrun.Tensors(ctx, r, vs); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		for line := range strings.Lines(show(outs)) {
			b.WriteString(x.name + "\t" + line)
		}
	}
	err = os.WriteFile(filepath.Join(os.Getenv(envResults), strconv.Itoa(rank)), []byte(b.String()), 0o666)
	return errors.Join(err, r.Barrier(ctx), r.Close())
}

// fatal ends a process that is no test.
type fatal struct{ testing.TB }

func (fatal) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (fatal) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// The cases are those of their folder, each with a comment.
func TestFoundCases(t *testing.T) {
	for _, f := range loadFound(t) {
		if strings.TrimSpace(string(f.ar.Comment)) == "" || !slices.ContainsFunc(f.ar.Files, func(s txtar.File) bool { return s.Name == "want" }) {
			t.Errorf("%s lacks a comment or a want section", f.file)
		}
	}
}

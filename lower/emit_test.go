package lower_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes/passtest"
	"github.com/seed-ee968945/concert/program"
)

// lowerWith lowers one function.
func lowerWith(t *testing.T, f *ir.Func, o lower.Options) *program.Program {
	t.Helper()
	p, err := lower.FuncWith(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// emit prints one program.
func emit(t *testing.T, p *program.Program, pkg string) []byte {
	t.Helper()
	src, err := lower.EmitGo(p, pkg)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// An emittedTree is a module of emitted steps, with a main function that runs and checks them.
type emittedTree struct {
	root, dir      string // of concert, and of the module
	imports, cases bytes.Buffer
}

func (e *emittedTree) place(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(e.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// addTraced adds forward and backward of a traced step.
func (e *emittedTree) addTraced(t *testing.T, name string, kernels bool) {
	pair, err := step.Load(filepath.Join(e.root, "testdata", "graphs"), name)
	if err != nil {
		t.Fatal(err)
	}
	prefix := name
	if kernels {
		prefix += "_cuda"
	}
	for _, h := range []struct {
		half string
		f    *ir.Func
	}{{"fw", pair.Forward}, {"bw", pair.Backward}} {
		pkg := prefix + "_" + h.half
		if kernels {
			h.f = forCUDA(t, h.f.Module()).Func(h.f.Name)
		}
		p := lowerWith(t, h.f, lower.Options{Kernels: kernels})
		src := emit(t, p, pkg)
		checkCalls(t, p, src)
		e.place(t, pkg+"/step.go", src)
		if kernels {
			cu, err := lower.EmitCUDA(p)
			if err != nil {
				t.Fatal(err)
			}
			e.place(t, pkg+"/"+pkg+".cu", cu)
		}
		fmt.Fprintf(&e.imports, "%q\n", emittedModule+"/"+pkg)
	}
	fmt.Fprintf(&e.cases, "check(%q, hostrun.Step{Module: %[2]s_fw.Module(), Run: %[2]s_fw.Step}, hostrun.Step{Module: %[2]s_bw.Module(), Run: %[2]s_bw.Step})\n", name, prefix)
}

func (e *emittedTree) addCase(t *testing.T, c *passtest.Case) {
	p, err := emitted(c)
	if err != nil {
		t.Fatal(err)
	}
	cu := []byte{}
	if p.Source() != "" {
		if cu, err = lower.EmitCUDA(p); err != nil {
			t.Fatal(err)
		}
	}
	pkg := "case_" + c.Name
	e.place(t, pkg+"/step.go", emit(t, p, pkg))
	e.place(t, pkg+"/"+pkg+".cu", cu)
	e.place(t, pkg+"/step.ir", []byte(c.After.String()))
	fmt.Fprintf(&e.imports, "%q\n", emittedModule+"/"+pkg)
	fmt.Fprintf(&e.cases, "checkCase(%[1]q, hostrun.Step{Module: %[1]s.Module(), Run: %[1]s.Step})\n", pkg)
}

// run builds all of it, and runs it on the host.
func (e *emittedTree) run(t *testing.T, goTool string) {
	bin := filepath.Join(e.dir, "emitted")
	for _, args := range [][]string{
		{goTool, "vet", "./..."},
		{goTool, "build", "-o", bin, "."},
		{bin, filepath.Join(e.root, "testdata")},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = e.dir
		cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(e.dir, "go.work"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		} else if args[0] == bin {
			t.Logf("\n%s", out)
		}
	}
}

// Emitted code of the traced steps and of the golden cases is formatted, vets, compiles, runs on the
// host device, and gives the interpreter's bits. It is compiled in a module of its
// own, as a user's would be.
func TestEmittedStepsRun(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool to compile emitted code with")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	e := &emittedTree{root: root, dir: t.TempDir()}
	e.place(t, "go.mod", emittedMod(t, root))
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	e.place(t, "go.sum", sums)
	// A workspace takes concert from root as what has been compiled there, which a replacement compiles again.
	e.place(t, "go.work", fmt.Appendf(nil, "go 1.26.0\nuse (\n.\n%q\n)\n", root))
	for _, name := range append(steps, "tiny_moe2") {
		e.addTraced(t, name, false)
	}
	for _, name := range []string{"tiny_fsdp2", "tiny_moe2"} {
		e.addTraced(t, name, true)
	}
	for _, c := range emitCases(t) {
		e.addCase(t, c)
	}
	e.place(t, "main.go", []byte(fmt.Sprintf(emittedMain, e.imports.String(), e.cases.String())))
	e.run(t, goTool)
}

// emitCases are the cases of testdata/golden/emit.
func emitCases(t *testing.T) []*passtest.Case {
	t.Helper()
	files, err := filepath.Glob("../testdata/golden/emit/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	cfg := emitConfig()
	var out []*passtest.Case
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := cfg.Compile(strings.TrimSuffix(filepath.Base(file), ".txtar"), data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, c)
	}
	return out
}

// emittedModule is the path of the module that the emitted packages are compiled
// in; below concert's own, so that the program around them may use its internals.
const emittedModule = "github.com/seed-ee968945/concert/emitted"

// emittedMod is a go.mod that takes everything but concert as concert does.
func emittedMod(t *testing.T, root string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(data, []byte("module github.com/seed-ee968945/concert\n"), []byte("module "+emittedModule+"\n"), 1)
}

// checkCalls parses emitted code and counts: Step has one call for each
// instruction, and gofmt has nothing to change.
func checkCalls(t *testing.T, p *program.Program, src []byte) {
	t.Helper()
	if out, err := format.Source(src); err != nil || !bytes.Equal(out, src) {
		t.Errorf("emitted code of @%s is not gofmt-ed: %v", p.Name, err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), p.Name+".go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "Step" && len(fn.Body.List) != len(p.Instrs) {
			t.Errorf("@%s has %d instructions, its Step %d statements", p.Name, len(p.Instrs), len(fn.Body.List))
		}
	}
}

const emittedMain = `package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
%s)

func main() {
	%s}

// check runs a step's emitted code and compares it with the interpreter, bit by
// bit, and with the recording where there is one.
func check(name string, fw, bw hostrun.Step) {
	ctx := context.Background()
	data := os.Args[1]
	pair, err := step.Load(filepath.Join(data, "graphs"), name)
	fatal(err)
	run := func(ctx context.Context, f *ir.Func, in [][]interp.Tensor) ([][]interp.Tensor, error) {
		s := fw
		if f == pair.Backward {
			s = bw
		}
		return hostrun.RunLocal(ctx, rt.Config{}, pair.World(), s, in)
	}
	vectors := filepath.Join(data, "vectors")
	in, err := pair.ReadAllInputs(vectors)
	if err != nil {
		in, err = interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
		fatal(err)
	} else {
		rs, err := pair.Check(ctx, run, vectors)
		fatal(err)
		loss, gradient := step.Worst(rs)
		fmt.Print(name, "\n", step.Table([]step.Result{*loss, *gradient}))
		for _, r := range rs {
			if !r.OK() {
				fatal(fmt.Errorf("%%s: rank %%d output %%s is too far", name, r.Rank, r.Name))
			}
		}
	}
	gotF, gotB, err := pair.Run(ctx, run, in)
	fatal(err)
	wantF, wantB, err := pair.Run(ctx, step.Interpret(interp.Options{}), in)
	fatal(err)
	for i, want := range [][][]interp.Tensor{wantF, wantB} {
		got := [][][]interp.Tensor{gotF, gotB}[i]
		for r := range want {
			for k := range want[r] {
				if !interp.Equal(got[r][k], want[r][k]) {
					fatal(fmt.Errorf("%%s: half %%d rank %%d output %%d differs from the interpreter", name, i, r, k))
				}
			}
		}
	}
}

// checkCase runs the emitted code of a golden case, whose functions are beside it, and
// compares it with the interpreter, bit by bit. Sizes known at run time differ by rank:
// what rank 0 sends to rank 1 is what that expects.
func checkCase(name string, s hostrun.Step) {
	ctx := context.Background()
	text, err := os.ReadFile(filepath.Join(name, "step.ir"))
	fatal(err)
	m, err := ir.Parse(name, string(text))
	fatal(err)
	f := m.Funcs()[len(m.Funcs())-1]
	var sizes []map[string]int64
	if len(m.Symbols()) > 0 && len(f.SizeReads()) == 0 {
		sizes = []map[string]int64{{"a": 4, "b": 2, "c": 4, "d": 3}, {"a": 3, "b": 1, "c": 2, "d": 1}}
	}
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{Symbols: sizes})
	fatal(err)
	want, err := interp.Run(ctx, f, in, interp.Options{Symbols: sizes})
	fatal(err)
	got, err := hostrun.RunLocal(ctx, rt.Config{}, m.World, s, in)
	fatal(err)
	for r := range want {
		for k := range want[r] {
			if !interp.Equal(got[r][k], want[r][k]) {
				fatal(fmt.Errorf("%%s: rank %%d output %%d is %%v, the interpreter's %%v", name, r, k, got[r][k], want[r][k]))
			}
		}
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
`

package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/bench"
	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/ir/hlo"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

// input is a loaded file.
type input struct {
	path   string
	module *ir.Module
	graph  *fx.File           // the traced graph it came from, or nil
	hlo    *stablehlo.Program // the program it came from, or nil
}

// load reads a file of either kind and verifies it. Warnings go to standard error.
func (t tool) load(path string) (*input, error) {
	data, name, err := t.read(path)
	if err != nil {
		return nil, err
	}
	return t.parse(name, data)
}

// read returns a file's bytes and what to call it; - is standard input, which a
// process rank finds in a file that its parent has kept for it.
func (t tool) read(path string) ([]byte, string, error) {
	if path != "-" {
		data, err := os.ReadFile(path)
		return data, path, err
	}
	if kept := t.env(bench.EnvStdin); kept != "" {
		data, err := os.ReadFile(kept)
		return data, "stdin", err
	}
	data, err := io.ReadAll(t.in)
	return data, "stdin", err
}

// parse reads a module from a file's bytes.
func (t tool) parse(name string, data []byte) (*input, error) {
	defer t.busy.Phase("reading " + name)()
	data, err := textOf(name, data)
	if err != nil {
		return nil, err
	}
	switch kind := kindOf(data); kind {
	case mlirFile:
		return t.loadStableHLO(name, data, stablehlo.Parse)
	case hloFile:
		return t.loadStableHLO(name, data, hlo.Parse)
	case graphFile:
		return t.loadGraph(name, data)
	case irFile, emptyFile:
	default:
		return nil, wrongKind(name, kind, anyProgram)
	}
	m, err := ir.Parse(name, string(data))
	if err != nil {
		return nil, err
	}
	if err := m.Verify(); err != nil {
		return nil, err
	}
	return &input{path: name, module: m}, nil
}

// mostUnpacked is how many bytes of text a packed file may hold.
const mostUnpacked = 1 << 30

// textOf is a file's text, of which a .gz may hold a packed form.
func textOf(name string, data []byte) (_ []byte, err error) {
	if textInside(name) {
		data, err = unpacked(name, data)
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), err // with which some editors mark UTF-8
}

// unpacked is the text of a file that gzip has packed.
func unpacked(name string, data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, mostUnpacked+1))
	if err == nil && len(text) > mostUnpacked {
		err = fmt.Errorf("more than %d bytes of text", mostUnpacked)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// textInside reports whether a packed file holds a program as text.
func textInside(name string) bool {
	return slices.ContainsFunc([]string{".mlir.gz", ".hlo.gz", ".hlo.txt.gz"}, func(end string) bool { return strings.HasSuffix(name, end) })
}

func (t tool) loadStableHLO(path string, data []byte, parse func(name, text string) (*stablehlo.Module, error)) (*input, error) {
	m, err := parse(path, string(data))
	if err != nil {
		return nil, err
	}
	m.Sharded(sdy.Inferred)
	m.Start(t.entry)
	p, err := m.Program()
	if err == nil && !t.global {
		err = compile.Partition(p.Module, compile.PartitionOptions{})
	}
	if err != nil {
		return nil, err
	}
	return &input{path: path, module: p.Module, hlo: p}, nil
}

func (t tool) loadGraph(path string, data []byte) (*input, error) {
	f, err := fx.Read(path, bytes.NewReader(data))
	if err != nil {
		if kind := kindOfJSON(data); kind != graphFile {
			err = wrongKind(path, kind, anyProgram)
		}
		return nil, err
	}
	r, err := f.Import()
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		t.warn(w)
	}
	return &input{path: path, module: r.Module, graph: f}, nil
}

// funcNamed returns the function of that name, or the only one if name is empty.
func (in *input) funcNamed(name string) (*ir.Func, error) {
	fs := in.module.Entries()
	names := make([]string, len(fs))
	for i, f := range fs {
		if names[i] = "@" + f.Name; f.Name == name || name == "" && len(fs) == 1 {
			return f, nil
		}
	}
	have := strings.Join(names, ", ")
	switch {
	case len(fs) == 0:
		return nil, fmt.Errorf("%s holds no function", in.path)
	case name == "":
		return nil, usagef("%s holds %d functions, %s: name one with -func", in.path, len(fs), have)
	}
	return nil, usagef("-func=%s: %s holds %s", name, in.path, have)
}

// source holds the flags of every command that takes a function of a file
// through a pipeline.
type source struct {
	pipeline, fn string
	device       string // of run: host, cuda or interp; empty: what the pipeline is for
	all          bool   // every function of FILE
	staged       bool   // without -func all stages of FILE, if it has some after the passes
	pricing      pricing
}

func (s *source) define(fs *flag.FlagSet, pipeline string) {
	definePipeline(fs, &s.pipeline, pipeline)
	s.pricing.define(fs)
	fs.StringVar(&s.fn, "func", "", "function to use, if FILE has several")
}

// definePipeline declares the flag that says which passes to run.
func definePipeline(fs *flag.FlagSet, pipeline *string, def string) {
	fs.StringVar(pipeline, "passes", def, "`pipeline`: default, cuda, order-only, passes such as canonicalize,sink-waits{limit=10}, or empty for none")
}

// compiled is a file that went through a pipeline.
type compiled struct {
	*compile.Result
	path     string
	graph    *fx.File           // the traced graph it came from, or nil
	hlo      *stablehlo.Program // the program it came from, or nil
	function *compile.Function  // what -func names; nil for all of FILE
}

// compiled loads a file and compiles it.
func (t tool) compiled(ctx context.Context, path string, s source) (*compiled, error) {
	if _, err := t.parsed(s.pipeline); err != nil {
		return nil, err // before a large file is read
	}
	t.entry = s.fn
	in, err := t.load(path)
	if err != nil {
		return nil, err
	}
	return t.compile(ctx, in, s, nil)
}

// compile runs the pipeline over a copy of a loaded file.
func (t tool) compile(ctx context.Context, in *input, s source, with func(*passes.Manager)) (*compiled, error) {
	whole := func(m *ir.Module) bool { return s.all || s.staged && s.fn == "" && len(m.Stages()) == 1 }
	if !whole(in.module) {
		if _, err := in.funcNamed(s.fn); err != nil {
			return nil, err
		}
	}
	target, err := s.pricing.target(t.deviceOf(s))
	if err != nil {
		return nil, err
	}
	p, err := t.parsed(s.pipeline)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	o := compile.Options{Pipeline: p, Manager: passes.Manager{Input: in.path, Validate: s.pricing.validate, Progress: t.busy.Step, Clock: func() int64 { return int64(time.Since(start)) }}}
	if with != nil {
		with(&o.Manager)
	}
	if t.env("GOGC") == "" { // much is garbage soon, and little stays
		defer debug.SetGCPercent(debug.SetGCPercent(400))
	}
	end := t.busy.Phase("passes")
	r, err := t.compiler(ctx, in.module, target, o)
	end()
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings() {
		t.warn(w)
	}
	c := &compiled{Result: r, path: in.path, graph: in.graph, hlo: in.hlo}
	if !whole(r.Module) {
		fn, err := (&input{path: in.path, module: r.Module}).funcNamed(s.fn)
		if err != nil {
			return nil, err
		}
		c.function = r.Func(fn.Name)
	}
	return c, nil
}

// passes is the table of passes.
func (t tool) passes() *passes.Table {
	if t.table == nil {
		return standard.Table()
	}
	return t.table
}

// parsed parses a pipeline. A malformed one is a broken command line.
func (t tool) parsed(pipeline string) (*passes.Pipeline, error) {
	p, err := t.passes().Parse(pipeline)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return p, nil
}

// deviceOf is what a function is compiled for: GPUs if the command says so, or the
// pipeline forms regions for kernels.
func (t tool) deviceOf(s source) compile.Device {
	p, err := t.parsed(s.pipeline)
	for i := 0; err == nil && s.device == "" && i < p.Len(); i++ {
		if p.Pass(i).Regions {
			return compile.GPU
		}
	}
	if s.device == "cuda" {
		return compile.GPU
	}
	return compile.Host
}

// output is where a command writes: standard output, or the file named by -o.
func (t tool) output(path string, write func(io.Writer) error) error {
	return (&bench.Console{Out: t.out}).Output(path, write)
}

// writeJSON writes a value as people read it.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

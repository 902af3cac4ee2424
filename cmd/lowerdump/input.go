package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
)

// input is a loaded file.
type input struct {
	path   string
	module *ir.Module
	graph  *fx.File // the traced graph it came from, or nil
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
	if kept := t.env(envStdin); kept != "" {
		data, err := os.ReadFile(kept)
		return data, "stdin", err
	}
	data, err := io.ReadAll(t.in)
	return data, "stdin", err
}

// parse reads a module from a file's bytes.
func (t tool) parse(name string, data []byte) (*input, error) {
	defer t.busy.phase("reading " + name)()
	if looksLikeGraph(data) {
		return t.loadGraph(name, data)
	}
	m, err := ir.Parse(name, string(data))
	if err != nil {
		return nil, err
	}
	if err := m.Verify(); err != nil {
		return nil, err
	}
	return &input{path: name, module: m}, t.prices.apply(m)
}

// looksLikeGraph tells JSON and gzip from IR text, which starts with neither.
func looksLikeGraph(data []byte) bool {
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return true
	}
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && data[0] == '{'
}

func (t tool) loadGraph(path string, data []byte) (*input, error) {
	f, err := fx.Read(path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r, err := f.Import()
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(t.err, "warning: %v\n", w)
	}
	return &input{path: path, module: r.Module, graph: f}, t.prices.apply(r.Module)
}

// funcNamed returns the function of that name, or the only one if name is empty.
func (in *input) funcNamed(name string) (*ir.Func, error) {
	fs := in.module.Funcs()
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
	pricing      pricing
}

func (s *source) define(fs *flag.FlagSet, pipeline string) {
	definePipeline(fs, &s.pipeline, pipeline)
	s.pricing.define(fs)
	fs.StringVar(&s.fn, "func", "", "function to take from a FILE that holds several")
}

// definePipeline declares the flag that says which passes to run.
func definePipeline(fs *flag.FlagSet, pipeline *string, def string) {
	fs.StringVar(pipeline, "passes", def, "`pipeline`: default, cuda, arena, passes such as canonicalize,sink-waits{limit=10}, or empty for none")
}

// optimised loads a file, runs the pipeline over it, and returns the function.
func (t tool) optimised(ctx context.Context, path string, s source) (*input, *ir.Func, error) {
	if _, err := s.parsed(); err != nil {
		return nil, nil, err // before a large file is read
	}
	t.prices = s.pricing
	in, err := t.load(path)
	if err != nil {
		return nil, nil, err
	}
	fn, err := t.through(ctx, in, s)
	return in, fn, err
}

// priced loads a file for a command that looks at it before the passes, too, and
// returns the function and a cost model.
func (t tool) priced(path string, s source) (*input, *ir.Func, *cost.Model, error) {
	if _, err := s.parsed(); err != nil {
		return nil, nil, nil, err // before a large file is read
	}
	t.prices = s.pricing
	in, err := t.load(path)
	if err != nil {
		return nil, nil, nil, err
	}
	fn, err := in.funcNamed(s.fn)
	if err != nil {
		return nil, nil, nil, err
	}
	model, err := t.prices.model()
	return in, fn, model, err
}

// through runs the pipeline over a loaded file and returns the function.
func (t tool) through(ctx context.Context, in *input, s source) (*ir.Func, error) {
	if _, err := in.funcNamed(s.fn); err != nil {
		return nil, err
	}
	if _, err := t.optimise(ctx, in, s.pipeline, nil); err != nil {
		return nil, err
	}
	return in.funcNamed(s.fn)
}

// parsed parses the pipeline, nil for an empty one. A malformed one is a broken
// command line.
func (s source) parsed() (*passes.Pipeline, error) {
	if s.pipeline == "" {
		return nil, nil
	}
	p, err := passes.Standard().Parse(s.pipeline)
	if err != nil {
		return nil, usageError{err.Error()}
	}
	return p, nil
}

// lowering is how a function that went through the pipeline is lowered: with kernels
// of its own if the pipeline forms regions for them.
func (s source) lowering() lower.Options {
	p, err := s.parsed()
	if err != nil || p == nil {
		return lower.Options{}
	}
	for i := range p.Len() {
		if p.Pass(i).Name == "fuse" {
			return lower.Options{Kernels: true}
		}
	}
	return lower.Options{}
}

// forming is the pipeline up to the pass that forms regions: what comes behind it
// places buffers, which launches do not depend on.
func (s source) forming() string {
	p, err := s.parsed()
	if err != nil || p == nil {
		return s.pipeline
	}
	var out []string
	for i := range p.Len() {
		out = append(out, p.Spec(i))
		if p.Pass(i).Name == "fuse" {
			break
		}
	}
	return strings.Join(out, ",")
}

// optimise runs a pipeline over the module in place; an empty pipeline does nothing.
func (t tool) optimise(ctx context.Context, in *input, pipeline string, with func(*passes.Manager)) (*passes.Report, error) {
	p, err := source{pipeline: pipeline}.parsed()
	if err != nil || p == nil {
		return &passes.Report{}, err
	}
	defer t.busy.phase("passes")()
	if err := t.spread(in.module, pipeline); err != nil {
		return nil, err
	}
	r, err := t.passes(in, pipeline, with)
	if err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// passes runs a pipeline that is not empty.
func (t tool) passes(in *input, pipeline string, with func(*passes.Manager)) (*passes.Report, error) {
	p, err := source{pipeline: pipeline}.parsed()
	if err != nil {
		return nil, err
	}
	model, err := t.prices.model()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	g := passes.Manager{
		Costs: model, Input: in.path, Progress: t.busy.step, Fusable: lower.Fusable,
		Clock: func() int64 { return int64(time.Since(start)) },
		Log:   slog.New(slog.DiscardHandler),
	}
	if with != nil {
		with(&g)
	}
	return g.Run(in.module, p)
}

// colour wraps text in an escape sequence on a terminal, unless NO_COLOR is set.
func (t tool) colour(code, text string) string {
	f, ok := t.out.(*os.File)
	if !ok || t.env("NO_COLOR") != "" || t.env("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// output is where a command writes: standard output, or the file named by -o.
func (t tool) output(path string, write func(io.Writer) error) error {
	if path == "" || path == "-" {
		return write(t.out)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
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

// read returns a file's bytes and what to call it; - is standard input.
func (t tool) read(path string) ([]byte, string, error) {
	if path == "-" {
		data, err := io.ReadAll(t.in)
		return data, "stdin", err
	}
	data, err := os.ReadFile(path)
	return data, path, err
}

// parse reads a module from a file's bytes.
func (t tool) parse(name string, data []byte) (*input, error) {
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
	return &input{path: name, module: m}, nil
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
	return &input{path: path, module: r.Module, graph: f}, nil
}

// theFunc returns the module's only function.
func (in *input) theFunc() (*ir.Func, error) {
	if n := len(in.module.Funcs()); n != 1 {
		return nil, fmt.Errorf("%s holds %d functions, want one", in.path, n)
	}
	return in.module.Funcs()[0], nil
}

// costs is the model for nodes without attached costs and for buckets: measured
// tables of the machine the graphs were traced on, then formulas for it.
func costs() (*cost.Model, error) {
	m, err := cost.LookupMachine("h200")
	if err != nil {
		return nil, err
	}
	return &cost.Model{Table: cost.H200(), Machine: m}, nil
}

// optimise runs a pipeline over the module in place; an empty pipeline does nothing.
func (t tool) optimise(ctx context.Context, in *input, pipeline string, with func(*passes.Manager)) (*passes.Report, error) {
	if pipeline == "" {
		return &passes.Report{}, nil
	}
	p, err := passes.Standard().Parse(pipeline)
	if err != nil {
		return nil, err
	}
	model, err := costs()
	if err != nil {
		return nil, err
	}
	bar := t.progress()
	defer bar.done()
	start := time.Now()
	g := passes.Manager{
		Costs: model, Input: in.path, Progress: bar.step,
		Clock: func() int64 { return int64(time.Since(start)) },
		Log:   slog.New(slog.DiscardHandler),
	}
	if with != nil {
		with(&g)
	}
	r, err := g.Run(in.module, p)
	if err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// progress reports on a terminal what has been going on for longer than a second.
type progress struct {
	w     io.Writer // nil: not a terminal
	start time.Time
	drawn bool
}

func (t tool) progress() *progress {
	p := &progress{start: time.Now()}
	if f, ok := t.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = f
	}
	return p
}

func (p *progress) step(number, of int, what string) {
	if p.w == nil || time.Since(p.start) < time.Second {
		return
	}
	p.drawn = true
	fmt.Fprintf(p.w, "\r\x1b[K[%d/%d] %s", number, of, what)
}

func (p *progress) done() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
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

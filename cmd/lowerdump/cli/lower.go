package cli

import (
	"context"
	"flag"
	"go/token"
	"io"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
)

var lowerCommand = command{
	name: "lower", args: "[-emit=program|go|cuda] [-passes=PIPELINE] [-package=NAME] [-o FILE] FILE", doc: "lowers the function to a program and prints it",
	help: `
-emit=program prints the flat program: launches, collectives, copies and events
on streams, over offsets in one arena; for pipeline stages, the program of each stage. -emit=go
prints a Go file with one call per line against the runtime's API.

A pipeline that fuses operations, such as -passes=cuda, makes generated kernels.
-emit=cuda prints their source. The Go file embeds it, so it must be in the same folder
under the package's name: step.cu for package step.

Examples:
  lowerdump lower step.graph.json.gz
  lowerdump lower -emit=go -package=step -o step.go mlp.ir
  lowerdump lower -passes=cuda -emit=cuda -o step.cu mlp.ir`,
	run: func(ctx context.Context, t tool, args []string) error {
		var f lowerFlags
		path, err := parseOne("lower", &f, args)
		if err != nil {
			return err
		}
		if f.emit != "program" && f.emit != "go" && f.emit != "cuda" {
			return usagef("-emit=%s: want program, go or cuda", f.emit)
		}
		if f.emit == "cuda" && t.deviceOf(f.source) != compile.GPU {
			return usagef("-emit=cuda: kernels are made by a pipeline with fuse, such as -passes=cuda")
		}
		if !token.IsIdentifier(f.pkg) {
			return usagef("-package=%s: %q is not a package name", f.pkg, f.pkg)
		}
		f.staged = f.emit == "program"
		c, err := t.compiled(ctx, path, f.source)
		if err != nil {
			return err
		}
		text, err := t.text(c, &f)
		if err != nil {
			return err
		}
		return t.output(f.out, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
	},
}

// text is what lower prints.
func (t tool) text(c *compiled, f *lowerFlags) ([]byte, error) {
	if c.function == nil {
		s, err := t.stages(c)
		return []byte(s.String()), err
	}
	p, err := t.lowered(c)
	if err != nil {
		return nil, err
	}
	return emitted(p, f.emit, f.pkg)
}

// lowered is the program of what -func names.
func (t tool) lowered(c *compiled) (*program.Program, error) {
	defer t.busy.Phase("lowering @" + c.function.Func.Name)()
	return c.function.Program()
}

// emitted is a program in the form that -emit asks for.
func emitted(p *program.Program, emit, pkg string) ([]byte, error) {
	switch emit {
	case "go":
		return lower.EmitGo(p, pkg)
	case "cuda":
		return lower.EmitCUDA(p)
	}
	return p.AppendText(nil), nil
}

type lowerFlags struct {
	source
	emit, pkg, out string
}

func (f *lowerFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.emit, "emit", "program", "what to print: program, go or cuda")
	f.source.define(fs, "default")
	fs.StringVar(&f.pkg, "package", "step", "package name of emitted Go")
	fs.StringVar(&f.out, "o", "", "write to this file instead of standard output")
}

package main

import (
	"context"
	"flag"
	"go/token"
	"io"

	"github.com/seed-ee968945/concert/lower"
)

var lowerCommand = command{
	name: "lower", args: "[-emit=program|go] [-passes=PIPELINE] [-package=NAME] [-o FILE] FILE", doc: "lowers the function to a program and prints it",
	help: `
-emit=program prints the flat program: launches, collectives, copies and events
on streams, over offsets in one arena. -emit=go prints it as a Go file with one
call per line against the runtime's API.

Examples:
  lowerdump lower step.graph.json.gz
  lowerdump lower -emit=go -package=step -o step.go mlp.ir`,
	run: func(ctx context.Context, t tool, args []string) error {
		var f lowerFlags
		path, err := parseOne("lower", &f, args)
		if err != nil {
			return err
		}
		if f.emit != "program" && f.emit != "go" {
			return usagef("-emit=%s: have program, go", f.emit)
		}
		if !token.IsIdentifier(f.pkg) {
			return usagef("-package=%s: %q is not a package name", f.pkg, f.pkg)
		}
		_, fn, err := t.optimised(ctx, path, f.source)
		if err != nil {
			return err
		}
		p, err := lower.Func(fn)
		if err != nil {
			return err
		}
		text := p.AppendText(nil)
		if f.emit == "go" {
			if text, err = lower.EmitGo(p, f.pkg); err != nil {
				return err
			}
		}
		return t.output(f.out, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
	},
}

type lowerFlags struct {
	source
	emit, pkg, out string
}

func (f *lowerFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.emit, "emit", "program", "what to print: program or go")
	f.source.define(fs, "default")
	fs.StringVar(&f.pkg, "package", "step", "package name of emitted Go")
	fs.StringVar(&f.out, "o", "", "write to this file instead of standard output")
}

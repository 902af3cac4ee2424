package cli

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

var shardCommand = command{
	name: "shard", args: "[-mode=MODE] [-rules] [-explain] FILE.mlir... | -suggest -mesh=AXES [-o FILE] FILE", doc: "infers the shardings of a program from those of a few tensors, or suggests some",
	help: `
FILE is StableHLO text with annotations of the sdy dialect; modules are separated by lines
that start with // -----. Printed are its functions with the sharding of each argument,
result and operation. The modes are Shardy's:
  basic          axes that suit all tensors of an operation
  conservative   basic that splits no axis and moves no data
  aggressive     conflicts are resolved for each tensor by itself
  op-priority    basic, then aggressive, operations by their kinds
  user-priority  op-priority for the axes of each priority in turn
  pipeline       user-priority; constraints hold for what they are of, calls have copies of
                 what they call, and all is closed
  pipeline-joined  the same, but all calls of a function are sharded alike
A program that names data-flow edges has these, any other has one of each result of a loop,
a branch and a manual computation.

With -suggest FILE is a program of one device in any form, of which nothing is said, and -mesh the
axes of a mesh. What each axis may be for is tried (the batch, with parameters stored whole or in
pieces; the sequence; tensor parallelism; experts), and the simulator says what a rank takes.
Printed is the frontier, of which no arrangement is both faster and smaller, and the
annotations of its fastest that fits into -memory. -o writes the program with these annotations,
for opt -passes=spmd. Without roles, parameters are what has the type of a result.

Examples:
  lowerdump shard -suggest -mesh=data=8,model=8 -o annotated.ir step.ir
  lowerdump shard -mode=user-priority step.mlir
  lowerdump shard -explain step.mlir
  lowerdump shard -rules step.mlir`,
	run: func(ctx context.Context, t tool, args []string) error {
		f := shardFlags{}
		files, err := parse("shard", &f, args)
		if err != nil {
			return err
		}
		if f.suggest {
			if len(files) != 1 {
				return usagef("want one file")
			}
			return t.suggest(ctx, files[0], f)
		}
		if !sdy.Mode(f.mode) {
			return usagef("no mode %q; lowerdump help shard lists them", f.mode)
		}
		if len(files) == 0 {
			return usagef("want a file")
		}
		for _, file := range files {
			if err := t.shard(file, f); err != nil {
				return err
			}
		}
		return nil
	},
}

type shardFlags struct {
	mode           string
	rules, explain bool

	suggest       bool
	mesh, fn, out string
	machine       string
	memory        float64
}

func (f *shardFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.mode, "mode", "pipeline", "how far shardings are propagated")
	fs.BoolVar(&f.rules, "rules", false, "print each operation's rule and propagate nothing")
	fs.BoolVar(&f.explain, "explain", false, "say which operation and rule gave each inferred sharding")
	fs.BoolVar(&f.suggest, "suggest", false, "search shardings for a mesh")
	fs.StringVar(&f.mesh, "mesh", "", "with -suggest: axes of the mesh, such as data=2,model=4")
	fs.StringVar(&f.fn, "func", "", "with -suggest: name of the function, if FILE has several")
	fs.StringVar(&f.machine, "machine", "h200", "with -suggest: `machine` that it runs on: a100, h100, h200, b200, or a file that describes one")
	fs.Float64Var(&f.memory, "memory", 0, "with -suggest: `GiB` that a rank has, 0 for any")
	fs.StringVar(&f.out, "o", "", "with -suggest: write the program with annotations to this `file`")
}

// shard prints a file's modules; what is wrong with one does not stop the others.
func (t tool) shard(file string, f shardFlags) error {
	text, name, err := t.read(file)
	if err == nil {
		text, err = textOf(name, text)
	}
	if err != nil {
		return err
	}
	switch kind := kindOf(text); kind {
	case mlirFile, otherFile: // a parser tells what is wrong with others
	default:
		return wrongKind(name, kind, "StableHLO text, or -suggest")
	}
	failed := false
	for i, c := range mlir.Split(name, string(text)) {
		if i > 0 {
			fmt.Fprintln(t.out, "\n// -----")
		}
		m, err := c.Parse()
		if err == nil {
			err = sdy.Shard(m, f.mode, t.out, sdy.Print{Rules: f.rules, Explain: f.explain})
		}
		if err != nil {
			failed = true
			fmt.Fprintln(t.err, t.highlight(strings.TrimSuffix(err.Error(), "\n")))
		}
	}
	if failed {
		return errFindings
	}
	return nil
}

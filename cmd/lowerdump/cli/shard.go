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
	name: "shard", args: "[-mode=MODE] [-rules] [-explain] FILE.mlir... | -suggest -mesh=AXES [-o FILE] FILE", doc: "propagates the shardings of a program, or searches for shardings",
	help: `
FILE is StableHLO text with annotations of the sdy dialect or mhlo.sharding; modules are separated by lines
that start with // -----. The output is its functions with the sharding of each argument,
result and operation. The modes are Shardy's:
  basic          axes on which all tensors of an operation agree
  conservative   basic, without splitting axes or moving data
  aggressive     resolves conflicts for each tensor separately
  op-priority    basic, then aggressive, by kinds of operations
  user-priority  op-priority for the axes of each priority in turn
  pipeline       user-priority; constraints are applied to their operands, each call gets its own
                 copy of the callee, and all shardings are closed
  pipeline-joined  the same, but all calls of a function have the same shardings
Data-flow edges are taken from the program if it names any; otherwise there is one for each result
of a loop, a branch and a manual computation.

With -suggest FILE is an unannotated single-device program in any format, and -mesh the axes of a
mesh. The search tries roles for each axis (batch, with replicated or sharded parameters; sequence;
tensor parallelism; experts), and for two parts of an axis that is the only one, and simulates each
candidate. The output is the Pareto frontier of time and memory, and the annotations of the fastest
candidate that fits into -memory. -o writes the annotated program for opt -passes=spmd. Without
roles in FILE, parameters are the inputs with the type of a result.

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
	fs.StringVar(&f.mode, "mode", "pipeline", "propagation mode, see above")
	fs.BoolVar(&f.rules, "rules", false, "only print each operation's sharding rule")
	fs.BoolVar(&f.explain, "explain", false, "print which operation and rule produced each inferred sharding")
	fs.BoolVar(&f.suggest, "suggest", false, "search for shardings on a mesh")
	fs.StringVar(&f.mesh, "mesh", "", "with -suggest: axes of the mesh, such as data=2,model=4")
	fs.StringVar(&f.fn, "func", "", "with -suggest: function to use, if FILE has several")
	fs.StringVar(&f.machine, "machine", "h200", "with -suggest: `machine`: a100, h100, h200, b200, or a machine file")
	fs.Float64Var(&f.memory, "memory", 0, "with -suggest: memory limit per rank in `GiB`; 0: none")
	fs.StringVar(&f.out, "o", "", "with -suggest: write the annotated program to this `file`")
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

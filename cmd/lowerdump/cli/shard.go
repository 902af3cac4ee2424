package cli

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

var shardCommand = command{
	name: "shard", args: "[-mode=MODE] [-rules] [-explain] FILE.mlir...", doc: "infers the shardings of a program from those of a few tensors",
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

Examples:
  lowerdump shard -mode=user-priority step.mlir
  lowerdump shard -explain step.mlir
  lowerdump shard -rules step.mlir`,
	run: func(_ context.Context, t tool, args []string) error {
		f := shardFlags{}
		files, err := parse("shard", &f, args)
		if err != nil {
			return err
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
}

func (f *shardFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.mode, "mode", "pipeline", "how far shardings are propagated")
	fs.BoolVar(&f.rules, "rules", false, "print each operation's rule and propagate nothing")
	fs.BoolVar(&f.explain, "explain", false, "say which operation and rule gave each inferred sharding")
}

// shard prints a file's modules; what is wrong with one does not stop the others.
func (t tool) shard(file string, f shardFlags) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	failed := false
	for i, c := range mlir.Split(file, string(text)) {
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

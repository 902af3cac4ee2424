package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/expect"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/sharding/sdy"
)

// Suite runs files of StableHLO's tests: programs that hold their inputs and what is
// expected of their results.
type Suite struct {
	Config
	Compile func(context.Context, *ir.Module) (*compile.Result, error) // the passes before a device runs what is left
	ByOp    bool                                                       // print how many chunks of each operation passed
}

// tally counts how chunks of files ended.
type tally struct {
	passed, failed, skipped int
	ops                     map[string]*tally // of the chunks that have an operation
}

// add counts a chunk that was run, for each of its operations too.
func (n *tally) add(m *mlir.Module, ok bool) {
	names := []string{}
	if m != nil {
		names = m.Operations()
	}
	for _, t := range append([]*tally{n}, n.of(names)...) {
		if ok {
			t.passed++
		} else {
			t.failed++
		}
	}
}

// of are the tallies of operations.
func (n *tally) of(names []string) []*tally {
	var out []*tally
	for _, name := range names {
		if n.ops[name] == nil {
			n.ops[name] = &tally{}
		}
		out = append(out, n.ops[name])
	}
	return out
}

// table prints a line for each operation that is none of the tests' own.
func (n *tally) table(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "operation\tpassed\tfailed")
	for _, name := range slices.Sorted(maps.Keys(n.ops)) {
		if dialect, _, _ := strings.Cut(name, "."); dialect == "stablehlo" || dialect == "chlo" || dialect == "sdy" {
			fmt.Fprintf(tw, "%s\t%d\t%d\n", name, n.ops[name].passed, n.ops[name].failed)
		}
	}
	tw.Flush() // into what is printed to, which reports its own errors
}

// Run runs every chunk of files, and of the files that folders hold, and prints a line for
// each. ErrFindings if one failed.
func (s *Suite) Run(ctx context.Context, t *Console, paths []string) error {
	files, err := testFiles(paths)
	if err != nil {
		return err
	}
	p, err := s.platform(1, false)
	if err != nil {
		return err
	}
	n := tally{ops: map[string]*tally{}}
	for _, f := range files {
		if err = s.file(ctx, t, p, f, &n); err != nil {
			break
		}
	}
	if err = errors.Join(err, p.close()); err != nil {
		return err
	}
	if n.passed+n.failed+n.skipped == 0 {
		return fmt.Errorf("%s: no tests; want .mlir files with functions, or folders of them", strings.Join(paths, ", "))
	}
	if s.ByOp {
		n.table(t.Out)
	}
	fmt.Fprintf(t.Out, "%s: %d passed, %d failed, %d skipped\n", count(n.passed+n.failed+n.skipped, "chunk"), n.passed, n.failed, n.skipped)
	if n.failed > 0 {
		return ErrFindings
	}
	return nil
}

// testFiles lists files, and those below folders in the order of their names.
func testFiles(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (p == path || strings.HasSuffix(p, ".mlir")) {
				out = append(out, p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// file runs the chunks of a file. The error is one that ends the run.
func (s *Suite) file(ctx context.Context, t *Console, p *platform, path string, n *tally) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // with which some editors mark UTF-8
	if bytes.IndexByte(data, 0) >= 0 {
		n.add(nil, false)
		fmt.Fprintf(t.Out, "%s:1: failed: is not text; print MLIR's bytecode as text first\n", path)
		return nil
	}
	mustFail := expect.Failure(string(data))
	for _, c := range mlir.Split(path, string(data)) {
		m, err := c.Parse()
		line := c.Line
		if err == nil {
			if line = m.Line(); m.Empty() {
				continue
			}
		}
		at := fmt.Sprintf("%s:%d", path, line)
		reason := ""
		switch {
		case mustFail:
			reason = "a tool is expected to fail"
		case err == nil:
			reason = expect.Skip(m)
		}
		if reason != "" {
			n.skipped++
			fmt.Fprintf(t.Out, "%s: skipped: %s\n", at, reason)
			continue
		}
		if err == nil {
			err = s.module(ctx, p, m)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n.add(m, err == nil)
		if err != nil {
			fmt.Fprintf(t.Out, "%s: failed: %v\n", at, err)
			continue
		}
		fmt.Fprintf(t.Out, "%s: passed\n", at)
	}
	return nil
}

// module runs what a module has to run.
func (s *Suite) module(ctx context.Context, p *platform, m *mlir.Module) error {
	fs := m.Entries()
	if len(fs) == 0 {
		return errors.New("there is neither @main nor a public function without arguments")
	}
	program := &stablehlo.Module{Module: m}
	program.Sharded(sdy.Given)
	for _, f := range fs {
		if len(f.Args) > 0 {
			return fmt.Errorf("@%s takes %s", f.Name, count(len(f.Args), "argument"))
		}
		plan, err := program.Import(f)
		if err != nil {
			return err
		}
		for _, st := range plan.Stages {
			if err := compile.Partition(st.Module, compile.PartitionOptions{}); err != nil {
				return err
			}
			st.Func = st.Module.Func(st.Func.Name)
		}
		outs, err := s.plan(ctx, p, plan, nil)
		if err != nil {
			return fmt.Errorf("@%s: %w", f.Name, err)
		}
		for i := range plan.Checks {
			c := &plan.Checks[i]
			if err := expect.Verify(c, pick(outs, c.Actual), pick(outs, c.Expected)); err != nil {
				return fmt.Errorf("@%s: line %d: %w", f.Name, c.Line, err)
			}
		}
	}
	return nil
}

// pick is the tensor that a source names, once stages have run.
func pick(outs [][][]interp.Tensor, s stablehlo.Source) *mlir.Literal {
	if s.Literal != nil {
		return s.Literal
	}
	t := outs[s.Stage][s.Rank][s.Output]
	return &mlir.Literal{DType: t.DType, Shape: t.Shape, Data: t.Data}
}

// plan runs the stages of a plan and returns the results by stage and rank. args has the
// arguments of the function by rank.
func (s *Suite) plan(ctx context.Context, p *platform, plan *stablehlo.Plan, args [][]interp.Tensor) ([][][]interp.Tensor, error) {
	outs := make([][][]interp.Tensor, len(plan.Stages))
	for i, st := range plan.Stages {
		if len(st.Func.Return().Args()) == 0 {
			continue // nothing is asked of it
		}
		inputs := make([][]interp.Tensor, st.Module.World)
		for r := range inputs {
			for _, f := range st.Feeds {
				if f.Arg >= 0 {
					inputs[r] = append(inputs[r], args[r][f.Arg])
					continue
				}
				l := pick(outs, f.Ranks[min(r, len(f.Ranks)-1)])
				inputs[r] = append(inputs[r], interp.Tensor{DType: l.DType, Shape: l.Shape, Data: l.Expand()})
			}
		}
		var err error
		if outs[i], err = s.stage(ctx, p, st, inputs); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// stage runs a function on all ranks of its world.
func (s *Suite) stage(ctx context.Context, p *platform, st *stablehlo.Stage, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
	if s.Device == "interp" {
		return interp.Run(ctx, st.Func, inputs, interp.Options{SkipVerify: true})
	}
	r, err := s.Compile(ctx, st.Module)
	if err != nil {
		return nil, err
	}
	program, err := r.Func(st.Func.Name).Program()
	if err != nil {
		return nil, err
	}
	step, err := hostrun.OfProgram(program)
	if err != nil {
		return nil, err
	}
	world := st.Module.World
	outs := make([][]interp.Tensor, world)
	err = p.local(ctx, world, rt.Config{Timeout: s.Timeout, JoinTimeout: max(s.Timeout, leastJoin), Log: s.Log}, []*rt.Module{step.Module}, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		in, err := hostrun.Inputs(ctx, r, step.Module, inputs[k])
		if err != nil {
			return err
		}
		vs, err := rt.RunModule(ctx, r, step.Module, step.Run, in, rt.Options{})
		if err != nil {
			return err
		}
		outs[k], err = hostrun.Tensors(ctx, r, vs)
		return err
	})
	return outs, err
}

package progen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/internal/sched"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/kernels"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/partition"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// Failure is what an oracle found.
type Failure struct {
	Oracle string // verifier, text, interpreter, passes, deterministic, numbers, lower, checker, host, cuda, panic or hang
	Detail string
}

func (f *Failure) Error() string { return f.Oracle + ": " + f.Detail }

func failf(oracle, format string, args ...any) *Failure {
	return &Failure{oracle, fmt.Sprintf(format, args...)}
}

// Runs says which devices run a program beside the interpreter.
type Runs struct {
	Host     bool
	Validate bool                 // package equiv proves what every pass did
	Only     bool                 // the passes run, and nothing else
	CUDA     Device               // nil: not
	Near     bool                 // the device's arithmetic is its own: results are near the interpreter's
	Report   func(*passes.Report) // takes what the passes did; nil: nobody
	Patience time.Duration        // how long a check may take, see checkInTime; 0: as long as it does
}

// Device runs a program for every assignment; the results are by assignment, rank and
// output.
type Device func(ctx context.Context, c *Compiled) ([][][]interp.Tensor, error)

// Compiled is a program behind its pipeline.
type Compiled struct {
	Func    *ir.Func
	Program *program.Program
	Symbols [][]map[string]int64
	Inputs  [][][]interp.Tensor // by assignment, rank and input
	Seed    int64               // of random numbers
}

// Check runs the case through all oracles. It returns nil where all hold, and a
// *Failure else. Panics of what it runs are failures, too.
func (c *Case) Check(ctx context.Context, runs Runs) (failed *Failure) {
	defer func() {
		if p := recover(); p != nil {
			failed = failf("panic", "%v", p)
		}
	}()
	before, fail := c.read()
	if fail != nil {
		return fail
	}
	if runs.Only {
		_, fail := c.compile(ctx, before, runs)
		return fail
	}
	var in, want [][][]interp.Tensor
	f := before.Funcs()[0]
	for k, syms := range c.Symbols {
		ts, err := c.Given, error(nil)
		if ts == nil {
			ts, err = Inputs(f, c.Seed+uint64(k), syms)
		}
		if err != nil {
			return failf("interpreter", "%v", err)
		}
		out, err := interp.Run(ctx, f, ts, c.options(syms))
		if err != nil {
			return failf("interpreter", "before the passes: %v", err)
		}
		in, want = append(in, ts), append(want, out)
	}
	after, fail := c.compile(ctx, before, runs)
	if fail != nil || after == nil {
		return fail
	}
	bounds, err := c.bounds(f, runs.Near)
	if err != nil {
		return failf("interpreter", "%v", err)
	}
	for k, syms := range c.Symbols {
		got, err := c.interpret(ctx, f, after, in[k], syms)
		if err != nil {
			return failf("numbers", "after the passes: %v", err)
		}
		if d := differ(got, want[k], bounds); d != "" {
			return failf("numbers", "assignment %d: %s", k, d)
		}
	}
	o := outcome{c: c, joint: f, in: in, want: want, bounds: bounds}
	for _, g := range after.Entries() { // one, or the halves of a joint function
		p, fail := c.lowered(g)
		if fail != nil || p == nil {
			return fail
		}
		o.parts = append(o.parts, &Compiled{Func: g, Program: p, Seed: int64(c.Seed)})
	}
	return o.execute(ctx, runs)
}

// checkInTime is Check. What does not end in time is a failure, too: it is left behind, for
// nothing can end it from outside.
func (c *Case) checkInTime(ctx context.Context, runs Runs) *Failure {
	if runs.Patience == 0 {
		return c.Check(ctx, runs)
	}
	own := *c // the caller goes on with its own
	done := make(chan *Failure, 1)
	go func() { done <- own.Check(ctx, runs) }()
	select {
	case f := <-done:
		return f
	case <-time.After(runs.Patience):
		stacks := make([]byte, 1<<16)
		return failf("hang", "no end after %v\n%s", runs.Patience, stacks[:runtime.Stack(stacks, true)])
	}
}

func (c *Case) options(syms []map[string]int64) interp.Options {
	return interp.Options{Poison: true, Symbols: syms, Calls: Calls(), Seed: int64(c.Seed), MemoryLimit: 1 << 28, SkipVerify: true}
}

// read parses and verifies the text, and reads back what it prints.
func (c *Case) read() (*ir.Module, *Failure) {
	m, err := ir.Parse("case.ir", c.Text)
	if err != nil {
		return nil, failf("verifier", "%v", err)
	}
	if err := m.Verify(); err != nil {
		return nil, failf("verifier", "%v", err)
	}
	return m, roundTrip(m)
}

func roundTrip(m *ir.Module) *Failure {
	text := m.AppendText(nil)
	again, err := ir.Parse("printed.ir", string(text))
	if err != nil {
		return failf("text", "what it prints does not parse: %v", err)
	}
	if err := again.Verify(); err != nil {
		return failf("text", "what it prints does not verify: %v", err)
	}
	if !bytes.Equal(again.AppendText(nil), text) {
		return failf("text", "what it prints reads as something else:\n%s\n%s", text, again)
	}
	return nil
}

// compile runs the pipeline twice. It returns nil without a failure where a pass may
// refuse the program.
func (c *Case) compile(ctx context.Context, before *ir.Module, runs Runs) (*ir.Module, *Failure) {
	table := standard.Table()
	p, err := table.Parse(c.Pipeline)
	if err != nil {
		return nil, failf("pipeline", "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a pass that does not end
	defer cancel()
	var first *ir.Module
	for range 2 {
		m := before.Clone()
		g := passes.Manager{Input: "case.ir"}
		if runs.Validate && first == nil {
			g.Validate = passes.ValidateAlways
		}
		switch c.Seed % 4 {
		case 0: // none is known
		case 1:
			g.Costs = bandwidth{cost.TracedH200()}
		default:
			g.Costs = cost.TracedH200()
		}
		rep, err := g.RunContext(ctx, m, p)
		switch {
		case refused(err):
			return nil, nil
		case err != nil:
			return nil, failf("passes", "%v", err)
		case first == nil:
			if first = m; runs.Report != nil {
				runs.Report(rep)
			}
		case !bytes.Equal(m.AppendText(nil), first.AppendText(nil)):
			return nil, failf("deterministic", "two runs differ:\n%s\n%s", first, m)
		}
	}
	return first, roundTrip(first)
}

// bandwidth has collectives cost what each rank sends: of tensors as small as these it is
// nothing beside the start.
type bandwidth struct{ *cost.Model }

// CommMs implements passes.CostModel.
func (bandwidth) CommMs(op ir.Op, g *ir.Group, _ ir.Reduction, size int64) (float64, bool) {
	sent := float64(size) * (1 - 1/float64(g.Size()))
	if op == ir.OpAllReduce {
		sent *= 2
	}
	return sent, true
}

// bounds says of every output how near the results have to come; nil: bits.
func (c *Case) bounds(f *ir.Func, near bool) ([]step.Bound, error) {
	kind := step.Reassociated
	switch {
	case near:
		kind = step.OtherRoundings
	case strings.Contains(c.Pipeline, "excess-precision=true"):
		kind = step.FewerRoundings
	case !strings.Contains(c.Pipeline, "reassociate=true"):
		return nil, nil
	}
	fw, _, err := (&step.Pair{Name: "f", Forward: f}).Bounds(kind)
	return fw, err
}

func (c *Case) interpret(ctx context.Context, f *ir.Func, after *ir.Module, in [][]interp.Tensor, syms []map[string]int64) ([][]interp.Tensor, error) {
	if g := after.Func("f"); g != nil {
		return interp.Run(ctx, g, in, c.options(syms))
	}
	return joint.Run(ctx, step.Interpret(c.options(syms)), f, after.Func("f.fw"), after.Func("f.bw"), in)
}

// differ says where outputs differ: in any bit but those of NaN, unless a bound
// leaves an output open.
func differ(got, want [][]interp.Tensor, bounds []step.Bound) string {
	for r := range want {
		if len(got[r]) != len(want[r]) {
			return fmt.Sprintf("rank %d gives %d outputs, want %d", r, len(got[r]), len(want[r]))
		}
		for k, w := range want[r] {
			g := got[r][k]
			d, err := interp.Compare(g, w)
			if err != nil {
				return fmt.Sprintf("rank %d, output %d: %v", r, k, err)
			}
			if d.Exact || bounds != nil && !bounds[k].Bits {
				continue
			}
			x, y := math.NaN(), math.NaN()
			if d.At >= 0 {
				x, y = g.Float64s()[d.At], w.Float64s()[d.At]
			}
			return fmt.Sprintf("rank %d, output %d, element %d: %v, want %v", r, k, d.At, x, y)
		}
	}
	return ""
}

// refused reports whether an error says that a part of concert does not serve a legal program.
func refused(err error) bool {
	var split *partition.Error
	if errors.As(err, &split) {
		return split.Whole
	}
	var arena *place.CapacityError
	var reduction *kernels.TypeError
	return errors.Is(err, rt.ErrUnsupported) || errors.Is(err, sched.ErrInfeasible) || errors.As(err, &arena) || errors.As(err, &reduction)
}

// lowered lowers the function and checks the program.
func (c *Case) lowered(f *ir.Func) (*program.Program, *Failure) {
	p, err := lower.FuncWith(f, lower.Options{Kernels: strings.Contains(c.Pipeline, "fuse") || c.Pipeline == "cuda"})
	if refused(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failf("lower", "%v", err)
	}
	if err := proof.Check(f, p); err != nil {
		return nil, failf("proof", "%v", err)
	}
	if op := unserved(p); op != "" && c.Pipeline == "cuda" { // others may place operands where kernels cannot read them
		return nil, failf("kernel", "%s has none", op)
	}
	r, err := program.CheckWith(p, lower.CheckOptions())
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return nil, failf("checker", "%v", err)
	}
	return p, nil
}

// unserved is an operation that has no kernel, and that nothing else on a GPU computes.
func unserved(p *program.Program) string {
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if op, ok := ir.OpByName(in.Op); in.Kind == program.Launch && ok && op.Class() == ir.ClassMemory && op != ir.OpRand && op != ir.OpShard && op != ir.OpCall {
			return in.Op
		}
	}
	return ""
}

// outcome is what became of a function, and what it has to give.
type outcome struct {
	c        *Case
	joint    *ir.Func
	parts    []*Compiled // the program, or forward and backward
	in, want [][][]interp.Tensor
	bounds   []step.Bound
}

// execute runs the programs on devices.
func (o *outcome) execute(ctx context.Context, runs Runs) *Failure {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if runs.Host {
		got, err := o.results(ctx, onHost)
		if err != nil {
			return failf("host", "%v", err)
		}
		for k := range got {
			if d := differ(got[k], o.want[k], o.bounds); d != "" {
				return failf("host", "assignment %d: %s", k, d)
			}
		}
	}
	if runs.CUDA != nil {
		got, err := o.results(ctx, runs.CUDA)
		switch {
		case refused(err):
			return nil
		case err != nil:
			return failf("cuda", "%v", err)
		}
		for k := range got {
			d := differ(got[k], o.want[k], o.bounds)
			if d == "" && runs.Near {
				d = o.far(ctx, k, got[k])
			}
			if d != "" {
				return failf("cuda", "assignment %d: %s", k, d)
			}
		}
	}
	return nil
}

// far says where results under assignment k are further from the interpreter's than roundings take them.
func (o *outcome) far(ctx context.Context, k int, got [][]interp.Tensor) string {
	var all []step.Result
	halves := make([][][]interp.Tensor, len(got))
	for r := range got {
		halves[r] = [][]interp.Tensor{got[r]}
		for i := range got[r] {
			d, err := interp.Compare(got[r][i], o.want[k][r][i])
			if err != nil {
				return err.Error()
			}
			all = append(all, step.Result{Rank: r, Output: i, Diff: d, Bound: o.bounds[i]})
		}
	}
	overflows := func(step.Result) bool { return false } // in float32 or in float64 alone: then in another order of a sum, too
	if noise, err := (&step.Pair{Name: "f", Forward: o.joint}).MeasureNoise(ctx, o.c.options(o.c.Symbols[k]), o.in[k]); err == nil {
		noise.Allow(all, halves)
		overflows = func(r step.Result) bool {
			e := noise.Forward[r.Rank][r.Output].Error
			return math.IsNaN(e) || math.IsInf(e, 0)
		}
	}
	for _, r := range all {
		if !r.OK() && !overflows(r) {
			return fmt.Sprintf("rank %d, output %d: %v, the bound is %v", r.Rank, r.Output, r.Diff, r.Bound)
		}
	}
	return ""
}

// results are those of the joint function.
func (o *outcome) results(ctx context.Context, on Device) ([][][]interp.Tensor, error) {
	if len(o.parts) == 1 {
		p := *o.parts[0]
		p.Symbols, p.Inputs = o.c.Symbols, o.in
		return on(ctx, &p)
	}
	outs := make([][][]interp.Tensor, len(o.c.Symbols))
	for k := range outs {
		half := func(ctx context.Context, f *ir.Func, in [][]interp.Tensor) ([][]interp.Tensor, error) {
			p := *o.parts[slices.IndexFunc(o.parts, func(p *Compiled) bool { return p.Func == f })]
			p.Symbols, p.Inputs = o.c.Symbols[k:k+1], [][][]interp.Tensor{in}
			out, err := on(ctx, &p)
			if err != nil {
				return nil, err
			}
			return out[0], nil
		}
		var err error
		if outs[k], err = joint.Run(ctx, half, o.joint, o.parts[0].Func, o.parts[1].Func, o.in[k]); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// onHost runs a program for every assignment on goroutine ranks.
func onHost(ctx context.Context, p *Compiled) ([][][]interp.Tensor, error) {
	s, err := hostrun.OfProgram(p.Program)
	if err != nil {
		return nil, err
	}
	outs := results(len(p.Symbols), p.Program.World)
	cfg := rt.Config{Timeout: 20 * time.Second, Funcs: Funcs()}
	var opts host.Options
	if p.Seed%4 == 0 { // ranks on two hosts send messages to each other
		opts.Hosts = min(2, p.Program.World)
	}
	err = host.Local(ctx, p.Program.World, cfg, opts, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		return p.onRank(ctx, r, s, outs)
	})
	return outs, err
}

// donatedInPlace checks that results lie where the inputs lay that were donated to them.
func (p *Compiled) donatedInPlace(r *rt.Rank, m *rt.Module, vs []rt.Value, syms map[string]int64) error {
	for _, d := range p.Program.Donations {
		at, err := r.In(m, m.Inputs[d.Input].Tensors[0])
		if err != nil {
			return err
		}
		at.Shape = vs[d.Output].Shape
		at.Strides = slices.Clone(at.Strides)
		for i, s := range p.Program.Inputs[d.Input].Tensors[0].Strides {
			at.Strides[i], _ = s.Eval(func(name string) (int64, bool) { v, ok := syms[name]; return v, ok })
		}
		if got, err := r.Download(at); err != nil || !bytes.Equal(got, vs[d.Output].Data) {
			return fmt.Errorf("input %s does not hold result %d, to which it is donated: %v", m.Inputs[d.Input].Name, d.Output, err)
		}
	}
	return nil
}

func results(assignments, world int) [][][]interp.Tensor {
	outs := make([][][]interp.Tensor, assignments)
	for k := range outs {
		outs[k] = make([][]interp.Tensor, world)
	}
	return outs
}

// onRank runs a rank's part for every assignment.
func (p *Compiled) onRank(ctx context.Context, r *rt.Rank, s hostrun.Step, outs [][][]interp.Tensor) error {
	rank := r.Info().Rank
	for k, syms := range p.Symbols {
		in, err := hostrun.Inputs(ctx, r, s.Module, p.Inputs[k][rank])
		if err != nil {
			return err
		}
		vs, err := rt.RunModule(ctx, r, s.Module, s.Run, in, rt.Options{Symbols: syms[rank], Seed: p.Seed})
		if err != nil {
			return err
		}
		if outs[k][rank], err = hostrun.Tensors(ctx, r, vs); err != nil {
			return err
		}
		if err := p.donatedInPlace(r, s.Module, vs, syms[rank]); err != nil {
			return err
		}
	}
	return nil
}

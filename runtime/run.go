package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/rowmajor"
	"github.com/seed-ee968945/concert/program"
)

// Value is an input or output of a run.
type Value struct {
	DType DType
	Shape []int64
	Data  []byte // dense, little-endian

	// Work is a collective in flight: an input that the caller started, or an
	// async output, which the caller must await before the module runs again.
	Work *Work
	// Resident says of an input that it is in the arena already, from an earlier
	// run or an Upload; Data is not read.
	Resident bool
	// Place is, of a plain output, where it is in the rank's arena until the
	// module runs again. Of an input without Data it is a place in the rank's
	// arena, such as that of another module's output, from which the device copies
	// it to where the module wants it, before the module runs. An input's place
	// must not overlap where another input goes.
	Place Tensor
}

// input brings one input into the arena.
func (x *Exec) input(q *Param, v *Value) error {
	want, err := x.tensors(q)
	if err != nil {
		return err
	}
	switch {
	case q.Async && v.Work == nil:
		return errors.New("is async: it takes a collective in flight")
	case q.Async:
		return v.Work.bind(x, q, want)
	case v.Work != nil:
		return errors.New("is not async: await the collective and pass its result")
	case v.Resident:
		return nil
	case v.Data == nil && v.Place.DType.Valid():
		return x.copyIn(want[0], v.Place)
	case v.Data == nil && x.l.inBuffer(q):
		return nil // its buffer holds it
	case v.DType != want[0].DType || !slices.Equal(v.Shape, want[0].Shape):
		return fmt.Errorf("is %v%v, expected %v%v", v.DType, v.Shape, want[0].DType, want[0].Shape)
	}
	data, err := onlyDistinct(want[0], v.Data)
	if err != nil {
		return err
	}
	return x.r.dev.Upload(want[0].distinct(), data)
}

// onlyDistinct is the row-major data of t.distinct(), from that of t.
func onlyDistinct(t Tensor, data []byte) ([]byte, error) {
	if int64(len(data)) != t.Bytes() {
		return data, nil // the device refuses a wrong length
	}
	d, err := hostops.Distinct(hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: rowmajor.Strides(t.Shape), Data: data}, t.Strides)
	return d.Data, err
}

// copyIn enqueues the copy of an input from elsewhere in the rank's arena.
func (x *Exec) copyIn(want, from Tensor) error {
	if !want.SameType(from) {
		return fmt.Errorf("is %v, expected %v%v", from, want.DType, want.Shape)
	}
	lo, hi, err := from.Span()
	if err == nil && (lo < 0 || hi > x.r.dev.Info().ArenaBytes) {
		err = fmt.Errorf("%v is outside of the rank's arena", from)
	}
	if err != nil {
		return err
	}
	if from.sameElements(want) {
		return nil // there already
	}
	if err := x.clashes(lo, hi); err != nil {
		return err
	}
	to, of := want.distinct(), from
	if !slices.Equal(to.Shape, want.Shape) {
		flat := len(to.Shape) != len(want.Shape)
		if of = from.distinct(); !to.SameType(of) || flat && !slices.Equal(want.Strides, from.Strides) {
			return fmt.Errorf("is %v: %w", from, hostops.ErrRepeats)
		}
	}
	x.copied = true
	return x.r.dev.Copy(x.l.streams[0].Stream, to, of)
}

// clashes is an error if an input of the module goes where one comes from, bytes
// lo to hi of the rank's arena.
func (x *Exec) clashes(lo, hi int64) error {
	if len(x.l.bound) == 0 && (hi <= x.l.at.Lo || lo >= x.l.at.Hi) {
		return nil
	}
	for i := range x.m.Inputs {
		for _, t := range x.m.Inputs[i].Tensors {
			from, _, _ := t.Span()
			if a, b, err := x.l.place(t, from).Span(); err == nil && a < hi && lo < b {
				return fmt.Errorf("comes from bytes %d to %d, where input %s goes", lo, hi, x.m.Inputs[i].Name)
			}
		}
	}
	return nil
}

// arrived waits until inputs that the device copies have arrived: the module's
// other streams do not wait for the first.
func (x *Exec) arrived() error {
	if !x.copied {
		return nil
	}
	x.copied = false
	s := x.l.streams[0]
	if err := x.r.dev.Record(s.Stream, s.end); err != nil {
		return err
	}
	return x.r.dev.Synchronize(context.Background(), s.end)
}

// output takes one output out of the arena.
func (x *Exec) output(q *Param, v *Value) error {
	ts, err := x.tensors(q)
	if err != nil {
		return err
	}
	if q.Async {
		v.Work = &Work{r: x.r, op: "output " + q.Name, ev: x.l.events[q.Event], tensors: ts, mod: x.m}
		x.r.mu.Lock()
		x.r.works[x.m]++
		x.r.mu.Unlock()
		return nil
	}
	v.DType, v.Shape, v.Place = ts[0].DType, ts[0].Shape, ts[0]
	if x.opts.KeepOutputs || x.l.inBuffer(q) {
		return nil
	}
	v.Data = make([]byte, ts[0].Bytes())
	return x.r.dev.Download(v.Data, ts[0])
}

// RunModule runs step, the code of a loaded module, once: it brings the inputs
// into the arena, lets step enqueue everything, waits, and returns the outputs
// in the module's order. Cancelling ctx breaks the world, because the peers
// cannot go on without this rank; so does every error except misuse that is
// found before anything runs. On a device that captures, step is called once more
// when a module runs for the first time, or with sizes that it has not had, so that
// every call is planned before the first one runs.
func RunModule(ctx context.Context, r *Rank, m *Module, step func(*Exec), inputs []Value, opts Options) ([]Value, error) {
	if err := r.take(ctx); err != nil {
		return nil, err
	}
	defer r.give()
	outs, err := r.runModule(ctx, m, step, inputs, opts)
	if err != nil {
		// A rank that joined before another failed to learns of it here.
		return nil, beforeFirst(err, []*Module{m}, r.env.World)
	}
	return outs, nil
}

var errNotLoaded = errors.New("it was not passed to Join or Add, or has been dropped")

// runModule is RunModule of a loaded module; r.running is held.
func (r *Rank) runModule(ctx context.Context, m *Module, step func(*Exec), inputs []Value, opts Options) ([]Value, error) {
	x, err := r.begin(m, inputs, opts)
	if err != nil {
		return nil, err
	}
	if err := r.plan(ctx, x, step); err != nil {
		if derr := r.dev.Err(); derr != nil {
			return nil, derr
		}
		r.dev.Abort(err)
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { r.dev.Abort(context.Cause(ctx)) })
	defer stop()
	var outs []Value
	err = r.traced(ctx, &opts, func() (err error) {
		step(x)
		// Not ctx: it aborts, and the error is then the device's.
		outs, err = x.finish(context.WithoutCancel(ctx))
		return err
	})
	if err == nil {
		return outs, nil
	}
	// What broke the world says more than what noticed it here; and if this
	// rank alone is at fault, the others must learn of it.
	if derr := r.dev.Err(); derr != nil {
		return nil, derr
	}
	r.dev.Abort(err)
	return nil, err
}

// Run interprets a program, with the calls that emitted code makes. The program
// must be one whose module, from ModuleOf, was passed to Join. Errors are RunModule's.
func Run(ctx context.Context, r *Rank, p *program.Program, inputs []Value, opts Options) ([]Value, error) {
	m := r.moduleOf(p)
	if m == nil {
		return nil, &CallError{Rank: r.env.Rank, Op: "run of program " + p.Name, Err: errNotLoaded}
	}
	return RunModule(ctx, r, m, func(x *Exec) { Interpret(x, p) }, inputs, opts)
}

// moduleOf finds a program's module by its digest, which is computed once for
// each program object: a program is not changed once it runs.
func (r *Rank) moduleOf(p *program.Program) *Module {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.programs[p]
	if !ok {
		m = r.byDigest[p.Digest()]
		r.programs[p] = m
	}
	return m
}

// Interpret enqueues the instructions of p on x, whose module is p's.
func Interpret(x *Exec, p *program.Program) {
	blocks, err := p.Blocks()
	if err != nil {
		x.fail(opName("program "+p.Name), err)
		return
	}
	t := interpreter{x: x, p: p, known: x.memory(p), blocks: blocks}
	t.run(0, len(p.Instrs))
}

// Instruct enqueues instruction number i of p on x, whose module is p's: for running
// or timing a part of a program. What i needs to have happened is the caller's
// concern.
func Instruct(x *Exec, p *program.Program, i int) {
	if i < 0 || i >= len(p.Instrs) {
		x.fail(opName("instruct"), fmt.Errorf("instruction %d of %d", i, len(p.Instrs)))
		return
	}
	if x.err == nil {
		x.instr(p, &p.Instrs[i])
	}
}

func (x *Exec) instr(p *program.Program, in *program.Instr) {
	stream := p.Streams[in.Stream].Name
	switch in.Kind {
	case program.Record:
		x.Record(stream, in.Event)
		return
	case program.Wait:
		x.Wait(stream, in.Event)
		return
	}
	if x.ways == written && x.names(in) && !x.byHost {
		x.varies = true
		x.late(p, in)
		return
	}
	name := opName("%" + in.Node)
	outs, err := x.resolve(p, in.Outs)
	if err != nil {
		x.fail(name, err)
		return
	}
	ins, err := x.resolve(p, in.Ins)
	if err != nil {
		x.fail(name, err)
		return
	}
	x.At(in.Node)
	switch in.Kind {
	case program.Launch:
		group := ""
		if in.Group >= 0 {
			group = p.Groups[in.Group].Name
		}
		if in.Op == "shard" {
			x.Shard(stream, group, int(in.Attrs.Int("dim", 0)), outs, ins)
			return
		}
		dims, err := in.Sizes()
		if err != nil {
			x.fail(name, err)
			return
		}
		sizes, err := x.evaluate(dims)
		if err != nil {
			x.fail(name, err)
			return
		}
		x.kernel(stream, kind{op: in.Op, group: group}, in.Attrs, outs, ins, sizes)
	case program.Copy:
		x.Copy(stream, outs[0], ins[0])
	case program.Collective:
		c, err := x.collective(p, in)
		if err != nil {
			x.fail(name, err)
			return
		}
		c.Outs, c.Ins = outs, ins
		x.Collective(stream, c)
	default:
		x.fail(name, fmt.Errorf("unknown instruction %v", in.Kind))
	}
}

// collective translates a collective's attributes.
func (x *Exec) collective(p *program.Program, in *program.Instr) (*Collective, error) {
	op, ok := ParseCollOp(in.Op)
	if !ok {
		return nil, fmt.Errorf("unknown collective %q", in.Op)
	}
	c := &Collective{Op: op, Group: p.Groups[in.Group].Name, Reduce: in.Attrs.Str("reduce", ""),
		Dim: int(in.Attrs.Int("dim", 0)), Root: int(in.Attrs.Int("root", 0)), Pairs: in.Attrs.Ints("pairs"),
		InMatmul: in.Attrs.Bool(program.InMatmulKey, false)}
	if op != AllToAll {
		return c, nil
	}
	send, receive, err := in.Splits()
	if err != nil {
		return nil, err
	}
	if c.InSplits, err = x.sizes(send); err != nil {
		return nil, err
	}
	c.OutSplits, err = x.sizes(receive)
	return c, err
}

// sizes evaluates splits.
func (x *Exec) sizes(dims [][]dim.Dim) ([][]int64, error) {
	var out [][]int64
	for _, list := range dims {
		row, err := x.evaluate(list)
		if err != nil {
			return nil, fmt.Errorf("splits: %w", err)
		}
		out = append(out, row)
	}
	return out, nil
}

// evaluate gives sizes their values.
func (x *Exec) evaluate(dims []dim.Dim) ([]int64, error) {
	row := make([]int64, len(dims))
	for i, d := range dims {
		n, ok := d.Eval(x.symbol)
		if !ok {
			return nil, fmt.Errorf("size %v has no value", d)
		}
		row[i] = n
	}
	return row, nil
}

// resolve evaluates an instruction's tensors.
func (x *Exec) resolve(p *program.Program, ts []program.Tensor) ([]Tensor, error) {
	out := make([]Tensor, len(ts))
	for i := range ts {
		var err error
		if out[i], err = resolveTensor(p, &ts[i], x.symbol); err != nil {
			return nil, err
		}
	}
	return out, nil
}

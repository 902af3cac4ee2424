package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/randseed"
	"github.com/seed-ee968945/concert/program"
)

// Exec is one run of a module on one rank: what a program's instructions are
// called on. Its methods enqueue and return at once; the first error sticks, is
// returned by the function that runs the module, and makes later calls do
// nothing, so that emitted code is one call per line.
//
// Tensors are relative to the module's arena. Streams, events and groups are the
// module's. An Exec is for one goroutine.
type Exec struct {
	r        *Rank
	m        *Module
	l        *loaded
	opts     Options
	syms     map[string]int64
	read     map[string]int64 // sizes that tensors hold, those that are known
	unread   []sizesRead      // and those that are not
	varies   bool             // the instruction at hand needs such a size
	byHost   bool             // a step is captured whose sizes the host has to know: calls are left out
	node     string           // IR node of the next call
	recorded []string         // by event: the stream that recorded it last
	bound    []*Work          // async inputs
	keep     *made            // what the instruction at hand is remembered in, if it may be
	calls    int              // launches and collectives so far that are not remembered in keep
	ways     ways             // what is done about numbers that decide
	unmarked bool             // a replay by the host, which passes no marks
	copied   bool             // inputs are on their way from elsewhere in the arena
	err      error
}

// Options are optional settings of one run.
type Options struct {
	// Symbols gives the run-time sizes. One that is absent is solved from the
	// shapes of the inputs, else it is the symbol's hint.
	Symbols map[string]int64
	// Sizes, if not nil, receives the sizes that the run reads from tensors, by symbol: what
	// goes on with its results may need them.
	Sizes map[string]int64
	// Seed and Step select the random numbers of `rand`; a loop counts Step up.
	Seed, Step int64
	// KeepOutputs leaves plain outputs in the arena: their values have a Place
	// and no Data.
	KeepOutputs bool
	// SkipCollectives leaves out communication, for measuring: results that depend on it
	// are undefined. What carries integers is done all the same: they may be indices,
	// and kernels end with an error where one is outside its table.
	SkipCollectives bool
	// Trace, if not nil, receives when each call ran on its stream. The run waits for
	// all streams, and takes longer.
	Trace *[]Span
}

// At names the IR node of the next call, for errors and for `rand`, whose numbers
// depend on it. It returns x, so that a call stays one line:
//
//	x.At("mm").Launch("compute", "matmul", nil, ...)
func (x *Exec) At(node string) *Exec {
	x.node = node
	return x
}

// Err is the first error, nil while all went well.
func (x *Exec) Err() error { return x.err }

// Rank is this rank's number in the world.
func (x *Exec) Rank() int { return x.r.env.Rank }

// World is the number of ranks.
func (x *Exec) World() int { return x.r.env.World }

// Sym is the value of a run-time size on this rank.
func (x *Exec) Sym(name string) int64 {
	v, ok := x.symbol(name)
	if !ok {
		x.fail(opName("sym "+name), fmt.Errorf("module %s has no symbol %q", x.m.Name, name))
	}
	return v
}

// named is a call as errors name it; the name is made up only when needed.
type named interface{ Name() string }

// opName is a call with a fixed name.
type opName string

// Name is the name itself.
func (o opName) Name() string { return string(o) }

// fail keeps the first error.
func (x *Exec) fail(op named, err error) {
	if x.err == nil && err != nil {
		x.err = &CallError{Rank: x.r.env.Rank, Op: op.Name(), Err: err}
	}
}

// take returns the node of this call, and whether to make the call at all.
func (x *Exec) take() (node string, ok bool) {
	node, x.node = x.node, ""
	return node, x.err == nil
}

// stream finds a stream of the module.
func (x *Exec) stream(op named, name string) (Stream, bool) {
	for i, s := range x.m.Streams {
		if s == name {
			return x.l.streams[i].Stream, true
		}
	}
	x.fail(op, fmt.Errorf("module %s has no stream %q", x.m.Name, name))
	return 0, false
}

// event finds an event of the module.
func (x *Exec) event(op named, ev int) (Event, bool) {
	if ev < 0 || ev >= len(x.l.events) {
		x.fail(op, fmt.Errorf("event %d of %d", ev, len(x.l.events)))
		return 0, false
	}
	return x.l.events[ev], true
}

// place moves tensors from the module's arena to the rank's, after checking that
// they stay inside the module's.
func (x *Exec) place(op named, ts []Tensor) ([]Tensor, bool) {
	if len(ts) == 0 {
		return nil, true
	}
	out := make([]Tensor, len(ts))
	return out, x.placeInto(op, out, ts)
}

// placeBoth is place for the results and the operands of a call.
func (x *Exec) placeBoth(op named, outs, ins []Tensor) (o, i []Tensor, ok bool) {
	n := len(outs)
	all := make([]Tensor, n+len(ins))
	if !x.placeInto(op, all[:n:n], outs) || !x.placeInto(op, all[n:], ins) {
		return nil, nil, false
	}
	return all[:n:n], all[n:], true
}

func (x *Exec) placeInto(op named, out, ts []Tensor) bool {
	for i, t := range ts {
		lo, hi, err := t.Span()
		if err == nil && (lo < 0 || hi > x.m.Arena) {
			err = fmt.Errorf("bytes %d to %d are outside of the module's arena of %d", lo, hi, x.m.Arena)
		}
		if err != nil {
			x.fail(op, fmt.Errorf("tensor %v: %w", t, err))
			return false
		}
		out[i] = x.l.place(t, lo)
	}
	return true
}

// done keeps an error of the device.
func (x *Exec) done(err error) {
	if x.err == nil && err != nil {
		x.err = err
	}
}

// Launch runs the kernel of that op.
func (x *Exec) Launch(stream, op string, attrs Attrs, outs, ins []Tensor) {
	x.kernel(stream, kind{op: op}, attrs, outs, ins, nil)
}

// Shard copies the piece of ins[0] along dim that belongs to this rank's place in
// its subgroup of the group to outs[0].
func (x *Exec) Shard(stream, group string, dim int, outs, ins []Tensor) {
	i := slices.IndexFunc(x.m.Groups, func(g Group) bool { return g.Name == group })
	if i < 0 {
		x.fail(opName("shard"), fmt.Errorf("module %s has no group %q", x.m.Name, group))
		return
	}
	if len(outs) != 1 || len(ins) != 1 {
		x.fail(opName("shard"), fmt.Errorf("%d operands, %d results, want one of each", len(ins), len(outs)))
		return
	}
	members, pos := x.m.Groups[i].Find(x.Rank())
	part, err := ins[0].part(dim, pos, len(members))
	if err != nil {
		x.fail(opName("shard"), err)
		return
	}
	x.Copy(stream, outs[0], part)
}

// Call runs the Go function registered under target (Config.Funcs). group names
// the group that the function communicates on, if it does.
func (x *Exec) Call(stream, target, group string, attrs Attrs, outs, ins []Tensor) {
	x.kernel(stream, kind{op: "call", target: target, group: group}, attrs, outs, ins, nil)
}

// launch makes a launch that has not been made before.
func (x *Exec) launch(stream string, k *Kernel, c *called) {
	s, ok := x.stream(k, stream)
	if !ok || x.absent() {
		return
	}
	if v, bad := k.Attrs.Get(malformed); bad {
		x.fail(k, fmt.Errorf("malformed attributes: %v", v))
		return
	}
	if k.Op == "call" && k.Target == "" {
		k.Target = k.Attrs.Str("target", "")
	}
	if k.Op == "rand" {
		k.Attrs = k.Attrs.With("seed", attr.Int(randseed.Derive(k.Attrs.Int("seed", 0), x.opts.Seed, x.opts.Step, k.Label, x.r.env.Rank)))
	}
	if k.Outs, k.Ins, ok = x.placeBoth(k, k.Outs, k.Ins); !ok {
		return
	}
	if k.Op == program.OpFused {
		if err := x.code(k); err != nil {
			x.fail(k, err)
			return
		}
	}
	m := made{stream: s, kernel: k}
	if dev, ok := x.r.dev.(Preparer); ok {
		var err error
		if m.launch, err = dev.Prepare(s, k); err != nil {
			x.done(err)
			return
		}
	}
	if k.Op != "rand" { // whose attributes depend on the run
		x.remember(c, m)
	}
	x.again(&m)
}

// AllReduce reduces ins elementwise over the subgroup into outs, on every rank:
// sum, avg, product, min or max. Results may be their operands.
func (x *Exec) AllReduce(stream, group, reduce string, outs, ins []Tensor) {
	x.communicate(stream, kind{coll: AllReduce, group: group, reduce: reduce}, splits{}, outs, ins)
}

// AllGather lays the operands of the subgroup one after the other along dim.
func (x *Exec) AllGather(stream, group string, dim int, outs, ins []Tensor) {
	x.communicate(stream, kind{coll: AllGather, group: group, dim: dim}, splits{}, outs, ins)
}

// ReduceScatter reduces like AllReduce and leaves each rank its part along dim.
func (x *Exec) ReduceScatter(stream, group, reduce string, dim int, outs, ins []Tensor) {
	x.communicate(stream, kind{coll: ReduceScatter, group: group, reduce: reduce, dim: dim}, splits{}, outs, ins)
}

// AllToAll sends part i of dimension 0 to position i. The splits give, for each
// operand, the rows to and from each position; both nil: equal parts.
func (x *Exec) AllToAll(stream, group string, inSplits, outSplits [][]int64, outs, ins []Tensor) {
	x.communicate(stream, kind{coll: AllToAll, group: group}, splits{in: inSplits, out: outSplits}, outs, ins)
}

// Broadcast copies the operand of position root in the subgroup to all.
func (x *Exec) Broadcast(stream, group string, root int, outs, ins []Tensor) {
	x.communicate(stream, kind{coll: Broadcast, group: group, root: root}, splits{}, outs, ins)
}

// Permute moves operands between positions of the subgroup: pairs holds source,
// destination, ...; a position that is no destination gets zeros.
func (x *Exec) Permute(stream, group string, pairs []int64, outs, ins []Tensor) {
	x.communicate(stream, kind{coll: CollectivePermute, group: group}, splits{pairs: pairs}, outs, ins)
}

// Barrier holds the stream until every rank of the subgroup has come to it.
func (x *Exec) Barrier(stream, group string) {
	x.communicate(stream, kind{coll: Barrier, group: group}, splits{}, nil, nil)
}

// Collective is what the methods named after collectives do, with all fields at hand.
func (x *Exec) Collective(stream string, c *Collective) {
	if x.node == "" {
		x.node = c.Label
	}
	x.communicate(stream, kind{coll: c.Op, group: c.Group, reduce: c.Reduce, dim: c.Dim, root: c.Root, inMatmul: c.InMatmul},
		splits{pairs: c.Pairs, in: c.InSplits, out: c.OutSplits}, c.Outs, c.Ins)
}

// start makes a collective that has not been made before.
func (x *Exec) start(stream string, c *Collective, seen *called) {
	s, ok := x.stream(c, stream)
	if !ok || x.absent() {
		return
	}
	if c.Outs, c.Ins, ok = x.placeBoth(c, c.Outs, c.Ins); !ok {
		return
	}
	c.CrossStage = x.l.across[c.Group]
	x.remember(seen, made{stream: s, coll: c})
	if !x.skips(c) {
		x.done(x.r.dev.Collective(s, c))
	}
}

// skips reports whether a collective is left out. All ranks of its subgroup say the same.
func (x *Exec) skips(c *Collective) bool {
	return x.opts.SkipCollectives && !slices.ContainsFunc(c.Outs, func(t Tensor) bool { return t.DType.IsInt() })
}

// Copy copies src to dst elementwise; they have one type.
func (x *Exec) Copy(stream string, dst, src Tensor) {
	op := opName("copy")
	node, ok := x.take()
	if !ok {
		return
	}
	if node != "" {
		op = opName("copy (" + node + ")")
	}
	s, ok := x.stream(op, stream)
	if !ok || x.absent() {
		return
	}
	if !dst.SameType(src) {
		x.fail(op, fmt.Errorf("from %v to %v", src, dst))
		return
	}
	if ts, ok := x.place(op, []Tensor{dst, src}); ok {
		x.done(x.r.dev.Copy(s, ts[0], ts[1]))
	}
}

// Record makes event ev stand for everything enqueued on the stream so far.
func (x *Exec) Record(stream string, ev int) {
	if _, ok := x.take(); !ok {
		return
	}
	const op = opName("record")
	s, ok := x.stream(op, stream)
	if !ok {
		return
	}
	if e, ok := x.event(op, ev); ok {
		x.recorded[ev] = stream
		x.done(x.r.dev.Record(s, e))
	}
}

// Wait holds the stream until what ev stands for has finished. An event that this
// run has not recorded is an error.
func (x *Exec) Wait(stream string, ev int) {
	if _, ok := x.take(); !ok {
		return
	}
	const op = opName("wait")
	s, ok := x.stream(op, stream)
	if !ok {
		return
	}
	e, ok := x.event(op, ev)
	if !ok {
		return
	}
	if x.recorded[ev] == "" {
		x.fail(op, fmt.Errorf("nothing has recorded event %d", ev))
		return
	}
	x.done(x.r.dev.Wait(s, e))
}

// begin takes the rank and binds the inputs.
func (r *Rank) begin(m *Module, inputs []Value, opts Options) (*Exec, error) {
	x := &Exec{r: r, m: m, l: r.find(m), opts: opts}
	if x.l == nil {
		return nil, x.misuse(errNotLoaded)
	}
	x.recorded = make([]string, m.Events)
	r.mu.Lock()
	left := r.works[m]
	r.mu.Unlock()
	if left > 0 {
		return nil, x.misuse(fmt.Errorf("%d of its async outputs have not been awaited, and their memory would be overwritten", left))
	}
	if len(inputs) != len(m.Inputs) {
		return nil, x.misuse(fmt.Errorf("%d inputs, expected %d", len(inputs), len(m.Inputs)))
	}
	if err := r.dev.Err(); err != nil {
		return nil, err
	}
	var err error
	if x.syms, err = m.symbols(r.env.Rank, inputs, opts.Symbols); err != nil {
		return nil, x.misuse(err)
	}
	for i := range inputs {
		if err := x.input(&m.Inputs[i], &inputs[i]); err != nil {
			return nil, x.misuse(fmt.Errorf("input %s: %w", m.Inputs[i].Name, err))
		}
	}
	if err := x.arrived(); err != nil {
		return nil, err
	}
	return x, nil
}

func (x *Exec) misuse(err error) error {
	return &CallError{Rank: x.r.env.Rank, Op: "run of module " + x.m.Name, Err: err}
}

// finish waits for the run's end and collects the outputs.
func (x *Exec) finish(ctx context.Context) ([]Value, error) {
	if x.err != nil {
		return nil, x.err
	}
	// What awaits async outputs need not end here.
	flying := map[string]bool{}
	for _, q := range x.m.Outputs {
		if q.Async {
			if x.recorded[q.Event] == "" {
				return nil, x.misuse(fmt.Errorf("output %s: event %d was not recorded", q.Name, q.Event))
			}
			flying[x.recorded[q.Event]] = true
		}
	}
	for i, name := range x.m.Streams {
		if flying[name] {
			continue
		}
		if err := x.r.dev.Record(x.l.streams[i].Stream, x.l.streams[i].end); err != nil {
			return nil, err
		}
	}
	for i, name := range x.m.Streams {
		if flying[name] {
			continue
		}
		if err := x.r.dev.Synchronize(ctx, x.l.streams[i].end); err != nil {
			return nil, err
		}
	}
	if err := x.readAll(); err != nil {
		return nil, err
	}
	for _, w := range x.bound {
		if err := w.settle(nil); err != nil {
			return nil, err
		}
	}
	outs := make([]Value, len(x.m.Outputs))
	for i := range outs {
		if err := x.output(&x.m.Outputs[i], &outs[i]); err != nil {
			return nil, x.misuse(fmt.Errorf("output %s: %w", x.m.Outputs[i].Name, err))
		}
	}
	return outs, nil
}

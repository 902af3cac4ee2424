package pipeline

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// MetaPlaces on the return of a stage lists which results of the step it gives.
const MetaPlaces = ir.MetaPlaces

// emit replaces the step by the functions of its stages.
func (c *cut) emit(s *Schedule) {
	m, world := c.f.Module(), c.f.Module().World
	for _, g := range m.Groups() {
		var all [][]int
		for st := range s.Stages {
			for _, sub := range g.Ranks {
				l := make([]int, len(sub))
				for i, r := range sub {
					l[i] = st*world + r
				}
				all = append(all, l)
			}
		}
		g.Ranks = all
	}
	m.World = world * s.Stages
	link := func(name string, chunks ...int) *ir.Group {
		var ranks [][]int
		for r := range world {
			var l []int
			for _, k := range chunks {
				l = append(l, k%s.Stages*world+r)
			}
			ranks = append(ranks, l)
		}
		for m.Group(name) != nil {
			name += "_"
		}
		return m.AddGroup(name, ranks)
	}
	every := make([]int, s.Stages)
	for st := range every {
		every[st] = st
	}
	stages := m.AddStages(c.f.Name, link("pp", every...))
	up, down := make([]*ir.Group, s.Chunks), make([]*ir.Group, s.Chunks)
	for k := range s.Chunks - 1 {
		if len(c.up[k]) > 0 {
			up[k] = link(fmt.Sprint("up.", k), k, k+1)
		}
		if len(c.down[k]) > 0 {
			down[k] = link(fmt.Sprint("down.", k), k, k+1)
		}
	}
	for st := range s.Stages {
		e := &emitter{c: c, s: s, st: st, up: up, down: down, to: m.AddFunc(fmt.Sprintf("%s.%d", c.f.Name, st)),
			inputs: map[*ir.Node]*ir.Value{}, once: map[*ir.Value]*ir.Value{}, micro: make([]map[*ir.Value]*ir.Value, s.Micro),
			idle: map[string]*ir.Value{}, sums: map[*ir.Value]*ir.Value{}, flying: map[*ir.Group][]*ir.Value{}, starts: map[Action][]*ir.Value{}}
		e.stage()
		stages.Funcs = append(stages.Funcs, e.to.Name)
	}
	m.RemoveFunc(c.f)
}

// emitter writes the function of one stage.
type emitter struct {
	c        *cut
	s        *Schedule
	st       int
	to       *ir.Func
	up, down []*ir.Group

	inputs map[*ir.Node]*ir.Value
	once   map[*ir.Value]*ir.Value   // by value of the step
	micro  []map[*ir.Value]*ir.Value // by micro-batch and value of the step
	asked  map[*ir.Value]*ir.Value   // constants of this action
	idle   map[string]*ir.Value      // by type: what a receiver brings
	sums   map[*ir.Value]*ir.Value   // by result: over the micro-batches so far
	flying map[*ir.Group][]*ir.Value // the last send of a group
	starts map[Action][]*ir.Value    // receives that have begun
	last   *ir.Node                  // of the transfers, and their waits
}

// stage writes all of it. The next receive begins ahead of what the stage does before, so that
// it runs beside that.
func (e *emitter) stage() {
	e.signature()
	l := e.s.Stage[e.st]
	for i, a := range l {
		e.begin(a)
		for _, next := range l[i+1:] {
			if e.begin(next) {
				break
			}
		}
		e.action(a)
	}
	for _, g := range slices.Concat(e.up, e.down) {
		e.landed(g)
	}
	e.finish()
}

// reads calls see for every value that the stage's nodes and its results read.
func (e *emitter) reads(see func(v *ir.Value)) {
	c := e.c
	mine := func(n *ir.Node) bool { return c.chunk(n)%e.s.Stages == e.st }
	for _, n := range c.f.Order() {
		if k := c.class[n.ID()]; (k == forward || k == backward) && mine(n) {
			for _, a := range n.Args() {
				see(a)
			}
		}
	}
	for _, v := range e.results() {
		see(c.sums[v])
	}
}

// signature makes the inputs: what the stage reads itself, and what it computes once, needs.
func (e *emitter) signature() {
	c := e.c
	used := map[*ir.Node]bool{} // look-up only
	var visit func(v *ir.Value)
	visit = func(v *ir.Value) {
		n := v.Def()
		if used[n] || c.runs(v) {
			return
		}
		used[n] = true
		for _, a := range n.Args() {
			visit(a)
		}
	}
	e.reads(visit)
	for _, n := range c.f.Inputs() {
		if !used[n] {
			continue
		}
		s := n.Spec()
		s.Meta = s.Meta.Without(ir.PiecesKey) // of a mesh that is not the world's any more
		if t := s.Results[0]; isData(n) {
			shape := slices.Clone(t.Shape())
			shape[0] = shape[0].Mul(ir.D(int64(e.s.Micro)))
			s.Results[0] = ir.TensorOf(t.DType(), shape)
		}
		e.inputs[n] = e.to.Append(s).Result(0)
	}
	for k := range e.micro {
		e.micro[k] = map[*ir.Value]*ir.Value{}
	}
}

// results are those of the step's that the stage gives, each once: what no micro-batch computes
// the first stage gives.
func (e *emitter) results() []*ir.Value {
	var out []*ir.Value
	for _, v := range e.c.results {
		own := 0
		if r := e.c.sums[v].Viewed(); e.c.runs(r) {
			own = e.c.chunk(r.Def()) % e.s.Stages
		}
		if own == e.st && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// add appends an operation whose result types follow from its operands.
func (e *emitter) add(op ir.Op, name string, g *ir.Group, attrs ir.Attrs, want []ir.Type, args ...*ir.Value) *ir.Node {
	types := make([]ir.Type, len(args))
	for i, a := range args {
		types[i] = a.Type()
	}
	out, err := ir.Infer(op, g, attrs, types, want...)
	if err != nil {
		out = want // the verifier says what is wrong
	}
	return e.to.Append(ir.NodeSpec{Op: op, Name: name, Args: args, Results: out, Group: g, Attrs: attrs})
}

// value is a value of the step in a micro-batch.
func (e *emitter) value(v *ir.Value, micro int) *ir.Value {
	n := v.Def()
	if n.Op() == ir.OpInput && !isData(n) {
		return e.inputs[n]
	}
	cache := e.micro[micro]
	switch {
	case constant(v):
		cache = e.asked
	case e.fixed(v):
		cache = e.once
	}
	if x := cache[v]; x != nil {
		return x
	}
	if n.Op() == ir.OpInput {
		rows, _ := v.Type().Shape()[0].Const()
		attrs := ir.A("dim", 0, "start", int64(micro)*rows, "end", int64(micro+1)*rows)
		cache[v] = e.add(ir.OpSlice, fmt.Sprintf("%s.%d", n.Name(), micro), nil, attrs, nil, e.inputs[n]).Result(0)
		return cache[v]
	}
	e.copy(n, micro, cache)
	return cache[v]
}

// constant reports whether a value is made anew where it is read.
func constant(v *ir.Value) bool {
	n := v.Viewed().Def()
	return len(n.Args()) == 0 && n.Op() != ir.OpInput
}

// fixed reports whether a value is the same in all micro-batches.
func (e *emitter) fixed(v *ir.Value) bool {
	d := v.Viewed().Def()
	return e.c.class[d.ID()] == once || d.Op() == ir.OpInput && !isData(d)
}

// copy writes a node of the step for a micro-batch.
func (e *emitter) copy(n *ir.Node, micro int, into map[*ir.Value]*ir.Value) {
	s := n.Spec()
	if e.c.class[n.ID()] != once {
		s.Name = fmt.Sprintf("%s.%d", s.Name, micro)
	}
	for i, a := range s.Args {
		s.Args[i] = e.value(a, micro)
	}
	made := e.to.Append(s)
	for i, v := range n.Results() {
		into[v] = made.Result(i)
	}
}

// incoming and outgoing are what an action takes from another chunk and gives to one: the
// group, who is source and who destination in it, and the values.
func (e *emitter) incoming(a Action) (g *ir.Group, pairs []int64, vs []*ir.Value) {
	switch {
	case a.Phase == Forward && a.Chunk > 0:
		return e.up[a.Chunk-1], []int64{0, 1}, e.c.up[a.Chunk-1]
	case a.Phase == Backward && a.Chunk < e.s.Chunks-1:
		return e.down[a.Chunk], []int64{1, 0}, e.c.down[a.Chunk]
	}
	return nil, nil, nil
}

func (e *emitter) outgoing(a Action) (g *ir.Group, pairs []int64, vs []*ir.Value) {
	switch {
	case a.Phase == Forward && a.Chunk < e.s.Chunks-1:
		return e.up[a.Chunk], []int64{0, 1}, e.c.up[a.Chunk]
	case a.Phase == Backward && a.Chunk > 0:
		return e.down[a.Chunk-1], []int64{1, 0}, e.c.down[a.Chunk-1]
	}
	return nil, nil, nil
}

// follow keeps transfers and their waits in the order of the schedule, whatever passes do later:
// a stage that waits for one before it has issued another may wait for ever.
func (e *emitter) follow(n *ir.Node) *ir.Node {
	if e.last != nil {
		e.to.AddAfter(n, e.last)
	}
	e.last = n
	return n
}

// most is how many tensors go in one collective: for so many the host's ranks say where they lie.
const most = 16

// start issues a transfer.
func (e *emitter) start(g *ir.Group, pairs []int64, name string, vs []*ir.Value) (out []*ir.Value) {
	for part := range slices.Chunk(vs, most) {
		out = append(out, e.follow(e.add(ir.OpCollectivePermute, name, g, ir.A("pairs", pairs), nil, part...)).Result(0))
	}
	return out
}

// wait waits for one, and gives what it has brought.
func (e *emitter) wait(name string, xs []*ir.Value) (out []*ir.Value) {
	for _, x := range xs {
		out = append(out, e.follow(e.add(ir.OpWaitTensor, name, nil, nil, nil, x)).Results()...)
	}
	return out
}

// begin issues the receive of an action, unless it has begun, and reports whether it has one.
func (e *emitter) begin(a Action) bool {
	g, pairs, vs := e.incoming(a)
	if len(vs) == 0 || e.starts[a] != nil {
		return len(vs) > 0
	}
	var idle []*ir.Value
	for _, v := range vs {
		t := dense(v.Type())
		if e.idle[t.String()] == nil {
			e.idle[t.String()] = e.add(ir.OpFull, "idle", nil, ir.A("value", 0.0), []ir.Type{t}).Result(0)
		}
		idle = append(idle, e.idle[t.String()])
	}
	e.starts[a] = e.start(g, pairs, fmt.Sprintf("recv.%v", a), idle)
	return true
}

// dense is a tensor type without gaps.
func dense(t ir.Type) ir.Type { return ir.TensorOf(t.DType(), t.Shape()) }

// action writes one: it takes what others give, computes, gives what others take, and adds to
// the results.
func (e *emitter) action(a Action) {
	e.asked = map[*ir.Value]*ir.Value{}
	if _, _, vs := e.incoming(a); len(vs) > 0 {
		got := e.wait(fmt.Sprintf("got.%v", a), e.starts[a])
		delete(e.starts, a)
		for i, v := range vs {
			x := got[i]
			if !v.Type().Contiguous() {
				x = e.to.Append(ir.NodeSpec{Op: ir.OpClone, Args: []*ir.Value{x}, Results: []ir.Type{v.Type()}}).Result(0)
			}
			e.micro[a.Micro][v] = x
		}
	}
	c := e.c
	for _, n := range c.f.Order() {
		if k := c.class[n.ID()]; (k == forward || k == backward) && c.phase(n) == a.Phase && c.chunk(n) == a.Chunk {
			e.copy(n, a.Micro, e.micro[a.Micro])
		}
	}
	if g, pairs, vs := e.outgoing(a); len(vs) > 0 {
		var out []*ir.Value
		for _, v := range vs {
			x := e.micro[a.Micro][v]
			if !v.Type().Contiguous() {
				x = e.to.Append(ir.NodeSpec{Op: ir.OpClone, Args: []*ir.Value{x}, Results: []ir.Type{dense(v.Type())}}).Result(0)
			}
			out = append(out, x)
			c.moved += c.bytes(v)
		}
		e.landed(g)
		e.flying[g] = e.start(g, pairs, fmt.Sprintf("send.%v", a), out)
		c.transfers++
	}
	for _, v := range e.results() {
		if r := c.sums[v].Viewed(); c.runs(r) && c.phase(r.Def()) == a.Phase && c.chunk(r.Def()) == a.Chunk {
			e.sum(c.sums[v], a.Micro)
		}
	}
}

// landed waits for the last send of a group.
func (e *emitter) landed(g *ir.Group) {
	e.wait("sent", e.flying[g])
	delete(e.flying, g)
}

// wide is the type in which floats are summed.
func wide(d ir.DType) ir.DType {
	if d.Size() < 4 {
		return ir.F32
	}
	return d
}

// sum adds a micro-batch's result to those before.
func (e *emitter) sum(v *ir.Value, micro int) {
	x := e.value(v, micro)
	if d := v.Type().DType(); wide(d) != d && e.s.Micro > 1 {
		x = e.add(ir.OpConvert, "", nil, nil, []ir.Type{ir.TensorOf(wide(d), x.Type().Shape())}, x).Result(0)
	}
	if old := e.sums[v]; old != nil {
		x = e.add(ir.OpAdd, "sum", nil, nil, nil, old, x).Result(0)
	}
	e.sums[v] = x
}

// finish averages the sums and returns them.
func (e *emitter) finish() {
	var outs []*ir.Value
	var places []int64
	done := map[*ir.Value]*ir.Value{} // look-up only
	mine := e.results()
	e.asked = map[*ir.Value]*ir.Value{}
	for k, v := range e.c.results {
		if !slices.Contains(mine, v) {
			continue
		}
		if done[v] == nil {
			done[v] = e.average(e.c.sums[v])
			if x := e.c.sums[v]; x != v { // the reduction reads the average in the place of a micro-batch's
				e.micro[0][x] = done[v]
				done[v] = e.value(v, 0)
			}
		}
		outs, places = append(outs, done[v]), append(places, int64(k))
	}
	e.to.Append(ir.NodeSpec{Op: ir.OpReturn, Args: outs, Meta: ir.A(MetaPlaces, places)})
}

func (e *emitter) average(v *ir.Value) *ir.Value {
	x := e.sums[v]
	if x == nil {
		return e.value(v, 0)
	}
	if e.s.Micro > 1 {
		x = e.add(ir.OpMul, "average", nil, ir.A("scalar", 1/float64(e.s.Micro)), nil, x).Result(0)
	}
	if d := v.Type().DType(); x.Type().DType() != d {
		x = e.add(ir.OpConvert, "", nil, nil, []ir.Type{ir.TensorOf(d, x.Type().Shape())}, x).Result(0)
	}
	if !x.Type().Equal(v.Type()) {
		x = e.to.Append(ir.NodeSpec{Op: ir.OpClone, Args: []*ir.Value{x}, Results: []ir.Type{v.Type()}}).Result(0)
	}
	return x
}

// Package spmd partitions a function over a mesh.
//
// A function with sharding annotations (sharding.Key) on some of its values is global: every rank
// has all of every tensor. The pass turns it into the function over each rank's shards, whose
// inputs and results have the types of shards: the shard of a result is that of the global
// function's result on that rank. Shards are of one
// size; where a dimension does not divide evenly, the last ones are padded with undefined
// values, which reductions mask.
//
// spmd.go walks the function, and forms.go keeps its values. grid.go has the mesh, factored into
// atoms, layout.go which shard of a tensor a rank has, parts.go shards of concatenated dimensions,
// plan.go the cheapest resharding from one layout to another, and emit.go the
// nodes for it; combine.go combines small reductions in the end. node.go chooses how an
// operation is computed, among candidates.go: its rule (package sharding)
// relates the dimensions of its tensors by factors, each choice assigns atoms to some factors, and
// the cheapest is taken, including the cost of resharding its operands. rules.go is the
// table of what operations can do with sharded factors; where it has no entry, a factor is
// replicated, which is always correct. windows.go has operations that need halos,
// halo.go the halo exchange, indexed.go gathers and scatters,
// softmax.go cross entropy over sharded classes, ranked.go topk and argmax along sharded
// dimensions, collectives.go the collectives of the function itself, and donate.go its donations.
//
// A value is kept in every layout in which it has been requested. A reduction
// over sharded dimensions stays a partial sum until it is requested, and
// linear operations are applied to the partial sums.
package spmd

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/sharding"
)

// Pass partitions functions that have shardings.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "spmd",
		Doc:  "Partitions a function over a mesh by the shardings of its values, which it propagates.",
		Options: []passes.Option{
			{Name: "propagate", Kind: passes.KindBool, Default: "true", Doc: "infer shardings where none is given"},
			{Name: "narrow-sums", Kind: passes.KindBool, Default: "false", Doc: "where the program rounds a sum over ranks to 16-bit floats, round its parts: half the bytes, as frameworks reduce gradients"},
		},
		Stats: []passes.Stat{
			{Name: "values", Doc: "tensors of the global function"},
			{Name: "cut", Doc: "of them, those that no rank has all of"},
			{Name: "moves", Doc: "collectives that bring tensors into place"},
			{Name: "moved-bytes", Doc: "what arrives on each rank by them"},
		},
		Partitions: true,
		Run:        run,
	}
}

func run(ctx *passes.Context, f *ir.Func) error {
	if !sharding.Annotated(f) || !ctx.Enable(f.Name) {
		return nil
	}
	f.RemoveDead(f.Order()...) // afterwards collectives would stay that bring its operands
	splitAddmms(f)
	p, err := cheapest(f, ctx.Bool("propagate"), ctx.Bool("narrow-sums"))
	if err != nil {
		return err
	}
	m := f.Module()
	p.to = m.AddFunc(f.Name)
	if err := p.run(); err != nil {
		return err
	}
	m.RemoveFunc(f)
	for name, n := range map[string]int64{"values": p.values, "cut": p.cut, "moves": p.moves, "moved-bytes": p.moved} {
		ctx.Count(name, float64(n))
	}
	return nil
}

// partitioner makes the function of pieces.
type partitioner struct {
	emitter
	g       *grid
	f       *ir.Func
	how     strategy
	vals    []*value     // by id
	flying  [][]*value   // by node: what a collective's wait gives
	outs    []placed     // of the results
	foreign map[int]*far // by input: on another mesh
	alone   map[int]int  // by value: the one device that it lies on

	values, cut, moves, moved int64
	cost                      int64
}

// placed is a layout on a grid.
type placed struct {
	g *grid
	layout
}

// far is a layout on another mesh.
type far = placed

// propagation is which shardings run ahead of others where they meet.
type propagation uint8

const (
	none   propagation = iota
	shardy             // of larger tensors, as Shardy's do
	data               // of inputs that are no state of the function, which it would return
)

// strategy is a way to partition.
type strategy struct {
	propagation
	still  bool // activations move rather than parameters
	narrow bool // parts of sums are rounded, not sums
	near   bool // rows of neighbours cost nothing, so that tests have them taken wherever they can be
}

// ranked reports whether a function itself says which shardings go ahead.
func ranked(f *ir.Func) (bool, error) {
	x, err := sharding.Read(f)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(x.Graph.Values, func(v sharding.Value) bool {
		return v.Sharding != nil && slices.ContainsFunc(v.Sharding.Dims, func(d sharding.Dim) bool { return d.Priority > 0 })
	}), nil
}

// cheapest is the partitioner for the strategy that costs least.
func cheapest(f *ir.Func, propagate, narrow bool) (*partitioner, error) {
	if !propagate {
		return newPartitioner(f, strategy{narrow: narrow})
	}
	given, err := ranked(f)
	if err != nil {
		return nil, err
	}
	var best *partitioner
	parameters := slices.ContainsFunc(f.Inputs(), func(n *ir.Node) bool { return n.Role() == ir.RoleParameter })
	for _, how := range []strategy{{propagation: shardy}, {propagation: data}, {propagation: shardy, still: true}, {propagation: data, still: true}} {
		if how.still && !parameters || how.propagation == data && given {
			continue
		}
		how.narrow = narrow
		m := f.Module().Clone()
		trial, err := newPartitioner(m.Func(f.Name), how)
		if err != nil {
			return nil, err
		}
		trial.to = m.AddFunc(f.Name)
		if err := trial.run(); err != nil {
			return nil, err
		}
		if best == nil || trial.cost < best.cost {
			best = trial
			if best.cost == 0 {
				break
			}
		}
	}
	return newPartitioner(f, best.how)
}

// late is a sharding that is propagated behind others.
func late(s *sharding.Sharding) *sharding.Sharding {
	s = s.Clone()
	for i := range s.Dims {
		if len(s.Dims[i].Axes) > 0 && s.Dims[i].Priority <= 0 {
			s.Dims[i].Priority = 1
		}
	}
	return s
}

// states lets results of which nothing is said lie as the parameters' shardings alone make them:
// a gradient as what it is of.
func states(f *ir.Func, x *sharding.Function) error {
	alone, err := sharding.Read(f)
	if err != nil {
		return err
	}
	for i := range alone.Graph.Values {
		alone.Graph.Values[i].Sharding = nil
	}
	found := false
	for _, n := range f.Inputs() {
		if id := n.Result(0).ID(); n.Role() == ir.RoleParameter {
			alone.Graph.Values[id].Sharding = x.Graph.Values[id].Sharding
			found = found || x.Graph.Values[id].Sharding != nil
		}
	}
	if !found {
		return nil
	}
	if err := alone.Graph.Propagate(sharding.UserPriority); err != nil {
		return err
	}
	for i, at := range x.Results {
		s := alone.Graph.Values[at].Sharding
		if s != nil && x.Graph.Values[at].Sharding == nil && x.Graph.Values[f.Return().Arg(i).ID()].Sharding == nil {
			x.Graph.Values[at].Sharding = late(s)
		}
	}
	return nil
}

// ahead lets the shardings of inputs that are no state go ahead of all others.
func ahead(f *ir.Func, x *sharding.Function) {
	returned := map[string]int{} // how often a type and sharding is returned; look-up only
	key := func(v *ir.Value, s *sharding.Sharding) string { return v.Type().String() + sharding.Text(s) }
	for i, at := range x.Results {
		if y := &x.Graph.Values[at]; y.Sharding != nil {
			returned[key(f.Return().Arg(i), y.Sharding)]++
			y.Sharding = late(y.Sharding)
		}
	}
	for _, n := range f.Order() {
		for _, v := range n.Results() {
			y := &x.Graph.Values[v.ID()]
			if y.Sharding == nil {
				continue
			}
			k := key(v, y.Sharding)
			if state := returned[k] > 0; n.Op() != ir.OpInput || state || n.Role() == ir.RoleParameter {
				if n.Op() == ir.OpInput {
					returned[k]--
				}
				y.Sharding = late(y.Sharding)
			}
		}
	}
}

func newPartitioner(f *ir.Func, how strategy) (*partitioner, error) {
	x, err := sharding.Read(f)
	if err == nil && how.propagation == data {
		ahead(f, x)
		err = states(f, x)
	}
	if err == nil && how.propagation != none {
		replace(f, x)
		err = x.Graph.Propagate(sharding.UserPriority)
	}
	if err != nil {
		return nil, err
	}
	if err := refuse(f, x); err != nil {
		return nil, fmt.Errorf("spmd: @%s: %w", f.Name, err)
	}
	p := &partitioner{f: f, how: how, emitter: emitter{groups: map[string]*ir.Group{}}, foreign: map[int]*far{}, alone: map[int]int{}}
	byMesh, order := map[*sharding.Mesh][]*sharding.Sharding{}, []*sharding.Mesh{}
	for i := range x.Graph.Values {
		s := x.Graph.Values[i].Sharding
		if s == nil {
			continue
		}
		if s.Mesh.Maximal() {
			if p.alone[i] = int(s.Mesh.Devices[0]); p.alone[i] < 0 || p.alone[i] >= f.Module().World {
				return nil, fmt.Errorf("spmd: @%s: a tensor on device %d in a world of %d ranks", f.Name, p.alone[i], f.Module().World)
			}
			x.Graph.Values[i].Sharding = nil
			continue
		}
		if byMesh[s.Mesh] == nil {
			order = append(order, s.Mesh)
		}
		byMesh[s.Mesh] = append(byMesh[s.Mesh], s)
	}
	grids := map[*sharding.Mesh]*grid{}
	for _, m := range order {
		g, err := newGrid(m, byMesh[m])
		if err == nil && len(g.devices) != f.Module().World {
			err = fmt.Errorf("a mesh of %d devices in a world of %d ranks", len(g.devices), f.Module().World)
		}
		if err != nil {
			return nil, fmt.Errorf("spmd: @%s: mesh %s: %w", f.Name, m, err)
		}
		if grids[m] = g; p.g == nil {
			p.g = g
		}
	}
	if p.g == nil { // nothing but one device
		if p.g, err = newGrid(&sharding.Mesh{Axes: []sharding.Axis{{Name: "ranks", Size: int64(f.Module().World)}}}, nil); err != nil {
			return nil, err
		}
	}
	return p, p.read(x, grids)
}

// refuse reports what is stated of values and cannot be kept.
func refuse(f *ir.Func, x *sharding.Function) error {
	for _, n := range f.Inputs() {
		if v := n.Result(0); x.Graph.Values[v.ID()].Sharding != nil && len(x.Graph.Values[v.ID()].Sharding.Unreduced) > 0 {
			return fmt.Errorf("input %s is stated to be parts of a reduction, which ranks cannot be given", v)
		}
	}
	for i, at := range x.Results {
		if s := x.Graph.Values[at].Sharding; s != nil && len(s.Unreduced) > 0 {
			return fmt.Errorf("result %d is stated to be parts of a reduction; return it reduced", i)
		}
	}
	return nil
}

// read makes the values and what is wanted of them.
func (p *partitioner) read(x *sharding.Function, grids map[*sharding.Mesh]*grid) error {
	p.vals = make([]*value, p.f.NumValueIDs())
	p.flying = make([][]*value, p.f.NumNodeIDs())
	place := func(shape []int64, s *sharding.Sharding) placed {
		if s != nil && grids[s.Mesh] != p.g {
			g := grids[s.Mesh]
			return placed{g, g.layout(shape, s, 0)}
		}
		return placed{p.g, p.g.layout(shape, s, 0)}
	}
	for _, n := range p.f.Order() {
		if err := partitionable(n); err != nil {
			return err
		}
		for _, v := range n.Results() {
			if v.Type().IsAsync() {
				continue
			}
			y := newValue(v.Type())
			y.uses = len(v.Uses())
			if l := place(y.shape, x.Graph.Values[v.ID()].Sharding); l.g == p.g {
				y.want = l.layout
			} else {
				y.want = whole(y.shape)
				if n.Op() == ir.OpInput {
					p.foreign[int(v.ID())] = &l
				}
			}
			p.vals[v.ID()] = y
		}
	}
	for i, at := range x.Results {
		v := &x.Graph.Values[at]
		l := place(v.Shape, v.Sharding)
		if v.Sharding == nil {
			l = placed{p.g, p.vals[p.f.Return().Arg(i).ID()].want}
		}
		p.outs = append(p.outs, l)
	}
	return nil
}

func newValue(t ir.Type) *value {
	shape, _ := t.Shape().Static()
	shape = append([]int64{}, shape...)
	return &value{tensor: tensor{shape, int64(t.DType().Size())}, dt: t.DType(), want: whole(shape)}
}

// partitionable reports what cannot be partitioned.
func partitionable(n *ir.Node) error {
	for _, v := range n.Results() {
		for _, t := range v.Type().Tensors() {
			if _, ok := t.Shape().Static(); !ok {
				return fmt.Errorf("spmd: %%%s: a size that is known at run time only", n.Name())
			}
		}
	}
	switch {
	case n.Effects()&ir.EffectWrites != 0:
		return fmt.Errorf("spmd: %%%s writes in place", n.Name())
	case n.Op() == ir.OpInput && n.Result(0).Type().IsAsync(), n.Op() == ir.OpAsyncCall:
		return fmt.Errorf("spmd: %%%s is communication that is not known here", n.Name())
	}
	if n.Op() == ir.OpReturn {
		for _, v := range n.Args() {
			if v.Type().IsAsync() {
				return fmt.Errorf("spmd: %s is returned in flight", v)
			}
		}
	}
	return nil
}

// run walks the function.
func (p *partitioner) run() error {
	for _, n := range p.f.Order() {
		p.from = n
		switch {
		case n.Op() == ir.OpInput:
			p.input(n)
		case n.Op() == ir.OpReturn:
			p.results(n)
		case n.Op().IsCollective():
			p.collective(n)
		case n.Op() == ir.OpWaitTensor:
			for i, v := range n.Results() {
				p.take(v, p.flying[n.Arg(0).Def().ID()][i])
			}
		case n.Op() == ir.OpShard:
			p.piece(n)
		default:
			p.node(n)
		}
		p.alike(n)
		if p.err != nil {
			return p.err
		}
	}
	for _, v := range p.vals {
		if v != nil && len(v.forms) > 0 {
			p.values++
			if v.forms[0].split() != 0 {
				p.cut++
			}
		}
	}
	return p.combine()
}

// alike gives all ranks what lies on one device and is not the same on all: what that one has.
func (p *partitioner) alike(n *ir.Node) {
	for _, v := range n.Results() {
		device, ok := p.alone[int(v.ID())]
		if y := p.vals[v.ID()]; ok && p.err == nil && y.vary != 0 {
			g, out := p.group(p.g, p.g.rest(nil)), newValue(v.Type())
			root := ir.A("root", int64(slices.Index(g.Ranks[0], device)))
			out.forms = []form{{out.want, p.waited(ir.OpBroadcast, g, root, p.get(y, out.want))}}
			out.uses = len(v.Uses())
			p.vals[v.ID()] = out
		}
	}
}

// input is a rank's piece of an input.
func (p *partitioner) input(n *ir.Node) {
	v := n.Result(0)
	y := p.vals[v.ID()]
	at := placed{p.g, y.want.reduced()}
	if far := p.foreign[int(v.ID())]; far != nil {
		at = *far
	}
	s := n.Spec()
	s.Meta = s.Meta.Without(sharding.Key).Without(ir.ShardingGroupKey)
	if at.split() != 0 {
		s.Results = []ir.Type{ir.Tensor(y.dt, at.g.local(at.layout)...)}
		if at.g == p.g {
			s.Meta = s.Meta.With(ir.PiecesKey, ir.A(ir.PiecesKey, at.text())[0].Val)
		}
	}
	in := p.to.Append(s).Result(0)
	if at.g != p.g {
		y.want = whole(y.shape)
		if l, ok := p.g.like(at); ok {
			y.want = l
		}
		in = p.across(y.tensor, in, at, placed{p.g, y.want})
		at.layout = y.want
	}
	y.forms, y.param = []form{{at.layout, in}}, n.Role() == ir.RoleParameter
}

// like is the layout of the same dimensions by the same axes, where both meshes have them.
func (g *grid) like(at placed) (layout, bool) {
	if len(g.atoms) != len(at.g.atoms) {
		return layout{}, false
	}
	for i, a := range g.atoms {
		if a != at.g.atoms[i] {
			return layout{}, false
		}
	}
	return at.layout, true
}

// results are the pieces of what is returned.
func (p *partitioner) results(n *ir.Node) {
	var out []*ir.Value
	texts, cut := make([]string, len(n.Args())), false
	for i, v := range n.Args() {
		y, at := p.vals[v.ID()], p.outs[i]
		if at.g == p.g {
			if at.split() != 0 {
				texts[i], cut = at.text(), true
			}
			out = append(out, p.get(y, at.layout))
			continue
		}
		l, ok := p.g.like(at)
		if !ok {
			l = whole(y.shape)
		}
		out = append(out, p.across(y.tensor, p.get(y, l), placed{p.g, l}, at))
	}
	if p.donated(out); p.err == nil {
		s := n.Spec()
		s.Args, s.Meta = out, s.Meta.Without(sharding.Key)
		if cut {
			s.Meta = s.Meta.With(ir.PiecesKey, ir.A(ir.PiecesKey, texts)[0].Val)
		}
		p.to.Append(s)
	}
}

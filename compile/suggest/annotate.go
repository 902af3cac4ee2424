package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// The priorities of shardings: where two conflict, the first wins.
const (
	ofBatch    = iota - 1 // and of what is not cut: none is said
	_                     // means the same
	ofTensors             // and experts
	ofSequence            // along axes of tensors
	ofStorage
)

// program is a function of one device in a module of the mesh's ranks.
type program struct {
	busy       sync.Mutex // of annotated
	f          *ir.Func
	mesh       *sharding.Mesh
	layers     layers
	params     []*ir.Node // inputs
	batch, seq int64      // sizes of the first two dimensions of the first tensor of data; 0: none
}

// newProgram copies a function of one device.
func newProgram(f *ir.Func, axes []ir.Axis) (*program, error) {
	p := &program{mesh: &sharding.Mesh{}}
	world := int64(1)
	for _, a := range axes {
		p.mesh.Axes = append(p.mesh.Axes, sharding.Axis{Name: a.Name, Size: a.Size})
		world *= a.Size
	}
	if err := p.mesh.Check(); err != nil {
		return nil, fmt.Errorf("suggest: %w", err)
	}
	for _, n := range f.Order() {
		if n.Group() != nil {
			return nil, fmt.Errorf("suggest: %%%s is among ranks: want a program of one device", n.Name())
		}
	}
	m := f.Module().Clone()
	m.World = int(world)
	p.f = m.Func(f.Name)
	p.read()
	return p, nil
}

// read finds parameters, data and layers. Without roles parameters are the inputs of numbers that
// have the type of a result, or, if there are none, of rank 2 and more.
func (p *program) read() {
	inputs := p.f.Inputs()
	by := func(ok func(n *ir.Node) bool) []*ir.Node {
		var out []*ir.Node
		for _, n := range inputs {
			if ok(n) {
				out = append(out, n)
			}
		}
		return out
	}
	tries := []func(n *ir.Node) bool{
		func(n *ir.Node) bool { return n.Role() == ir.RoleParameter },
		func(n *ir.Node) bool { return number(n) && p.returned(n.Result(0).Type()) },
		func(n *ir.Node) bool { return number(n) && len(shape(n.Result(0))) > 1 },
	}
	for _, ok := range tries {
		if p.params = by(ok); len(p.params) > 0 {
			break
		}
	}
	for _, n := range inputs {
		if s := shape(n.Result(0)); len(s) > 0 && !slices.Contains(p.params, n) {
			p.batch = s[0]
			if len(s) > 1 {
				p.seq = s[1]
			}
			break
		}
	}
	p.layers = repeating(inputs)
}

func number(n *ir.Node) bool { return n.Result(0).Type().DType().IsFloat() }

func (p *program) returned(t ir.Type) bool {
	return slices.ContainsFunc(p.f.Return().Args(), func(v *ir.Value) bool { return v.Type().Equal(t) })
}

// shape is that of a tensor of known sizes.
func shape(v *ir.Value) []int64 {
	if v.Type().IsAsync() {
		return nil
	}
	s, _ := v.Type().Shape().Static()
	return s
}

// shardings are those of inputs and results on the mesh of the strategy's axes.
func (p *program) shardings(a *Strategy) (inputs, results []*sharding.Sharding, err error) {
	_, x, err := p.seeds(a)
	if err != nil {
		return nil, nil, err
	}
	inputs, results = make([]*sharding.Sharding, len(p.f.Inputs())), make([]*sharding.Sharding, len(x.Results))
	for i, in := range p.f.Inputs() {
		if slices.Contains(p.params, in) {
			inputs[i] = p.stored(a, in.Result(0), x.Graph.Values[in.Result(0).ID()].Sharding)
		} else {
			inputs[i] = p.data(a, in, true)
		}
	}
	for i, at := range x.Results {
		v := p.f.Return().Arg(i)
		if slices.ContainsFunc(p.params, func(in *ir.Node) bool { return in.Result(0).Type().Equal(v.Type()) }) {
			results[i] = p.stored(a, v, x.Graph.Values[at].Sharding)
			for d := range results[i].Dims {
				results[i].Dims[d].Priority = -1
			}
		}
	}
	return inputs, results, nil
}

// annotated is a copy of the program with the annotations of a strategy.
func (p *program) annotated(a *Strategy) (*ir.Module, error) {
	m, _, err := p.annotatedCut(a)
	return m, err
}

// annotatedCut is annotated, and whether every axis cuts something.
func (p *program) annotatedCut(a *Strategy) (m *ir.Module, cut bool, err error) {
	p.busy.Lock()
	defer p.busy.Unlock()
	inputs, results, err := p.shardings(a)
	if err != nil {
		return nil, false, err
	}
	both := slices.Concat(inputs, results)
	cut = true
	for i := range a.Roles {
		cut = cut && slices.ContainsFunc(both, func(s *sharding.Sharding) bool { return uses(s, a.axis(i)) })
	}
	for i, s := range both {
		both[i] = a.split.on(p.mesh, s)
	}
	f := p.f.Module().Clone().Func(p.f.Name)
	for i, n := range f.Inputs() {
		if both[i] != nil {
			f.SetMeta(n, sharding.Annotate(n.Meta(), both[i]))
		}
	}
	f.SetMeta(f.Return(), sharding.Annotate(f.Return().Meta(), both[len(inputs):]...))
	return f.Module(), cut, nil
}

// data is how a tensor of data lies: those with the batch in front are cut, and their sequence.
func (p *program) data(a *Strategy, in *ir.Node, sequence bool) *sharding.Sharding {
	s := shape(in.Result(0))
	if len(s) == 0 || s[0] != p.batch {
		return nil
	}
	out := sharding.Open(a.split.Mesh, len(s))
	for d := range out.Dims {
		out.Dims[d] = sharding.Dim{Priority: ofBatch}
	}
	for i, r := range a.Roles {
		axis := a.axis(i)
		if r.batch() {
			out.Dims[0].Axes = append(out.Dims[0].Axes, axis)
		}
		if r.sequence() && len(s) > 1 && s[1] == p.seq && (sequence || !r.tensor()) {
			out.Dims[1].Axes = append(out.Dims[1].Axes, axis)
			if r.tensor() {
				out.Dims[1].Priority = ofSequence
			}
		}
	}
	return out
}

// axis is that of a role.
func (a *Strategy) axis(i int) sharding.Ref {
	ref, _ := a.split.Whole(a.split.Axes[i].Name)
	return ref
}

// seed is a dimension that an axis cuts of all parameters of a kind.
type seed struct {
	kind string
	dim  int
	axis int
}

// tables are the types of parameters that nothing is multiplied with.
func (p *program) tables() []string {
	var out []string
	for _, in := range p.params {
		v := in.Result(0)
		if text := v.Type().String(); len(shape(v)) > 1 && free(v) == nil && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// seedsOf are the kinds of parameters that a strategy cuts by axes of tensors, and from which
// other shardings follow.
func (s *search) seedsOf(a *Strategy) []string {
	p := s.program
	if s.short != nil {
		p = s.short[0]
	}
	seeds, _, err := p.seeds(a)
	var out []string
	for _, x := range seeds {
		if err == nil && a.Roles[x.axis].tensor() && !slices.Contains(out, x.kind) {
			out = append(out, x.kind)
		}
	}
	return out
}

// seeds takes parameters in the order of their use, and cuts what they make where that is not cut
// yet by what was said before. The function has shardings as it computes, and says nothing of where
// parameters are stored.
func (p *program) seeds(a *Strategy) ([]seed, *sharding.Function, error) {
	var seeds []seed
	x, err := p.propagated(a, seeds)
	for axis, r := range a.Roles {
		done := map[string]bool{} // look-up only
		for _, in := range p.byUse() {
			kind := p.layers.kind(in)
			if err != nil || done[kind] || slices.Contains(a.Whole, kind) {
				continue
			}
			done[kind] = true
			d, ok := column(in, r, a.split.Axes[axis].Size)
			if s := x.Graph.Values[in.Result(0).ID()].Sharding; !ok || uses(s, a.axis(axis)) || s != nil && len(s.Dims[d].Axes) > 0 {
				continue
			}
			seeds = append(seeds, seed{kind, d, axis})
			x, err = p.propagated(a, seeds)
		}
	}
	return seeds, x, err
}

// byUse are the parameters in the order of their first use.
func (p *program) byUse() []*ir.Node {
	first := func(n *ir.Node) int {
		at := p.f.Return().At()
		for _, u := range n.Result(0).Uses() {
			at = min(at, u.Node.At())
		}
		return at
	}
	out := slices.Clone(p.params)
	slices.SortStableFunc(out, func(a, b *ir.Node) int { return cmp.Compare(first(a), first(b)) })
	return out
}

// column is the dimension of a parameter that an axis of a role cuts.
func column(in *ir.Node, r Role, n int64) (int, bool) {
	s := shape(in.Result(0))
	if r == Expert {
		return 0, expert(in, n)
	}
	if !r.tensor() || len(s) < 2 {
		return 0, false
	}
	for _, d := range slices.Backward(free(in.Result(0))) {
		if s[d]%n == 0 {
			return d, true
		}
	}
	return 0, false
}

// free are the dimensions of a tensor that its first computation keeps: not those over which it
// sums. It may be behind views.
func free(v *ir.Value) []int {
	uses := slices.Clone(v.Uses())
	slices.SortFunc(uses, func(a, b ir.Use) int { return cmp.Compare(a.Node.At(), b.Node.At()) })
	for _, u := range uses {
		r, err := sharding.Of(u.Node)
		if err != nil || u.Node.Op() == ir.OpReturn {
			continue
		}
		compute := u.Node.Op().Class() == ir.ClassCompute
		if !compute && len(u.Node.Args()) > 1 {
			continue
		}
		var behind []int
		if !compute {
			if behind = free(u.Node.Result(0)); behind == nil {
				continue
			}
		}
		var out []int
		for d, factors := range r.Operands[u.Index] {
			f := factors[0]
			if compute && r.Factors[f].Kind == sharding.PassThrough || slices.ContainsFunc(behind, func(o int) bool { return r.Results[0][o][0] == f }) {
				out = append(out, d)
			}
		}
		return out
	}
	return nil
}

func uses(s *sharding.Sharding, a sharding.Ref) bool {
	return s != nil && slices.ContainsFunc(s.Dims, func(d sharding.Dim) bool { return slices.ContainsFunc(d.Axes, a.Overlaps) })
}

// propagated is the program with the batch and what seeds say, propagated.
func (p *program) propagated(a *Strategy, seeds []seed) (*sharding.Function, error) {
	x, err := sharding.Read(p.f)
	if err != nil {
		return nil, err
	}
	for _, in := range p.f.Inputs() {
		v := &x.Graph.Values[in.Result(0).ID()]
		if !slices.Contains(p.params, in) {
			v.Sharding = p.data(a, in, false)
			continue
		}
		kind := p.layers.kind(in)
		for _, s := range seeds {
			if s.kind != kind {
				continue
			}
			if v.Sharding == nil {
				v.Sharding = sharding.Open(a.split.Mesh, len(v.Shape))
			}
			v.Sharding.Dims[s.dim] = sharding.Dim{Axes: append(v.Sharding.Dims[s.dim].Axes, a.axis(s.axis)), Priority: ofTensors}
		}
	}
	return x, x.Graph.Propagate(sharding.UserPriority)
}

// stored is how a parameter, or what has its type, lies between steps: as it is computed with, and
// cut by the axes that store, along the first dimension (or last one) that they divide and nothing else cuts.
func (p *program) stored(a *Strategy, v *ir.Value, computed *sharding.Sharding) *sharding.Sharding {
	s := shape(v)
	out := sharding.Open(a.split.Mesh, len(s))
	for d := range out.Dims {
		out.Dims[d] = sharding.Dim{Priority: ofBatch}
		if computed == nil {
			continue
		}
		for _, axis := range computed.Dims[d].Axes {
			i := slices.IndexFunc(a.split.Axes, func(x sharding.Axis) bool { return x.Name == axis.Name })
			if r := a.Roles[i]; r.tensor() || r == Expert {
				out.Dims[d] = sharding.Dim{Axes: append(out.Dims[d].Axes, axis), Priority: ofTensors}
			}
		}
	}
	if len(s) < 2 {
		return out // too small to be gathered
	}
	left := slices.Clone(s)
	for i, r := range a.Roles {
		axis := a.axis(i)
		if !r.stores() || uses(out, axis) {
			continue
		}
		for k := range out.Dims {
			d := k
			if slices.Contains(a.Last, v.Type().String()) {
				d = len(s) - 1 - k
			}
			if x := &out.Dims[d]; x.Priority != ofTensors && left[d]%axis.Size == 0 {
				left[d] /= axis.Size
				*x = sharding.Dim{Axes: append(x.Axes, axis), Priority: ofStorage}
				break
			}
		}
	}
	return out
}

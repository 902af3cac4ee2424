package equiv

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/terms"
	"github.com/seed-ee968945/concert/ir"
)

// Stages of a pipeline and the step of one micro-batch that they come from.
//
// The stages are read side by side, as one program of the step's ranks: rank r of each stage stands
// for rank r of the step, and what one stage sends to that rank of another one is there what it was
// here. The step is read once for each micro-batch, with that one's rows of the data. Then what each
// stage returns is compared with the average over the micro-batches: their sum, in order, in f32 of
// smaller floats, times one by their number, rounded once more; of what is the same in all, that.
// With reassociation a result that ranks add up may also be added up once, of what is averaged before.

// CheckStages proves that stages of a module give, on every rank, the average over micro-batches of
// what step gives. An input of role data has the rows of all micro-batches in the stages, all others
// are the step's of the same name; the annotation "places" on the return of a stage lists which
// results of the step it returns, without it the first ones. Both have to be verified. Of a step that
// writes in stage or draws random numbers nothing is proved. The error is an *Error with all that
// could not be proved. Linear in the nodes of the stages and, for each micro-batch, of the step, where
// no equation is needed.
func CheckStages(step *ir.Func, m *ir.Module, s *ir.Stages, o Options) (*Report, error) {
	world := step.Module().World
	j := &joint{p: NewProver(world, o), m: m, s: s, world: world, calls: make([]map[*ir.Group][][]terms.ValueID, len(s.Funcs)), number: make([]map[*ir.Node]int, len(s.Funcs))}
	c := &comparison{p: j.p, a: &Meaning{name: step.Name}, b: &Meaning{}}
	if err := j.shape(step); err != nil {
		c.fail("stages", err.Error(), "", "")
		return &Report{}, &Error{c.findings}
	}
	want, once, values := j.average(c, step)
	j.read(c)
	rep := &Report{Before: values}
	given := make([]bool, len(want))
	for stage, r := range j.readers {
		rep.After += r.m.values
		j.results(c, stage, want, once, given)
	}
	for k, ok := range given {
		if !ok && len(c.findings) == 0 {
			c.fail(fmt.Sprintf("result %d", k), "some stage returns each result of the step", "", "none")
		}
	}
	rep.count(j.p.z)
	if c.findings != nil {
		return rep, &Error{c.findings}
	}
	return rep, nil
}

// joint is stages that are read side by side.
type joint struct {
	p       *Prover
	m       *ir.Module
	s       *ir.Stages
	world   int // of the step
	micro   int
	given   map[string]source // inputs of the stages by name; look-up only
	types   map[string]ir.Type
	readers []*reader
	calls   []map[*ir.Group][][]terms.ValueID // by stage: what it brings to its calls between stages, in order
	number  []map[*ir.Node]int                // by stage: which call of its group a node is
}

// shape finds the number of micro-batches, and checks what stages look like.
func (j *joint) shape(step *ir.Func) error {
	if j.m.World != j.world*len(j.s.Funcs) {
		return fmt.Errorf("%d stages of %d ranks are not a world of %d", len(j.s.Funcs), j.world, j.m.World)
	}
	for stage := range j.s.Funcs {
		for k, r := range j.s.Ranks(stage) {
			if r != stage*j.world+k {
				return fmt.Errorf("rank %d runs stage %d: want the ranks of each stage in a row", r, stage)
			}
		}
	}
	inputs := map[string]*ir.Node{} // look-up only
	for _, n := range step.Inputs() {
		inputs[n.Name()] = n
	}
	for _, a := range step.Return().Args() {
		if a.Type().IsAsync() {
			return fmt.Errorf("@%s returns %%%s in flight", step.Name, a.Name())
		}
	}
	j.micro, j.types = 0, map[string]ir.Type{}
	for stage, name := range j.s.Funcs {
		for _, n := range j.m.Func(name).Order() {
			if communicates(n) {
				return fmt.Errorf("@%s has loops or branches that communicate", name)
			}
			if g := n.Group(); g != nil && !n.Op().IsCollective() {
				if peers, err := j.s.Peers(stage, g); err != nil || len(peers) > 1 {
					return fmt.Errorf("@%s: %%%s depends on a rank's index among ranks of other stages in @%s", name, n.Name(), g.Name)
				}
			}
		}
		for _, n := range j.m.Func(name).Inputs() {
			q := inputs[n.Name()]
			if q == nil {
				return fmt.Errorf("@%s: input %%%s is none of the step's", name, n.Name())
			}
			was, is := q.Result(0).Type(), n.Result(0).Type()
			if q.Role() == ir.RoleData {
				one, ok := dataRows(was)
				all, ok2 := dataRows(is)
				if !ok || !ok2 || one == 0 || all < one || all%one != 0 || !slices.EqualFunc(was.Shape()[1:], is.Shape()[1:], ir.Dim.Equal) || was.DType() != is.DType() || j.micro > 0 && all/one != int64(j.micro) {
					return fmt.Errorf("@%s: input %%%s is %v: want the rows of all micro-batches, of %v each", name, n.Name(), is, was)
				}
				j.micro = int(all / one)
			} else if !was.Equal(is) {
				return fmt.Errorf("@%s: input %%%s is %v, the step's is %v", name, n.Name(), is, was)
			}
			if t, ok := j.types[n.Name()]; ok && !t.Equal(is) {
				return fmt.Errorf("@%s: input %%%s is %v, in another stage %v", name, n.Name(), is, t)
			}
			j.types[n.Name()] = is
		}
	}
	j.micro = max(j.micro, 1)
	return nil
}

// communicates reports whether what a node runs does.
func communicates(n *ir.Node) bool {
	return slices.ContainsFunc(n.Bodies(), func(f *ir.Func) bool {
		return slices.ContainsFunc(f.Order(), func(x *ir.Node) bool { return x.Group() != nil || communicates(x) })
	})
}

// dataRows is the constant first dimension of a tensor.
func dataRows(t ir.Type) (int64, bool) {
	if t.IsAsync() || t.Rank() == 0 {
		return 0, false
	}
	return t.Shape()[0].Const()
}

// average reads the step for each micro-batch, and gives its results on average; once are they as
// ranks add them up once, where they do, else -1.
func (j *joint) average(c *comparison, step *ir.Func) (want, once []terms.ValueID, values int) {
	j.given = map[string]source{}
	parts := make([][]source, j.micro) // by micro-batch and input
	for i, n := range step.Inputs() {
		t, taken := j.types[n.Name()]
		if !taken { // by no stage, so whatever is equal does not depend on it
			t = n.Result(0).Type()
		}
		all := j.p.input(i, n.Name(), t)
		j.given[n.Name()] = all
		for k := range parts {
			s := all
			if rows, _ := dataRows(n.Result(0).Type()); taken && n.Role() == ir.RoleData && j.micro > 1 {
				attrs := ir.A("dim", 0, "start", int64(k)*rows, "end", int64(k+1)*rows)
				s = source{nums: []terms.ValueID{j.p.vals.Number(terms.Value{Op: ir.OpSlice, Group: -1, Attrs: attrs, Type: ir.TensorOf(t.DType(), n.Result(0).Type().Shape()), Args: all.nums, Node: n.Name()})}, homes: all.homes}
			}
			parts[k] = append(parts[k], s)
		}
	}
	var outs [][]terms.ValueID
	for k := range parts {
		m := j.p.read(step, parts[k], &Meaning{}, -1, "")
		values += m.values
		if len(m.effects)+len(m.left)+len(m.sent) > 0 || slices.ContainsFunc(step.Order(), func(n *ir.Node) bool { return n.Effects()&ir.EffectRandom != 0 }) {
			c.fail("effects", "a step that is repeated for each micro-batch has none", "", "")
			return nil, nil, values
		}
		c.a.outputs = m.outputs // of which the types are those of the stages' results
		var l []terms.ValueID
		for _, o := range m.outputs {
			l = append(l, o.tensors[0])
		}
		outs = append(outs, l)
	}
	for i := range outs[0] {
		var xs []terms.ValueID
		for k := range outs {
			xs = append(xs, outs[k][i])
		}
		x, ok := j.p.averagedBefore(xs)
		if !ok || !j.p.opts.Reassociate {
			x = -1
		}
		want, once = append(want, j.p.averaged(xs)), append(once, x)
	}
	return want, once, values
}

// averagedBefore is the average of results of ranks' sums, or views of them, with the operands
// averaged before; false of other values.
func (p *Prover) averagedBefore(xs []terms.ValueID) (terms.ValueID, bool) {
	v := *p.vals.At(xs[0])
	if len(v.Args) != 1 || v.Tag != "" {
		return 0, false
	}
	var args []terms.ValueID
	for _, x := range xs {
		o := p.vals.At(x)
		if o.Op != v.Op || o.Group != v.Group || o.Result != v.Result || o.Tag != "" || !o.Attrs.Equal(v.Attrs) {
			return 0, false
		}
		args = append(args, o.Args[0])
	}
	how := v.Attrs.Str("reduce", "")
	switch {
	case (v.Op == ir.OpAllReduce || v.Op == ir.OpReduceScatter) && (how == "sum" || how == "avg"):
		v.Args = []terms.ValueID{p.averaged(args)}
	case v.Op.IsView():
		x, ok := p.averagedBefore(args)
		if !ok {
			return 0, false
		}
		v.Args = []terms.ValueID{x}
	default:
		return 0, false
	}
	return p.vals.Number(v), true
}

// averaged is the average of values, or what they all are.
func (p *Prover) averaged(xs []terms.ValueID) terms.ValueID {
	if !slices.ContainsFunc(xs, func(x terms.ValueID) bool { return x != xs[0] }) {
		return xs[0]
	}
	typ := p.vals.At(xs[0]).Type
	dt, shape := typ.DType(), typ.Shape()
	wide := dt
	if dt.Size() < 4 {
		wide = ir.F32
	}
	point := func(op ir.Op, dt ir.DType, attrs ir.Attrs, args ...terms.ValueID) terms.ValueID {
		return p.vals.Number(terms.Value{Op: op, Group: -1, Attrs: attrs, Type: ir.TensorOf(dt, shape), Args: args, Node: "average"})
	}
	sum := terms.ValueID(-1)
	for _, x := range xs {
		if wide != dt {
			x = point(ir.OpConvert, wide, nil, x)
		}
		if sum >= 0 {
			x = point(ir.OpAdd, wide, nil, sum, x)
		}
		sum = x
	}
	sum = point(ir.OpMul, wide, ir.A("scalar", 1/float64(len(xs))), sum)
	if wide != dt {
		sum = point(ir.OpConvert, dt, nil, sum)
	}
	return sum
}

// read reads the stages side by side, each as far as it comes.
func (j *joint) read(c *comparison) {
	for stage, name := range j.s.Funcs {
		f := j.m.Func(name)
		var given []source
		for _, n := range f.Inputs() {
			given = append(given, j.given[n.Name()])
		}
		r := j.p.reader(f, given, &Meaning{}, -1-stage, "")
		r.joint, r.groups = j, map[*ir.Group]int32{}
		j.readers = append(j.readers, r)
		j.calls[stage], j.number[stage] = map[*ir.Group][][]terms.ValueID{}, map[*ir.Node]int{}
	}
	at := make([]int, len(j.readers))
	for moved := true; moved; {
		moved = false
		for stage, r := range j.readers {
			for order := r.f.Order(); at[stage] < len(order) && j.arrived(stage, order[at[stage]]); at[stage]++ {
				r.next(order[at[stage]])
				moved = true
			}
		}
	}
	for stage, r := range j.readers {
		if order := r.f.Order(); at[stage] < len(order) {
			c.fail("stages", "none deadlocks", "", "%"+order[at[stage]].Name()+" of @"+r.f.Name)
		}
		if len(r.m.effects)+len(r.m.left)+len(r.m.donated) > 0 {
			c.fail("effects", "stages of a step that has none have none, and donate nothing", "", "@"+r.f.Name)
		}
	}
}

// issue notes what a stage brings to a call between stages. Its results are numbered when they are
// waited for.
func (j *joint) issue(r *reader, n *ir.Node) {
	v, g := n.Result(0), n.Group()
	j.number[r.stage][n] = len(j.calls[r.stage][g])
	j.calls[r.stage][g] = append(j.calls[r.stage][g], r.args(n))
	nums := r.numbers(len(v.Type().Tensors()))
	for k := range nums {
		nums[k] = j.unknown(r.stage, n, k)
	}
	r.set(v, nums, r.stored(v))
}

// unknown is what a call brings of which nothing is known.
func (j *joint) unknown(stage int, n *ir.Node, k int) terms.ValueID {
	t := n.Result(0).Type().Tensors()[k]
	return j.p.vals.Number(terms.Value{Op: n.Op(), Group: -1, Result: int32(k), Tag: fmt.Sprintf("%%%d.%d @%s", stage, j.number[stage][n], n.Group().Name), Type: ir.TensorOf(t.DType(), t.Shape()), Node: n.Name()})
}

// arrived reports whether a node can be read: a wait for a call between stages when those have come
// to it that this stage receives from. It then numbers what comes.
func (j *joint) arrived(stage int, n *ir.Node) bool {
	if n.Op() != ir.OpWaitTensor || !n.Arg(0).Def().Op().IsCollective() || !j.readers[stage].across(n.Arg(0).Def().Group()) {
		return true
	}
	v := n.Arg(0)
	d, r := v.Def(), j.readers[stage]
	from, zeros, ok := j.source(stage, d)
	nums := r.num[v.ID()]
	for k, t := range v.Type().Tensors() {
		typ := ir.TensorOf(t.DType(), t.Shape())
		switch k0 := j.number[stage][d]; {
		case !ok:
			nums[k] = j.unknown(stage, d, k)
		case zeros:
			nums[k] = j.p.vals.Number(terms.Value{Op: ir.OpFull, Group: -1, Attrs: ir.A("value", 0), Type: typ, Node: d.Name()})
		case k0 >= len(j.calls[from][d.Group()]):
			return false
		default:
			nums[k] = j.calls[from][d.Group()][k0][k]
		}
	}
	return true
}

// source is the stage whose values a call brings to the ranks of a stage, or that it brings zeros;
// false if it is no transfer from the ranks of a stage to the same ones of another.
func (j *joint) source(stage int, d *ir.Node) (from int, zeros, ok bool) {
	if d.Op() != ir.OpCollectivePermute {
		return 0, false, false
	}
	pairs := d.Attrs().Ints("pairs")
	from = -1
	for k := range j.world {
		sub, at := d.Group().Of(stage*j.world + k)
		src := -1
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] == int64(at) && pairs[i] < int64(len(sub)) {
				src = sub[pairs[i]]
			}
		}
		switch {
		case k == 0 && src < 0:
			zeros = true
		case zeros != (src < 0):
			return 0, false, false
		case zeros:
		case src%j.world != k || from >= 0 && src/j.world != from:
			return 0, false, false
		}
		if src >= 0 {
			from = src / j.world
		}
	}
	return from, zeros, true
}

// results compares what a stage returns.
func (j *joint) results(c *comparison, stage int, want, once []terms.ValueID, given []bool) {
	r := j.readers[stage]
	places := r.f.Return().Meta().Ints(ir.MetaPlaces)
	for i, o := range r.m.outputs {
		k := i
		if places != nil && i < len(places) {
			k = int(places[i])
		}
		what := fmt.Sprintf("result %d of @%s", i, r.f.Name)
		switch {
		case k < 0 || k >= len(want) || len(o.tensors) != 1:
			c.fail(what, "it is a result of the step", fmt.Sprint(len(want), " results"), fmt.Sprint("result ", k))
		case !o.typ.Equal(c.a.outputs[k].typ):
			c.fail(what, "a result keeps its type", c.a.outputs[k].typ.String(), o.typ.String())
		default:
			given[k] = true
			x := want[k]
			if _, _, ok := c.p.z.Equal(x, o.tensors[0]); !ok && once[k] >= 0 {
				x = once[k]
			}
			c.same(what, x, o.tensors[0])
		}
	}
}

// group numbers a group: of stages that are read side by side as one of the step's ranks.
func (r *reader) group(g *ir.Group) int32 {
	if r.joint == nil || g == nil {
		return r.p.vals.Group(g)
	}
	id, ok := r.groups[g]
	if !ok {
		id = r.p.vals.Group(r.joint.within(r.stage, g))
		r.groups[g] = id
	}
	return id
}

// within is a group of a stage as one of the step's ranks.
func (j *joint) within(stage int, g *ir.Group) *ir.Group {
	var lists [][]int
	for _, sub := range g.Ranks {
		if sub[0]/j.world == stage {
			l := make([]int, len(sub))
			for i, r := range sub {
				l[i] = r - stage*j.world
			}
			lists = append(lists, l)
		}
	}
	return &ir.Group{Name: g.Name, Ranks: lists}
}

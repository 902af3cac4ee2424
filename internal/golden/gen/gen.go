// Package gen generates random legal modules for property tests: elementwise
// operations, matmuls, reductions, views, copies, collectives of every kind over
// several groups with one or more operands, waits at any legal position, second
// waits as aliases, and on request async inputs and outputs,
// operations with side effects and groups of one rank. Dead code is left in.
//
// The same seed and configuration give the same module everywhere.
package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Config says what the module may hold.
type Config struct {
	Nodes   int  // operations besides inputs and return, about; 0 means 40
	World   int  // ranks, 2 or 4; 0 means 4
	Flights bool // async inputs and outputs
	Effects bool // opaque calls and random numbers; the calls are those of passtest.Calls
	Units   bool // groups of one rank
	Costs   bool // attach costs
	Alike   bool // most collectives are gathers or sums of one tensor over one group, so that they can share buckets
	Kinds   bool // with Alike, those of every kind, all_to_alls that list their splits among them, and some of two operands
	MaxDim  int  // largest number of elements of a tensor; 0 means 256
}

type generator struct {
	Config
	r        *rand.Rand
	f, plain *ir.FuncBuilder // of the next operation, and without its cost
	groups   []*ir.Group
	pool     []*ir.Value               // tensors that can be read
	flight   []*ir.Value               // async values that nothing waits for yet
	root     map[*ir.Value]*ir.Value   // tensor -> whose storage it lies in; look-up only
	busy     map[*ir.Value]int         // storage root -> collectives in flight that read it; look-up only
	waiting  map[*ir.Value][]*ir.Value // async value -> its operands; look-up only
}

// Module makes a module with one function, @f. An error means that the generator
// and the IR disagree about what is legal.
func Module(seed uint64, c Config) (*ir.Module, error) {
	if c.Nodes == 0 {
		c.Nodes = 40
	}
	if c.World == 0 {
		c.World = 4
	}
	if c.MaxDim == 0 {
		c.MaxDim = 256
	}
	b := ir.NewBuilder(c.World)
	g := &generator{Config: c, r: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), root: map[*ir.Value]*ir.Value{},
		busy: map[*ir.Value]int{}, waiting: map[*ir.Value][]*ir.Value{}}
	all := make([]int, c.World)
	ones := make([][]int, c.World)
	for i := range all {
		all[i] = i
		ones[i] = []int{i}
	}
	g.groups = append(g.groups, b.Group("all", [][]int{all}), b.Group("again", [][]int{all}))
	if c.World == 4 {
		g.groups = append(g.groups, b.Group("near", [][]int{{0, 1}, {2, 3}}), b.Group("far", [][]int{{0, 2}, {1, 3}}))
	}
	if c.Units {
		g.groups = append(g.groups, b.Group("one", ones))
	}
	g.f = b.Func("f")
	g.plain = g.f
	g.inputs()
	for range c.Nodes {
		g.step()
	}
	g.finish()
	return b.Finish()
}

func (g *generator) n(below int) int { return g.r.IntN(below) }

func (g *generator) one(in int) bool { return g.r.IntN(in) == 0 }

func (g *generator) pick() *ir.Value { return g.pool[g.n(len(g.pool))] }

func (g *generator) inputs() {
	roles := []ir.Role{ir.RoleParameter, ir.RoleData, ir.RoleSaved, ir.RoleTangent}
	for i := range 3 + g.n(3) {
		dt := ir.F32
		if g.one(4) {
			dt = ir.BF16
		}
		g.own(g.f.InputRole(fmt.Sprintf("x%d", i), ir.Tensor(dt, int64(4+4*g.n(2)), 4), roles[g.n(4)]))
	}
	if g.Flights && g.one(2) {
		g.flight = append(g.flight, g.f.InputRole("coming", ir.Async(ir.Tensor(ir.F32, 4, 4), ir.Tensor(ir.F32, 8)), ir.RoleData))
	}
}

// own adds tensors that lie in storages of their own.
func (g *generator) own(vs ...*ir.Value) {
	for _, v := range vs {
		g.root[v] = v
		g.pool = append(g.pool, v)
	}
}

// alias adds views of x.
func (g *generator) alias(x *ir.Value, vs ...*ir.Value) {
	for _, v := range vs {
		g.root[v] = g.root[x]
		g.pool = append(g.pool, v)
	}
}

func (g *generator) cost(most int) {
	if g.Costs {
		g.f = g.plain.Cost(float64(g.n(most*4)) / 4)
	}
}

// step adds one operation; some attempts fit nothing and add none.
func (g *generator) step() {
	g.f = g.plain
	switch k := g.n(20); {
	case k < 4:
		g.pointwise()
	case k < 6:
		g.product()
	case k < 7:
		g.reduce()
	case k < 11:
		g.view()
	case k < 15:
		g.collective()
	case k < 18:
		g.wait()
	case k < 19 || !g.Effects:
		x := g.pick()
		g.cost(2)
		g.own(g.f.Op(ir.OpClone, nil, nil, []*ir.Value{x}, ir.TensorOf(x.Type().DType(), x.Type().Shape()))...)
	default:
		g.effect()
	}
}

func (g *generator) pointwise() {
	x := g.pick()
	g.cost(2)
	if g.one(2) {
		ops := []ir.Op{ir.OpRelu, ir.OpNeg, ir.OpSigmoid, ir.OpTanh, ir.OpAbs}
		g.own(g.f.Unary(ops[g.n(len(ops))], x))
		return
	}
	ops := []ir.Op{ir.OpAdd, ir.OpMul, ir.OpSub, ir.OpMaximum}
	op := ops[g.n(len(ops))]
	for range 4 {
		if y := g.pick(); y.Type().SameTensor(x.Type()) {
			g.own(g.f.Binary(op, x, y))
			return
		}
	}
	g.own(g.f.Scalar(op, x, 0.5))
}

func (g *generator) product() {
	x := g.pick()
	for range 6 {
		y := g.pick()
		xs, ys := x.Type().Shape(), y.Type().Shape()
		if len(xs) == 2 && len(ys) == 2 && x.Type().DType() == y.Type().DType() && xs[1].Equal(ys[0]) && g.small(xs[0], ys[1]) {
			g.cost(6)
			g.own(g.f.MatMul(x, y))
			return
		}
	}
}

// small reports whether the product of dimensions is within MaxDim.
func (g *generator) small(ds ...ir.Dim) bool {
	p := int64(1)
	for _, d := range ds {
		n, _ := d.Const()
		p *= n
	}
	return p <= int64(g.MaxDim)
}

func (g *generator) reduce() {
	if x := g.pick(); x.Type().Rank() == 2 {
		g.cost(2)
		g.own(g.f.Reduce([]ir.Op{ir.OpSum, ir.OpAmax}[g.n(2)], x, true, int64(g.n(2))))
	}
}

func (g *generator) view() {
	x := g.pick()
	sizes, _ := x.Type().Shape().Static()
	switch g.n(6) {
	case 0:
		if len(sizes) == 2 {
			g.alias(x, g.f.Permute(x, 1, 0))
		}
	case 1:
		if len(sizes) > 0 && sizes[0] >= 2 {
			g.alias(x, g.f.Slice(x, 0, 0, sizes[0]/2))
		}
	case 2:
		if x.Type().Contiguous() && len(sizes) == 2 {
			g.alias(x, g.f.View(x, ir.Dims(sizes[0]*sizes[1])))
		}
	case 3:
		if x.Type().Contiguous() && len(sizes) == 1 && sizes[0]%2 == 0 {
			g.alias(x, g.f.View(x, ir.Dims(sizes[0]/2, 2)))
		}
	case 4:
		if len(sizes) > 0 && sizes[0] >= 2 && sizes[0]%2 == 0 {
			l := attr.Make(attr.Attr{Key: "dim", Val: attr.Int(0)}, attr.Attr{Key: "sizes", Val: attr.Ints(sizes[0]/2, sizes[0]/2)})
			g.alias(x, g.f.Op(ir.OpSplit, nil, l, []*ir.Value{x})...)
		}
	default:
		g.alias(x, g.f.Op(ir.OpAlias, nil, nil, []*ir.Value{x})...)
	}
}

func (g *generator) collective() {
	group := g.groups[g.n(len(g.groups))]
	ranks := int64(group.Size())
	var xs []*ir.Value
	kind, operands := g.n(6), 1+g.n(3)
	r := []ir.Reduction{ir.Sum, ir.Avg, ir.Max, ir.Min}[g.n(4)]
	if g.Alike && !g.one(4) {
		group, kind, operands, r = g.groups[0], g.n(2), 1, ir.Sum
		ranks = int64(group.Size())
		if g.Kinds {
			kind, operands = g.n(5), 1+g.n(4)/3
		}
	}
	for range operands {
		x := g.pick()
		sizes, _ := x.Type().Shape().Static()
		if len(sizes) == 0 || sizes[0] == 0 || (kind == 2 || kind == 3) && sizes[0]%ranks != 0 || kind == 1 && !g.small(append(slices.Clone(x.Type().Shape()), ir.D(ranks))...) {
			continue
		}
		xs = append(xs, x)
	}
	if len(xs) == 0 {
		return
	}
	g.cost(8)
	var v *ir.Value
	switch kind {
	case 0:
		v = g.f.AllReduce(r, group, xs...)
	case 1:
		v = g.f.AllGather(group, 0, xs...)
	case 2:
		v = g.f.ReduceScatter(r, group, 0, xs...)
	case 3:
		v = g.allToAll(group, xs)
	case 4:
		root := int64(g.n(int(ranks)))
		if g.Kinds {
			root = 0
		}
		v = g.f.Broadcast(group, root, xs...)
	default:
		var pairs []int64
		for i := range ranks {
			if !g.one(4) {
				pairs = append(pairs, i, (i+1)%ranks)
			}
		}
		v = g.f.Op(ir.OpCollectivePermute, group, attr.Make(attr.Attr{Key: "pairs", Val: attr.Ints(pairs...)}), xs)[0]
	}
	for _, x := range xs {
		g.busy[g.root[x]]++
	}
	g.waiting[v] = xs
	g.flight = append(g.flight, v)
}

// allToAll exchanges equal parts, with Kinds mostly such as list their sizes.
func (g *generator) allToAll(group *ir.Group, xs []*ir.Value) *ir.Value {
	if !g.Kinds || g.one(4) {
		return g.f.AllToAll(group, xs...)
	}
	splits := make([]string, len(xs))
	types := make([]ir.Type, len(xs))
	for i, x := range xs {
		sizes := make([]ir.Dim, group.Size())
		for p := range sizes {
			sizes[p] = x.Type().Shape()[0].Div(int64(group.Size()))
		}
		splits[i], types[i] = ir.SplitsText(sizes), ir.TensorOf(x.Type().DType(), x.Type().Shape())
	}
	attrs := attr.Make(attr.Attr{Key: "in_splits", Val: attr.Strings(splits...)}, attr.Attr{Key: "out_splits", Val: attr.Strings(splits...)})
	return g.f.Op(ir.OpAllToAll, group, attrs, xs, ir.Async(types...))[0]
}

func (g *generator) wait() {
	if len(g.flight) == 0 {
		return
	}
	i := g.n(len(g.flight))
	v := g.flight[i]
	g.flight = slices.Delete(g.flight, i, i+1)
	for _, x := range g.waiting[v] {
		g.busy[g.root[x]]--
	}
	g.own(g.f.Wait(v)...)
}

func (g *generator) effect() {
	x := g.pick()
	t := ir.TensorOf(x.Type().DType(), x.Type().Shape())
	switch g.n(4) {
	case 0:
		if g.busy[g.root[x]] == 0 {
			g.f.Call("inc", "memory", []string{"writes"}, []*ir.Value{x})
		}
	case 1:
		g.own(g.f.Call("twice", "memory", nil, []*ir.Value{x}, t)...)
	case 2:
		g.f.Call("barrier", "memory", []string{"communicates"}, nil)
	default:
		g.own(g.f.Op(ir.OpRand, nil, nil, nil, ir.Tensor(ir.F32, 4, 4))...)
	}
}

// finish waits for most of what is in flight and returns some tensors.
func (g *generator) finish() {
	var out []*ir.Value
	if g.Flights && len(g.flight) > 0 && g.one(2) {
		last := g.flight[len(g.flight)-1]
		g.flight = g.flight[:len(g.flight)-1]
		out = append(out, last)
	}
	for len(g.flight) > 0 {
		g.wait()
	}
	for range 1 + g.n(4) {
		out = append(out, g.pick())
	}
	out = append(out, g.pool[len(g.pool)-1])
	g.f.Return(out...)
}

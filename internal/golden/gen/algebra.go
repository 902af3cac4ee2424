package gen

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// AlgebraConfig says what a module of Algebra may hold.
type AlgebraConfig struct {
	Nodes  int  // operations besides waits, inputs and return, about; 0 means 12
	Smooth bool // numbers of 64 bits and operations that small errors pass through without growing: for rewrites that round differently
	Writes bool // calls that write in place or communicate: inc and barrier of passtest.Calls
	Grown  bool // chains fork: operations also read tensors that others have read
}

// Algebra makes a random module of the kind that rules about collectives look
// for: short chains of collectives over the rows, columns and whole of a grid of
// ranks, shards, conversions, elementwise operations and views, most of which read
// what was made last. Everything made is returned or read, so that every rewrite
// shows in the results. The function is @f; the world has 4 ranks, or 6.
func Algebra(seed uint64, c AlgebraConfig) (*ir.Module, error) {
	if c.Nodes == 0 {
		c.Nodes = 12
	}
	g := &algebra{AlgebraConfig: c, r: rand.New(rand.NewPCG(seed, 0xa19eb6a)), reads: map[*ir.Value]int{}}
	world := 4
	if g.r.IntN(4) == 0 {
		world = 6
	}
	b := ir.NewBuilder(world)
	rows, columns := grid(2, world/2)
	var all []int
	for i := range world {
		all = append(all, i)
	}
	back := slices.Clone(all)
	slices.Reverse(back)
	g.groups = append(g.groups, b.Group("row", rows), b.Group("column", columns), b.Group("all", [][]int{all}))
	if g.r.IntN(3) == 0 {
		g.groups = append(g.groups, b.Group("back", [][]int{back}))
	}
	g.f = b.Func("f")
	g.floats = []ir.DType{ir.F32, ir.BF16, ir.F16}
	g.ints = []ir.DType{ir.I32, ir.I8, ir.U8}
	if c.Smooth {
		g.floats, g.ints = []ir.DType{ir.F64}, []ir.DType{ir.I64}
	}
	for i := range 2 + g.r.IntN(3) {
		dt := g.floats[g.r.IntN(len(g.floats))]
		if g.r.IntN(4) == 0 {
			dt = g.ints[g.r.IntN(len(g.ints))]
		}
		g.add(g.f.Input(fmt.Sprintf("x%d", i), ir.Tensor(dt, 12, int64(12*(1+g.r.IntN(2))))))
	}
	for range c.Nodes {
		g.step()
	}
	g.finish()
	return b.Finish()
}

// grid lists the rows and columns of ranks 0, 1, ... in row-major order.
func grid(height, width int) (rows, columns [][]int) {
	columns = make([][]int, width)
	for i := range height {
		var row []int
		for j := range width {
			row = append(row, i*width+j)
			columns[j] = append(columns[j], i*width+j)
		}
		rows = append(rows, row)
	}
	return rows, columns
}

type algebra struct {
	AlgebraConfig
	r            *rand.Rand
	f            *ir.FuncBuilder
	groups       []*ir.Group
	floats, ints []ir.DType
	pool         []*ir.Value
	reads        map[*ir.Value]int // look-up only
	flight       []*ir.Value       // async values that nothing waits for yet
}

func (g *algebra) add(vs ...*ir.Value) {
	for _, v := range vs {
		if v != nil {
			g.pool = append(g.pool, v)
		}
	}
}

// pick chooses what to read: most often the last tensor made, and where chains do
// not fork one that nobody has read.
func (g *algebra) pick() *ir.Value {
	for range 8 {
		i := len(g.pool) - 1
		if g.r.IntN(3) == 0 {
			i = g.r.IntN(len(g.pool))
		}
		if v := g.pool[i]; g.Grown || g.reads[v] == 0 {
			g.reads[v]++
			return v
		}
	}
	v := g.pool[g.r.IntN(len(g.pool))]
	g.reads[v]++
	return v
}

func (g *algebra) group() *ir.Group { return g.groups[g.r.IntN(len(g.groups))] }

func sizes(v *ir.Value) []int64 {
	s, _ := v.Type().Shape().Static()
	return s
}

func (g *algebra) step() {
	x := g.pick()
	switch k := g.r.IntN(20); {
	case k < 8:
		g.collective(x)
	case k < 10:
		g.shard(x)
	case k < 13:
		g.unary(x)
	case k < 16:
		g.binary(x)
	case k < 17:
		g.view(x)
	case k < 18:
		g.rare(x)
	case k < 19:
		g.motif(x)
	default:
		g.land()
	}
}

// motif adds two operations that chance seldom puts together.
func (g *algebra) motif(x *ir.Value) {
	group, other, dt := g.group(), g.group(), x.Type().DType()
	wait := func(v *ir.Value) *ir.Value { return g.f.Wait(v)[0] }
	switch k := g.r.IntN(8); k {
	case 0: // a sum of reductions
		y, r := g.f.Unary(ir.OpNeg, x), g.reduction()
		if cut := fits(x, group); cut != nil && g.r.IntN(2) == 0 {
			d := g.dim(cut)
			g.add(g.f.Add(wait(g.f.ReduceScatter(r, group, d, x)), wait(g.f.ReduceScatter(r, group, d, y))))
			return
		}
		a, b := wait(g.f.AllReduce(r, group, x)), wait(g.f.AllReduce(r, group, y))
		g.add(g.f.Binary([]ir.Op{ir.OpAdd, ir.OpSub, ir.OpMaximum, ir.OpMinimum}[g.r.IntN(4)], a, b))
	case 1: // a reduction in a wider type
		if dt.IsFloat() && dt != ir.F64 {
			v := g.f.Convert(x, ir.F32)
			if cut := fits(x, group); cut != nil && g.r.IntN(2) == 0 {
				v = wait(g.f.ReduceScatter(g.reduction(), group, g.dim(cut), v))
			} else {
				v = wait(g.f.AllReduce(g.reduction(), group, v))
			}
			g.add(g.f.Convert(v, dt))
		}
	case 2, 3: // a scatter after a reduction, a gather or another scatter
		if cut := fits(x, group); cut != nil {
			d, r := g.dim(cut), g.reduction()
			v := wait(g.f.ReduceScatter(r, group, d, x))
			switch {
			case k == 2:
				v = wait(g.f.AllGather(group, d, v))
			case slices.Contains(fits(v, other), d):
				v = wait(g.f.ReduceScatter(r, other, d, v))
			}
			g.add(v)
			return
		}
		fallthrough
	case 4: // a reduction over a row, after one over a column or before a piece
		r := g.reduction()
		v := wait(g.f.AllReduce(r, other, x))
		if cut := fits(x, group); cut != nil && g.r.IntN(2) == 0 {
			if g.r.IntN(2) == 0 {
				v = wait(g.f.ReduceScatter(r, group, g.dim(cut), v))
			} else {
				v = g.f.Shard(group, g.dim(cut), v)
			}
		} else {
			v = wait(g.f.AllReduce(r, group, v))
		}
		g.add(v)
	case 5: // a piece of a view of a reduction
		v := wait(g.f.AllReduce(g.reduction(), other, x))
		if s := sizes(v); len(s) == 2 && g.r.IntN(2) == 0 {
			v = g.f.Permute(v, 1, 0)
		} else if v.Type().Contiguous() {
			v = g.f.View(v, ir.Dims(elems(v)))
		}
		g.shard(v)
	case 6: // rows of a gathered table
		if s := sizes(x); len(s) == 2 && s[0] >= 2 && x.Type().DType().IsFloat() && elems(x) < 1500 {
			table := wait(g.f.AllGather(group, 0, x))
			g.add(g.f.Op(ir.OpEmbedding, nil, nil, []*ir.Value{table, g.positions(group, 1+int64(g.r.IntN(int(s[0])/2)), s[0]*int64(group.Size()), 0)})...)
		}
	case 7: // rows added to a table that is summed
		if s := sizes(x); len(s) == 2 && elems(x) < 300 && x.Type().Contiguous() {
			n := int64(group.Size())
			rows := s[0] * n * n * 2
			zero := g.f.Op(ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Float(0)}), nil, ir.Tensor(dt, rows, s[1]))[0]
			l := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}, attr.Attr{Key: "accumulate", Val: attr.Bool(true)})
			v := g.f.Op(ir.OpIndexPut, nil, l, []*ir.Value{zero, x, g.positions(group, s[0], rows, rows/3)})[0]
			g.add(wait(g.f.ReduceScatter([]ir.Reduction{ir.Sum, ir.Avg}[g.r.IntN(2)], group, 0, v)))
		}
	}
}

// positions are count places in a table, other ones on each rank, some of them
// repeated; up to so many count from the end.
func (g *algebra) positions(group *ir.Group, count, rows, below int64) *ir.Value {
	n := int64(group.Size())
	step := func(by int64) attr.List { return attr.Make(attr.Attr{Key: "step", Val: attr.Int(by)}) }
	own := g.f.Shard(group, 0, g.f.Op(ir.OpIota, nil, step(1+g.r.Int64N(rows/n)), nil, ir.Tensor(ir.I64, n))[0])
	v := g.f.Op(ir.OpIota, nil, step(1+g.r.Int64N(3)), nil, ir.Tensor(ir.I64, count))[0]
	v = g.f.Add(v, own)
	l := attr.Make(attr.Attr{Key: "min", Val: attr.Float(0)}, attr.Attr{Key: "max", Val: attr.Float(float64(rows - 1 - g.r.Int64N(rows/2)))})
	v = g.f.Op(ir.OpClamp, nil, l, []*ir.Value{v})[0]
	if below > 0 {
		v = g.f.Scalar(ir.OpAdd, v, -float64(g.r.Int64N(below)))
	}
	return v
}

func (g *algebra) reduction() ir.Reduction {
	return []ir.Reduction{ir.Sum, ir.Sum, ir.Avg, ir.Max, ir.Min}[g.r.IntN(5)]
}

// fits lists the dimensions that fall into as many pieces as the group has ranks.
func fits(x *ir.Value, g *ir.Group) []int64 {
	var dims []int64
	for d, n := range sizes(x) {
		if n > 0 && n%int64(g.Size()) == 0 {
			dims = append(dims, int64(d))
		}
	}
	return dims
}

func (g *algebra) dim(dims []int64) int64 { return dims[g.r.IntN(len(dims))] }

func elems(x *ir.Value) int64 {
	n, _ := x.Type().Shape().NumElems().Const()
	return n
}

func (g *algebra) collective(x *ir.Value) {
	group := g.group()
	xs := []*ir.Value{x}
	cut := fits(x, group)
	var v *ir.Value
	switch k := g.r.IntN(9); {
	case k < 3:
		if g.r.IntN(5) == 0 {
			xs = append(xs, g.pick())
		}
		v = g.f.AllReduce(g.reduction(), group, xs...)
	case k < 5 && len(sizes(x)) > 0 && elems(x) < 1500:
		v = g.f.AllGather(group, int64(g.r.IntN(len(sizes(x)))), xs...)
	case k < 7 && len(cut) > 0:
		v = g.f.ReduceScatter(g.reduction(), group, g.dim(cut), xs...)
	case k == 7 && len(cut) > 0 && cut[0] == 0:
		v = g.f.AllToAll(group, xs...)
	case k == 8 && g.r.IntN(2) == 0:
		v = g.f.Broadcast(group, int64(g.r.IntN(group.Size())), xs...)
	case k == 8:
		v = g.f.Op(ir.OpCollectivePermute, group, attr.Make(attr.Attr{Key: "pairs", Val: attr.Ints(0, 1)}), xs)[0]
	default:
		return
	}
	g.flight = append(g.flight, v)
	if g.r.IntN(4) > 0 {
		g.land()
	}
}

func (g *algebra) land() {
	if n := len(g.flight); n > 0 {
		g.add(g.f.Wait(g.flight[n-1])...)
		g.flight = g.flight[:n-1]
	}
}

func (g *algebra) shard(x *ir.Value) {
	group := g.group()
	if dims := fits(x, group); dims != nil {
		g.add(g.f.Shard(group, g.dim(dims), x))
	}
}

func (g *algebra) unary(x *ir.Value) {
	if !x.Type().DType().IsFloat() {
		if x.Type().DType().IsInt() {
			g.add(g.f.Unary([]ir.Op{ir.OpNeg, ir.OpRelu}[g.r.IntN(2)], x))
		}
		return
	}
	switch g.r.IntN(8) {
	case 0:
		op := ir.OpNeg
		if !g.Smooth && g.r.IntN(3) == 0 {
			op = ir.OpFloor
		}
		g.add(g.f.Unary(op, x))
	case 7:
		l := attr.Make(attr.Attr{Key: "min", Val: attr.Float(-0.5)}, attr.Attr{Key: "max", Val: attr.Float(0.9)})
		g.add(g.f.Op(ir.OpClamp, nil, l, []*ir.Value{x})...)
	case 1:
		g.add(g.f.Unary(ir.OpRelu, x))
	case 2:
		g.add(g.f.Scalar(ir.OpMul, x, []float64{0.5, 0.3, 2}[g.r.IntN(3)]))
	case 3:
		g.add(g.f.Scalar(ir.OpAdd, x, 0.7))
	case 4:
		g.add(g.f.Unary(ir.OpTanh, x))
	default:
		if !g.Smooth {
			g.add(g.f.Convert(x, g.floats[g.r.IntN(len(g.floats))]))
		}
	}
}

func (g *algebra) binary(x *ir.Value) {
	ops := []ir.Op{ir.OpAdd, ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpMaximum, ir.OpMinimum}
	for _, i := range g.r.Perm(len(g.pool)) {
		y := g.pool[i]
		if y != x && y.Type().SameTensor(x.Type()) && (g.Grown || g.reads[y] == 0) {
			g.reads[y]++
			g.add(g.f.Binary(ops[g.r.IntN(len(ops))], x, y))
			return
		}
	}
	// A constant row, which broadcasts.
	if s := sizes(x); len(s) > 0 {
		c := g.f.Op(ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Float(3)}), nil, ir.Tensor(x.Type().DType(), s[len(s)-1]))
		g.add(g.f.Binary(ops[g.r.IntN(len(ops))], x, c[0]))
	}
}

func (g *algebra) view(x *ir.Value) {
	s := sizes(x)
	switch k := g.r.IntN(6); {
	case len(s) == 0:
	case k == 0 && len(s) == 2:
		g.add(g.f.Permute(x, 1, 0))
	case k == 1 && len(s) == 2 && x.Type().Contiguous():
		g.add(g.f.View(x, ir.Dims(s[0]*s[1])))
	case k == 2 && x.Type().Contiguous() && s[0]%2 == 0 && len(s) < 4:
		g.add(g.f.View(x, ir.Dims(slices.Concat([]int64{s[0] / 2, 2}, s[1:])...)))
	case k == 3 && s[len(s)-1] >= 2:
		g.add(g.f.Slice(x, int64(len(s)-1), 0, s[len(s)-1]/2))
	case k == 4 && s[0] >= 2:
		n := s[0] / 2
		g.add(g.f.Slice(x, 0, n, n*2))
	default:
		g.add(g.f.Op(ir.OpAlias, nil, nil, []*ir.Value{x})...)
	}
}

func (g *algebra) rare(x *ir.Value) {
	s := sizes(x)
	switch g.r.IntN(4) {
	case 0: // the own row by the rank's place
		group := g.group()
		if len(s) > 1 && s[0] == int64(group.Size()) {
			i := g.f.Op(ir.OpIota, nil, nil, nil, ir.Tensor(ir.I64, s[0]))[0]
			l := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)})
			g.add(g.f.Op(ir.OpIndex, nil, l, []*ir.Value{x, g.f.Shard(group, 0, i)})...)
		}
	case 1: // the own piece by an exchange
		group := g.group()
		if len(s) > 0 && s[0] > 0 && s[0]%int64(group.Size()) == 0 {
			w := g.f.Wait(g.f.AllToAll(group, g.f.Wait(g.f.AllReduce(ir.Sum, group, x))[0]))[0]
			n := s[0] / int64(group.Size())
			g.add(g.f.Slice(w, 0, n, 2*n))
		}
	case 2:
		g.add(g.f.Wait(g.f.AllReduce(ir.Sum, g.group(), x))...)
		g.reads[x]++
		g.add(g.f.Wait(g.f.AllReduce(ir.Sum, g.groups[2], x))...)
	default:
		if g.Writes && g.r.IntN(2) == 0 {
			g.f.Call("barrier", "memory", []string{"communicates"}, nil)
		} else if g.Writes && len(g.flight) == 0 { // what is in flight must not be written
			g.f.Call("inc", "memory", []string{"writes"}, []*ir.Value{x})
		}
	}
}

// finish returns what nobody has read.
func (g *algebra) finish() {
	for len(g.flight) > 0 {
		g.land()
	}
	var out []*ir.Value
	for _, v := range g.pool {
		if len(v.Uses()) == 0 {
			out = append(out, v)
		}
	}
	g.f.Return(out...)
}

package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/processgroups"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports collectives; groups.go has which ranks they are among.

// waited appends a collective and its wait.
func (im *importer) waited(o ir.Op, g *ir.Group, attrs ir.Attrs, args []*ir.Value) ([]*ir.Value, error) {
	vs, err := im.emitAll(o, g, attrs, args)
	if err != nil {
		return nil, err
	}
	return im.emitAll(ir.OpWaitTensor, nil, nil, vs)
}

// collective imports an operation among the groups that it names; plain ones number
// replicas if they have no channel.
func collective(plain bool, f func(im *importer, g *ir.Group, args []*ir.Value) ([]*ir.Value, error)) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
		args, err := im.irs(in)
		if err != nil {
			return nil, err
		}
		g, err := im.group(plain)
		if err != nil {
			return nil, err
		}
		return im.decomposed(f(im, g, args))
	}
}

// combines are the reductions of collectives whose bodies are one operation.
var combines = map[ir.Op]ir.Reduction{ir.OpAdd: ir.Sum, ir.OpMul: ir.Product, ir.OpMaximum: ir.Max, ir.OpMinimum: ir.Min}

// single is the operation of the IR that the body of the operation is, if it is one of both
// its arguments.
func (im *importer) single() (ir.Op, bool) {
	if len(im.op.Regions) != 1 {
		return 0, false
	}
	b := im.op.Regions[0]
	var ops []*mlir.Operation
	from := map[string]string{} // look-up only: what a number is that lies otherwise, which means nothing of numbers
	name := func(r mlir.Operand) string {
		if f, ok := from[r.Name]; ok {
			return f
		}
		return r.Name
	}
	for _, o := range b.Ops {
		if o.Name == "sdy.sharding_constraint" && len(o.Operands) == 1 && len(o.Results) == 1 {
			from[o.Results[0].Name] = name(o.Operands[0])
		} else {
			ops = append(ops, o)
		}
	}
	if len(b.Args) != 2 || len(ops) != 2 || len(ops[0].Operands) != 2 || len(ops[0].Results) != 1 || len(ops[1].Operands) != 1 {
		return 0, false
	}
	first := ops[0]
	x, y := name(first.Operands[0]), name(first.Operands[1])
	l, r := b.Args[0].Name, b.Args[1].Name
	if !(x == l && y == r || x == r && y == l) || l == r || name(ops[1].Operands[0]) != first.Results[0].Name {
		return 0, false
	}
	k, ok := simple[first.Name]
	return k, ok
}

// folded reduces tensors over the ranks of a group: by the collective, or where its body is
// none that ranks combine by, by a gather and a fold of what came.
func (im *importer) folded(g *ir.Group, args []*ir.Value) ([]*ir.Value, error) {
	args, err := im.widened(args)
	if err != nil {
		return nil, err
	}
	k, ok := im.single()
	if r, known := combines[k]; ok && known && !slices.ContainsFunc(args, func(v *ir.Value) bool { return dtypeOf(v) == ir.Bool }) {
		return im.launched(ir.OpAllReduce, g, ir.A("reduce", string(r)), args)
	}
	var out []*ir.Value
	for _, v := range args {
		parts, err := im.gatheredOperands(g, v)
		if err != nil {
			return nil, err
		}
		if v, err = im.inTurn(parts); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, im.check()
}

// widened are operands in the element type of the body.
func (im *importer) widened(args []*ir.Value) ([]*ir.Value, error) {
	var out []*ir.Value
	for _, v := range args {
		one, err := im.promoted(0, 0, []*ir.Value{v})
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// gatheredOperands are the operands of all ranks of a group, gathered.
func (im *importer) gatheredOperands(g *ir.Group, v *ir.Value) ([]*ir.Value, error) {
	one, err := im.viewed(v, append([]int64{1}, sizes(v)...))
	if err != nil {
		return nil, err
	}
	all, err := im.waited(ir.OpAllGather, g, ir.A("dim", int64(0)), []*ir.Value{one})
	if err != nil {
		return nil, err
	}
	var parts []*ir.Value
	for i := range int64(g.Size()) {
		p, err := im.emit(ir.OpSelect, ir.A("dim", int64(0), "index", i), all)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// inTurn combines tensors one after the other by the body.
func (im *importer) inTurn(parts []*ir.Value) (*ir.Value, error) {
	body, err := im.body(0)
	if err != nil {
		return nil, err
	}
	for len(parts) > 1 {
		two, err := body(im.cur, parts[:2])
		if err := im.positioned(err); err != nil {
			return nil, err
		}
		if len(two) != 1 {
			return nil, im.errorf("the body gives %d values, want 1", len(two))
		}
		parts = append(two, parts[2:]...)
	}
	return parts[0], nil
}

// ragged combines over groups of different sizes, which concert does not have: what all ranks
// have is gathered and combined group by group, and each rank takes what is its group's, zeros
// if it is in none.
func (im *importer) ragged(groups [][]int, args []*ir.Value, combine func([]*ir.Value) (*ir.Value, error)) ([]*ir.Value, error) {
	world, err := im.everyone()
	if err != nil {
		return nil, err
	}
	at := slices.Repeat([]int64{-1}, im.cur.world)
	for k, g := range groups {
		for _, r := range g {
			at[r] = int64(k)
		}
	}
	table := make([]byte, 8*len(at))
	for r, k := range at {
		dtype.StoreInt(ir.I64, table[8*r:], k)
	}
	numbers, err := im.constant(&mlir.Literal{DType: ir.I64, Shape: []int64{int64(len(at))}, Data: table})
	if err != nil {
		return nil, err
	}
	mine, err := im.emitAll(ir.OpShard, world, ir.A("dim", int64(0)), []*ir.Value{numbers})
	if err != nil {
		return nil, err
	}
	number, err := im.viewed(mine[0], nil)
	if err != nil {
		return nil, err
	}
	out := make([]*ir.Value, len(args))
	for i, v := range args {
		parts, err := im.gatheredOperands(world, v)
		if err != nil {
			return nil, err
		}
		if slices.Contains(at, -1) {
			if out[i], err = im.emit(ir.OpFull, ir.A("value", int64(0)), nil, ir.TensorOf(dtypeOf(v), v.Type().Shape())); err != nil {
				return nil, err
			}
		}
		for k, g := range groups {
			var own []*ir.Value
			for _, r := range g {
				own = append(own, parts[r])
			}
			sum, err := combine(own)
			if err != nil {
				return nil, err
			}
			if out[i] != nil {
				is, err := im.emit(ir.OpEq, ir.A("scalar", int64(k)), []*ir.Value{number})
				if err != nil {
					return nil, err
				}
				if sum, err = im.where(is, sum, out[i]); err != nil {
					return nil, err
				}
			}
			out[i] = sum
		}
	}
	return out, im.check()
}

func allReduce(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	groups, err := im.groups(false)
	if err != nil {
		return nil, err
	}
	if uneven(groups) {
		if args, err = im.widened(args); err != nil {
			return nil, err
		}
		return im.decomposed(im.ragged(groups, args, im.inTurn))
	}
	g, err := im.declared(groups)
	if err != nil {
		return nil, err
	}
	return im.decomposed(im.folded(g, args))
}

// collectiveReduce is an all_reduce whose result is zero on all but the first of a group.
func collectiveReduce(im *importer, g *ir.Group, args []*ir.Value) ([]*ir.Value, error) {
	im.starting = false
	out, err := im.folded(g, args)
	if err != nil {
		return nil, err
	}
	at, err := im.place(g)
	if err != nil {
		return nil, err
	}
	first, err := im.scalarOf(ir.OpEq, at, 0)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		zero, err := im.emit(ir.OpFull, ir.A("value", int64(0)), nil, ir.Tensor(dtypeOf(v)))
		if err != nil {
			return nil, err
		}
		if out[i], err = im.where(first, v, zero); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// place is where a rank stands in its group, which only a run knows: its piece of 0, 1, ...
func (im *importer) place(g *ir.Group) (*ir.Value, error) {
	all, err := im.emit(ir.OpIota, nil, nil, ir.Tensor(ir.I32, int64(g.Size())))
	if err != nil {
		return nil, err
	}
	mine, err := im.emitAll(ir.OpShard, g, ir.A("dim", int64(0)), []*ir.Value{all})
	if err != nil {
		return nil, err
	}
	return im.viewed(mine[0], nil)
}

// id is the number of a rank's replica or partition.
func id(partition bool) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, _ *mlir.Operation, _ []*value) ([]*value, error) {
		g, err := im.everyone()
		if err != nil {
			return nil, err
		}
		at, err := im.place(g)
		if err != nil {
			return nil, err
		}
		o := ir.OpTruncDivide
		if partition {
			o = ir.OpFmod
		}
		if at, err = im.emit(o, ir.A("scalar", int64(im.procs.Partitions)), []*ir.Value{at}); err != nil {
			return nil, err
		}
		return im.one(im.converted(at, ir.U32))
	}
}

func allGather(im *importer, g *ir.Group, args []*ir.Value) ([]*ir.Value, error) {
	d, err := im.integer("all_gather_dim")
	if err != nil {
		return nil, err
	}
	return im.launched(ir.OpAllGather, g, ir.A("dim", d), args)
}

func reduceScatter(im *importer, g *ir.Group, args []*ir.Value) ([]*ir.Value, error) {
	d, err := im.integer("scatter_dimension")
	if err != nil {
		return nil, err
	}
	if args, err = im.widened(args); err != nil {
		return nil, err
	}
	k, ok := im.single()
	if r, known := combines[k]; ok && known && dtypeOf(args[0]) != ir.Bool {
		return im.launched(ir.OpReduceScatter, g, ir.A("dim", d, "reduce", string(r)), args)
	}
	out, err := im.folded(g, args)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		mine, err := im.emitAll(ir.OpShard, g, ir.A("dim", d), []*ir.Value{v})
		if err != nil {
			return nil, err
		}
		out[i] = mine[0]
	}
	return out, nil
}

// allToAll cuts a dimension into pieces, one for each rank, and puts those that come one
// after the other along another: pieces are a dimension of their own on the way.
func allToAll(im *importer, g *ir.Group, args []*ir.Value) ([]*ir.Value, error) {
	var dims [3]int64
	var err error
	for i, name := range []string{"split_dimension", "concat_dimension", "split_count"} {
		if dims[i], err = im.integer(name); err != nil {
			return nil, err
		}
	}
	split, concat, n := dims[0], dims[1], dims[2]
	if n != int64(g.Size()) {
		return nil, im.errorf("split_count = %d in groups of %d", n, g.Size())
	}
	for i, v := range args {
		shape := sizes(v)
		if err := im.checkDims([]int64{split}, len(shape), "split_dimension"); err != nil {
			return nil, err
		}
		if err := im.checkDims([]int64{concat}, len(shape), "concat_dimension"); err != nil {
			return nil, err
		}
		if shape[split]%n != 0 {
			return nil, im.errorf("dimension %d of %d elements in %d pieces", split, shape[split], n)
		}
		if args[i], err = im.viewed(v, slices.Concat(shape[:split], []int64{n, shape[split] / n}, shape[split+1:])); err != nil {
			return nil, err
		}
		if args[i], err = im.permuted(args[i], moved(len(shape)+1, split, 0)); err != nil {
			return nil, err
		}
	}
	out, err := im.waited(ir.OpAllToAll, g, nil, args)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		if v, err = im.permuted(v, moved(len(sizes(v)), 0, concat)); err != nil {
			return nil, err
		}
		shape := sizes(v)
		if out[i], err = im.viewed(v, slices.Concat(shape[:concat], []int64{n * shape[concat+1]}, shape[concat+2:])); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moved are rank dimensions of which one has gone from one place to another.
func moved(rank int, from, to int64) []int64 {
	var l []int64
	for d := range int64(rank) {
		if d != from {
			l = append(l, d)
		}
	}
	return slices.Insert(l, int(to), from)
}

// byNumber is the group in which the place of a rank is its number in a mode.
func (im *importer) byNumber(m processgroups.Mode) (*ir.Group, error) {
	all := make([]int, im.procs.Count(m))
	for i := range all {
		all[i] = i
	}
	return im.declared(im.procs.Ranks(m, [][]int{all}))
}

func permute(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	m, err := im.procs.Mode(im.op, true)
	if err != nil {
		return nil, err
	}
	pairs, err := im.ints("source_target_pairs")
	if err != nil {
		return nil, err
	}
	g, err := im.byNumber(m)
	if err != nil {
		return nil, err
	}
	seen := map[[2]int64]bool{} // look-up only
	for i, n := range pairs {
		end := [2]int64{int64(i % 2), n}
		if n < 0 || n >= int64(im.procs.Count(m)) || seen[end] || len(pairs)%2 != 0 {
			return nil, im.errorf("source_target_pairs: %d is not one of %d processes, or is a %s twice", n, im.procs.Count(m), []string{"source", "target"}[i%2])
		}
		seen[end] = true
	}
	return im.decomposed(im.launched(ir.OpCollectivePermute, g, ir.A("pairs", pairs), args))
}

// collectiveBroadcast gives the ranks of each group what its first one has, and those of no
// group zeros.
func collectiveBroadcast(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	groups, all, err := im.procs.Groups(im.op, true)
	if err != nil {
		return nil, err
	}
	if !all || uneven(groups) {
		return im.decomposed(im.ragged(groups, args, func(own []*ir.Value) (*ir.Value, error) { return own[0], nil }))
	}
	g, err := im.declared(groups)
	if err != nil {
		return nil, err
	}
	return im.decomposed(im.launched(ir.OpBroadcast, g, ir.A("root", int64(0)), args))
}

// uneven reports whether groups differ in size, as concert's do not.
func uneven(groups [][]int) bool {
	return slices.ContainsFunc(groups, func(g []int) bool { return len(g) != len(groups[0]) })
}

package progen

import "github.com/seed-ee968945/concert/ir"

// idiom adds what programs do whose tensors are spread over ranks: a few operations that
// belong together, which other steps read and write like all else.
func (g *gen) idiom() bool {
	if len(g.flights) > 3 {
		return false
	}
	return idioms[g.r.IntN(len(idioms))](g)
}

var idioms = []func(*gen) bool{(*gen).pieceOfSum, (*gen).sumOfSums, (*gen).overGrid, (*gen).overGrid, (*gen).otherPiece, (*gen).sumInWide, (*gen).ownPiece, (*gen).lookUp, (*gen).addRows}

// rowsAndColumns declares two groups that cut the ranks into rows of n and into columns.
func (g *gen) rowsAndColumns(ranks []int, n int) {
	columns := make([][]int, n)
	var rows [][]int
	for i := 0; i < len(ranks); i += n {
		rows = append(rows, ranks[i:i+n])
		for k := range n {
			columns[k] = append(columns[k], ranks[i+k])
		}
	}
	g.grid = []*group{{"rows", rows}, {"columns", columns}}
	if g.r.IntN(2) == 0 {
		g.grid[0], g.grid[1] = g.grid[1], g.grid[0]
	}
	g.groups = append(g.groups, g.grid...)
}

// even is a tensor that all groups cut evenly along its two dimensions, or any tensor.
func (g *gen) even() *value {
	n := int64(g.world)
	cut := func(v *value) bool {
		s, ok := v.typ.Shape().Static()
		return ok && len(s) > 1 && s[0] > 0 && s[0]%n == 0 && s[1] > 0 && s[1]%n == 0 && uniform(v)
	}
	switch g.r.IntN(3) {
	case 0:
		return g.pick(uniform)
	case 1:
		if len(g.inputs) < 8 {
			return g.given(ir.Tensor(g.dtype(), n, n), "")
		}
	}
	if v := g.pick(cut); v != nil {
		return v
	}
	return g.pick(uniform)
}

// aroundProduct multiplies rows that a collective has brought, or that one reduces, or both.
func (g *gen) aroundProduct() bool {
	if len(g.inputs) > 6 {
		return false
	}
	gr, dt := g.pickGroup(), []ir.DType{ir.F32, ir.BF16}[g.r.IntN(2)]
	n, rows := int64(gr.size()), 4+g.r.Int64N(6)
	gathers, before := g.r.IntN(2) == 0, g.one([]ir.Op{ir.OpAllReduce, ir.OpReduceScatter})
	if !gathers {
		rows *= n
	}
	x := g.given(ir.Tensor(dt, rows, 3), "")
	if gathers {
		if x = g.through(ir.OpAllGather, gr, 0, "", x); x == nil {
			return false
		}
	}
	for _, columns := range []int64{2, 3}[:1+g.r.IntN(2)] {
		k, _ := x.typ.Shape()[1].Const()
		y := g.emit(ir.OpMatmul, nil, nil, []*value{x, g.given(ir.Tensor(dt, k, columns), "")})
		if y == nil {
			return false
		}
		if x = y[0]; g.r.IntN(2) == 0 {
			x = g.emit(ir.OpRelu, nil, nil, []*value{x})[0]
		}
		if g.r.IntN(2) == 0 {
			x = g.emit(ir.OpSoftmax, nil, list("dim", 1), []*value{x})[0]
		}
	}
	return gathers && g.r.IntN(2) == 0 || g.through(before, gr, 0, "sum", x) != nil
}

// pieceOfSum reduces or gathers, and keeps a slice, or the rank's piece, of that or a view.
func (g *gen) pieceOfSum() bool {
	gr, dim := g.pickGroup(), g.r.IntN(2)
	y := g.through(g.one([]ir.Op{ir.OpAllReduce, ir.OpAllReduce, ir.OpAllGather}), gr, dim, g.reduction(), g.even())
	if y == nil {
		return false
	}
	rank := y.typ.Rank()
	if rank > 0 && g.r.IntN(4) == 0 {
		return g.slice(y, g.r.IntN(rank))
	}
	if rank > 0 && g.r.IntN(2) == 0 {
		var out []*value
		switch sizes, static := y.typ.Shape().Static(); {
		case g.r.IntN(2) == 0:
			out = g.emit(ir.OpUnsqueeze, nil, list("dim", g.r.IntN(rank+1)), []*value{y})
		case static && y.typ.Contiguous():
			out = g.emit(ir.OpView, nil, nil, []*value{y}, ir.Tensor(y.typ.DType(), g.regroup(sizes)...))
		}
		if len(out) > 0 {
			y = out[0]
		}
	}
	if h := g.pickGroup(); h.size() < gr.size() {
		gr = h
	}
	return g.emit(ir.OpShard, gr, list("dim", dim), []*value{y}) != nil
}

// sumOfSums combines what two reductions give.
func (g *gen) sumOfSums() bool {
	gr, dim, red := g.pickGroup(), g.r.IntN(2), g.reduction()
	op := g.one([]ir.Op{ir.OpAllReduce, ir.OpReduceScatter})
	x := g.even()
	if x == nil {
		return false
	}
	y := g.through(op, gr, dim, red, x)
	if y == nil {
		return false
	}
	other := g.pick(func(v *value) bool { return v != x && v.typ.SameTensor(x.typ) })
	if other == nil && len(g.inputs) < 8 {
		other = g.given(ir.TensorOf(x.typ.DType(), x.typ.Shape()), "")
	}
	z := g.through(op, gr, dim, red, other)
	with := map[string]ir.Op{"product": ir.OpMul, "min": ir.OpMinimum, "max": ir.OpMaximum}[red] // look-up only
	if with == 0 || g.r.IntN(4) == 0 {
		with = g.one([]ir.Op{ir.OpAdd, ir.OpAdd, ir.OpSub, ir.OpMul})
	}
	return z != nil && g.emit(with, nil, nil, []*value{y, z}) != nil
}

// overGrid follows a tensor along the rows of a grid of ranks and then along its columns.
func (g *gen) overGrid() bool {
	if g.grid == nil {
		return false
	}
	dim, red := g.r.IntN(2), g.reduction()
	ops := [][]ir.Op{{ir.OpAllGather, ir.OpAllGather}, {ir.OpAllReduce, ir.OpAllReduce}, {ir.OpReduceScatter, ir.OpReduceScatter},
		{ir.OpAllGather, ir.OpAllReduce}, {ir.OpAllReduce, ir.OpReduceScatter}, {ir.OpReduceScatter, ir.OpAllReduce}}[g.r.IntN(6)]
	y := g.through(ops[0], g.grid[0], dim, red, g.even())
	return y != nil && g.through(ops[1], g.grid[1], dim, red, y) != nil
}

// otherPiece gathers along one dimension and keeps a piece along another.
func (g *gen) otherPiece() bool {
	gr, dim := g.pickGroup(), g.r.IntN(2)
	x := g.pick(func(v *value) bool {
		_, err := ir.Infer(ir.OpShard, gr.ir(), list("dim", 1-dim), []ir.Type{v.typ})
		return err == nil && uniform(v)
	})
	y := g.through(ir.OpAllGather, gr, dim, "", x)
	return y != nil && g.emit(ir.OpShard, gr, list("dim", 1-dim), []*value{y}) != nil
}

// sumInWide reduces numbers in a wider type than theirs.
func (g *gen) sumInWide() bool {
	x := g.pick(func(v *value) bool { return isFloat(v) && v.typ.DType().Size() == 2 && uniform(v) })
	if x == nil {
		return false
	}
	wide := g.emit(ir.OpConvert, nil, nil, []*value{x}, ir.TensorOf(ir.F32, x.typ.Shape()))
	if wide == nil {
		return false
	}
	y := g.through(g.one([]ir.Op{ir.OpAllReduce, ir.OpReduceScatter}), g.pickGroup(), g.r.IntN(2), g.reduction(), wide[0])
	return y != nil && g.emit(ir.OpConvert, nil, nil, []*value{y}, ir.TensorOf(x.typ.DType(), y.typ.Shape())) != nil
}

// ownPiece is the rank's piece of a tensor without a shard of that: by the rank's places,
// or by an exchange of what all ranks have.
func (g *gen) ownPiece() bool {
	gr := g.pickGroup()
	n := int64(gr.size())
	x := g.pick(func(v *value) bool {
		s, ok := v.typ.Shape().Static()
		return ok && len(s) > 0 && s[0] > 0 && s[0]%n == 0 && uniform(v)
	})
	if x == nil {
		return false
	}
	rows, _ := x.typ.Shape()[0].Const()
	if g.r.IntN(2) == 0 {
		y := g.through(ir.OpAllToAll, gr, 0, "", g.through(ir.OpAllReduce, gr, 0, g.reduction(), x))
		k := g.r.Int64N(n) * (rows / n)
		return y != nil && g.emit(ir.OpSlice, nil, list("dim", 0, "start", k, "end", k+rows/n), []*value{y}) != nil
	}
	places := g.emit(ir.OpIota, nil, nil, nil, ir.Tensor(ir.I64, rows))
	own := g.emit(ir.OpShard, gr, list("dim", 0), places)
	if own == nil {
		return false
	}
	if x.typ.Rank() == 2 && g.r.IntN(2) == 0 {
		return g.emit(ir.OpEmbedding, nil, nil, []*value{x, own[0]}) != nil
	}
	return g.emit(ir.OpIndex, nil, list("dims", []int64{0}), []*value{x, own[0]}) != nil
}

// table draws the type of a piece of a table, so many of which have fewer elements than
// a tensor may have, and positions in the whole.
func (g *gen) table(ranks int) (piece ir.Type, ids *value) {
	row := int64(1 + g.r.IntN(4))
	run := maxElems / (row * int64(ranks)) / int64(1+g.r.IntN(3))
	return ir.Tensor(g.dtype(), run, row), g.positions(int64(1+g.r.IntN(3)), run*int64(ranks), false)
}

// lookUp gathers a table and reads rows of it.
func (g *gen) lookUp() bool {
	gr := g.pickGroup()
	t, ids := g.table(gr.size())
	y := g.through(ir.OpAllGather, gr, 0, "", g.some(t))
	return y != nil && ids != nil && g.emit(ir.OpEmbedding, nil, nil, []*value{y, ids}) != nil
}

// addRows adds rows to a table of zeros, and sums the tables of all ranks.
func (g *gen) addRows() bool {
	gr := g.pickGroup()
	t, ids := g.table(gr.size())
	run, _ := t.Shape()[0].Const()
	if ids == nil {
		return false
	}
	zeros := g.emit(ir.OpFull, nil, list("value", 0.0), nil, ir.TensorOf(t.DType(), ir.Shape{ir.D(run * int64(gr.size())), t.Shape()[1]}))
	rows := g.some(ir.TensorOf(t.DType(), ir.Shape{ids.typ.Shape()[0], t.Shape()[1]}))
	if zeros == nil || rows == nil {
		return false
	}
	sum := g.emit(ir.OpIndexPut, nil, list("accumulate", true, "dims", []int64{0}), []*value{zeros[0], rows, ids})
	if sum != nil && g.r.IntN(3) == 0 {
		sum = g.emit(ir.OpConvert, nil, nil, sum, ir.TensorOf(g.dtype(), sum[0].typ.Shape()))
	}
	return sum != nil && g.through(ir.OpReduceScatter, gr, 0, []string{"sum", "avg"}[g.r.IntN(2)], sum[0]) != nil
}

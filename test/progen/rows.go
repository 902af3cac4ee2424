package progen

import (
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// What programs are full of whose loops were unrolled: tables that are written row by row, sums
// made of shifted sums, running sums from either end, pieces that begin at sizes of run time.
var longForms = []func(*gen){(*gen).rowByRow, (*gen).rowByRow, (*gen).shiftedSums, (*gen).runningSum, (*gen).sizedPieces}

func (g *gen) longForm() { longForms[g.r.IntN(len(longForms))](g) }

// some2 is a result in place of another value, where an operation gives one.
func some2(l []*value, x *value) *value {
	if v := first(l); v != nil {
		return v
	}
	return x
}

// rowByRow writes some rows of a table after the other, of which each may follow from one in
// front of it, and reads some.
func (g *gen) rowByRow() {
	dt, d, rows, width := g.dtype(), 0, 2+g.r.Int64N(20), 1+g.r.Int64N(4)
	of := func(n int64) ir.Type { return ir.Tensor(dt, n, width) }
	switch g.r.IntN(5) {
	case 0:
		d, of = 1, func(n int64) ir.Type { return ir.Tensor(dt, 1, n, width) }
	case 1:
		d, of = 1, func(n int64) ir.Type { return ir.Tensor(dt, width, n) }
	}
	part := func(x *value) *value {
		start := g.r.Int64N(rows)
		return first(g.emit(ir.OpSlice, nil, list("dim", d, "start", start, "end", start+1+g.r.Int64N(min(rows-start, 3))), []*value{x}))
	}
	x, at := g.some(of(rows)), g.r.Int64N(rows)
	for range 3 + g.r.IntN(12) {
		if x == nil {
			return
		}
		row := g.some(of(1 + g.r.Int64N(2)))
		if g.r.IntN(2) == 0 {
			if row = part(x); row != nil && g.r.IntN(3) > 0 {
				row = some2(g.emit(g.one([]ir.Op{ir.OpAdd, ir.OpMaximum}), nil, nil, []*value{row, row}), row)
			}
		}
		if row == nil {
			return
		}
		n, _ := row.typ.Shape()[d].Const()
		if g.r.IntN(4) == 0 || at+n > rows {
			at = g.r.Int64N(rows - n + 1)
		}
		x = first(g.emit(ir.OpSliceScatter, nil, list("dim", d, "start", at, "end", at+n), []*value{x, row}))
		if at += n; x != nil && g.r.IntN(8) == 0 {
			x = some2(g.emit(ir.OpClone, nil, nil, []*value{x}), x)
		}
	}
	for range g.r.IntN(4) {
		if y := part(x); y != nil && g.r.IntN(2) == 0 {
			g.emit(ir.OpMul, nil, nil, []*value{y, y})
		}
		g.emit(ir.OpSelect, nil, list("dim", d, "index", g.r.Int64N(rows)), []*value{x})
	}
}

// long is a tensor with some elements along a dimension.
func (g *gen) long() (x *value, d int, n int64) {
	x = g.pick(func(v *value) bool {
		s, ok := v.typ.Shape().Static()
		return ok && len(s) > 0 && s[len(s)-1] > 3
	})
	if x == nil {
		x = g.given(ir.Tensor(g.dtype(), 2, 12), "")
	}
	d = x.typ.Rank() - 1
	n, _ = x.typ.Shape()[d].Const()
	return x, d, n
}

// shiftedSums adds a tensor and itself some places further on, again and again: what is left of
// it, or all behind zeros.
func (g *gen) shiftedSums() {
	x, d, n := g.long()
	op, keeps := g.one([]ir.Op{ir.OpAdd, ir.OpAdd, ir.OpSub, ir.OpMaximum}), g.r.IntN(2) == 0
	by := int64(1)
	for range 2 + g.r.IntN(10) {
		if by >= n || x == nil {
			return
		}
		ahead := first(g.emit(ir.OpSlice, nil, list("dim", d, "start", int64(0), "end", n-by), []*value{x}))
		if ahead == nil {
			return
		}
		if keeps {
			shape := x.typ.Shape()
			shape = append(append(ir.Shape{}, shape[:d]...), ir.D(by))
			zeros := first(g.emit(ir.OpFull, nil, list("value", int64(0)), nil, ir.TensorOf(x.typ.DType(), shape)))
			if zeros != nil {
				zeros = first(g.emit(ir.OpCat, nil, list("dim", d), []*value{zeros, ahead}))
			}
			if zeros == nil {
				return
			}
			x, by = first(g.emit(op, nil, nil, []*value{x, zeros})), 2*by
			continue
		}
		behind := first(g.emit(ir.OpSlice, nil, list("dim", d, "start", by, "end", n), []*value{x}))
		if behind == nil {
			return
		}
		x, n = first(g.emit(op, nil, nil, []*value{ahead, behind})), n-by
	}
}

// runningSum is a running sum, now and then from the end.
func (g *gen) runningSum() {
	x, d, n := g.long()
	turned := func(x *value) *value {
		at := first(g.emit(ir.OpIota, nil, list("start", n-1, "step", int64(-1)), nil, ir.Tensor(ir.I64, n)))
		if at == nil {
			return x
		}
		return some2(g.emit(ir.OpIndex, nil, list("dims", []int64{int64(d)}), []*value{x, at}), x)
	}
	if g.r.IntN(3) == 0 {
		g.emit(ir.OpCumsum, nil, list("dim", d), []*value{x})
		return
	}
	if y := first(g.emit(ir.OpCumsum, nil, list("dim", d), []*value{turned(x)})); y != nil {
		turned(y)
	}
}

// sizedPieces takes two pieces of a tensor of which sizes say where one ends and the next begins,
// as a split by sizes does, and puts them together.
func (g *gen) sizedPieces() {
	if len(g.syms) > 2 || len(g.inputs) > 8 {
		return
	}
	a, b := g.symbol(1+g.r.Int64N(4), false), g.symbol(1+g.r.Int64N(4), false)
	x := g.given(ir.Tensor(g.dtype(), a.max+b.max, 1+g.r.Int64N(3)), "")
	one := first(g.emit(ir.OpFull, nil, list("value", int64(1)), nil, ir.Tensor(ir.I64)))
	sizes := ir.Shape{g.parse(a.name), g.parse(b.name)}
	ones := first(g.emit(ir.OpExpand, nil, nil, []*value{one}, ir.TensorOf(ir.I64, sizes[:1]).WithStrides([]int64{0})))
	if ones == nil {
		return
	}
	count := first(g.emit(ir.OpSum, nil, list("dims", []int64{0}), []*value{ones}))
	var pieces []*value
	for k, n := range sizes {
		at := first(g.emit(ir.OpIota, nil, attr.List(nil), nil, ir.TensorOf(ir.I64, ir.Shape{n})))
		if k > 0 && at != nil && count != nil {
			at = first(g.emit(ir.OpAdd, nil, nil, []*value{at, count}))
		}
		if at == nil {
			return
		}
		if y := first(g.emit(ir.OpIndex, nil, list("dims", []int64{0}), []*value{x, at})); y != nil {
			pieces = append(pieces, y)
		}
	}
	if len(pieces) == 2 {
		g.emit(ir.OpCat, nil, list("dim", 0), []*value{pieces[1], pieces[0]})
	}
}

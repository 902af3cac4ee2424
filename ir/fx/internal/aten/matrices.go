package aten

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// matrixOps factor and solve by halves.
var matrixOps = []row{
	{"aten.linalg_cholesky_ex.default", "self * upper check_errors", cholesky},
	{"aten.cholesky_solve.default", "B self upper", choleskySolve},
	{"aten.linalg_solve_triangular.default", "self B * upper left unitriangular", solveTriangular},
}

// emitter makes what package decompose emits helpers of the traced node.
type emitter struct{ *call }

func (e emitter) Op(op ir.Op, group *ir.Group, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) []*ir.Value {
	return []*ir.Value{e.MakeAs(op, group, attrs, args, types...)}
}

// cholesky gives the factor and 0 for each matrix: those that are not positive definite have
// a factor that is not a number.
func cholesky(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) != 2 || x.Type().Rank() < 2 {
		return traced.ErrForm
	}
	l, err := decompose.Cholesky(emitter{c}, x, !c.Bool("upper", false))
	if err != nil {
		return traced.ErrForm
	}
	return c.Settle(l, c.Filled(attr.Int(0), ts[1].DType(), traced.SizesOf(ts[1])...))
}

// choleskySolve solves by a factor and its transpose.
func choleskySolve(c *call) error {
	b, l, upper := c.Tensor("B"), c.Tensor("self"), c.Bool("upper", false)
	if c.Err != nil {
		return c.Err
	}
	b, l, ok := c.batched(b, l)
	if !ok {
		return traced.ErrForm
	}
	y, err := decompose.TriangularSolve(emitter{c}, l, b, true, !upper, false, upper)
	if err == nil {
		y, err = decompose.TriangularSolve(emitter{c}, l, y, true, !upper, false, !upper)
	}
	if err != nil {
		return traced.ErrForm
	}
	return c.Settle(y)
}

func solveTriangular(c *call) error {
	a, b := c.Tensor("self"), c.Tensor("B")
	upper, left, ones := c.Bool("upper", false), c.Bool("left", true), c.Bool("unitriangular", false)
	if c.Err != nil {
		return c.Err
	}
	b, a, ok := c.batched(b, a)
	if !ok {
		return traced.ErrForm
	}
	x, err := decompose.TriangularSolve(emitter{c}, a, b, left, !upper, ones, false)
	if err != nil {
		return traced.ErrForm
	}
	return c.Settle(x)
}

// batched gives both the dimensions before the matrices that they broadcast to.
func (c *call) batched(b, a *ir.Value) (*ir.Value, *ir.Value, bool) {
	bs, as := traced.Static(b), traced.Static(a)
	if len(bs) < 2 || len(as) < 2 {
		return b, a, false
	}
	lead := broadcastShape(bs[:len(bs)-2], as[:len(as)-2])
	b, fits := c.Broadcast(b, slices.Concat(lead, bs[len(bs)-2:]))
	a, fit := c.Broadcast(a, slices.Concat(lead, as[len(as)-2:]))
	return b, a, fits && fit
}

// broadcastShape is the shape of two, the larger size of each dimension.
func broadcastShape(a, b []int64) []int64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, n := range b {
		if d := len(a) - len(b) + i; out[d] == 1 {
			out[d] = n
		}
	}
	return out
}

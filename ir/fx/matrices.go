package fx

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
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
	given := make([]ir.Type, len(args))
	for i, a := range args {
		given[i] = a.Type()
	}
	out, err := ir.Infer(op, group, attrs, given, types...)
	if err != nil {
		if e.err == nil {
			e.err = e.fail("args", "arguments", "%s: %v", e.n.Target, err)
		}
		return []*ir.Value{e.none()}
	}
	return []*ir.Value{e.helper(op, attrs, out[0], args...)}
}

// cholesky gives the factor and 0 for each matrix: those that are not positive definite have
// a factor that is not a number.
func cholesky(c *call) error {
	x := c.tensor("self")
	if c.err != nil {
		return c.err
	}
	ts, err := c.types()
	if err != nil {
		return err
	}
	if len(ts) != 2 || x.Type().Rank() < 2 {
		return errForm
	}
	l, err := decompose.Cholesky(emitter{c}, x, !c.bool("upper", false))
	if err != nil {
		return errForm
	}
	return c.settle(l, c.filled(attr.Int(0), ts[1].DType(), sizesOf(ts[1])...))
}

// choleskySolve solves by a factor and its transpose.
func choleskySolve(c *call) error {
	b, l, upper := c.tensor("B"), c.tensor("self"), c.bool("upper", false)
	if c.err != nil {
		return c.err
	}
	b, l, ok := c.batched(b, l)
	if !ok {
		return errForm
	}
	y, err := decompose.TriangularSolve(emitter{c}, l, b, true, !upper, false, upper)
	if err == nil {
		y, err = decompose.TriangularSolve(emitter{c}, l, y, true, !upper, false, !upper)
	}
	if err != nil {
		return errForm
	}
	return c.settle(y)
}

func solveTriangular(c *call) error {
	a, b := c.tensor("self"), c.tensor("B")
	upper, left, ones := c.bool("upper", false), c.bool("left", true), c.bool("unitriangular", false)
	if c.err != nil {
		return c.err
	}
	b, a, ok := c.batched(b, a)
	if !ok {
		return errForm
	}
	x, err := decompose.TriangularSolve(emitter{c}, a, b, left, !upper, ones, false)
	if err != nil {
		return errForm
	}
	return c.settle(x)
}

// batched gives both the dimensions before the matrices that they broadcast to.
func (c *call) batched(b, a *ir.Value) (*ir.Value, *ir.Value, bool) {
	bs, as := static(b), static(a)
	if len(bs) < 2 || len(as) < 2 {
		return b, a, false
	}
	lead := broadcastShape(bs[:len(bs)-2], as[:len(as)-2])
	b, fits := c.broadcast(b, slices.Concat(lead, bs[len(bs)-2:]))
	a, fit := c.broadcast(a, slices.Concat(lead, as[len(as)-2:]))
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

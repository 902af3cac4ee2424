package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/dimensions"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// side is an operand of a product as [batch, rows, columns] or [batch, columns, rows].
type side struct {
	v                        *ir.Value
	batch, free, contracting []int64
}

// sizes are those of some dimensions.
func (s side) sizes(dims []int64) []int64 {
	out := make([]int64, len(dims))
	for i, d := range dims {
		out[i] = sizes(s.v)[d]
	}
	return out
}

// matrix brings a side to three dimensions, in the order of groups of its own.
func (im *importer) matrix(s side, groups ...[]int64) (*ir.Value, error) {
	var order, to []int64
	for _, g := range groups {
		order, to = append(order, g...), append(to, intmath.Product(s.sizes(g)))
	}
	v, err := im.permuted(s.v, order)
	if err != nil {
		return nil, err
	}
	return im.viewed(v, to)
}

// sideOf checks the dimensions of an operand and finds those that are in the result only once.
func (im *importer) sideOf(v *ir.Value, batch, contracting []int64) (side, error) {
	s := side{v: v, batch: batch, contracting: contracting}
	all := append(slices.Clone(batch), contracting...)
	if err := im.checkDims(all, len(sizes(v)), "dimensions of a product"); err != nil {
		return s, err
	}
	for d := range sizes(v) {
		if !slices.Contains(all, int64(d)) {
			s.free = append(s.free, int64(d))
		}
	}
	return s, nil
}

// dotGeneral is a product of batches of matrices.
func dotGeneral(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	batch, contracting, err := dimensions.Pairs(im.m.Module, o)
	if err != nil {
		return nil, err
	}
	lb, rb, lc, rc := batch[0], batch[1], contracting[0], contracting[1]
	result, err := im.resultDType()
	if err != nil {
		return nil, err
	}
	args, dt, err := im.algorithmic(args, result)
	if err != nil {
		return nil, err
	}
	l, err := im.sideOf(args[0], lb, lc)
	if err != nil {
		return nil, err
	}
	r, err := im.sideOf(args[1], rb, rc)
	if err != nil {
		return nil, err
	}
	for _, p := range [][2][]int64{{lb, rb}, {lc, rc}} {
		for i := range p[0] {
			if m, n := sizes(l.v)[p[0][i]], sizes(r.v)[p[1][i]]; m != n {
				return nil, im.errorf("dimension %d of operand 0 has %d elements, dimension %d of operand 1 has %d", p[0][i], m, p[1][i], n)
			}
		}
	}
	v, err := im.product(l, r, dt)
	if err != nil {
		return nil, err
	}
	return im.one(im.converted(v, result))
}

// product multiplies two sides; the result has the batch, then what is free on either side.
func (im *importer) product(l, r side, dt ir.DType) (*ir.Value, error) {
	shape := slices.Concat(l.sizes(l.batch), l.sizes(l.free), r.sizes(r.free))
	a, err := im.matrix(l, l.batch, l.free, l.contracting)
	if err != nil {
		return nil, err
	}
	b, err := im.matrix(r, r.batch, r.contracting, r.free)
	if err != nil {
		return nil, err
	}
	if len(l.batch) == 0 {
		if a, err = im.viewed(a, sizes(a)[1:]); err != nil {
			return nil, err
		}
		if b, err = im.viewed(b, sizes(b)[1:]); err != nil {
			return nil, err
		}
	}
	out := slices.Clone(sizes(a))
	out[len(out)-1] = sizes(b)[len(out)-1]
	v, err := im.emit(ir.OpMatmul, nil, []*ir.Value{a, b}, ir.Tensor(dt, out...))
	if err != nil {
		return nil, err
	}
	return im.viewed(v, shape)
}

package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// raggedDot is a product of which one dimension is cut into groups, that lie one behind the
// other and are of the sizes that the last operand says: rows, each group with a matrix of its
// own, or what is summed over, each group with a result of its own; of batches that are cut every
// one is multiplied as it is. Each batch has its own groups, or all have the same.
func raggedDot(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	var d struct{ lb, rb, lc, rc, ragged, group []int64 }
	if err := im.numbers("ragged_dot_dimension_numbers", map[string]*[]int64{
		"lhs_batching_dimensions": &d.lb, "rhs_batching_dimensions": &d.rb, "lhs_contracting_dimensions": &d.lc, "rhs_contracting_dimensions": &d.rc,
		"lhs_ragged_dimensions": &d.ragged, "rhs_group_dimensions": &d.group}); err != nil {
		return nil, err
	}
	l, err := im.sideOf(args[0], d.lb, d.lc)
	if err != nil {
		return nil, err
	}
	r, err := im.sideOf(args[1], append(slices.Clone(d.rb), d.group...), d.rc)
	if err != nil {
		return nil, err
	}
	dt, err := im.resultDType()
	if err != nil {
		return nil, err
	}
	batch, of := l.sizes(d.lb), sizes(args[2])
	if !slices.Equal(batch, r.sizes(d.rb)) || !slices.Equal(l.sizes(d.lc), r.sizes(d.rc)) {
		return nil, im.errorf("ragged_dot of %s and %s", in[0].typ, in[1].typ)
	}
	if len(d.ragged) == 1 && slices.Contains(d.lb, d.ragged[0]) && len(d.group) == 0 {
		return im.one(im.product(l, r, dt))
	}
	n, summed := intmath.Product(batch), slices.Equal(d.ragged, l.contracting)
	if n == 0 || intmath.Product(of) == 0 || len(of) == 0 || summed == (len(d.group) == 1) || !summed && !slices.Equal(d.ragged, l.free) || len(of) != 1 && !slices.Equal(of, append(slices.Clone(batch), of[len(of)-1:]...)) {
		return nil, im.errorf("op not supported: %s of ragged dimensions beside others, of no batches or of no groups", o.Name)
	}
	shape := slices.Concat(batch, l.sizes(l.free), r.sizes(r.free))
	order, groups := [][]int64{l.batch, l.free, l.contracting}, [][]int64{d.rb, d.group, r.contracting, r.free}
	if summed {
		shape = append(slices.Clone(of[len(of)-1:]), shape...)
		order, groups = [][]int64{l.free, slices.Concat(l.batch, l.contracting)}, [][]int64{slices.Concat(r.batch, r.contracting), r.free}
	}
	a, err := im.matrix(l, order...)
	if err != nil {
		return nil, err
	}
	b, err := im.matrix(r, groups...)
	if err != nil {
		return nil, err
	}
	if summed {
		return im.one(im.viewed(decompose.RaggedSums(im.cur, a, b, args[2], n, dt), shape))
	}
	return im.one(im.viewed(decompose.RaggedRows(im.cur, a, b, args[2], dt), shape))
}

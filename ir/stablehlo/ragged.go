package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// raggedDot is a product of which one dimension is cut into groups, that lie one behind the
// other and are of the sizes that the last operand says: rows, each group with a matrix of its
// own, or what is summed over, each group with a result of its own.
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
	r, err := im.sideOf(args[1], d.group, d.rc)
	if err != nil {
		return nil, err
	}
	summed := slices.Equal(d.ragged, l.contracting)
	if len(d.lb)+len(d.rb) > 0 || len(sizes(args[2])) != 1 || summed == (len(d.group) == 1) || !summed && !slices.Equal(d.ragged, l.free) {
		return nil, im.errorf("op not supported: %s of batches, or of ragged dimensions beside others", o.Name)
	}
	a, err := im.matrix(l, l.free, l.contracting)
	if err != nil {
		return nil, err
	}
	groups := [][]int64{r.batch, r.contracting, r.free}
	shape := []int64{sizes(a)[0]}
	if summed {
		groups, shape = groups[1:], append(slices.Clone(sizes(args[2])), shape...)
	}
	b, err := im.matrix(r, groups...)
	if err != nil {
		return nil, err
	}
	ends, err := im.emit(ir.OpCumsum, ir.A("dim", int64(0)), args[2:])
	if err != nil {
		return nil, err
	}
	dt, err := im.resultDType()
	if err != nil {
		return nil, err
	}
	v, err := im.emit(ir.OpGroupedMatmul, nil, []*ir.Value{a, b, ends}, ir.Tensor(dt, append(shape, sizes(b)[len(sizes(b))-1])...))
	if err != nil {
		return nil, err
	}
	return im.one(im.viewed(v, slices.Concat(sizes(v)[:len(shape)-1], l.sizes(l.free), r.sizes(r.free))))
}

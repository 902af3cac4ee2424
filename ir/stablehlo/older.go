package stablehlo

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports operations of older programs, which are others by now.

// einsum imports a sum of products, or of one operand, whose dimensions letters name.
func einsum(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	a, ok := o.Attr("einsum_config")
	if !ok {
		a, _ = o.Attr("config")
	}
	operands, out, ok := strings.Cut(strings.ReplaceAll(a.Text, " ", ""), "->")
	labels := strings.Split(operands, ",")
	if !ok || len(labels) != len(in) {
		return nil, im.errorf("einsum_config %q: want dimensions of %d operands and of the result, as in ab,bc->ac", a.Text, len(in))
	}
	args, dt, err := im.typedArgs(in)
	if err != nil {
		return nil, err
	}
	for i, l := range labels {
		if len(l) != len(sizes(args[i])) || repeats(l) || repeats(out) || strings.ContainsAny(l+out, ".") {
			return nil, im.errorf("op not supported: einsum_config %q of %s", a.Text, in[i].typ)
		}
		var summed []int64
		kept := strings.Map(func(c rune) rune {
			if strings.ContainsRune(out, c) || len(labels) == 2 && strings.ContainsRune(labels[1-i], c) {
				return c
			}
			summed = append(summed, int64(strings.IndexRune(l, c)))
			return -1
		}, l)
		if labels[i] = kept; len(summed) > 0 {
			if args[i], err = im.emit(ir.OpSum, ir.A("dims", summed), args[i:i+1]); err != nil {
				return nil, err
			}
			if args[i], err = im.converted(args[i], dt); err != nil {
				return nil, err
			}
		}
	}
	x, have := args[0], labels[0]
	if len(labels) == 2 {
		if x, have, err = im.multiplied(args, labels, out, dt); err != nil {
			return nil, err
		}
	}
	var order []int64
	for _, c := range out {
		if d := strings.IndexRune(have, c); d >= 0 {
			order = append(order, int64(d))
		}
	}
	if len(order) != len(out) || len(order) != len(have) {
		return nil, im.errorf("einsum_config %q: the result has dimensions that operands lack", a.Text)
	}
	return im.one(im.permuted(x, order))
}

// repeats reports whether a letter appears twice.
func repeats(labels string) bool {
	for i := range labels {
		if strings.IndexByte(labels[i+1:], labels[i]) >= 0 {
			return true
		}
	}
	return false
}

// multiplied is the product of two operands, of which each dimension is in the other or in the
// result, and what its dimensions are.
func (im *importer) multiplied(args []*ir.Value, labels []string, out string, dt ir.DType) (*ir.Value, string, error) {
	var batch, contracting [2][]int64
	var have, free string
	for i, c := range labels[0] {
		j := strings.IndexRune(labels[1], c)
		to := &batch
		switch {
		case j < 0:
			free += string(c)
			continue
		case strings.ContainsRune(out, c):
			have += string(c)
		default:
			to = &contracting
		}
		if m, n := sizes(args[0])[i], sizes(args[1])[j]; m != n {
			return nil, "", im.errorf("dimension %c of operand 0 has %d elements, of operand 1 %d", c, m, n)
		}
		to[0], to[1] = append(to[0], int64(i)), append(to[1], int64(j))
	}
	for _, c := range labels[1] {
		if !strings.ContainsRune(labels[0], c) {
			free += string(c)
		}
	}
	l, err := im.sideOf(args[0], batch[0], contracting[0])
	if err != nil {
		return nil, "", err
	}
	r, err := im.sideOf(args[1], batch[1], contracting[1])
	if err != nil {
		return nil, "", err
	}
	x, err := im.product(l, r, dt)
	return x, have + free, err
}

// indexSelect takes elements of a dimension, for each place of the first dimensions others.
func indexSelect(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	dim, err := im.integer("dim")
	if err != nil {
		return nil, err
	}
	batch, err := im.integer("batch_dims")
	if err != nil {
		return nil, err
	}
	shape, places := sizes(args[0]), int64(len(sizes(args[1])))
	if dim < 0 {
		dim += int64(len(shape))
	}
	if batch < 0 {
		batch += places
	}
	if batch < 0 || batch > dim || batch > places || dim >= int64(len(shape)) {
		return nil, im.errorf("%s along dimension %d of %s with %d dimensions of batches", im.op.Name, dim, in[0].typ, batch)
	}
	d := decompose.GatherDims{CollapsedSliceDims: []int64{dim}, StartIndexMap: []int64{dim}, IndexVectorDim: places, SliceSizes: slices.Clone(shape)}
	d.SliceSizes[dim] = 1
	for k := range int64(len(shape)) {
		switch {
		case k < batch:
			d.OperandBatchingDims, d.StartIndicesBatchingDims = append(d.OperandBatchingDims, k), append(d.StartIndicesBatchingDims, k)
			d.SliceSizes[k] = 1
		case k < dim:
			d.OffsetDims = append(d.OffsetDims, k)
		case k > dim:
			d.OffsetDims = append(d.OffsetDims, k+places-batch-1)
		}
	}
	return im.decomposed1(decompose.Gather(im.cur, args[0], args[1], d))
}

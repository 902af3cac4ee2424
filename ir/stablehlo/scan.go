package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// scan runs its body on one slice of the inputs after the other, and on what it carries. The
// iterations are unrolled. First among results are the slices that it gives, put together.
func scan(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(o.Regions) != 1 {
		return nil, im.errorf("%s of %d regions, want a body", o.Name, len(o.Regions))
	}
	inputs, err := im.segment("operandSegmentSizes", len(in))
	if err != nil {
		return nil, err
	}
	dim, err := im.integer("dimension")
	if err != nil {
		return nil, err
	}
	trips := int64(-1)
	if _, ok := o.Attr("scan_dim_size"); ok { // without inputs nothing else says it
		if trips, err = im.integer("scan_dim_size"); err != nil {
			return nil, err
		}
	}
	xs, err := im.irs(in[:inputs])
	if err != nil {
		return nil, err
	}
	for i, x := range xs {
		s := sizes(x)
		if dim < 0 || dim >= int64(len(s)) || trips >= 0 && s[dim] != trips {
			return nil, im.errorf("input %d is %s: want as many elements in dimension %d as others", i, in[i].typ, dim)
		}
		trips = s[dim]
	}
	switch {
	case trips < 1:
		return nil, im.errorf("op not supported: %s of no elements", o.Name)
	case int64(im.iterations)+trips > maxIterations || int64(im.size(o.Regions[0]).ops)*trips > maxUnrolled:
		return nil, im.errorf("op not supported: %s of %d elements: at most %d iterations and %d operations are unrolled", o.Name, trips, maxIterations, maxUnrolled)
	}
	im.iterations += int(trips)
	carried := in[inputs:]
	var outs [][]*ir.Value
	for k := range trips {
		if im.flag("is_reverse") {
			k = trips - 1 - k
		}
		args, err := im.slicesAt(xs, dim, k)
		if err != nil {
			return nil, err
		}
		got, err := im.regionOf(o, 0, append(args, carried...))
		if err != nil {
			return nil, err
		}
		if len(got) != o.NumResults() || len(got) < len(carried) {
			return nil, im.errorf("the body of %s gives %d values, it has %d results and carries %d", o.Name, len(got), o.NumResults(), len(carried))
		}
		n := len(got) - len(carried)
		vs, err := im.irs(got[:n])
		if err != nil {
			return nil, err
		}
		outs = append(outs, make([][]*ir.Value, n-len(outs))...)
		for i, v := range vs {
			if v, err = im.oneAlong(v, int(dim)); err != nil {
				return nil, err
			}
			outs[i] = append(outs[i], v)
		}
		carried = got[n:]
	}
	var out []*value
	for _, l := range outs {
		if im.flag("is_reverse") {
			slices.Reverse(l)
		}
		v, err := im.emit(ir.OpCat, ir.A("dim", dim), l)
		if err != nil {
			return nil, err
		}
		out = append(out, im.value(v))
	}
	return append(out, carried...), nil
}

// segment is how many of n values are in the first of two groups.
func (im *importer) segment(name string, n int) (int, error) {
	s, err := im.ints(name)
	if err != nil {
		return 0, err
	}
	if len(s) != 2 || s[0] < 0 || s[1] < 0 || s[0]+s[1] != int64(n) {
		return 0, im.errorf("%s = %v, want two parts of %d", name, s, n)
	}
	return int(s[0]), nil
}

// slicesAt are slices of a dimension at a place, without that dimension.
func (im *importer) slicesAt(xs []*ir.Value, dim, at int64) ([]*value, error) {
	out := make([]*value, len(xs))
	for i, x := range xs {
		v, err := im.emit(ir.OpSelect, ir.A("dim", dim, "index", at), []*ir.Value{x})
		if err != nil {
			return nil, err
		}
		out[i] = im.value(v)
	}
	return out, nil
}

// oneAlong is a value with another dimension, of one element.
func (im *importer) oneAlong(v *ir.Value, dim int) (*ir.Value, error) {
	s := sizes(v)
	if dim > len(s) {
		return nil, im.errorf("the body of %s gives %s, which has no dimension %d", im.op.Name, v.Type(), dim)
	}
	return im.viewed(v, slices.Insert(slices.Clone(s), dim, 1))
}

package decompose

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// maxWidth bounds the widths of a padding, so that sums of them and of sizes fit 64 bits.
const maxWidth = 1 << 40

// Pad puts value around x, and inner of it between its elements. Negative widths cut.
func Pad(to Emitter, x, value *ir.Value, low, high, inner []int64) (*ir.Value, error) {
	if err := check("pad", x, value); err != nil {
		return nil, err
	}
	e := emit{to}
	shape := sizes(x)
	if len(low) != len(shape) || len(high) != len(shape) || len(inner) != len(shape) || value.Type().Rank() != 0 || value.Type().DType() != x.Type().DType() {
		return nil, fmt.Errorf("pad: %d, %d and %d widths and a value of type %s for %s", len(low), len(high), len(inner), value.Type(), x.Type())
	}
	fill := func(shape []int64) *ir.Value { return e.dense(e.expand(value, shape)) }
	for d := range shape {
		if inner[d] < 0 {
			return nil, fmt.Errorf("pad: %d elements between those of dimension %d", inner[d], d)
		}
		if max(inner[d], low[d], high[d], -low[d], -high[d]) > maxWidth || min(low[d], high[d]) == math.MinInt64 {
			return nil, fmt.Errorf("pad: widths %d, %d and %d of dimension %d", low[d], high[d], inner[d], d)
		}
		n := sizes(x)[d]
		if n > 1 && inner[d] > 0 {
			spread := slices.Clone(sizes(x))
			spread[d] = (n-1)*(inner[d]+1) + 1
			x = e.one(ir.OpSliceScatter, ir.A("dim", d, "start", 0, "end", spread[d], "step", inner[d]+1), []*ir.Value{fill(spread), x})
			n = spread[d]
		}
		if n+low[d]+high[d] < 0 {
			return nil, fmt.Errorf("pad: widths %d and %d leave nothing of dimension %d of %d", low[d], high[d], d, n)
		}
		if n+low[d] < 0 || n+high[d] < 0 { // all of x goes
			left := slices.Clone(sizes(x))
			left[d] = n + low[d] + high[d]
			x = fill(left)
			continue
		}
		x = e.slice(x, d, max(0, -low[d]), n-max(0, -high[d]), 1)
		var parts []*ir.Value
		around := slices.Clone(sizes(x))
		if around[d] = low[d]; low[d] > 0 {
			parts = append(parts, fill(around))
		}
		parts = append(parts, x)
		around = slices.Clone(around)
		if around[d] = high[d]; high[d] > 0 {
			parts = append(parts, fill(around))
		}
		if len(parts) > 1 {
			x = e.cat(d, parts...)
		}
	}
	return x, nil
}

// Reverse turns dimensions around.
func Reverse(to Emitter, x *ir.Value, dims []int64) (*ir.Value, error) {
	if err := check("reverse", x); err != nil {
		return nil, err
	}
	shape := sizes(x)
	if err := distinct("reverse", len(shape), dims); err != nil {
		return nil, err
	}
	e := emit{to}
	for _, d := range dims {
		if shape[d] > 1 {
			at := e.one(ir.OpIota, ir.A("start", shape[d]-1, "step", -1), nil, ir.Tensor(ir.I64, shape[d]))
			x = e.one(ir.OpIndex, ir.A("dims", []int64{d}), []*ir.Value{x, at})
		}
	}
	return x, nil
}

// DynamicSlice returns a slice of x of those sizes whose beginning is moved to lie within x.
// Each of starts is a scalar.
func DynamicSlice(to Emitter, x *ir.Value, starts []*ir.Value, shape []int64) (*ir.Value, error) {
	at, err := vector(to, "dynamic_slice", x, starts)
	if err != nil {
		return nil, err
	}
	if len(shape) != len(sizes(x)) {
		return nil, fmt.Errorf("dynamic_slice: %d sizes for %s", len(shape), x.Type())
	}
	if len(shape) == 0 {
		return x, nil
	}
	d := GatherDims{SliceSizes: shape}
	for i := range shape {
		d.OffsetDims = append(d.OffsetDims, int64(i))
	}
	d.StartIndexMap = d.OffsetDims
	return Gather(to, x, at, d)
}

// DynamicUpdateSlice returns x with update written at a place that is moved so that all of it
// lies within x. Each of starts is a scalar.
func DynamicUpdateSlice(to Emitter, x, update *ir.Value, starts []*ir.Value) (*ir.Value, error) {
	at, err := vector(to, "dynamic_update_slice", x, starts)
	if err != nil {
		return nil, err
	}
	if err := check("dynamic_update_slice", x, update); err != nil {
		return nil, err
	}
	shape, part := sizes(x), sizes(update)
	if len(part) != len(shape) {
		return nil, fmt.Errorf("dynamic_update_slice: %s into %s", update.Type(), x.Type())
	}
	if len(shape) == 0 {
		return update, nil
	}
	e := emit{to}
	var places []int64
	var all []*ir.Value
	for i, n := range shape {
		if part[i] > n {
			return nil, fmt.Errorf("dynamic_update_slice: %s into %s", update.Type(), x.Type())
		}
		if part[i] == n { // all of it is written
			continue
		}
		all = append(all, e.slice(at, 0, int64(i), int64(i)+1, 1))
		places = append(places, int64(i))
	}
	if len(all) == 0 {
		return update, nil
	}
	w, err := newWindows(e, "dynamic_update_slice", shape, e.cat(0, all...), numbering{to: places, slices: part, clamp: true})
	if err != nil || slices.Contains(part, 0) {
		return x, err
	}
	rows, row, _ := w.rows() // all of them lie within x
	order := w.order()
	values := e.view(e.permute(update, order), append(sizes(row), w.rest()...))
	return w.back(e.one(ir.OpIndexPut, ir.A("dims", []int64{0}), []*ir.Value{w.table(x, rows), values, row}), order), nil
}

// vector is scalars, one for each dimension of x, as one tensor of i64.
func vector(to Emitter, what string, x *ir.Value, starts []*ir.Value) (*ir.Value, error) {
	if err := check(what, append([]*ir.Value{x}, starts...)...); err != nil {
		return nil, err
	}
	if len(starts) != len(sizes(x)) {
		return nil, fmt.Errorf("%s: %d indices for %s", what, len(starts), x.Type())
	}
	if len(starts) == 0 {
		return nil, nil
	}
	e := emit{to}
	var all []*ir.Value
	for i, s := range starts {
		if s.Type().Rank() != 0 || !s.Type().DType().IsInt() {
			return nil, fmt.Errorf("%s: index %d is %s, want an integer", what, i, s.Type())
		}
		if s.Type().DType() == ir.U64 {
			s = e.one(ir.OpClamp, ir.A("max", int64(1)<<62), []*ir.Value{s})
		}
		all = append(all, e.convert(e.view(s, []int64{1}), ir.I64))
	}
	return e.cat(0, all...), nil
}

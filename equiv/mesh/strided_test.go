package mesh

import (
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// span is count places from a start on, in steps.
type span struct{ start, count, step int64 }

// spans are the slices of n places with two or more, in steps up to 3.
func spans(n int64) (out []span) {
	for step := int64(1); step <= 3; step++ {
		for start := range n {
			for count := int64(2); start+(count-1)*step < n; count++ {
				out = append(out, span{start, count, step})
			}
		}
	}
	return out
}

// places are those that pieces of n places have, each of its span.
func (s span) places(n, pieces int64) (out []int64) {
	for p := range pieces {
		for i := range s.count {
			out = append(out, p*n+s.start+i*s.step)
		}
	}
	return out
}

// slicedFunc slices two dimensions of what a convolution gives.
func slicedFunc(t *testing.T, world int, sizes []int64, rows, columns span) *ir.Func {
	t.Helper()
	m := ir.NewModule(world)
	f := m.AddFunc("f")
	add := func(op ir.Op, a attr.List, args ...*ir.Value) *ir.Value {
		var types []ir.Type
		for _, v := range args {
			types = append(types, v.Type())
		}
		results, err := ir.Infer(op, nil, a, types)
		if err != nil {
			t.Fatal(err)
		}
		return f.Append(ir.NodeSpec{Op: op, Attrs: a, Args: args, Results: results}).Result(0)
	}
	cut := func(v *ir.Value, dim int64, s span) *ir.Value {
		return add(ir.OpSlice, attr.List{}.With("dim", attr.Int(dim)).With("start", attr.Int(s.start)).
			With("end", attr.Int(s.start+(s.count-1)*s.step+1)).With("step", attr.Int(s.step)), v)
	}
	x := f.Append(ir.NodeSpec{Op: ir.OpInput, Name: "x", Results: []ir.Type{ir.Tensor(ir.F64, sizes...)}}).Result(0)
	w := f.Append(ir.NodeSpec{Op: ir.OpInput, Name: "w", Results: []ir.Type{ir.Tensor(ir.F64, 2, sizes[1], 1, 3)}}).Result(0)
	y := add(ir.OpTanh, attr.List{}, add(ir.OpConvolution, attr.List{}.With("padding", attr.Ints(0, 0, 1, 1)), x, w))
	f.Append(ir.NodeSpec{Op: ir.OpReturn, Args: []*ir.Value{add(ir.OpClone, attr.List{}, cut(cut(y, 2, rows), 3, columns))}})
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestStridedSlices slices on one device and on two ranks, in all ways: what is proved takes the
// same places, and what takes the same is proved where the pieces are of the batch, or where it
// takes every place, every second or every third.
func TestStridedSlices(t *testing.T) {
	o := Options{Mesh: placement.Mesh{Axes: []placement.Axis{{Name: "x", Size: 2}}}}
	check := func(n, pieces int64, a, b span, flip bool) {
		device, local := []int64{4, 2, n * pieces, 6}, []int64{2, 2, n, 6}
		at := placement.Placement{{"x"}, nil, nil, nil}
		if pieces > 1 {
			local[0], at = 4, placement.Placement{nil, nil, {"x"}, nil}
		}
		o.Inputs, o.Results = []placement.Placement{at, make(placement.Placement, 4)}, []placement.Placement{at}
		want, has := a.places(n*pieces, 1), b.places(n, pieces)
		more := int64(len(has)) - a.count // behind the end of the last piece
		columns, same := span{1, 3, 2}, more >= 0 && more < pieces && slices.Equal(want, has[:len(want)])
		other := columns
		if flip {
			other, same = span{0, 3, 2}, false
		}
		_, err := Check(slicedFunc(t, 1, device, a, columns), slicedFunc(t, 2, local, b, other), o)
		if err == nil && !same {
			t.Errorf("%v of %d and %v of %d pieces of %d are proved", a, n*pieces, b, pieces, n)
		}
		if err != nil && same && (pieces == 1 || a.count*a.step == n*pieces) {
			t.Errorf("%v of %d and %v of %d pieces of %d: %v", a, n*pieces, b, pieces, n, err)
		}
	}
	for _, a := range spans(6) {
		check(6, 1, a, a, true)
		for _, b := range spans(6) {
			check(6, 1, a, b, false)
		}
	}
	for _, a := range spans(12) {
		for _, b := range spans(6) {
			check(6, 2, a, b, false)
		}
	}
}

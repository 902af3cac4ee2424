package gomlx

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// What does not fit is an error that says so, and no panic.
func TestMisuse(t *testing.T) {
	h := newHarness(t, "devices=2")
	two := shapes.Make(dtypes.Float32, 2)
	u := h.buffer(0, []float32{1, 2}, 2)
	f := h.b.Builder("misused").Main()
	x := h.must(f.Constant([]float32{1, 2}, 2))
	buffer := func(flat any, shape shapes.Shape) error {
		_, err := h.b.BufferFromFlatData(0, flat, shape)
		return err
	}
	second := func(_ any, err error) error { return err }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"integers":      {buffer([]int32{1, 2}, two), "a []int32 for a tensor of shape (Float32)[2]"},
		"bytes":         {buffer(make([]byte, 8), two), "a []uint8 for"},
		"a number":      {buffer(float32(1), shapes.Make(dtypes.Float32)), "a float32 for"},
		"nothing":       {buffer(nil, two), "a <nil> for"},
		"too many":      {buffer(make([]float32, 3), two), "3 elements for"},
		"any size":      {buffer([]float32{1}, shapes.Shape{DType: dtypes.Float32, Dimensions: []int{-1}}), "dynamic shape"},
		"into integers": {u.ToFlatData(make([]int32, 2)), "a []int32 for"},
		"into few":      {u.ToFlatData(make([]float32, 1)), "1 elements for"},
		"a constant":    {second(f.Constant(float32(1))), "Constant of a float32"},
		"no constant":   {second(f.Constant(nil)), "Constant of a <nil>"},
		"below zero":    {second(f.Constant([]float32{1, 2}, -2)), "dimensions [-2]"},
		"no type":       {second(f.Bitcast(x, dtypes.InvalidDType)), "not valid"},
		"far devices":   {second(f.AllReduce([]compute.Value{x}, compute.ReduceOpSum, [][]int{{0, 1}})), "of 1 devices"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
	}
}

// Indices that name no axis of places have one of size 1 behind the others.
func TestImplicitIndexAxis(t *testing.T) {
	h := newHarness(t, "")
	n := h.b.Builder("implicit")
	f := n.Main()
	x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 3, 2), nil))
	at := h.must(f.Constant([]int32{2, 0}, 2))
	rows := h.must(f.Gather(x, at, 1, []int{1}, []int{0}, []int{0}, []int{1, 2}, false))
	sum := h.must(f.ScatterSum(x, at, rows, 1, []int{1}, []int{0}, []int{0}, false, false))
	h.check(f.Return([]compute.Value{rows, sum}, nil))
	outs := h.run(h.compile(n), nil, h.buffer(0, []float32{1, 2, 3, 4, 5, 6}, 3, 2))
	h.want("rows", outs[0], 5, 6, 1, 2)
	h.want("sums", outs[1], 2, 4, 3, 4, 10, 12)
}

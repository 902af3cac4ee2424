package gomlx

import (
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// Steps that keep the copy of a variable give what steps give to which variables come from the
// host; so does one that gets another variable than the last has left.
func TestCarriedCopies(t *testing.T) {
	for _, device := range []string{"host", "fake"} {
		t.Run(device, func(t *testing.T) { carriedCopies(t, newHarness(t, "device="+device)) })
	}
}

func carriedCopies(t *testing.T, h harness) {
	n := h.b.Builder("step")
	f := n.Main()
	const rows, size = 16, 256
	ws, xs := shapes.Make(dtypes.Float32, size, size), shapes.Make(dtypes.Float32, rows, size)
	w, x := h.must(f.Parameter("/w", ws, nil)), h.must(f.Parameter("x", xs, nil))
	half := func(v compute.Value) compute.Value { return h.must(f.ConvertDType(v, dtypes.BFloat16)) }
	dot := func(a compute.Value, da int, b compute.Value, db int) compute.Value {
		return h.must(f.DotGeneral(a, []int{da}, nil, b, []int{db}, nil, compute.DotGeneralConfig{}))
	}
	y := dot(half(x), 1, half(w), 0)
	g := h.must(f.ConvertDType(dot(half(x), 0, y, 0), dtypes.Float32))
	rate := h.must(f.BroadcastInDim(h.must(f.Constant([]float32{0.001}, 1)), ws, []int{0}))
	h.check(f.Return([]compute.Value{h.must(f.ConvertDType(y, dtypes.Float32)), h.must(f.Sub(w, h.must(f.Mul(rate, g))))}, nil))
	e := h.compile(n)
	if got := e.(*executable).prog.copies; len(got) != 1 || got[0].of != 0 {
		t.Fatalf("copies of inputs: %v", got)
	}
	numbers := func(n int, by float64) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(math.Sin(by * float64(i+1)))
		}
		return out
	}
	put := func(data []float32, shape shapes.Shape) compute.Buffer {
		u, err := h.b.BufferFromFlatData(0, data, shape)
		h.check(err)
		return u
	}
	in := put(numbers(rows*size, 0.3), xs)
	step := func(w compute.Buffer) (y []float32, next compute.Buffer) {
		out := h.run(e, []bool{true, false}, w, in)
		y = make([]float32, rows*size)
		h.check(out[0].ToFlatData(y))
		return y, out[1]
	}
	var want [][]float32
	data := numbers(size*size, 0.7)
	for range 3 {
		y, next := step(put(data, ws))
		want = append(want, y)
		h.check(next.ToFlatData(data))
	}
	if slices.Equal(want[0], want[1]) {
		t.Fatal("the step changes nothing")
	}
	h.narrowed(func() []float32 {
		y, _ := step(h.minus(put(numbers(size*size, 0.7), ws)))
		return y
	}, want[0])
	for _, start := range []float64{0.7, 0.2, 0.7} {
		at := put(numbers(size*size, start), ws) // the last run has left another
		for k := range 3 {
			var y []float32
			if y, at = step(at); start == 0.7 && !slices.Equal(y, want[k]) {
				t.Errorf("step %d gives other numbers than with a variable of the host", k)
			}
		}
	}
}

// minus is a variable that another program has left without a copy: it is -(-w).
func (h harness) minus(w compute.Buffer) compute.Buffer {
	h.t.Helper()
	shape, err := w.Shape()
	h.check(err)
	n := h.b.Builder("minus")
	f := n.Main()
	x := h.must(f.Parameter("/w", shape, nil))
	h.check(f.Return([]compute.Value{h.must(f.Neg(x))}, nil))
	e := h.compile(n)
	return h.run(e, nil, h.run(e, nil, w)[0])[0]
}

// narrowed expects that a step rounds a variable on the device, by one program more than
// that of minus.
func (h harness) narrowed(step func() []float32, want []float32) {
	h.t.Helper()
	before := len(h.b.compiled.keys)
	if y := step(); !slices.Equal(y, want) {
		h.t.Error("a variable that is on the device gives other numbers")
	}
	if n := len(h.b.compiled.keys) - before; n != 2 {
		h.t.Errorf("%d programs are made, want 2", n)
	}
}

package fx_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir/fx"
)

// of is a row-major tensor of a recording; no sizes make it a number.
func of(dt string, sizes []int64, values ...float64) recordedTensor {
	r := recordedTensor{DType: dt, Shape: append([]int64{}, sizes...), Stride: make([]int64, len(sizes))}
	n := int64(1)
	for i := len(sizes) - 1; i >= 0; i-- {
		r.Stride[i] = n
		n *= sizes[i]
	}
	for _, v := range values {
		text := fmt.Sprint(int64(v))
		switch dt {
		case "float64":
			text = fmt.Sprintf(`"%016x"`, math.Float64bits(v))
		case "float32", "complex64": // of real and imaginary parts
			text = fmt.Sprintf(`"%08x"`, math.Float32bits(float32(v)))
		case "bfloat16": // of values that are bfloat16
			text = fmt.Sprintf(`"%04x"`, math.Float32bits(float32(v))>>16)
		}
		r.Data = append(r.Data, json.RawMessage(text))
	}
	return r
}

// PyTorch brings operands to a common type before it computes, and elements to that of dtype= before it
// folds them; numbers beside narrow floats are such, where they are compared or divide with remainder.
// What it gives here follows from its rules of promotion (at::result_type) and its kernels.
func TestPromoted(t *testing.T) {
	one, two, three := []int64{1}, []int64{2}, []int64{3}
	nan := math.NaN()
	tenth := float64(math.Float32frombits(0x3dcd << 16)) // in bfloat16
	for _, c := range []struct {
		target, args, kwargs string
		in                   []recordedTensor
		out                  recordedTensor
	}{
		{"aten.eq.Scalar", "(x0, -10000.0)", "", []recordedTensor{of("bfloat16", one, -9984)}, of("bool", one, 1)},
		{"aten.le.Scalar", "(x0, 0.1)", "", []recordedTensor{of("bfloat16", one, tenth)}, of("bool", one, 1)},
		{"aten.gt.Scalar", "(x0, 0.1)", "", []recordedTensor{of("bfloat16", one, tenth)}, of("bool", one, 0)},
		{"aten.eq.Scalar", "(x0, 257)", "", []recordedTensor{of("bfloat16", one, 256)}, of("bool", one, 1)},
		{"aten.remainder.Scalar", "(x0, 0.1)", "", []recordedTensor{of("bfloat16", one, tenth)}, of("bfloat16", one, 0)},
		{"aten.eq.Tensor", "(x0, x1)", "", []recordedTensor{of("float32", one, 0.1), of("float64", nil, 0.1)}, of("bool", one, 1)},
		{"aten.sub.Tensor", "(x0, x1)", "", []recordedTensor{of("float32", one, 0.1), of("float64", nil, 0.1)}, of("float32", one, 0)},
		{"aten.lt.Tensor", "(x0, x1)", "", []recordedTensor{of("int32", three, 1, 100, 255), of("int64", nil, 1<<32+50)}, of("bool", three, 1, 0, 0)},
		{"aten.lt.Tensor", "(x0, x1)", "", []recordedTensor{of("uint8", three, 1, 100, 255), of("int64", nil, 300)}, of("bool", three, 1, 0, 0)},
		{"aten.div.Tensor", "(x0, x1)", "", []recordedTensor{of("int32", one, 1), of("int64", nil, 1<<32)}, of("float32", one, 0x1p-32)},
		{"aten.sub.Tensor", "(x0, x1)", "", []recordedTensor{of("int64", one, 257), of("bfloat16", one, 256)}, of("bfloat16", one, 0)},
		{"aten.mul.Tensor", "(x0, x1)", "", []recordedTensor{of("int64", one, 257), of("bfloat16", one, 0.75)}, of("bfloat16", one, 192)},
		{"aten.mul.Tensor", "(x0, x1)", "", []recordedTensor{of("int64", one, 257), of("float32", one, 0.75)}, of("float32", one, 192.75)},
		{"aten.ge.Scalar", "(x0, -1)", "", []recordedTensor{of("uint8", three, 0, 100, 255)}, of("bool", three, 0, 0, 1)},
		{"aten.remainder.Scalar", "(x0, -3)", "", []recordedTensor{of("uint8", one, 200)}, of("uint8", one, 200)},
		{"aten.ge.Scalar", "(x0, -1)", "", []recordedTensor{of("int8", three, 0, -1, -2)}, of("bool", three, 1, 1, 0)},
		{"aten.sum.dim_IntList", "(x0, [0])", "{'dtype': torch.int64}", []recordedTensor{of("float32", two, 0.5, 0.5)}, of("int64", nil, 0)},
		{"aten.sum.dim_IntList", "(x0, [0])", "{'dtype': torch.float32}", []recordedTensor{of("bfloat16", two, 0.5, 0.5)}, of("float32", nil, 1)},
		{"aten.cumsum.default", "(x0, 0)", "{'dtype': torch.int64}", []recordedTensor{of("float32", three, 0.5, 1.5, 0.5)}, of("int64", three, 0, 1, 1)},
		{"aten.softmax.int", "(x0, 0, torch.bfloat16)", "", []recordedTensor{of("float32", two, 256, 257)}, of("bfloat16", two, 0.5, 0.5)},
		{"aten.searchsorted.Tensor", "(x0, x1)", "", []recordedTensor{of("int64", one, 257), of("bfloat16", one, 256)}, of("int64", one, 0)},
		{"aten.clamp.default", "(x0, nan, 1)", "", []recordedTensor{of("float32", two, -5, 0.5)}, of("float32", two, nan, nan)},
		{"aten.native_dropout.default", "(x0, 0.5, False)", "", []recordedTensor{of("float32", two, 1, 2)}, of("float32", two, 1, 2)},
	} {
		r := recorded{Target: c.target, Args: c.args, Kwargs: c.kwargs, In: c.in, Out: []recordedTensor{c.out}}
		if c.target == "aten.native_dropout.default" {
			r.Out = append(r.Out, of("bool", two, 1, 1))
		}
		if msg := r.differs(t); msg != "" {
			t.Errorf("%s%s %s of %v: %s", c.target, c.args, c.kwargs, r.types(), msg)
		}
	}
}

// The offset of as_strided counts from the beginning of the storage; without one it is that of the tensor,
// which a view may have within it.
func TestStridedWithin(t *testing.T) {
	// Parts of one storage that views begin in are no recordings of one call.
	g := `{"name":"g","world":1,"groups":{},"nodes":[
 {"name":"x","kind":"input","target":"x","inputs":[],"args":"()","kwargs":"","out":[{"shape":[8],"stride":[1],"dtype":"float32"}],"ms":0},
 {"name":"y","kind":"input","target":"y","inputs":[],"args":"()","kwargs":"","out":[{"shape":[2],"stride":[1],"dtype":"float32"}],"ms":0},
 {"name":"a","kind":"view","target":"aten.slice.Tensor","inputs":["x"],"args":"(x, 0, %[1]d, 8)","kwargs":"","out":[{"shape":[%[2]d],"stride":[1],"dtype":"float32"}],"ms":0},
 {"name":"b","kind":"%[3]s","target":"aten.%[4]s.default","inputs":["a"%[5]s],"args":"(a%[6]s, [2], [1]%[7]s)","kwargs":"","out":[{"shape":[%[8]d],"stride":[1],"dtype":"float32"}],"ms":0},
 {"name":"output","kind":"output","target":"output","inputs":["b"],"args":"((b,),)","kwargs":"","out":[]}]}`
	for _, c := range []struct {
		start   int
		scatter bool
		offset  string
		opaque  bool
	}{{0, false, "", false}, {4, false, "", true}, {0, true, ", 5", false}, {4, true, "", false}, {4, true, ", 5", true}} {
		kind, op, also, src, size := "view", "as_strided", "", "", 2
		if c.scatter {
			kind, op, also, src, size = "memory", "as_strided_scatter", `, "y"`, ", y", 8-c.start
		}
		f, err := fx.Read("g.json", strings.NewReader(fmt.Sprintf(g, c.start, 8-c.start, kind, op, also, src, c.offset, size)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.Import()
		if err != nil {
			t.Fatal(err)
		}
		if got := len(res.Warnings) > 0; got != c.opaque {
			t.Errorf("%s of a view that begins at %d, offset %q: %v", op, c.start, c.offset, res.Warnings)
		}
	}
}

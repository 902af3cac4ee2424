package hostops

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// An errorCase is a call of a kernel that is refused.
type errorCase struct {
	name, op, attrs string
	outs, ins       []Tensor
	kind            error
	want            string
}

// callErrors has wrong numbers of tensors, and tensors that are none.
func callErrors() []errorCase {
	x := f32(shape{2, 3})
	short := x
	short.Data = short.Data[:23]
	edit := func(x Tensor, f func(*Tensor)) Tensor { f(&x); return x }
	return []errorCase{
		{"no such op", "view", "", in(x), in(x), ErrUnknownOp, "view"},
		{"too few", "neg", "", in(x), nil, ErrArity, "got 0 operands, want 1"},
		{"too many", "add", "", in(x), in(x, x, x), ErrArity, "got 3 operands, want 1 to 2"},
		{"variadic", "cat", "", in(x), nil, ErrArity, "at least 1"},
		{"results", "topk", "", in(x), in(x), ErrArity, "got 1 results, want 2"},
		{"no second", "add", "", in(x), in(x), ErrArity, "scalar"},
		{"scalar too", "add", "{scalar=1}", in(x), in(x, x), ErrArity, "scalar"},

		{"operand type", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.DType = dtype.Invalid })), ErrDType, "operand 0"},
		{"result type", "neg", "", in(edit(x, func(x *Tensor) { x.DType = 77 })), in(x), ErrDType, "result 0"},
		{"ranks", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Strides = x.Strides[:1] })), ErrShape, "operand 0"},
		{"negative dim", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Shape = shape{-2, 3} })), ErrShape, "operand 0"},
		{"overflow", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Shape = shape{1 << 40, 1 << 40}; x.Strides = shape{0, 0} })), ErrShape, "too many"},
		{"short data", "neg", "", in(like(x)), in(short), ErrBounds, "operand 0"},
		{"short result", "neg", "", in(short), in(x), ErrBounds, "result 0"},
		{"offset", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Offset = 1 })), ErrBounds, "operand 0"},
		{"negative offset", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Offset = -1 })), ErrBounds, "operand 0"},
		{"negative stride", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Strides = shape{-3, 1} })), ErrBounds, "operand 0"},
		{"huge stride", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Strides = shape{math.MaxInt64, 1} })), ErrBounds, "operand 0"},
		{"least stride", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Strides = shape{math.MinInt64, 1} })), ErrBounds, "operand 0"},
		{"huge offset", "neg", "", in(x), in(edit(x, func(x *Tensor) { x.Offset = math.MaxInt64 })), ErrBounds, "operand 0"},
		{"result stride 0", "neg", "", in(edit(x, func(x *Tensor) { x.Strides = shape{0, 1} })), in(x), ErrShape, "stride 0"},
		{"result overlap", "neg", "", in(edit(x, func(x *Tensor) { x.Strides = shape{1, 1} })), in(x), ErrShape, "overlap"},
	}
}

// computeErrors has shapes, types and attributes that elementwise operations, reductions and products refuse.
func computeErrors() []errorCase {
	x := f32(shape{2, 3})
	v := f32(shape{3})
	w := i64(shape{3})
	return []errorCase{
		{"broadcast", "add", "", in(x), in(x, f32(shape{2})), ErrShape, "operand 1"},
		{"broadcast down", "neg", "", in(v), in(x), ErrShape, "operand 0"},
		{"attribute kind", "add", `{scalar="one"}`, in(x), in(x), ErrAttr, "scalar"},
		{"reverse kind", "sub", "{reverse=1, scalar=1}", in(x), in(x), ErrAttr, "reverse"},
		{"no clamp", "clamp", "", in(x), in(x), ErrAttr, "neither"},
		{"condition", "where", "", in(x), in(x, x, x), ErrDType, "operand 0"},
		{"gelu", "gelu", `{approximate="erf"}`, in(x), in(x), ErrAttr, "erf"},
		{"full", "full", "", in(x), nil, ErrAttr, "value"},
		{"constant", "constant", `{data="AQ"}`, in(x), nil, ErrAttr, "not base64"},
		{"constant", "constant", `{data="AQ=="}`, in(x), nil, ErrShape, "1 bytes of data"},
		{"iota", "iota", "", in(x), nil, ErrShape, "one dimension"},
		{"rand", "rand", "", in(x), nil, ErrAttr, "seed"},
		{"rand type", "rand", "{seed=1}", in(w), nil, ErrDType, "result 0"},

		{"dims", "sum", "{dims=[2]}", in(x), in(x), ErrAttr, "dimension 2 of a tensor of rank 2"},
		{"dims twice", "sum", "{dims=[1, -1]}", in(f32(shape{2})), in(x), ErrAttr, "twice"},
		{"sum shape", "sum", "{dims=[1]}", in(f32(shape{3})), in(x), ErrShape, "result 0"},
		{"sum rank", "sum", "{dims=[1]}", in(f32(shape{})), in(x), ErrShape, "result 0"},
		{"mean type", "mean", "", in(i64(shape{})), in(x), ErrDType, "result 0"},
		{"argmax empty", "argmax", "", in(i64(shape{})), in(f32(shape{0})), ErrShape, "empty"},
		{"argmax type", "argmax", "", in(f32(shape{})), in(x), ErrDType, "result 0"},
		{"cumsum dim", "cumsum", "{dim=true}", in(x), in(x), ErrAttr, "dim"},
		{"softmax type", "softmax", "", in(i64(shape{2, 3})), in(x), ErrDType, "result 0"},
		{"softmax shape", "softmax", "", in(v), in(x), ErrShape, "result 0"},

		{"matmul rank", "matmul", "", in(x), in(v, x), ErrShape, "operand 0"},
		{"matmul inner", "matmul", "", in(x), in(x, x), ErrShape, "operand 1"},
		{"matmul result", "matmul", "", in(x), in(x, f32(shape{3, 4})), ErrShape, "result 0"},
		{"addmm", "addmm", "", in(f32(shape{2, 4})), in(v, x, f32(shape{3, 4})), ErrShape, "operand 0"},
	}
}

// movementErrors has those that data movement refuses, and indices out of range.
func movementErrors() []errorCase {
	x := f32(shape{2, 3})
	v := f32(shape{3})
	w := i64(shape{3})
	return []errorCase{
		{"clone type", "clone", "", in(bf16(shape{2, 3})), in(x), ErrDType, "operand 0"},
		{"clone shape", "clone", "", in(v), in(x), ErrShape, "result 0"},
		{"cat type", "cat", "", in(f32(shape{4, 3})), in(x, bf16(shape{2, 3})), ErrDType, "operand 1"},
		{"cat rank", "cat", "", in(f32(shape{4, 3})), in(x, v), ErrShape, "operand 1"},
		{"cat others", "cat", "", in(f32(shape{4, 3})), in(x, f32(shape{2, 4})), ErrShape, "operand 1"},
		{"cat too long", "cat", "", in(f32(shape{3, 3})), in(x, x), ErrShape, "operand 1"},
		{"cat too short", "cat", "", in(f32(shape{5, 3})), in(x, x), ErrShape, "result 0"},
		{"cat scalars", "cat", "", in(f32(shape{})), in(f32(shape{})), ErrShape, "rank 0"},
		{"slice step", "slice_scatter", "{step=0}", in(x), in(x, x), ErrAttr, "step"},
		{"slice shape", "slice_scatter", "{end=1}", in(x), in(x, x), ErrShape, "operand 1"},

		{"index type", "index", "", in(f32(shape{3, 3})), in(x, v), ErrDType, "operand 1"},
		{"index range", "index", "", in(f32(shape{3, 3})), in(x, i64(shape{3}, 0, 1, 2)), ErrIndex, "operand 1: index value out of range: element 2 is 2, but dimension 0 has size 2"},
		{"index below", "index", "", in(f32(shape{3, 3})), in(x, i64(shape{3}, 0, -3, 2)), ErrIndex, "is -3"},
		{"index broadcast", "index", "", in(f32(shape{3})), in(x, w, i64(shape{2})), ErrShape, "operand 2"},
		{"index dims", "index", "{dims=[1, 0]}", in(f32(shape{3})), in(x, w, w), ErrAttr, "ascending"},
		{"index dims count", "index", "{dims=[1]}", in(f32(shape{3})), in(x, w, w), ErrAttr, "2 index operands"},
		{"index rank", "index", "", in(f32(shape{3})), in(f32(shape{}), w), ErrAttr, "dims"},
		{"index result", "index", "", in(f32(shape{3})), in(x, w), ErrShape, "result 0"},
		{"index_put values", "index_put", "", in(x), in(x, f32(shape{2}), w), ErrShape, "operand 1"},
		{"index_put range", "index_put", "{accumulate=true}", in(x), in(x, f32(shape{1}), i64(shape{1}, 5)), ErrIndex, "operand 2"},
		{"index_put kind", "index_put", "{accumulate=1}", in(x), in(x, f32(shape{1}), w), ErrAttr, "accumulate"},
		{"index_add negative", "index_add", "", in(x), in(x, i64(shape{1}, -1), f32(shape{1, 3})), ErrIndex, "operand 1"},
		{"index_add shape", "index_add", "", in(x), in(x, i64(shape{1}), f32(shape{2, 3})), ErrShape, "operand 2"},
		{"embedding negative", "embedding", "", in(f32(shape{1, 3})), in(x, i64(shape{1}, -1)), ErrIndex, "operand 1"},
		{"embedding rank", "embedding", "", in(f32(shape{1})), in(v, i64(shape{1})), ErrShape, "operand 0"},
		{"gather range", "gather", "{dim=1}", in(f32(shape{2, 1})), in(x, i64(shape{2, 1}, 0, 3)), ErrIndex, "operand 1"},
		{"gather rank", "gather", "", in(v), in(x, w), ErrShape, "operand 1"},
		{"gather size", "gather", "{dim=1}", in(f32(shape{3, 1})), in(x, i64(shape{3, 1})), ErrShape, "operand 1"},
		{"gather type", "gather", "", in(x), in(x, x), ErrDType, "operand 1"},
		{"scatter range", "scatter", "{value=1}", in(x), in(x, i64(shape{1, 3}, 0, 0, 2)), ErrIndex, "operand 1"},
		{"scatter both", "scatter", "{value=1}", in(x), in(x, i64(shape{1, 3}), x), ErrArity, "either"},
		{"scatter neither", "scatter", "", in(x), in(x, i64(shape{1, 3})), ErrArity, "either"},
		{"scatter reduce", "scatter", `{reduce="mean", value=1}`, in(x), in(x, i64(shape{1, 3})), ErrAttr, "mean"},
		{"scatter src", "scatter", "", in(x), in(x, i64(shape{2, 3}), f32(shape{1, 3})), ErrShape, "operand 2"},
		{"topk k", "topk", "{k=2}", in(f32(shape{2, 1}), i64(shape{2, 1})), in(x), ErrAttr, "k=2"},
		{"topk too many", "topk", "", in(f32(shape{2, 4}), i64(shape{2, 4})), in(x), ErrShape, "result 0"},
		{"topk positions", "topk", "", in(f32(shape{2, 1}), f32(shape{2, 1})), in(x), ErrDType, "result 1"},
	}
}

// attentionErrors has those of attention, and what would need too much memory.
func attentionErrors() []errorCase {
	x := f32(shape{2, 3})
	w := i64(shape{3})
	q := f32(shape{1, 2, 3, 4})
	head := []Tensor{like(q), f32(shape{1, 2, 3, 1}), i64(shape{}), i64(shape{})}
	return []errorCase{
		{"dropout", "attention", "{dropout=0.1}", head, in(q, q, q), ErrUnsupported, "dropout"},
		{"attention rank", "attention", "", head, in(q, x, q), ErrShape, "operand 1"},
		{"attention heads", "attention", "", head, in(q, f32(shape{1, 3, 3, 4}), q), ErrShape, "operand 1"},
		{"attention types", "attention", "", head, in(q, q, bf16(shape{1, 2, 3, 4})), ErrDType, "operand 2"},
		{"attention lse", "attention", "", in(q, q, head[2], head[3]), in(q, q, q), ErrShape, "result 1"},
		{"attention bias", "attention", "", head, in(q, q, q, f32(shape{2})), ErrShape, "operand 3"},
		{"backward shape", "attention_backward", "", in(q, q, x), in(q, q, q, q, q, head[1], w, w), ErrShape, "result 2"},
		{"backward gradient", "attention_backward", "", in(q, q, q), in(x, q, q, q, q, head[1], w, w), ErrShape, "operand 0"},
		{"backward lse", "attention_backward", "", in(q, q, q), in(q, q, q, q, q, q, w, w), ErrShape, "operand 5"},
		{"temporary", "attention", "", head, in(q, wide(1, 2, 1<<50, 4), wide(1, 2, 1<<50, 4)), ErrUnsupported, "too large"},
		{"temporary indices", "index_put", "", in(x), in(x, f32(shape{}), wideIndex(1<<50)), ErrUnsupported, "temporary"},
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range slices.Concat(callErrors(), computeErrors(), movementErrors(), attentionErrors()) {
		t.Run(tt.name, func(t *testing.T) {
			err := Run(tt.op, attrs(t, tt.attrs), tt.outs, tt.ins)
			var e *Error
			if !errors.As(err, &e) || e.Op != tt.op || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %v with %q", err, tt.kind, tt.want)
			}
		})
	}
}

// wide is one element broadcast to a shape.
func wide(s ...int64) Tensor {
	return Tensor{DType: dtype.F32, Shape: s, Strides: make([]int64, len(s)), Data: make([]byte, 4)}
}

func wideIndex(n int64) Tensor {
	return Tensor{DType: dtype.I64, Shape: shape{n}, Strides: shape{0}, Data: make([]byte, 8)}
}

func TestCollectiveErrors(t *testing.T) {
	x, y := f32(shape{2, 3}), f32(shape{3})
	_, narrow := x.Narrow(1, 2, 4)
	_, negative := x.Narrow(-1, 0, 1)
	_, newNegative := New(dtype.F32, -1)
	_, newInvalid := New(dtype.Invalid, 1)
	_, newHuge := New(dtype.F32, 1<<60)
	tests := []struct {
		name string
		err  error
		kind error
	}{
		{"copy shape", Copy(x, y), ErrShape},
		{"copy type", Copy(x, bf16(shape{2, 3})), ErrDType},
		{"copy bounds", Copy(x, Tensor{DType: dtype.F32, Shape: x.Shape, Strides: x.Strides}), ErrBounds},
		{"range of dst", CopyRange(x, 4, y, 0, 3), ErrBounds},
		{"range of src", CopyRange(x, 0, y, 1, 3), ErrBounds},
		{"range negative", CopyRange(x, 0, y, 0, -1), ErrBounds},
		{"range huge", CopyRange(x, math.MaxInt64, y, 0, 1), ErrBounds},
		{"range type", CopyRange(x, 0, i64(shape{3}), 0, 1), ErrDType},
		{"range invalid", CopyRange(x, 0, Tensor{}, 0, 1), ErrDType},
		{"reduce nothing", Reduce("sum", x, nil), ErrArity},
		{"reduce name", Reduce("mean", x, []Tensor{x}), ErrAttr},
		{"reduce shape", Reduce("sum", x, []Tensor{x, y}), ErrShape},
		{"reduce type", Reduce("sum", x, []Tensor{x, bf16(shape{2, 3})}), ErrDType},
		{"reduce range", ReduceRange("sum", x, []Tensor{x}, 2, 7), ErrBounds},
		{"reduce backwards", ReduceRange("sum", x, []Tensor{x}, 2, 1), ErrBounds},
		{"narrow", narrow, ErrShape},
		{"narrow dim", negative, ErrShape},
		{"new", newNegative, ErrShape},
		{"new type", newInvalid, ErrShape},
		{"new size", newHuge, ErrShape},
	}
	for _, tt := range tests {
		var e *Error
		if !errors.As(tt.err, &e) || !errors.Is(tt.err, tt.kind) {
			t.Errorf("%s: got %v, want %v", tt.name, tt.err, tt.kind)
		}
	}
}

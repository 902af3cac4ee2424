package ir

import "encoding/base64"

// This file holds the builder's operations that are neither collectives nor as common as
// those of builder.go. Shapes and rules are those of the op table (op.go, ir/types/infer.go).

// Full returns a tensor of type t, all of whose elements are c.
func (fb *FuncBuilder) Full(t Type, c float64) *Value { return fb.one(OpFull, A("value", c), nil, t) }

// Constant returns a tensor of type t whose elements are data: in row-major order,
// little-endian, 64 KiB at most. What is larger is a parameter.
func (fb *FuncBuilder) Constant(t Type, data []byte) *Value {
	return fb.one(OpConstant, A("data", base64.StdEncoding.EncodeToString(data)), nil, t)
}

// Iota returns start, start+step, ... as a vector of type t.
func (fb *FuncBuilder) Iota(t Type, start, step int64) *Value {
	return fb.one(OpIota, A("start", start, "step", step), nil, t)
}

// Rand returns uniform numbers in [0, 1), others in every run; seed is mixed into the
// generator's state.
func (fb *FuncBuilder) Rand(t Type, seed int64) *Value {
	return fb.one(OpRand, A("seed", seed), nil, t)
}

// Sub returns a - b, elementwise.
func (fb *FuncBuilder) Sub(a, b *Value) *Value { return fb.Binary(OpSub, a, b) }

// Div returns a / b, elementwise.
func (fb *FuncBuilder) Div(a, b *Value) *Value { return fb.Binary(OpDiv, a, b) }

// Clamp returns min(max(x, low), high).
func (fb *FuncBuilder) Clamp(x *Value, low, high float64) *Value {
	return fb.one(OpClamp, A("min", low, "max", high), []*Value{x})
}

// Where returns a where cond, of element type bool, holds, else b.
func (fb *FuncBuilder) Where(cond, a, b *Value) *Value {
	return fb.one(OpWhere, nil, []*Value{cond, a, b})
}

// Fma returns a*b + c, rounded once.
func (fb *FuncBuilder) Fma(a, b, c *Value) *Value { return fb.one(OpFma, nil, []*Value{a, b, c}) }

// Argmax returns the index of the first largest element along dim.
func (fb *FuncBuilder) Argmax(x *Value, dim int64, keepdim bool) *Value {
	return fb.one(OpArgmax, A("dim", dim, "keepdim", keepdim), []*Value{x})
}

// Cumsum returns running sums along dim.
func (fb *FuncBuilder) Cumsum(x *Value, dim int64) *Value {
	return fb.one(OpCumsum, A("dim", dim), []*Value{x})
}

// Softmax returns exp(x - max) over its sum along dim.
func (fb *FuncBuilder) Softmax(x *Value, dim int64) *Value {
	return fb.one(OpSoftmax, A("dim", dim), []*Value{x})
}

// LogSoftmax returns the logarithm of softmax along dim.
func (fb *FuncBuilder) LogSoftmax(x *Value, dim int64) *Value {
	return fb.one(OpLogSoftmax, A("dim", dim), []*Value{x})
}

// Addmm returns beta*c + alpha*(a x b).
func (fb *FuncBuilder) Addmm(c, a, b *Value, beta, alpha float64) *Value {
	return fb.one(OpAddmm, A("beta", beta, "alpha", alpha), []*Value{c, a, b})
}

// GroupedMatmul returns a product for each group of rows ([m,k] by [g,k,n]), of columns
// ([g,m,k] by [k,n]) or of inner indices ([m,k] by [k,n], giving [g,m,n]), where group i
// ends before ends[i] and begins where the one before it ends.
func (fb *FuncBuilder) GroupedMatmul(a, b, ends *Value) *Value {
	return fb.one(OpGroupedMatmul, nil, []*Value{a, b, ends})
}

// Attention returns softmax(scale q k^T + bias) v of [batch, head, sequence, size], the
// log-sum-exp of the scores, and seed and offset of its dropout. bias may be nil; scale 0
// stands for one over the root of the head size; causal masks the keys behind each query.
func (fb *FuncBuilder) Attention(q, k, v, bias *Value, causal bool, scale float64) []*Value {
	args := []*Value{q, k, v}
	if bias != nil {
		args = append(args, bias)
	}
	l := A("causal", causal)
	if scale != 0 {
		l = l.With("scale", A("scale", scale)[0].Val)
	}
	return fb.Op(OpAttention, nil, l, args)
}

// Clone returns a copy of x, row-major.
func (fb *FuncBuilder) Clone(x *Value) *Value { return fb.one(OpClone, nil, []*Value{x}) }

// Cat returns the operands one after the other along dim.
func (fb *FuncBuilder) Cat(dim int64, xs ...*Value) *Value { return fb.one(OpCat, A("dim", dim), xs) }

// Index returns the elements of x at the indices that integer tensors, one for each of
// dims, give; the tensors broadcast.
func (fb *FuncBuilder) Index(x *Value, dims []int64, indices ...*Value) *Value {
	return fb.one(OpIndex, A("dims", dims), append([]*Value{x}, indices...))
}

// IndexPut returns x with values written, or added, at the indices that integer tensors,
// one for each of dims, give.
func (fb *FuncBuilder) IndexPut(x, values *Value, dims []int64, accumulate bool, indices ...*Value) *Value {
	return fb.one(OpIndexPut, A("dims", dims, "accumulate", accumulate), append([]*Value{x, values}, indices...))
}

// IndexAdd returns x with slices of values, times alpha, added at indices along dim.
func (fb *FuncBuilder) IndexAdd(x, indices, values *Value, dim int64, alpha float64) *Value {
	return fb.one(OpIndexAdd, A("dim", dim, "alpha", alpha), []*Value{x, indices, values})
}

// Gather returns the elements of x at indices along dim.
func (fb *FuncBuilder) Gather(x, indices *Value, dim int64) *Value {
	return fb.one(OpGather, A("dim", dim), []*Value{x, indices})
}

// Scatter returns x with values written at indices along dim.
func (fb *FuncBuilder) Scatter(x, indices, values *Value, dim int64) *Value {
	return fb.one(OpScatter, A("dim", dim), []*Value{x, indices, values})
}

// SliceScatter returns x with indices start up to end of dim replaced by part.
func (fb *FuncBuilder) SliceScatter(x, part *Value, dim, start, end int64) *Value {
	return fb.one(OpSliceScatter, A("dim", dim, "start", start, "end", end), []*Value{x, part})
}

// Embedding returns the rows of a table at indices.
func (fb *FuncBuilder) Embedding(table, indices *Value) *Value {
	return fb.one(OpEmbedding, nil, []*Value{table, indices})
}

// TopK returns the k largest elements along dim, in order, and their indices.
func (fb *FuncBuilder) TopK(x *Value, k, dim int64) (values, indices *Value) {
	r := fb.Op(OpTopk, nil, A("k", k, "dim", dim), []*Value{x})
	return r[0], r[1]
}

// Expand returns x under a shape in which dimensions of one are repeated, without a copy.
func (fb *FuncBuilder) Expand(x *Value, shape Shape) *Value {
	return fb.one(OpExpand, nil, []*Value{x}, TensorOf(typeOf(x).DType(), shape))
}

// Split returns consecutive pieces of x along dim, without copies.
func (fb *FuncBuilder) Split(x *Value, dim int64, sizes ...int64) []*Value {
	r := fb.Op(OpSplit, nil, A("dim", dim, "sizes", sizes), []*Value{x})
	for len(r) < len(sizes) { // after an error
		r = append(r, r[0])
	}
	return r
}

// Squeeze returns x without the dimensions of one among dims, without a copy.
func (fb *FuncBuilder) Squeeze(x *Value, dims ...int64) *Value {
	return fb.one(OpSqueeze, A("dims", dims), []*Value{x})
}

// Unsqueeze returns x with a dimension of one before dim, without a copy.
func (fb *FuncBuilder) Unsqueeze(x *Value, dim int64) *Value {
	return fb.one(OpUnsqueeze, A("dim", dim), []*Value{x})
}

// Select returns one index of dim, without a copy.
func (fb *FuncBuilder) Select(x *Value, dim, index int64) *Value {
	return fb.one(OpSelect, A("dim", dim, "index", index), []*Value{x})
}

// AsStrided returns any layout of the elements of x, without a copy: t with its strides,
// from element offset on.
func (fb *FuncBuilder) AsStrided(x *Value, t Type, offset int64) *Value {
	return fb.one(OpAsStrided, A("offset", offset), []*Value{x}, t)
}

// CollectivePermute starts moving the operands from source to destination, given as
// source, destination, source, destination, ... by group rank; a rank that receives
// nothing gets zeros.
func (fb *FuncBuilder) CollectivePermute(g *Group, pairs []int64, xs ...*Value) *Value {
	return fb.comm(OpCollectivePermute, g, A("pairs", pairs), xs)
}

// Call appends an operation that concert does not know. effects are among writes,
// communicates, random and alias; class is compute or memory.
func (fb *FuncBuilder) Call(target, class string, effects []string, args []*Value, types ...Type) []*Value {
	l := A("class", class)
	if len(effects) > 0 {
		l = l.With("effects", A("effects", effects)[0].Val)
	}
	return fb.CallWith(target, nil, l, args, types...)
}

// CallWith appends an operation that concert does not know, with attributes of its own,
// which whoever computes it finds again. The names target, class, effects, writes and
// payload are concert's. group may be nil.
func (fb *FuncBuilder) CallWith(target string, group *Group, attrs Attrs, args []*Value, types ...Type) []*Value {
	return fb.Op(OpCall, group, attrs.With("target", A("target", target)[0].Val), args, types...)
}

// AsyncCall starts communication that concert does not know, on the stream of its group: it
// overlaps with compute as collectives do, and is waited for as they are. t is the type of
// the tensor that it gives. The names target and payload are concert's.
func (fb *FuncBuilder) AsyncCall(target string, g *Group, attrs Attrs, x *Value, t Type) *Value {
	return fb.Op(OpAsyncCall, g, attrs.With("target", A("target", target)[0].Val), []*Value{x}, Async(t))[0]
}

package ir

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir/types"
)

// windowAttrs say how windows slide, one number for each dimension that has them.
var windowAttrs = []AttrSpec{
	{window.StridesKey, attr.KindInts, false, "distance of windows, 1 if absent"},
	{window.PaddingKey, attr.KindInts, false, "elements added before and after, negative to crop; 0 if absent"},
	{window.BaseKey, attr.KindInts, false, "distance of the operand's elements, 1 if absent"},
	{window.DilationKey, attr.KindInts, false, "distance of a window's places, 1 if absent"},
	{window.ReverseKey, attr.KindInts, false, "1 where a window's places are counted from its end"},
}

// Attribute declarations that several ops share.
var (
	aDim     = AttrSpec{"dim", attr.KindInt, true, "dimension, counted from 0"}
	aDim0    = AttrSpec{"dim", attr.KindInt, false, "dimension that is gathered or scattered, 0 if absent"}
	aDims    = AttrSpec{"dims", attr.KindInts, false, "dimensions, all if absent"}
	aDimsReq = AttrSpec{"dims", attr.KindInts, true, "dimensions"}
	aKeep    = AttrSpec{"keepdim", attr.KindBool, false, "keep reduced dimensions as 1"}
	aScalar  = AttrSpec{"scalar", attr.KindFloat, false, "number in place of the second operand"}
	aReverse = AttrSpec{"reverse", attr.KindBool, false, "the scalar is the first operand"}
	aAlpha   = AttrSpec{"alpha", attr.KindFloat, false, "factor of the second operand"}
	aReduce  = AttrSpec{"reduce", attr.KindString, true, "sum, avg, product, min or max"}
	aCausal  = AttrSpec{"causal", attr.KindBool, false, "mask the keys after each query"}
	aScale   = AttrSpec{"scale", attr.KindFloat, false, "factor of the scores, 1/sqrt(head size) if absent"}
	aDropout = AttrSpec{"dropout", attr.KindFloat, false, "dropout probability; only 0 is deterministic"}
	aAccum   = AttrSpec{"accumulate", attr.KindBool, false, "add instead of replace"}
	aStart   = AttrSpec{"start", attr.KindInt, false, "first index"}
	aEnd     = AttrSpec{"end", attr.KindInt, false, "index past the last, the size if absent"}
	aUniform = AttrSpec{UniformKey, attr.KindBool, false, "all ranks take the same path; the author guarantees it"}
	aStep    = AttrSpec{"step", attr.KindInt, false, "distance of indices, 1 if absent"}
)

func unary(name, doc string) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Elementwise: true, Types: types.Pointwise, Doc: doc,
		Example: "%r = " + name + " %x : f32[4,8]"}
}

// costly says that computing an element costs more than reading it.
func (i OpInfo) costly() OpInfo { i.Costly = true; return i }

// exact says that nothing but the result's type rounds.
func (i OpInfo) exact() OpInfo { i.Exact = true; return i }

// with adds attributes.
func (i OpInfo) with(attrs ...AttrSpec) OpInfo { i.Attrs = append(i.Attrs, attrs...); return i }

func binary(name, doc string, more ...AttrSpec) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: 1, MaxArgs: 2, NumResults: 1, Elementwise: true,
		Attrs: append([]AttrSpec{aScalar}, more...), Types: types.Pointwise, Doc: doc, Example: "%r = " + name + " %x, %b : f32[4,8]"}
}

// bitwise is an op of integers.
func bitwise(name, doc string, operands int, more ...AttrSpec) OpInfo {
	i := binary(name, doc, more...)
	i.Types, i.MaxArgs, i.Exact, i.Example = types.Bitwise, operands, true, "%r = "+name+" %i, %i : i64[3]"
	if operands == 1 {
		i.Attrs, i.Example = nil, "%r = "+name+" %i : i64[3]"
	}
	return i
}

func compare(name, doc string) OpInfo {
	i := binary(name, doc)
	i.Types, i.Exact, i.Example = types.Compare, true, "%r = "+name+" %x {scalar=0.0} : bool[4,8]"
	return i
}

func reduction(name, doc string) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Attrs: []AttrSpec{aDims, aKeep}, Types: types.Reduce, Doc: doc,
		Example: "%r = " + name + " %x {dims=[1]} : f32[4]"}
}

func view(name string, results int, types TypeRule, example, doc string, attrs ...AttrSpec) OpInfo {
	return OpInfo{Name: name, Class: ClassView, MinArgs: 1, MaxArgs: 1, NumResults: results, Effects: EffectAlias, Attrs: attrs, Types: types, Doc: doc, Example: example}
}

func memory(name string, minArgs, maxArgs, results int, types TypeRule, example, doc string, attrs ...AttrSpec) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: minArgs, MaxArgs: maxArgs, NumResults: results, Attrs: attrs, Types: types, Doc: doc, Example: example}
}

func collective(name string, reduces bool, types TypeRule, example, doc string, attrs ...AttrSpec) OpInfo {
	if reduces {
		attrs = append(attrs, aReduce)
	}
	return OpInfo{Name: name, Class: ClassCollective, MinArgs: 1, MaxArgs: -1, NumResults: 1, Effects: EffectCommunicates, Reduces: reduces, Attrs: attrs, Types: types, Doc: doc, Example: example}
}

// opTable is the one op table, indexed by Op. Passes ask its columns instead of
// naming ops; adding an op is adding a row, an example, its type rule, its kernel in
// internal/hostops and a case to the tests that walk the table.
var opTable = [numOps]OpInfo{
	OpInvalid: {Name: "invalid", Class: ClassMemory, MaxArgs: -1, NumResults: -1, Types: types.Declared, Doc: "no operation"},
	OpInput: {Name: "input", Class: ClassInput, NumResults: 1, Types: types.Declared, Doc: "a parameter of the function",
		Attrs: []AttrSpec{{DonateKey, attr.KindInt, false, "number of the result that takes its memory when the function ends"},
			{UniformKey, attr.KindBool, false, "equal on all ranks; the caller guarantees it"}}},
	OpReturn: {Name: "return", Class: ClassOutput, MaxArgs: -1, Types: types.Declared, Example: "return %x", Doc: "the function's results"},

	OpFull: memory("full", 0, 0, 1, types.Declared, "%r = full {value=0.5} : f32[4,8]", "a tensor of one number", AttrSpec{"value", attr.KindFloat, true, "the number"}),
	OpConstant: memory("constant", 0, 0, 1, types.Constant, `%r = constant {data="AACAPwAAAEA="} : f32[2]`, "a tensor of numbers that the text holds",
		AttrSpec{"data", attr.KindString, true, "the elements in row-major order, little-endian, in base64; 64 KiB at most: what is larger is a parameter"}),
	OpIota: memory("iota", 0, 0, 1, types.Declared, "%r = iota {start=0, step=2} : i64[8]", "start, start+step, ... along the only dimension",
		AttrSpec{"start", attr.KindInt, false, "first number, 0 if absent"}, AttrSpec{"step", attr.KindInt, false, "distance of numbers, 1 if absent"}),
	OpRand: {Name: "rand", Class: ClassMemory, NumResults: 1, Effects: EffectRandom, Types: types.Declared, Example: "%r = rand {seed=7} : f32[4,8]", Doc: "uniform numbers in [0, 1), new at each call",
		Attrs: []AttrSpec{{"seed", attr.KindInt, false, "mixed into the generator's state"}}},

	OpNeg:        unary("neg", "-x").exact(),
	OpExp:        unary("exp", "e to the x").costly(),
	OpLog:        unary("log", "natural logarithm").costly(),
	OpSqrt:       unary("sqrt", "square root"),
	OpRsqrt:      unary("rsqrt", "1/sqrt(x)"),
	OpReciprocal: unary("reciprocal", "1/x"),
	OpAbs:        unary("abs", "magnitude").exact(),
	OpSigmoid:    unary("sigmoid", "1/(1+exp(-x))").costly(),
	OpTanh:       unary("tanh", "hyperbolic tangent").costly(),
	OpRelu:       unary("relu", "max(x, 0)").exact(),
	OpSilu:       unary("silu", "x*sigmoid(x)").costly(),
	OpGelu: unary("gelu", "x times the normal distribution function of x").costly().with(
		AttrSpec{"approximate", attr.KindString, false, "tanh for the approximation by tanh; none if absent"}),
	OpSin:        unary("sin", "sine").costly(),
	OpCos:        unary("cos", "cosine").costly(),
	OpFloor:      unary("floor", "largest integer not above x").exact(),
	OpCeil:       unary("ceil", "smallest integer not below x").exact(),
	OpRound:      unary("round", "nearest integer, the even one of two").exact(),
	OpTrunc:      unary("trunc", "x without its fraction").exact(),
	OpSign:       unary("sign", "-1, 0 or 1 as x is below, equal to or above 0, and 0 for NaN").exact(),
	OpErf:        unary("erf", "error function").costly(),
	OpErfc:       unary("erfc", "1 - erf(x)").costly(),
	OpExp2:       unary("exp2", "2 to the x").costly(),
	OpExpm1:      unary("expm1", "exp(x) - 1").costly(),
	OpLog2:       unary("log2", "logarithm to base 2").costly(),
	OpLog10:      unary("log10", "logarithm to base 10").costly(),
	OpLog1p:      unary("log1p", "log(1 + x)").costly(),
	OpTan:        unary("tan", "tangent").costly(),
	OpAsin:       unary("asin", "inverse sine").costly(),
	OpAcos:       unary("acos", "inverse cosine").costly(),
	OpAtan:       unary("atan", "inverse tangent").costly(),
	OpSinh:       unary("sinh", "hyperbolic sine").costly(),
	OpCosh:       unary("cosh", "hyperbolic cosine").costly(),
	OpAsinh:      unary("asinh", "inverse hyperbolic sine").costly(),
	OpAcosh:      unary("acosh", "inverse hyperbolic cosine").costly(),
	OpAtanh:      unary("atanh", "inverse hyperbolic tangent").costly(),
	OpCbrt:       unary("cbrt", "cube root").costly(),
	OpLogicalNot: unary("logical_not", "x == 0").exact(),
	OpBitwiseNot: bitwise("bitwise_not", "every bit of x inverted", 1),
	OpConvert:    unary("convert", "the same numbers in the result's element type"),
	OpBitcast:    {Name: "bitcast", Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Elementwise: true, Exact: true, Types: types.Bitcast, Example: "%r = bitcast %i : f64[3]", Doc: "the same bits in the result's element type"},
	OpClamp: {Name: "clamp", Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Elementwise: true, Exact: true, Types: types.Pointwise, Example: "%r = clamp %x {max=6.0, min=0.0} : f32[4,8]", Doc: "min(max(x, min), max)",
		Attrs: []AttrSpec{{"min", attr.KindFloat, false, "lower bound"}, {"max", attr.KindFloat, false, "upper bound"}}},

	OpAdd:         binary("add", "a + alpha*b", aAlpha),
	OpSub:         binary("sub", "a - alpha*b", aAlpha, aReverse),
	OpMul:         binary("mul", "a * b"),
	OpDiv:         binary("div", "a / b", aReverse),
	OpPow:         binary("pow", "a to the b", aReverse).costly(),
	OpAtan2:       binary("atan2", "angle of the point (b, a)", aReverse).costly(),
	OpFmod:        binary("fmod", "a - b*trunc(a/b), with the sign of a; of integers a where b is 0", aReverse).exact().costly(),
	OpRemainder:   binary("remainder", "a - b*floor(a/b), with the sign of b; of integers a where b is 0", aReverse).costly(),
	OpFloorDivide: binary("floor_divide", "floor(a/b); of integers -1 where b is 0", aReverse).costly(),
	OpTruncDivide: binary("trunc_divide", "trunc(a/b); of integers -1 where b is 0", aReverse),
	OpMaximum:     binary("maximum", "the larger").exact(),
	OpMinimum:     binary("minimum", "the smaller").exact(),
	OpEq:          compare("eq", "a == b"),
	OpNe:          compare("ne", "a != b"),
	OpLt:          compare("lt", "a < b"),
	OpLe:          compare("le", "a <= b"),
	OpGt:          compare("gt", "a > b"),
	OpGe:          compare("ge", "a >= b"),
	OpLogicalAnd:  compare("logical_and", "a != 0 and b != 0"),
	OpLogicalOr:   compare("logical_or", "a != 0 or b != 0"),
	OpBitwiseAnd:  bitwise("bitwise_and", "bits set in both", 2),
	OpBitwiseOr:   bitwise("bitwise_or", "bits set in one or both", 2),
	OpBitwiseXor:  bitwise("bitwise_xor", "bits set in one", 2),
	OpShiftLeft:   bitwise("shift_left", "a's bits moved up by b; 0 where b is negative or not below the width", 2, aReverse),
	OpShiftRight:  bitwise("shift_right", "a's bits moved down by b, with copies of the sign; only those where b is negative or not below the width", 2, aReverse),

	OpWhere: {Name: "where", Class: ClassMemory, MinArgs: 3, MaxArgs: 3, NumResults: 1, Elementwise: true, Exact: true, Types: types.Pointwise, Example: "%r = where %c, %x, %b : f32[4,8]", Doc: "a where cond is true, else b"},
	OpFma:   {Name: "fma", Class: ClassMemory, MinArgs: 3, MaxArgs: 3, NumResults: 1, Elementwise: true, Types: types.Pointwise, Example: "%r = fma %x, %x, %b : f32[4,8]", Doc: "a*b + c, rounded once"},

	OpSum:    reduction("sum", "sum over dims"),
	OpMean:   reduction("mean", "mean over dims"),
	OpAmax:   reduction("amax", "largest over dims; of none the least number of the type"),
	OpAmin:   reduction("amin", "smallest over dims; of none the largest number of the type"),
	OpProd:   reduction("prod", "product over dims"),
	OpArgmax: memory("argmax", 1, 1, 1, types.Reduce, "%r = argmax %x {dim=1} : i64[4]", "index of the first largest along dim", aDim, aKeep),
	OpReduceWindow: memory("reduce_window", 1, 2, 1, types.ReduceWindow, `%r = reduce_window %image {padding=[0, 0, 0, 0, 1, 1, 0, 0], reduce="max", strides=[1, 1, 2, 2], window=[1, 1, 3, 2]} : f32[2,4,3,3]`,
		"reduction of each window's elements; padding and the gaps of dilation are excluded. Of operand 1, only elements count whose place in the window, in row-major order, it says. argmax is the place of the first largest, of the last NaN if there is one, 0 where there is nothing",
		append([]AttrSpec{{"reduce", attr.KindString, true, "sum, product, min, max or argmax"}, {"window", attr.KindInts, true, "sizes of the window"}}, windowAttrs...)...),
	OpCumsum:     memory("cumsum", 1, 1, 1, types.Same, "%r = cumsum %x {dim=1} : f32[4,8]", "running sum along dim", aDim),
	OpSoftmax:    memory("softmax", 1, 1, 1, types.Same, "%r = softmax %x {dim=1} : f32[4,8]", "exp(x - max) over its sum along dim", aDim),
	OpLogSoftmax: memory("log_softmax", 1, 1, 1, types.Same, "%r = log_softmax %x {dim=1} : f32[4,8]", "logarithm of softmax along dim", aDim),

	OpMatmul: {Name: "matmul", Class: ClassCompute, MinArgs: 2, MaxArgs: 2, NumResults: 1, Types: types.Matmul, Example: "%r = matmul %x, %w : f32[4,16]", Doc: "[m,k] x [k,n], or [b,m,k] x [b,k,n]"},
	OpAddmm: {Name: "addmm", Class: ClassCompute, MinArgs: 3, MaxArgs: 3, NumResults: 1, Types: types.Addmm, Example: "%r = addmm %bias, %x, %w {alpha=1.0, beta=0.5} : f32[4,16]", Doc: "beta*c + alpha*(a x b)",
		Attrs: []AttrSpec{aAlpha, {"beta", attr.KindFloat, false, "factor of c, 1 if absent"}}},
	OpGroupedMatmul: {Name: "grouped_matmul", Class: ClassCompute, MinArgs: 3, MaxArgs: 3, NumResults: 1, Generated: true, Types: types.GroupedMatmul, Example: "%r = grouped_matmul %x, %experts, %ends : f32[4,16]",
		Doc: "grouped GEMM: a matmul for each group of consecutive rows, columns or inner indices, whose ends operand 2 has. Rows and columns after the last group are 0, inner indices there are ignored"},
	OpConvolution: {Name: "convolution", Class: ClassCompute, MinArgs: 2, MaxArgs: 2, NumResults: 1, Generated: true, Types: types.Convolution, Example: "%r = convolution %image, %halves {groups=2, padding=[1, 1, 0, -1], strides=[2, 1]} : f32[2,20,3,3]", Doc: "sums of the products of windows of [n,c,...] with the rows of [o,c,...]; padding counts as zeros, gaps of a base dilation do not count",
		Attrs: append(slices.Clone(windowAttrs), AttrSpec{"groups", attr.KindInt, false, "parts of channels, each with its part of the rows; 1 if absent"}, AttrSpec{"batch_groups", attr.KindInt, false, "parts of the batch, each with its part of the rows; 1 if absent"})},
	OpAttention: {Name: "attention", Class: ClassCompute, MinArgs: 3, MaxArgs: 4, NumResults: 4, Types: types.Attention, Attrs: []AttrSpec{aCausal, aScale, aDropout}, RandomAttr: "dropout",
		Example: "%r:4 = attention %q, %q, %q {causal=true} : bf16[2,4,16,8], f32[2,4,16,1], i64[], i64[]", Doc: "softmax(scale q k^T + bias) v on [b,h,s,d]; results: output, log-sum-exp of the scores, seed and offset of the dropout"},
	OpAttentionBackward: {Name: "attention_backward", Class: ClassCompute, MinArgs: 8, MaxArgs: 9, NumResults: 3, Types: types.AttentionBackward, Attrs: []AttrSpec{aCausal, aScale, aDropout},
		Example: "%r:3 = attention_backward %q, %q, %q, %q, %q, %lse, %seed, %seed {causal=true} : bf16[2,4,16,8], bf16[2,4,16,8], bf16[2,4,16,8]", Doc: "gradients of q, k and v from (gradient, q, k, v, output, log-sum-exp, seed, offset, bias)"},

	OpClone:        memory("clone", 1, 1, 1, types.Same, "%r = clone %x : f32[4,8]", "a copy in the result's layout"),
	OpCat:          memory("cat", 1, -1, 1, types.Cat, "%r = cat %x, %rows {dim=0} : f32[7,8]", "operands one after the other along dim", aDim),
	OpIndex:        memory("index", 2, -1, 1, types.Index, "%r = index %x, %i {dims=[0]} : f32[3,8]", "elements at the indices that the index tensors give for dims", aDimsReq),
	OpIndexPut:     memory("index_put", 3, -1, 1, types.IndexPut, "%r = index_put %x, %rows, %i {dims=[0]} : f32[4,8]", "operand 0 with operand 1 written at the indices that the index tensors give for dims", aDimsReq, aAccum),
	OpIndexAdd:     memory("index_add", 3, 3, 1, types.LikeFirst, "%r = index_add %x, %i, %rows {dim=0} : f32[4,8]", "operand 0 with slices of operand 2 added at the indices in operand 1 along dim", aDim, aAlpha),
	OpGather:       memory("gather", 2, 2, 1, types.Gather, "%r = gather %x, %j {dim=1} : f32[4,2]", "elements of operand 0 at the indices in operand 1 along dim", aDim),
	OpScatter:      memory("scatter", 2, 3, 1, types.LikeFirst, "%r = scatter %x, %j {dim=1, value=0.0} : f32[4,8]", "operand 0 with operand 2, or value, written at the indices in operand 1 along dim", aDim, AttrSpec{"value", attr.KindFloat, false, "number in place of operand 2"}, AttrSpec{"reduce", attr.KindString, false, "add or multiply instead of replace"}),
	OpSliceScatter: memory("slice_scatter", 2, 2, 1, types.SliceScatter, "%r = slice_scatter %x, %rows {dim=0, end=3} : f32[4,8]", "operand 0 with a slice along dim replaced by operand 1", aDim, aStart, aEnd, aStep),
	OpEmbedding:    memory("embedding", 2, 2, 1, types.Embedding, "%r = embedding %x, %i : f32[3,8]", "rows of operand 0 at the indices in operand 1"),
	OpTopk: memory("topk", 1, 1, 2, types.Topk, "%r:2 = topk %x {dim=1, k=2} : f32[4,2], i64[4,2]", "the k largest along dim and their indices", AttrSpec{"k", attr.KindInt, true, "how many"}, aDim,
		AttrSpec{"largest", attr.KindBool, false, "true if absent; false takes the smallest"}, AttrSpec{"sorted", attr.KindBool, false, "in order, true if absent"}),
	OpReadSize: {Name: "read_size", Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Effects: EffectSizes, Elementwise: true, Exact: true, Types: types.ReadSize, Example: `%r = read_size %counts {symbols=["u0", "u1"]} : i64[2]`,
		Doc:   "sets symbols on this rank to the elements of the operand, which the result copies; a value outside of the symbol's bounds is an error on all ranks",
		Attrs: []AttrSpec{{SymbolsKey, attr.KindStrings, true, "a symbol for each element; nodes that name one come after"}}},
	OpShard: {Name: "shard", Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Grouped: true, Attrs: []AttrSpec{aDim}, Types: types.Shard,
		Example: "%r = shard %x on @tp {dim=0} : f32[2,8]", Doc: "this rank's shard of the operand along dim, by its group rank; a copy, since its offset is known only at run time"},

	OpView:      view("view", 1, types.View, "%r = view %x : f32[2,16]", "the same elements in row-major order under another shape"),
	OpPermute:   view("permute", 1, types.Permute, "%r = permute %x {dims=[1, 0]} : f32[8,4:1,8]", "dimensions in another order", aDimsReq),
	OpExpand:    view("expand", 1, types.Expand, "%r = expand %bias : f32[4,16:0,1]", "dimensions of one repeated without copying"),
	OpSlice:     view("slice", 1, types.Slice, "%r = slice %x {dim=1, end=6, start=2} : f32[4,4:8,1]", "start, start+step, ... below end along dim", aDim, aStart, aEnd, aStep),
	OpSplit:     view("split", -1, types.Split, "%r:2 = split %x {dim=0, sizes=[1, 3]} : f32[1,8], f32[3,8]", "consecutive pieces along dim", aDim, AttrSpec{"sizes", attr.KindInts, true, "size of each piece"}),
	OpSqueeze:   view("squeeze", 1, types.Squeeze, "%r = squeeze %lse {dims=[3]} : f32[2,4,16]", "without the dimensions of one among dims", aDimsReq),
	OpUnsqueeze: view("unsqueeze", 1, types.Unsqueeze, "%r = unsqueeze %x {dim=0} : f32[1,4,8]", "with a dimension of one before dim", aDim),
	OpSelect:    view("select", 1, types.Select, "%r = select %x {dim=0, index=2} : f32[8]", "one index of dim", aDim, AttrSpec{"index", attr.KindInt, true, "the index"}),
	OpAlias:     view("alias", 1, types.Alias, "%r = alias %x : f32[4,8]", "the operand under another name"),
	OpAsStrided: view("as_strided", 1, types.AsStrided, "%r = as_strided %x {offset=8} : f32[3,2:8,4]", "any layout of the operand's elements", AttrSpec{"offset", attr.KindInt, false, "first element, counted from the operand's first; 0 if absent"}),

	OpAllReduce:     collective("all_reduce", true, types.AllReduce, "%r = all_reduce.sum %x on @tp : async f32[4,8]", "the reduction of every rank's operand, on every rank"),
	OpAllGather:     collective("all_gather", false, types.AllGather, "%r = all_gather %x, %bias on @tp {dim=0} : async(f32[8,8], f32[32])", "every rank's operand one after the other along dim", aDim0),
	OpReduceScatter: collective("reduce_scatter", true, types.ReduceScatter, "%r = reduce_scatter.avg %x on @tp {dim=0} : async f32[2,8]", "this rank's piece along dim of the reduction", aDim0),
	OpAllToAll: collective("all_to_all", false, types.AllToAll, `%r = all_to_all %x on @tp {in_splits=["1,3"], out_splits=["2,3"]} : async f32[5,8]`, "piece i of each rank's operand along dimension 0 goes to rank i",
		AttrSpec{"in_splits", attr.KindStrings, false, "size of the piece for each rank, per operand: dimension expressions; equal if absent"},
		AttrSpec{"out_splits", attr.KindStrings, false, "size of the piece from each rank, per operand"}),
	OpBroadcast:         collective("broadcast", false, types.AllReduce, "%r = broadcast %x on @tp {root=0} : async f32[4,8]", "the operand of group rank root, on every rank", AttrSpec{"root", attr.KindInt, true, "rank within the subgroup"}),
	OpCollectivePermute: collective("collective_permute", false, types.AllReduce, "%r = collective_permute %x on @tp {pairs=[0, 1, 1, 0]} : async f32[4,8]", "operands move from source to destination; a rank that receives nothing gets zeros", AttrSpec{"pairs", attr.KindInts, true, "source, destination, source, destination, ... within the subgroup"}),
	OpWaitTensor:        {Name: "wait_tensor", Class: ClassWait, MinArgs: 1, MaxArgs: 1, NumResults: -1, Effects: EffectAlias, Types: types.Wait, Example: "%r = wait_tensor %g : f32[8,8]", Doc: "the tensors of a collective, once it has finished"},

	OpAsyncCall: {Name: "async_call", Class: ClassCollective, MinArgs: 1, MaxArgs: 1, NumResults: 1, Effects: EffectCommunicates, Types: types.AsyncCall, AnyAttrs: true,
		Doc: "custom communication on its group's stream; it may have any attributes", Example: `%r = async_call %x on @tp {target="my.all_reduce"} : async f32[4,8]`,
		Attrs: []AttrSpec{{"target", attr.KindString, true, "its name"}, {"payload", attr.KindString, false, "verbatim text for the implementation of the target"}}},
	OpWhile: {Name: "while", Class: ClassCompute, MinArgs: 1, MaxArgs: -1, NumResults: -1, Bodies: []string{CondKey, BodyKey}, Types: types.While,
		Example: `%r:2 = while %seed, %x, %b {body="step", cond="more", trips=3} : i64[], f32[4,8]`,
		Doc:     "runs body while cond is true. The first operands are carried, one for each result: body returns their values for the next iteration, and finally the results. The other operands are the same in every iteration",
		Attrs: []AttrSpec{{CondKey, attr.KindString, true, "function from all operands to bool[]"}, {BodyKey, attr.KindString, true, "function from all operands to the results"},
			{"trips", attr.KindInt, false, "number of iterations for costs, 1 if absent"}, aUniform}},
	OpCase: {Name: "case", Class: ClassCompute, MinArgs: 1, MaxArgs: -1, NumResults: -1, Bodies: []string{BranchesKey}, Types: types.Case,
		Example: `%r = case %seed, %x, %b {branches=["plus", "times", "minus"]} : f32[4,8]`,
		Doc:     "runs one of the branches on the operands after the first, which is its number; the last one if there is no such number. A bool counts as 0 or 1",
		Attrs:   []AttrSpec{{BranchesKey, attr.KindStrings, true, "functions from the operands after the first to the results"}, aUniform}},
	OpCall: {Name: "call", Class: ClassMemory, MaxArgs: -1, NumResults: -1, Types: types.Declared, Example: `%r = call %x, %w {class="compute", target="my.op"} : f32[4,16]`, Doc: "a custom operation; it may have any attributes", AnyAttrs: true,
		Attrs: []AttrSpec{{"target", attr.KindString, true, "its name"}, {"effects", attr.KindStrings, false, "of writes, communicates, random, alias"},
			{"writes", attr.KindInts, false, "numbers of the operands that it writes in place, all if absent"},
			{"class", attr.KindString, false, "compute or memory, memory if absent"}, {"payload", attr.KindString, false, "verbatim text for the implementation of the target"}}},
}

package ir

import "github.com/seed-ee968945/concert/internal/attr"

// Attribute declarations that several ops share.
var (
	aParts    = AttrSpec{"parts", attr.KindInt, false, "how many equal pieces each tensor is cut into, 1 if absent"}
	aPieceDim = AttrSpec{"dim", attr.KindInt, false, "dimension along which they are cut, 0 if absent"}
	aDim      = AttrSpec{"dim", attr.KindInt, true, "dimension, counted from 0"}
	aDim0     = AttrSpec{"dim", attr.KindInt, false, "dimension that is gathered or scattered, 0 if absent"}
	aDims     = AttrSpec{"dims", attr.KindInts, false, "dimensions, all if absent"}
	aDimsReq  = AttrSpec{"dims", attr.KindInts, true, "dimensions"}
	aKeep     = AttrSpec{"keepdim", attr.KindBool, false, "keep reduced dimensions as 1"}
	aScalar   = AttrSpec{"scalar", attr.KindFloat, false, "number in place of the second operand"}
	aReverse  = AttrSpec{"reverse", attr.KindBool, false, "the scalar is the first operand"}
	aAlpha    = AttrSpec{"alpha", attr.KindFloat, false, "factor of the second operand"}
	aReduce   = AttrSpec{"reduce", attr.KindString, true, "sum, avg, product, min or max"}
	aCausal   = AttrSpec{"causal", attr.KindBool, false, "mask the keys after each query"}
	aScale    = AttrSpec{"scale", attr.KindFloat, false, "factor of the scores, 1/sqrt(head size) if absent"}
	aDropout  = AttrSpec{"dropout", attr.KindFloat, false, "dropout probability; only 0 is deterministic"}
	aAccum    = AttrSpec{"accumulate", attr.KindBool, false, "add instead of replace"}
	aStart    = AttrSpec{"start", attr.KindInt, false, "first index"}
	aEnd      = AttrSpec{"end", attr.KindInt, false, "index past the last, the size if absent"}
	aStep     = AttrSpec{"step", attr.KindInt, false, "distance of indices, 1 if absent"}
)

func unary(name, doc string) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Elementwise: true, Infer: inferPointwise, Doc: doc}
}

func binary(name, doc string, more ...AttrSpec) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: 1, MaxArgs: 2, NumResults: 1, Elementwise: true,
		Attrs: append([]AttrSpec{aScalar}, more...), Infer: inferPointwise, Doc: doc}
}

func compare(name, doc string) OpInfo {
	i := binary(name, doc)
	i.Infer = inferCompare
	return i
}

func reduction(name, doc string) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Attrs: []AttrSpec{aDims, aKeep}, Infer: inferReduce, Doc: doc}
}

func view(name string, results int, infer inferFunc, doc string, attrs ...AttrSpec) OpInfo {
	return OpInfo{Name: name, Class: ClassView, MinArgs: 1, MaxArgs: 1, NumResults: results, Effects: EffectAlias, Attrs: attrs, Infer: infer, Doc: doc}
}

func memory(name string, minArgs, maxArgs, results int, infer inferFunc, doc string, attrs ...AttrSpec) OpInfo {
	return OpInfo{Name: name, Class: ClassMemory, MinArgs: minArgs, MaxArgs: maxArgs, NumResults: results, Attrs: attrs, Infer: infer, Doc: doc}
}

func collective(name string, reduces bool, infer inferFunc, doc string, attrs ...AttrSpec) OpInfo {
	if reduces {
		attrs = append(attrs, aReduce)
	}
	return OpInfo{Name: name, Class: ClassCollective, MinArgs: 1, MaxArgs: -1, NumResults: 1, Effects: EffectCommunicates, Reduces: reduces, Attrs: attrs, Infer: infer, Doc: doc}
}

// opTable is the one op table, indexed by Op. Passes ask its columns instead of
// naming ops; adding an op is adding a row, its rule in infer.go, its kernel in
// internal/hostops and a case to the tests that walk the table.
var opTable = [numOps]OpInfo{
	OpInvalid: {Name: "invalid", Class: ClassMemory, MaxArgs: -1, NumResults: -1, Infer: inferDeclared, Doc: "no operation"},
	OpInput:   {Name: "input", Class: ClassInput, NumResults: 1, Infer: inferDeclared, Doc: "a parameter of the function"},
	OpReturn:  {Name: "return", Class: ClassOutput, MaxArgs: -1, Infer: inferDeclared, Doc: "the function's results"},

	OpFull: memory("full", 0, 0, 1, inferDeclared, "a tensor of one number", AttrSpec{"value", attr.KindFloat, true, "the number"}),
	OpIota: memory("iota", 0, 0, 1, inferDeclared, "start, start+step, ... along the only dimension", aStart, aStep),
	OpRand: {Name: "rand", Class: ClassMemory, NumResults: 1, Effects: EffectRandom, Infer: inferDeclared, Doc: "uniform numbers in [0, 1), new at each call",
		Attrs: []AttrSpec{{"seed", attr.KindInt, false, "mixed into the generator's state"}}},

	OpNeg:        unary("neg", "-x"),
	OpExp:        unary("exp", "e to the x"),
	OpLog:        unary("log", "natural logarithm"),
	OpSqrt:       unary("sqrt", "square root"),
	OpRsqrt:      unary("rsqrt", "1/sqrt(x)"),
	OpReciprocal: unary("reciprocal", "1/x"),
	OpAbs:        unary("abs", "magnitude"),
	OpSigmoid:    unary("sigmoid", "1/(1+exp(-x))"),
	OpTanh:       unary("tanh", "hyperbolic tangent"),
	OpRelu:       unary("relu", "max(x, 0)"),
	OpSilu:       unary("silu", "x*sigmoid(x)"),
	OpGelu:       unary("gelu", "x times the normal distribution function of x"),
	OpSin:        unary("sin", "sine"),
	OpCos:        unary("cos", "cosine"),
	OpFloor:      unary("floor", "largest integer not above x"),
	OpLogicalNot: unary("logical_not", "x == 0"),
	OpConvert:    unary("convert", "the same numbers in the result's element type"),
	OpClamp: {Name: "clamp", Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Elementwise: true, Infer: inferPointwise, Doc: "min(max(x, min), max)",
		Attrs: []AttrSpec{{"min", attr.KindFloat, false, "lower bound"}, {"max", attr.KindFloat, false, "upper bound"}}},

	OpAdd:        binary("add", "a + alpha*b", aAlpha),
	OpSub:        binary("sub", "a - alpha*b", aAlpha, aReverse),
	OpMul:        binary("mul", "a * b"),
	OpDiv:        binary("div", "a / b", aReverse),
	OpPow:        binary("pow", "a to the b", aReverse),
	OpMaximum:    binary("maximum", "the larger"),
	OpMinimum:    binary("minimum", "the smaller"),
	OpEq:         compare("eq", "a == b"),
	OpNe:         compare("ne", "a != b"),
	OpLt:         compare("lt", "a < b"),
	OpLe:         compare("le", "a <= b"),
	OpGt:         compare("gt", "a > b"),
	OpGe:         compare("ge", "a >= b"),
	OpLogicalAnd: compare("logical_and", "a != 0 and b != 0"),
	OpLogicalOr:  compare("logical_or", "a != 0 or b != 0"),

	OpWhere: {Name: "where", Class: ClassMemory, MinArgs: 3, MaxArgs: 3, NumResults: 1, Elementwise: true, Infer: inferPointwise, Doc: "a where cond holds, else b"},
	OpFma:   {Name: "fma", Class: ClassMemory, MinArgs: 3, MaxArgs: 3, NumResults: 1, Elementwise: true, Infer: inferPointwise, Doc: "a*b + c, rounded once"},

	OpSum:        reduction("sum", "sum over dims"),
	OpMean:       reduction("mean", "mean over dims"),
	OpAmax:       reduction("amax", "largest over dims"),
	OpAmin:       reduction("amin", "smallest over dims"),
	OpProd:       reduction("prod", "product over dims"),
	OpArgmax:     memory("argmax", 1, 1, 1, inferReduce, "index of the first largest along dim", aDim, aKeep),
	OpCumsum:     memory("cumsum", 1, 1, 1, inferSame, "running sum along dim", aDim),
	OpSoftmax:    memory("softmax", 1, 1, 1, inferSame, "exp(x - max) over its sum along dim", aDim),
	OpLogSoftmax: memory("log_softmax", 1, 1, 1, inferSame, "logarithm of softmax along dim", aDim),

	OpMatmul: {Name: "matmul", Class: ClassCompute, MinArgs: 2, MaxArgs: 2, NumResults: 1, Infer: inferMatmul, Doc: "[m,k] x [k,n], or [b,m,k] x [b,k,n]"},
	OpAddmm: {Name: "addmm", Class: ClassCompute, MinArgs: 3, MaxArgs: 3, NumResults: 1, Infer: inferAddmm, Doc: "beta*c + alpha*(a x b)",
		Attrs: []AttrSpec{aAlpha, {"beta", attr.KindFloat, false, "factor of c, 1 if absent"}}},
	OpAttention: {Name: "attention", Class: ClassCompute, MinArgs: 3, MaxArgs: 4, NumResults: 4, Infer: inferAttention, Attrs: []AttrSpec{aCausal, aScale, aDropout}, RandomAttr: "dropout",
		Doc: "softmax(scale q k^T + bias) v on [b,h,s,d]; results: output, log-sum-exp of the scores, seed and offset of the dropout"},
	OpAttentionBackward: {Name: "attention_backward", Class: ClassCompute, MinArgs: 8, MaxArgs: 9, NumResults: 3, Infer: inferAttentionBackward, Attrs: []AttrSpec{aCausal, aScale, aDropout},
		Doc: "gradients of q, k and v from (gradient, q, k, v, output, log-sum-exp, seed, offset, bias)"},

	OpClone:        memory("clone", 1, 1, 1, inferSame, "a copy in the result's layout"),
	OpCat:          memory("cat", 1, -1, 1, inferCat, "operands one after the other along dim", aDim),
	OpIndex:        memory("index", 2, -1, 1, inferIndex, "elements at the positions that the index tensors give for dims", aDimsReq),
	OpIndexPut:     memory("index_put", 3, -1, 1, inferIndexPut, "operand 0 with operand 1 written at the positions that the index tensors give for dims", aDimsReq, aAccum),
	OpIndexAdd:     memory("index_add", 3, 3, 1, inferLikeFirst, "operand 0 with slices of operand 2 added at the positions in operand 1 along dim", aDim, aAlpha),
	OpGather:       memory("gather", 2, 2, 1, inferGather, "elements of operand 0 at the positions in operand 1 along dim", aDim),
	OpScatter:      memory("scatter", 2, 3, 1, inferLikeFirst, "operand 0 with operand 2, or value, written at the positions in operand 1 along dim", aDim, AttrSpec{"value", attr.KindFloat, false, "number in place of operand 2"}, AttrSpec{"reduce", attr.KindString, false, "add or multiply instead of replace"}),
	OpSliceScatter: memory("slice_scatter", 2, 2, 1, inferLikeFirst, "operand 0 with a slice along dim replaced by operand 1", aDim, aStart, aEnd, aStep),
	OpEmbedding:    memory("embedding", 2, 2, 1, inferEmbedding, "rows of operand 0 at the positions in operand 1"),
	OpTopk: memory("topk", 1, 1, 2, inferTopk, "the k largest along dim and their positions", AttrSpec{"k", attr.KindInt, true, "how many"}, aDim,
		AttrSpec{"largest", attr.KindBool, false, "true if absent; false takes the smallest"}, AttrSpec{"sorted", attr.KindBool, false, "in order, true if absent"}),
	OpPack:   memory("pack", 1, -1, 1, inferDeclared, "the operands' bytes one after the other, or with parts their pieces along dim, part by part", aParts, aPieceDim),
	OpUnpack: memory("unpack", 1, 1, -1, inferDeclared, "the inverse of pack", aParts, aPieceDim),
	OpShard: {Name: "shard", Class: ClassMemory, MinArgs: 1, MaxArgs: 1, NumResults: 1, Grouped: true, Attrs: []AttrSpec{aDim}, Infer: inferShard,
		Doc: "this rank's piece of the operand along dim, by its place in the group; a copy, since where the piece starts is known at run time only"},

	OpView:      view("view", 1, inferView, "the same elements in row-major order under another shape"),
	OpPermute:   view("permute", 1, inferPermute, "dimensions in another order", aDimsReq),
	OpExpand:    view("expand", 1, inferExpand, "dimensions of one repeated without copying"),
	OpSlice:     view("slice", 1, inferSlice, "start, start+step, ... below end along dim", aDim, aStart, aEnd, aStep),
	OpSplit:     view("split", -1, inferSplit, "consecutive pieces along dim", aDim, AttrSpec{"sizes", attr.KindInts, true, "size of each piece"}),
	OpSqueeze:   view("squeeze", 1, inferSqueeze, "without the dimensions of one among dims", aDimsReq),
	OpUnsqueeze: view("unsqueeze", 1, inferUnsqueeze, "with a dimension of one before dim", aDim),
	OpSelect:    view("select", 1, inferSelect, "one index of dim", aDim, AttrSpec{"index", attr.KindInt, true, "the index"}),
	OpAlias:     view("alias", 1, inferAlias, "the operand under another name"),
	OpAsStrided: view("as_strided", 1, inferAsStrided, "any layout of the operand's elements", AttrSpec{"offset", attr.KindInt, false, "first element, counted from the operand's first; 0 if absent"}),

	OpAllReduce:     collective("all_reduce", true, inferAllReduce, "the reduction of every rank's operand, on every rank"),
	OpAllGather:     collective("all_gather", false, inferAllGather, "every rank's operand one after the other along dim", aDim0),
	OpReduceScatter: collective("reduce_scatter", true, inferReduceScatter, "this rank's piece along dim of the reduction", aDim0),
	OpAllToAll: collective("all_to_all", false, inferAllToAll, "piece i of each rank's operand along dimension 0 goes to rank i",
		AttrSpec{"in_splits", attr.KindStrings, false, "size of the piece for each rank, per operand: dimension expressions; equal if absent"},
		AttrSpec{"out_splits", attr.KindStrings, false, "size of the piece from each rank, per operand"}),
	OpBroadcast:         collective("broadcast", false, inferAllReduce, "the operand of group rank root, on every rank", AttrSpec{"root", attr.KindInt, true, "rank within the subgroup"}),
	OpCollectivePermute: collective("collective_permute", false, inferAllReduce, "operands move from source to destination; a rank that receives nothing gets zeros", AttrSpec{"pairs", attr.KindInts, true, "source, destination, source, destination, ... within the subgroup"}),
	OpWaitTensor:        {Name: "wait_tensor", Class: ClassWait, MinArgs: 1, MaxArgs: 1, NumResults: -1, Effects: EffectAlias, Infer: inferWait, Doc: "the tensors of a collective, once it has finished"},

	OpCall: {Name: "call", Class: ClassMemory, MaxArgs: -1, NumResults: -1, Infer: inferDeclared, Doc: "an operation that concert does not know",
		Attrs: []AttrSpec{{"target", attr.KindString, true, "its name"}, {"effects", attr.KindStrings, false, "of writes, communicates, random, alias"},
			{"class", attr.KindString, false, "compute or memory, memory if absent"}, {"payload", attr.KindString, false, "verbatim text for whoever knows the target"}}},
}

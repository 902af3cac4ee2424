package export

import "github.com/seed-ee968945/concert/ir"

// rule writes a node: it gives a tensor for each that the node's results are or carry.
type rule func(e *emitter, in []val) []val

// one makes a rule of a function of one result.
func one(f func(e *emitter, in []val) val) rule {
	return func(e *emitter, in []val) []val { return []val{f(e, in)} }
}

// functions are elementwise operations of floats that have a name of their own.
var functions = map[ir.Op]string{
	ir.OpExp: "stablehlo.exponential", ir.OpLog: "stablehlo.log", ir.OpSqrt: "stablehlo.sqrt", ir.OpRsqrt: "stablehlo.rsqrt",
	ir.OpSigmoid: "stablehlo.logistic", ir.OpTanh: "stablehlo.tanh", ir.OpSin: "stablehlo.sine", ir.OpCos: "stablehlo.cosine",
	ir.OpTan: "stablehlo.tan", ir.OpCbrt: "stablehlo.cbrt", ir.OpLog1p: "stablehlo.log_plus_one", ir.OpExpm1: "stablehlo.exponential_minus_one",
	ir.OpAsin: "chlo.asin", ir.OpAcos: "chlo.acos", ir.OpAtan: "chlo.atan", ir.OpSinh: "chlo.sinh", ir.OpCosh: "chlo.cosh",
	ir.OpAsinh: "chlo.asinh", ir.OpAcosh: "chlo.acosh", ir.OpAtanh: "chlo.atanh", ir.OpErf: "chlo.erf", ir.OpErfc: "chlo.erfc",
}

// integral are functions that leave whole numbers as they are.
var integral = map[ir.Op]string{ir.OpFloor: "stablehlo.floor", ir.OpCeil: "stablehlo.ceil", ir.OpRound: "stablehlo.round_nearest_even"}

// composed are functions of floats that others make up.
var composed = map[ir.Op]func(e *emitter, x val) val{
	ir.OpReciprocal: func(e *emitter, x val) val { return e.simple("stablehlo.divide", e.number(1, x.dt, x.shape), x) },
	ir.OpSilu: func(e *emitter, x val) val {
		return e.simple("stablehlo.multiply", x, e.simple("stablehlo.logistic", x))
	},
	ir.OpGelu: gelu,
	ir.OpExp2: func(e *emitter, x val) val { return e.simple("stablehlo.power", e.number(2, x.dt, x.shape), x) },
	ir.OpLog2: func(e *emitter, x val) val {
		return e.simple("stablehlo.divide", e.simple("stablehlo.log", x), e.number(ln2, x.dt, x.shape))
	},
	ir.OpLog10: func(e *emitter, x val) val {
		return e.simple("stablehlo.divide", e.simple("stablehlo.log", x), e.number(ln10, x.dt, x.shape))
	},
}

// relations are the comparisons.
var relations = map[ir.Op]string{ir.OpEq: "EQ", ir.OpNe: "NE", ir.OpLt: "LT", ir.OpLe: "LE", ir.OpGt: "GT", ir.OpGe: "GE"}

// binaries are operations of two operands, by what computes them in one type.
var binaries = map[ir.Op]func(e *emitter, a, b val) val{
	ir.OpAdd:         same("stablehlo.add"),
	ir.OpSub:         same("stablehlo.subtract"),
	ir.OpMul:         same("stablehlo.multiply"),
	ir.OpDiv:         same("stablehlo.divide"),
	ir.OpPow:         same("stablehlo.power"),
	ir.OpAtan2:       same("stablehlo.atan2"),
	ir.OpFmod:        same("stablehlo.remainder"),
	ir.OpRemainder:   remainder,
	ir.OpFloorDivide: floorDivide,
	ir.OpTruncDivide: truncDivide,
	ir.OpMaximum:     same("stablehlo.maximum"),
	ir.OpMinimum:     same("stablehlo.minimum"),
	ir.OpBitwiseAnd:  same("stablehlo.and"),
	ir.OpBitwiseOr:   same("stablehlo.or"),
	ir.OpBitwiseXor:  same("stablehlo.xor"),
	ir.OpShiftLeft:   same("stablehlo.shift_left"),
	ir.OpShiftRight:  shiftRight,
}

func same(op string) func(e *emitter, a, b val) val {
	return func(e *emitter, a, b val) val { return e.simple(op, a, b) }
}

// rules has every operation that can be written.
var rules = func() map[ir.Op]rule {
	t := map[ir.Op]rule{
		ir.OpFull: one(full), ir.OpConstant: one(constant), ir.OpIota: one(counted), ir.OpRand: one(random),
		ir.OpNeg: one(negate), ir.OpAbs: one(abs), ir.OpRelu: one(relu), ir.OpTrunc: one(truncate), ir.OpSign: one(sign),
		ir.OpLogicalNot: one(logicalNot), ir.OpBitwiseNot: one(bitwiseNot), ir.OpConvert: one(convert), ir.OpBitcast: one(bitcast),
		ir.OpClamp: one(clamp), ir.OpWhere: one(where), ir.OpFma: one(fma),
		ir.OpLogicalAnd: one(logical("stablehlo.and")), ir.OpLogicalOr: one(logical("stablehlo.or")),

		ir.OpSum: one(sum(false)), ir.OpMean: one(sum(true)), ir.OpProd: one(product), ir.OpAmax: one(extreme(true)), ir.OpAmin: one(extreme(false)),
		ir.OpArgmax: one(argmax), ir.OpReduceWindow: one(reduceWindow), ir.OpCumsum: one(cumsum),
		ir.OpSoftmax: one(softmax(false)), ir.OpLogSoftmax: one(softmax(true)), ir.OpTopk: topk,

		ir.OpMatmul: one(matmul), ir.OpAddmm: one(addmm), ir.OpGroupedMatmul: one(groupedMatmul), ir.OpConvolution: one(convolution),
		ir.OpAttention: attention, ir.OpAttentionBackward: attentionBackward,

		ir.OpClone: one(first), ir.OpAlias: one(first), ir.OpWaitTensor: all,
		ir.OpCat: one(cat), ir.OpIndex: one(index), ir.OpIndexPut: one(indexPut), ir.OpIndexAdd: one(indexAdd), ir.OpGather: one(gatherAlong),
		ir.OpScatter: one(scatterAlong), ir.OpSliceScatter: one(sliceScatter), ir.OpEmbedding: one(embedding), ir.OpShard: one(shard),
		ir.OpView: one(view), ir.OpSqueeze: one(view), ir.OpUnsqueeze: one(view), ir.OpPermute: one(permute), ir.OpExpand: one(expand),
		ir.OpSlice: one(slice), ir.OpSplit: split, ir.OpSelect: one(selectIndex), ir.OpAsStrided: one(asStrided),

		ir.OpAllReduce: allReduce, ir.OpAllGather: allGather, ir.OpReduceScatter: reduceScatter, ir.OpAllToAll: allToAll,
		ir.OpBroadcast: broadcastFrom, ir.OpCollectivePermute: permuteRanks, ir.OpCall: call,
		ir.OpWhile: while, ir.OpCase: choice,
	}
	for o, f := range functions {
		t[o] = one(float(func(e *emitter, x val) val { return e.simple(f, x) }))
	}
	for o, f := range composed {
		t[o] = one(float(wide(f)))
	}
	for o, f := range integral {
		t[o] = one(rounded(f))
	}
	for o, r := range relations {
		t[o] = one(relation(r))
	}
	for o, f := range binaries {
		t[o] = one(pairwise(f))
	}
	return t
}()

func first(e *emitter, in []val) val { return in[0] }

func all(_ *emitter, in []val) []val { return in }

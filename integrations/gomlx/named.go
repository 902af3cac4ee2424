package gomlx

import "github.com/gomlx/compute"

func (f *function) Abs(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeAbs, "stablehlo.abs", x)
}

func (f *function) Ceil(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeCeil, "stablehlo.ceil", x)
}

func (f *function) Cos(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeCos, "stablehlo.cosine", x)
}

func (f *function) Exp(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeExp, "stablehlo.exponential", x)
}

func (f *function) Expm1(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeExpm1, "stablehlo.exponential_minus_one", x)
}

func (f *function) Floor(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeFloor, "stablehlo.floor", x)
}

func (f *function) Log(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeLog, "stablehlo.log", x)
}

func (f *function) Log1p(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeLog1p, "stablehlo.log_plus_one", x)
}

func (f *function) Logistic(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeLogistic, "stablehlo.logistic", x)
}

func (f *function) Neg(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeNeg, "stablehlo.negate", x)
}

func (f *function) Round(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeRound, "stablehlo.round_nearest_even", x)
}

func (f *function) Rsqrt(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeRsqrt, "stablehlo.rsqrt", x)
}

func (f *function) Sign(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeSign, "stablehlo.sign", x)
}

func (f *function) Sin(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeSin, "stablehlo.sine", x)
}

func (f *function) Sqrt(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeSqrt, "stablehlo.sqrt", x)
}

func (f *function) Tanh(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeTanh, "stablehlo.tanh", x)
}

func (f *function) BitCount(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeBitCount, "stablehlo.popcnt", x)
}

func (f *function) Clz(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeClz, "stablehlo.count_leading_zeros", x)
}

func (f *function) BitwiseNot(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeBitwiseNot, "stablehlo.not", x)
}

func (f *function) LogicalNot(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeLogicalNot, "stablehlo.not", x)
}

func (f *function) Erf(x compute.Value) (compute.Value, error) {
	return f.unary(compute.OpTypeErf, "chlo.erf", x)
}

func (f *function) Add(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeAdd, "stablehlo.add", x, y)
}

func (f *function) Sub(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeSub, "stablehlo.subtract", x, y)
}

func (f *function) Mul(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeMul, "stablehlo.multiply", x, y)
}

func (f *function) Div(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeDiv, "stablehlo.divide", x, y)
}

func (f *function) Rem(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeRem, "stablehlo.remainder", x, y)
}

func (f *function) Pow(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypePow, "stablehlo.power", x, y)
}

func (f *function) Max(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeMax, "stablehlo.maximum", x, y)
}

func (f *function) Min(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeMin, "stablehlo.minimum", x, y)
}

func (f *function) Atan2(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeAtan2, "stablehlo.atan2", x, y)
}

func (f *function) BitwiseAnd(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeBitwiseAnd, "stablehlo.and", x, y)
}

func (f *function) BitwiseOr(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeBitwiseOr, "stablehlo.or", x, y)
}

func (f *function) BitwiseXor(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeBitwiseXor, "stablehlo.xor", x, y)
}

func (f *function) LogicalAnd(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeLogicalAnd, "stablehlo.and", x, y)
}

func (f *function) LogicalOr(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeLogicalOr, "stablehlo.or", x, y)
}

func (f *function) LogicalXor(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeLogicalXor, "stablehlo.xor", x, y)
}

func (f *function) ShiftLeft(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeShiftLeft, "stablehlo.shift_left", x, y)
}

func (f *function) ShiftRightArithmetic(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeShiftRightArithmetic, "stablehlo.shift_right_arithmetic", x, y)
}

func (f *function) ShiftRightLogical(x, y compute.Value) (compute.Value, error) {
	return f.binary(compute.OpTypeShiftRightLogical, "stablehlo.shift_right_logical", x, y)
}

// operations lists what the backend has.
var operations = []compute.OpType{
	compute.OpTypeParameter, compute.OpTypeConstant, compute.OpTypeIdentity, compute.OpTypeReduceWindow, compute.OpTypeBatchNormForInference,
	compute.OpTypeBatchNormForTraining, compute.OpTypeBatchNormGradient, compute.OpTypeBitCount, compute.OpTypeAbs, compute.OpTypeAdd,
	compute.OpTypeArgMinMax, compute.OpTypeAtan2, compute.OpTypeBitcast, compute.OpTypeBitwiseAnd, compute.OpTypeBitwiseNot,
	compute.OpTypeBitwiseOr, compute.OpTypeBitwiseXor, compute.OpTypeBroadcastInDim, compute.OpTypeCall, compute.OpTypeClamp,
	compute.OpTypeCeil, compute.OpTypeClz, compute.OpTypeConcatenate, compute.OpTypeConvGeneral, compute.OpTypeConvertDType,
	compute.OpTypeCos, compute.OpTypeCumSum, compute.OpTypeDiv, compute.OpTypeDotGeneral, compute.OpTypeDynamicSlice,
	compute.OpTypeDynamicUpdateSlice, compute.OpTypeEqual, compute.OpTypeEqualTotalOrder, compute.OpTypeErf, compute.OpTypeExp,
	compute.OpTypeExpm1, compute.OpTypeFloor, compute.OpTypeGather, compute.OpTypeGreaterOrEqual, compute.OpTypeGreaterOrEqualTotalOrder,
	compute.OpTypeGreaterThan, compute.OpTypeGreaterThanTotalOrder, compute.OpTypeIota, compute.OpTypeIsFinite, compute.OpTypeIsNaN,
	compute.OpTypeLessOrEqual, compute.OpTypeLessOrEqualTotalOrder, compute.OpTypeLessThan, compute.OpTypeLessThanTotalOrder, compute.OpTypeLog,
	compute.OpTypeLog1p, compute.OpTypeLogicalAnd, compute.OpTypeLogicalNot, compute.OpTypeLogicalOr, compute.OpTypeLogicalXor,
	compute.OpTypeLogistic, compute.OpTypeMax, compute.OpTypeMin, compute.OpTypeMul, compute.OpTypeNeg,
	compute.OpTypeNotEqual, compute.OpTypeNotEqualTotalOrder, compute.OpTypePad, compute.OpTypePow, compute.OpTypeReduceBitwiseAnd,
	compute.OpTypeReduceBitwiseOr, compute.OpTypeReduceBitwiseXor, compute.OpTypeReduceLogicalAnd, compute.OpTypeReduceLogicalOr, compute.OpTypeReduceLogicalXor,
	compute.OpTypeReduceMax, compute.OpTypeReduceMin, compute.OpTypeReduceProduct, compute.OpTypeReduceSum, compute.OpTypeRem,
	compute.OpTypeReshape, compute.OpTypeReverse, compute.OpTypeRound, compute.OpTypeRsqrt, compute.OpTypeScatterMax,
	compute.OpTypeScatterMin, compute.OpTypeScatterSum, compute.OpTypeSelectAndScatterMax, compute.OpTypeSelectAndScatterMin, compute.OpTypeShiftLeft,
	compute.OpTypeShiftRightArithmetic, compute.OpTypeShiftRightLogical, compute.OpTypeSign, compute.OpTypeSin, compute.OpTypeSlice,
	compute.OpTypeSqrt, compute.OpTypeSub, compute.OpTypeTanh, compute.OpTypeTranspose, compute.OpTypeWhere,
	compute.OpTypeOptimizationBarrier, compute.OpTypeSchedulingBarrier, compute.OpTypeSort, compute.OpTypeRNGBitGenerator, compute.OpTypeIf, compute.OpTypeWhile, compute.OpTypeAllReduce,
	compute.OpTypeFusedSoftmax, compute.OpTypeFusedGelu, compute.OpTypeFusedLayerNorm, compute.OpTypeFusedDense,
	compute.OpTypeFusedScaledDotProductAttention, compute.OpTypeFusedScaledDotProductAttentionVJP, compute.OpTypeFusedAttentionQKVProjection,
}

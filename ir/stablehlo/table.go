package stablehlo

import (
	"maps"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// rule says how an operation of the text is imported.
type rule struct {
	args   int  // number of operands, -1: any
	vector bool // each element is computed by itself: the operation may stand in a body that is computed on whole tensors
	run    func(im *importer, o *mlir.Operation, in []*value) ([]*value, error)
}

// simple are operations that are one of concert's.
var simple = map[string]ir.Op{
	"stablehlo.abs": ir.OpAbs, "stablehlo.exponential": ir.OpExp, "stablehlo.log": ir.OpLog, "stablehlo.sqrt": ir.OpSqrt,
	"stablehlo.rsqrt": ir.OpRsqrt, "stablehlo.negate": ir.OpNeg, "stablehlo.floor": ir.OpFloor, "stablehlo.ceil": ir.OpCeil,
	"stablehlo.logistic": ir.OpSigmoid, "stablehlo.tanh": ir.OpTanh, "stablehlo.sine": ir.OpSin, "stablehlo.cosine": ir.OpCos,
	"stablehlo.tan": ir.OpTan, "stablehlo.cbrt": ir.OpCbrt, "stablehlo.log_plus_one": ir.OpLog1p,
	"stablehlo.exponential_minus_one": ir.OpExpm1, "stablehlo.round_nearest_even": ir.OpRound,
	"chlo.asin": ir.OpAsin, "chlo.acos": ir.OpAcos, "chlo.atan": ir.OpAtan, "chlo.sinh": ir.OpSinh, "chlo.cosh": ir.OpCosh,
	"chlo.asinh": ir.OpAsinh, "chlo.acosh": ir.OpAcosh, "chlo.atanh": ir.OpAtanh, "chlo.tan": ir.OpTan,
	"chlo.erf": ir.OpErf, "chlo.erfc": ir.OpErfc,

	"stablehlo.add": ir.OpAdd, "stablehlo.subtract": ir.OpSub, "stablehlo.multiply": ir.OpMul, "stablehlo.divide": ir.OpDiv,
	"stablehlo.remainder": ir.OpFmod, "stablehlo.power": ir.OpPow, "stablehlo.atan2": ir.OpAtan2,
	"stablehlo.maximum": ir.OpMaximum, "stablehlo.minimum": ir.OpMinimum,
	"stablehlo.and": ir.OpBitwiseAnd, "stablehlo.or": ir.OpBitwiseOr, "stablehlo.xor": ir.OpBitwiseXor, "stablehlo.not": ir.OpBitwiseNot,
	"stablehlo.shift_left": ir.OpShiftLeft,
}

// ofBool are operations that mean another one of truth values.
var ofBool = map[ir.Op]ir.Op{
	ir.OpAdd: ir.OpLogicalOr, ir.OpMul: ir.OpLogicalAnd, ir.OpMaximum: ir.OpLogicalOr, ir.OpMinimum: ir.OpLogicalAnd,
	ir.OpBitwiseAnd: ir.OpLogicalAnd, ir.OpBitwiseOr: ir.OpLogicalOr, ir.OpBitwiseXor: ir.OpNe, ir.OpBitwiseNot: ir.OpLogicalNot,
}

// elementRules are operations that compute each element by itself.
func elementRules() map[string]rule {
	return map[string]rule{
		"stablehlo.constant":               {0, true, constantOp},
		"stablehlo.convert":                {1, true, convert},
		"stablehlo.compare":                {2, true, compare},
		"stablehlo.select":                 {3, true, selectOp},
		"stablehlo.clamp":                  {3, true, clamp},
		"stablehlo.sign":                   {1, true, sign},
		"stablehlo.round_nearest_afz":      {1, true, roundAway},
		"stablehlo.is_finite":              {1, true, isFinite},
		"chlo.square":                      {1, true, square},
		"stablehlo.shift_right_logical":    {2, true, shiftRight(true)},
		"stablehlo.shift_right_arithmetic": {2, true, shiftRight(false)},
	}
}

// tensorRules are operations that move and reduce elements, and libraries' own.
func tensorRules() map[string]rule {
	return map[string]rule{
		"stablehlo.iota":                 {0, false, iotaOp},
		"stablehlo.broadcast_in_dim":     {1, true, alone(broadcast)},
		"stablehlo.reshape":              {1, true, alone(reshape)},
		"stablehlo.transpose":            {1, true, alone(transpose)},
		"stablehlo.slice":                {1, false, slice},
		"stablehlo.concatenate":          {-1, false, concatenate},
		"stablehlo.get_dimension_size":   {1, false, dimensionSize},
		"stablehlo.set_dimension_size":   {2, false, setDimensionSize},
		"stablehlo.reduce":               {-1, false, reduce},
		"stablehlo.reduce_window":        {-1, false, reduceWindow},
		"stablehlo.sort":                 {-1, false, sortOp},
		"stablehlo.gather":               {2, false, gather},
		"stablehlo.dynamic_gather":       {3, false, gather},
		"stablehlo.scatter":              {-1, false, scatter},
		"stablehlo.pad":                  {2, false, pad},
		"stablehlo.reverse":              {1, false, reverse},
		"stablehlo.dynamic_slice":        {-1, false, dynamicSlice},
		"stablehlo.dynamic_update_slice": {-1, false, dynamicUpdateSlice},
		"stablehlo.map":                  {-1, false, mapOp},
		"stablehlo.convolution":          {2, false, convolution},
		"stablehlo.select_and_scatter":   {3, false, selectAndScatter},
		"stablehlo.dot_general":          {2, false, dotGeneral},
		"chlo.ragged_dot":                {3, false, raggedDot},

		"stablehlo.bitcast_convert":   {1, true, bitcastConvert},
		"stablehlo.reduce_precision":  {1, true, reducePrecision},
		"stablehlo.rng_bit_generator": {1, false, randomBits},
		"stablehlo.triangular_solve":  {2, false, triangularSolve},
		"stablehlo.cholesky":          {1, false, cholesky},
		"stablehlo.rng":               {3, false, rng},
		"chlo.top_k":                  {1, false, topK},
		"chlo.scan":                   {-1, false, scan},
	}
}

// controlRules are calls, branches, loops and what groups values.
func controlRules() map[string]rule {
	return map[string]rule{
		"stablehlo.while":                {-1, false, while},
		"stablehlo.if":                   {1, true, ifOp},
		"stablehlo.case":                 {1, true, caseOp},
		"func.call":                      {-1, true, callOp},
		"stablehlo.composite":            {-1, true, composite},
		"stablehlo.custom_call":          {-1, false, customCall},
		"stablehlo.optimization_barrier": {-1, true, same},
		"stablehlo.tuple":                {-1, true, tuple},
		"stablehlo.get_tuple_element":    {1, true, element},
		"concert.softmax":                {1, false, softmaxOp},
		"concert.gelu":                   {1, false, geluOp},
		"concert.attention":              {-1, false, attention(false)},
		"concert.attention_backward":     {-1, false, attention(true)},
		"stablehlo.async_start":          {-1, false, asyncStart},
		"stablehlo.async_done":           {1, false, asyncDone},
		"stablehlo.after_all":            {-1, false, token},
		"stablehlo.create_token":         {-1, false, token},
	}
}

// otherRules are spellings of complex types, of shapes that are operands, of older text, and of
// the dialects around: constants and casts there, which mean no more.
func otherRules() map[string]rule {
	return map[string]rule{
		"stablehlo.real":                     {1, true, realPart},
		"stablehlo.imag":                     {1, false, imaginaryPart},
		"stablehlo.dynamic_iota":             {1, false, dynamic(iotaOp)},
		"stablehlo.dynamic_broadcast_in_dim": {2, false, dynamic(broadcast)},
		"stablehlo.dynamic_reshape":          {2, false, dynamic(reshape)},
		"stablehlo.dynamic_pad":              {5, false, dynamicPad},
		"stablehlo.dynamic_conv":             {3, false, dynamicConv},
		"stablehlo.broadcast":                {1, false, repeated},
		"stablehlo.dot":                      {2, false, dot},
		"stablehlo.einsum":                   {2, false, einsum},
		"stablehlo.unary_einsum":             {1, false, einsum},
		"stablehlo.torch_index_select":       {2, false, indexSelect},
		"chlo.dynamic_reshape":               {2, false, dynamic(reshape)},
		"chlo.constant":                      {0, true, constantOp},
		"sdy.constant":                       {0, true, constantOp},
		"chlo.constant_like":                 {1, false, constantLike},
		"chlo.conj":                          {1, true, realPart},
		"stablehlo.real_dynamic_slice":       {4, false, realDynamicSlice},
		"arith.constant":                     {0, true, constantOp},
		"tensor.cast":                        {1, true, same},
		"flow.tensor.dynamic_constant":       {0, false, constantOp},
		"util.unfoldable_constant":           {0, false, constantOp},
		"util.optimization_barrier":          {-1, true, same},
	}
}

// collectiveRules are operations among ranks, and of meshes.
func collectiveRules() map[string]rule {
	return map[string]rule{
		"stablehlo.all_reduce":           {-1, false, allReduce},
		"stablehlo.all_gather":           {-1, false, collective(false, allGather)},
		"stablehlo.reduce_scatter":       {1, false, collective(false, reduceScatter)},
		"stablehlo.all_to_all":           {-1, false, collective(true, allToAll)},
		"stablehlo.collective_permute":   {-1, false, permute},
		"stablehlo.collective_broadcast": {-1, false, collectiveBroadcast},
		"stablehlo.collective_reduce":    {-1, false, collective(false, collectiveReduce)},
		"stablehlo.partition_id":         {0, false, id(true)},
		"stablehlo.replica_id":           {0, false, id(false)},
		"sdy.all_reduce":                 {1, false, summed},
		"sdy.reduce_scatter":             {1, false, summed},
		"sdy.sharding_group":             {1, false, grouped},
		"sdy.manual_computation":         {-1, false, manualComputation},
		"sdy.named_computation":          {-1, false, namedComputation},

		"interpreter.run_parallel": {-1, false, runParallel},
	}
}

// rules has every operation that is supported.
func rules() map[string]rule {
	t := map[string]rule{}
	for _, l := range []map[string]rule{elementRules(), tensorRules(), controlRules(), otherRules(), collectiveRules(), functions(), batchNorms()} {
		maps.Copy(t, l)
	}
	for _, k := range []string{"eq", "eq_const", "almost_eq", "almost_eq_const", "all_true", "close", "serialized_eq"} {
		t["check.expect_"+k] = rule{-1, false, check(k)}
		t["check."+k] = t["check.expect_"+k]
	}
	for _, name := range []string{"sharding_constraint", "reshard", "all_gather", "all_slice", "all_to_all", "collective_permute", "replicated_to_unreduced", "sharded_to_unreduced", "propagation_barrier", "data_flow_edge"} {
		t["sdy."+name] = rule{1, name == "sharding_constraint", resharded}
	}
	for name, o := range simple {
		t[name] = rule{o.Info().MaxArgs, true, elementwise(o)}
	}
	for _, name := range []string{"and", "or", "xor", "add", "subtract", "multiply", "divide", "remainder", "power", "atan2", "maximum", "minimum", "compare",
		"select", "shift_left", "shift_right_logical", "shift_right_arithmetic"} {
		r := t["stablehlo."+name]
		t["chlo.broadcast_"+name] = rule{r.args, true, broadcasting(r)}
	}
	for _, name := range []string{"next_after", "zeta", "polygamma"} {
		r := t["chlo."+name]
		t["chlo.broadcast_"+name] = rule{r.args, true, broadcasting(r)}
	}
	return t
}

// Package hostops holds the numeric kernels of the host: functions over raw
// strided buffers, shared by the reference interpreter and by the host device.
//
// A kernel is chosen by the name of its operation. Result types are given by the
// caller and never recomputed: a kernel checks that the declared results fit its
// operands and fills them in.
//
// # Arithmetic
//
// Pointwise operations widen their operands to float32 (float64 if an operand or
// the result is f64, int64 if everything is an integer), compute, and round once
// to the type of the result. That is PyTorch's rule for bfloat16 and float16 on
// CUDA. Integer results wrap to their width; a float that becomes an integer is
// truncated towards zero and saturates at the range of i64 or i32, NaN becomes 0,
// and the 8-bit types keep the low byte; anything but zero is true.
//
// Reductions, softmax and cumsum accumulate in float64 (int64 for integers) and
// round once. The result is then, up to the last bit of float32, that of any order
// of summation, which is what makes a comparison with a device meaningful and lets
// strided and contiguous inputs agree. matmul accumulates in float32 with k
// ascending, never fused, so its bits are the same on every machine.
//
// # Aliasing
//
// A result of a pointwise operation may be one of its operands: the same bytes
// with the same offset and strides. The same holds for softmax, log_softmax,
// cumsum and Reduce, and for operand 0 of index_put, index_add, scatter and
// slice_scatter, which then update in place. Any other overlap of a result with an
// operand is the caller's error and is not detected.
//
// Kernels are safe for concurrent use on disjoint results. Large matmul,
// attention and pointwise calls use several goroutines; results do not depend on
// how many.
package hostops

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
)

// kernel is one row of the table.
type kernel struct {
	name         string
	minIn, maxIn int // operands accepted; maxIn < 0: any number
	minOut       int // results required
	maxOut       int // results accepted; < 0: any number
	run          func(*call) error
}

// call is one execution of a kernel: what its function gets to see.
type call struct {
	op        string
	attrs     attr.List
	outs, ins []Tensor
	bad       error // the first malformed attribute, see attrs.go
}

// table lists every kernel in ascending order of name.
var table = []kernel{
	{"abs", 1, 1, 1, 1, unaryKernel(opAbs)},
	{"acos", 1, 1, 1, 1, unaryKernel(opAcos)},
	{"acosh", 1, 1, 1, 1, unaryKernel(opAcosh)},
	{"add", 1, 2, 1, 1, binaryKernel(opAdd)},
	{"addmm", 3, 3, 1, 1, runAddmm},
	{"amax", 1, 1, 1, 1, runReduction(redMax)},
	{"amin", 1, 1, 1, 1, runReduction(redMin)},
	{"argmax", 1, 1, 1, 1, runArgmax},
	{"asin", 1, 1, 1, 1, unaryKernel(opAsin)},
	{"asinh", 1, 1, 1, 1, unaryKernel(opAsinh)},
	{"atan", 1, 1, 1, 1, unaryKernel(opAtan)},
	{"atan2", 1, 2, 1, 1, binaryKernel(opAtan2)},
	{"atanh", 1, 1, 1, 1, unaryKernel(opAtanh)},
	{"attention", 3, 4, 4, 4, runAttention},
	{"attention_backward", 8, 9, 3, 3, runAttentionBackward},
	{"bitcast", 1, 1, 1, 1, runBitcast},
	{"bitwise_and", 1, 2, 1, 1, runBits(func(a, b int64) int64 { return a & b })},
	{"bitwise_not", 1, 1, 1, 1, runBitwiseNot},
	{"bitwise_or", 1, 2, 1, 1, runBits(func(a, b int64) int64 { return a | b })},
	{"bitwise_xor", 1, 2, 1, 1, runBits(func(a, b int64) int64 { return a ^ b })},
	{"cat", 1, -1, 1, 1, runCat},
	{"cbrt", 1, 1, 1, 1, unaryKernel(opCbrt)},
	{"ceil", 1, 1, 1, 1, unaryKernel(opCeil)},
	{"clamp", 1, 1, 1, 1, runClamp},
	{"clone", 1, 1, 1, 1, runClone},
	{"constant", 0, 0, 1, 1, runConstant},
	{"convert", 1, 1, 1, 1, unaryKernel(opCopy)},
	{"cos", 1, 1, 1, 1, unaryKernel(opCos)},
	{"cosh", 1, 1, 1, 1, unaryKernel(opCosh)},
	{"cumsum", 1, 1, 1, 1, runCumsum},
	{"div", 1, 2, 1, 1, binaryKernel(opDiv)},
	{"embedding", 2, 2, 1, 1, runEmbedding},
	{"eq", 1, 2, 1, 1, binaryKernel(opEq)},
	{"erf", 1, 1, 1, 1, unaryKernel(opErf)},
	{"erfc", 1, 1, 1, 1, unaryKernel(opErfc)},
	{"exp", 1, 1, 1, 1, unaryKernel(opExp)},
	{"exp2", 1, 1, 1, 1, unaryKernel(opExp2)},
	{"expm1", 1, 1, 1, 1, unaryKernel(opExpm1)},
	{"floor", 1, 1, 1, 1, unaryKernel(opFloor)},
	{"floor_divide", 1, 2, 1, 1, binaryKernel(opFloorDivide)},
	{"fma", 3, 3, 1, 1, runFma},
	{"fmod", 1, 2, 1, 1, binaryKernel(opFmod)},
	{"full", 0, 0, 1, 1, runFull},
	{"gather", 2, 2, 1, 1, runGather},
	{"ge", 1, 2, 1, 1, binaryKernel(opGe)},
	{"gelu", 1, 1, 1, 1, runGelu},
	{"grouped_matmul", 3, 3, 1, 1, runGroupedMatmul},
	{"gt", 1, 2, 1, 1, binaryKernel(opGt)},
	{"index", 2, -1, 1, 1, runIndex},
	{"index_add", 3, 3, 1, 1, runIndexAdd},
	{"index_put", 3, -1, 1, 1, runIndexPut},
	{"iota", 0, 0, 1, 1, runIota},
	{"le", 1, 2, 1, 1, binaryKernel(opLe)},
	{"log", 1, 1, 1, 1, unaryKernel(opLog)},
	{"log10", 1, 1, 1, 1, unaryKernel(opLog10)},
	{"log1p", 1, 1, 1, 1, unaryKernel(opLog1p)},
	{"log2", 1, 1, 1, 1, unaryKernel(opLog2)},
	{"log_softmax", 1, 1, 1, 1, runSoftmax},
	{"logical_and", 1, 2, 1, 1, binaryKernel(opAnd)},
	{"logical_not", 1, 1, 1, 1, unaryKernel(opNot)},
	{"logical_or", 1, 2, 1, 1, binaryKernel(opOr)},
	{"lt", 1, 2, 1, 1, binaryKernel(opLt)},
	{"matmul", 2, 2, 1, 1, runMatmul},
	{"maximum", 1, 2, 1, 1, binaryKernel(opMaximum)},
	{"mean", 1, 1, 1, 1, runReduction(redMean)},
	{"minimum", 1, 2, 1, 1, binaryKernel(opMinimum)},
	{"mul", 1, 2, 1, 1, binaryKernel(opMul)},
	{"ne", 1, 2, 1, 1, binaryKernel(opNe)},
	{"neg", 1, 1, 1, 1, unaryKernel(opNeg)},
	{"pow", 1, 2, 1, 1, binaryKernel(opPow)},
	{"prod", 1, 1, 1, 1, runReduction(redProd)},
	{"rand", 0, 0, 1, 1, runRand},
	{"reciprocal", 1, 1, 1, 1, unaryKernel(opReciprocal)},
	{"relu", 1, 1, 1, 1, unaryKernel(opRelu)},
	{"remainder", 1, 2, 1, 1, binaryKernel(opRemainder)},
	{"round", 1, 1, 1, 1, unaryKernel(opRound)},
	{"rsqrt", 1, 1, 1, 1, unaryKernel(opRsqrt)},
	{"scatter", 2, 3, 1, 1, runScatter},
	{"shift_left", 1, 2, 1, 1, runBits(shiftLeft)},
	{"shift_right", 1, 2, 1, 1, runShiftRight},
	{"sigmoid", 1, 1, 1, 1, unaryKernel(opSigmoid)},
	{"sign", 1, 1, 1, 1, unaryKernel(opSign)},
	{"silu", 1, 1, 1, 1, unaryKernel(opSilu)},
	{"sin", 1, 1, 1, 1, unaryKernel(opSin)},
	{"sinh", 1, 1, 1, 1, unaryKernel(opSinh)},
	{"slice_scatter", 2, 2, 1, 1, runSliceScatter},
	{"softmax", 1, 1, 1, 1, runSoftmax},
	{"sqrt", 1, 1, 1, 1, unaryKernel(opSqrt)},
	{"sub", 1, 2, 1, 1, binaryKernel(opSub)},
	{"sum", 1, 1, 1, 1, runReduction(redSum)},
	{"tan", 1, 1, 1, 1, unaryKernel(opTan)},
	{"tanh", 1, 1, 1, 1, unaryKernel(opTanh)},
	{"topk", 1, 1, 2, 2, runTopk},
	{"trunc", 1, 1, 1, 1, unaryKernel(opTrunc)},
	{"trunc_divide", 1, 2, 1, 1, binaryKernel(opTruncDivide)},
	{"where", 3, 3, 1, 1, runWhere},
}

func lookup(name string) (*kernel, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(k kernel, n string) int { return strings.Compare(k.name, n) })
	if !ok {
		return nil, false
	}
	return &table[i], true
}

// Names returns the names of all kernels in ascending order.
func Names() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].name
	}
	return names
}

// Has reports whether Run knows name.
func Has(name string) bool {
	_, ok := lookup(name)
	return ok
}

// Run executes the kernel called name: it reads ins and fills outs. Attributes the
// kernel does not know are ignored. Every error is an *Error that names the
// operation and, where one is to blame, the operand or result; after an error the
// contents of outs are unspecified.
func Run(name string, attrs attr.List, outs, ins []Tensor) error {
	k, ok := lookup(name)
	if !ok {
		return &Error{Op: name, Kind: ErrUnknownOp, Operand: -1, Result: -1, Msg: "no host kernel of this name"}
	}
	c := &call{op: name, attrs: attrs, outs: outs, ins: ins}
	if len(ins) < k.minIn || k.maxIn >= 0 && len(ins) > k.maxIn {
		return c.fail(ErrArity, "%s", arityText("operand", len(ins), k.minIn, k.maxIn))
	}
	if len(outs) < k.minOut || k.maxOut >= 0 && len(outs) > k.maxOut {
		return c.fail(ErrArity, "%s", arityText("result", len(outs), k.minOut, k.maxOut))
	}
	if err := c.validate(); err != nil {
		return err
	}
	return k.run(c)
}

// validate checks every operand and result by itself.
func (c *call) validate() error {
	for i := range c.ins {
		if msg, kind := c.ins[i].check(); kind != nil {
			return c.inErr(i, kind, "%s", msg)
		}
	}
	for i := range c.outs {
		msg, kind := c.outs[i].check()
		if kind == nil {
			msg, kind = c.outs[i].checkWritable()
		}
		if kind != nil {
			return c.outErr(i, kind, "%s", msg)
		}
	}
	return nil
}

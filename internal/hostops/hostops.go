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
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

// kernel is one row of the table.
type kernel struct {
	minIn, maxIn int // operands accepted; maxIn < 0: any number
	outs         int // results
	// bind checks a call and lays it out.
	bind func(*call) (job, error)
}

// job computes what a call is bound to: it reads the operands and fills the results, whenever
// it is called.
type job = func() error

// late is a kernel that is checked and laid out by each job.
func late(run func(*call) error) func(*call) (job, error) {
	return func(c *call) (job, error) { return func() error { return run(c) }, nil }
}

// call is what a kernel computes on: what its function gets to see.
type call struct {
	op        string
	attrs     attr.List
	outs, ins []Tensor
	bad       error // the first malformed attribute, see attrs.go
}

// kernels finds a kernel by its name.
var kernels = func() map[string]kernel {
	all := map[string]kernel{
		"addmm":              {3, 3, 1, runAddmm},
		"amax":               {1, 1, 1, runReduction(redMax)},
		"amin":               {1, 1, 1, runReduction(redMin)},
		"argmax":             {1, 1, 1, late(runArgmax)},
		"attention":          {3, 4, 4, late(runAttention)},
		"attention_backward": {8, 9, 3, late(runAttentionBackward)},
		"bitcast":            {1, 1, 1, runBitcast},
		"bitwise_and":        {1, 2, 1, runBits(func(a, b int64) int64 { return a & b })},
		"bitwise_not":        {1, 1, 1, runBitwiseNot},
		"bitwise_or":         {1, 2, 1, runBits(func(a, b int64) int64 { return a | b })},
		"bitwise_xor":        {1, 2, 1, runBits(func(a, b int64) int64 { return a ^ b })},
		"cat":                {1, -1, 1, runCat},
		"clamp":              {1, 1, 1, runClamp},
		"clone":              {1, 1, 1, runClone},
		"constant":           {0, 0, 1, runConstant},
		"convolution":        {2, 2, 1, late(runConvolution)},
		"cumsum":             {1, 1, 1, late(runCumsum)},
		"embedding":          {2, 2, 1, late(runEmbedding)},
		"fma":                {3, 3, 1, runFma},
		"full":               {0, 0, 1, runFull},
		"gather":             {2, 2, 1, late(runGather)},
		"gelu":               {1, 1, 1, runGelu},
		"grouped_matmul":     {3, 3, 1, late(runGroupedMatmul)},
		"index":              {2, -1, 1, late(runIndex)},
		"index_add":          {3, 3, 1, late(runIndexAdd)},
		"index_put":          {3, -1, 1, late(runIndexPut)},
		"iota":               {0, 0, 1, late(runIota)},
		"log_softmax":        {1, 1, 1, late(runSoftmax)},
		"matmul":             {2, 2, 1, runMatmul},
		"mean":               {1, 1, 1, runReduction(redMean)},
		"prod":               {1, 1, 1, runReduction(redProd)},
		"read_size":          {1, 1, 1, func(c *call) (job, error) { return runUnary(c, unaryOps["convert"]) }},
		"reduce_window":      {1, 2, 1, late(runReduceWindow)},
		"rand":               {0, 0, 1, late(runRand)},
		"scatter":            {2, 3, 1, late(runScatter)},
		"shift_left":         {1, 2, 1, runBits(shiftLeft)},
		"shift_right":        {1, 2, 1, runShiftRight},
		"slice_scatter":      {2, 2, 1, late(runSliceScatter)},
		"softmax":            {1, 1, 1, late(runSoftmax)},
		"sum":                {1, 1, 1, runReduction(redSum)},
		"topk":               {1, 1, 2, late(runTopk)},
		"where":              {3, 3, 1, runWhere},
	}
	for name, op := range unaryOps {
		all[name] = kernel{1, 1, 1, func(c *call) (job, error) { return runUnary(c, op) }}
	}
	for name, op := range binaryOps {
		all[name] = kernel{1, 2, 1, func(c *call) (job, error) { return runBinary(c, op) }}
	}
	return all
}()

// Names returns the names of all kernels in ascending order.
func Names() []string { return slices.Sorted(maps.Keys(kernels)) }

// Has reports whether Run knows name.
func Has(name string) bool { return kernels[name].bind != nil }

// Run executes the kernel called name: it reads ins and fills outs. Attributes the
// kernel does not know are ignored. Every error is an *Error that names the
// operation and, where one is to blame, the operand or result; after an error the
// contents of outs are unspecified.
func Run(name string, attrs attr.List, outs, ins []Tensor) error {
	run, err := Bind(name, attrs, outs, ins)
	if err != nil {
		return err
	}
	return run()
}

// Bind readies the kernel called name for any number of runs on the same tensors, whose
// slices it keeps. What does not depend on their contents is checked once. The runs must
// not overlap in time.
func Bind(name string, attrs attr.List, outs, ins []Tensor) (run func() error, err error) {
	k, ok := kernels[name]
	if !ok {
		return nil, &Error{Op: name, Kind: ErrUnknownOp, Operand: -1, Result: -1, Msg: "no host kernel of this name"}
	}
	c := &call{op: name, attrs: attrs, outs: outs, ins: ins}
	if len(ins) < k.minIn || k.maxIn >= 0 && len(ins) > k.maxIn {
		return nil, c.fail(ErrArity, "%s", arityText("operand", len(ins), k.minIn, k.maxIn))
	}
	if len(outs) != k.outs {
		return nil, c.fail(ErrArity, "%s", arityText("result", len(outs), k.outs, k.outs))
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return k.bind(c)
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

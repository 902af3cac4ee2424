// Package decompose rewrites operations of other representations into those of
// concert: general gathers and scatters, reductions and sorts with custom computations,
// windows, padding, solvers, random bits. Each is exact: it gives the numbers that the
// specification of StableHLO asks for, where that leaves no choice. Importers share it, and
// nothing after import has to know such operations.
//
// # Computations
//
// The computation of a reduction, sort or scatter is a [Body]: a function that appends its
// operations. It is written for scalars and applied to whole tensors: a reduction is a tree of
// slices, a sort a sorting network, and each of their levels is elementwise, hence one fused kernel. So
// there are no operations with regions, and passes, proofs and kernels need nothing new. A body
// that equals an operation of the op table is found by looking at what it appends for scalars.
package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Emitter appends operations to a function; an [ir.FuncBuilder] is one.
type Emitter interface {
	Op(op ir.Op, group *ir.Group, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) []*ir.Value
}

// Body is a computation of scalars that is applied elementwise: it appends the operations
// that make its results of args, which have one shape and the element types of its
// parameters. It may be applied any number of times, to any function.
type Body func(e Emitter, args []*ir.Value) ([]*ir.Value, error)

// emit is an Emitter with the operations by name.
type emit struct{ Emitter }

func (e emit) one(op ir.Op, attrs ir.Attrs, args []*ir.Value, types ...ir.Type) *ir.Value {
	return e.Op(op, nil, attrs, args, types...)[0]
}

func (e emit) unary(op ir.Op, x *ir.Value) *ir.Value { return e.one(op, nil, []*ir.Value{x}) }

func (e emit) binary(op ir.Op, a, b *ir.Value) *ir.Value { return e.one(op, nil, []*ir.Value{a, b}) }

// with is an operation of x and an integer.
func (e emit) with(op ir.Op, x *ir.Value, c int64) *ir.Value {
	return e.one(op, ir.A("scalar", c), []*ir.Value{x})
}

func (e emit) where(c, a, b *ir.Value) *ir.Value { return e.one(ir.OpWhere, nil, []*ir.Value{c, a, b}) }

func (e emit) convert(x *ir.Value, dt ir.DType) *ir.Value {
	if x.Type().DType() == dt {
		return x
	}
	return e.one(ir.OpConvert, nil, []*ir.Value{x}, ir.TensorOf(dt, x.Type().Shape()))
}

func (e emit) full(dt ir.DType, c float64, shape ...int64) *ir.Value {
	return e.one(ir.OpFull, ir.A("value", c), nil, ir.Tensor(dt, shape...))
}

// integer is a tensor of one integer, which a float may not hold.
func (e emit) integer(dt ir.DType, c int64, shape ...int64) *ir.Value {
	return e.one(ir.OpFull, ir.A("value", c), nil, ir.Tensor(dt, shape...))
}

// count is 0, 1, 2, ... along one dimension of a tensor of that rank whose other sizes are 1.
func (e emit) count(n int64, rank, dim int) *ir.Value {
	shape := ones(rank)
	shape[dim] = n
	return e.view(e.one(ir.OpIota, nil, nil, ir.Tensor(ir.I64, n)), shape)
}

// view is x under another shape, of a copy where its layout asks for one.
func (e emit) view(x *ir.Value, shape []int64) *ir.Value {
	if slices.Equal(sizes(x), shape) {
		return x
	}
	to := ir.Tensor(x.Type().DType(), shape...)
	if _, err := ir.Infer(ir.OpView, nil, nil, []ir.Type{x.Type()}, to); err != nil {
		x = e.one(ir.OpClone, nil, []*ir.Value{x}, ir.TensorOf(x.Type().DType(), x.Type().Shape()))
	}
	return e.one(ir.OpView, nil, []*ir.Value{x}, to)
}

// permute is x with its dimensions in another order.
func (e emit) permute(x *ir.Value, dims []int) *ir.Value {
	l, same := make([]int64, len(dims)), true
	for i, d := range dims {
		l[i] = int64(d)
		same = same && d == i
	}
	if same {
		return x
	}
	return e.one(ir.OpPermute, ir.A("dims", l), []*ir.Value{x})
}

// slice is start, start+step, ... below end along dim.
func (e emit) slice(x *ir.Value, dim int, start, end, step int64) *ir.Value {
	if start == 0 && step == 1 && end == sizes(x)[dim] {
		return x
	}
	return e.one(ir.OpSlice, ir.A("dim", dim, "start", start, "end", end, "step", step), []*ir.Value{x})
}

func (e emit) expand(x *ir.Value, shape []int64) *ir.Value {
	if slices.Equal(sizes(x), shape) {
		return x
	}
	return e.one(ir.OpExpand, nil, []*ir.Value{x}, ir.Tensor(x.Type().DType(), shape...))
}

func (e emit) cat(dim int, xs ...*ir.Value) *ir.Value {
	return e.one(ir.OpCat, ir.A("dim", dim), xs)
}

// dense is x in row-major order.
func (e emit) dense(x *ir.Value) *ir.Value {
	if x.Type().Contiguous() {
		return x
	}
	return e.one(ir.OpClone, nil, []*ir.Value{x}, ir.TensorOf(x.Type().DType(), x.Type().Shape()))
}

// sizes are those of a tensor that check has seen.
func sizes(v *ir.Value) []int64 {
	s, _ := v.Type().Shape().Static()
	return s
}

// check says which operand is missing or has sizes that are not constant.
func check(what string, vs ...*ir.Value) error {
	for i, v := range vs {
		if v == nil || v.Def() == nil {
			return fmt.Errorf("%s: operand %d is missing", what, i)
		}
		if _, ok := v.Type().Shape().Static(); !ok || v.Type().IsAsync() {
			return fmt.Errorf("%s: operand %d is %s, want a tensor of constant sizes", what, i, v.Type())
		}
	}
	return nil
}

// distinct says which of dims is none of rank dimensions, or appears twice.
func distinct(what string, rank int, dims []int64) error {
	for i, d := range dims {
		if d < 0 || d >= int64(rank) {
			return fmt.Errorf("%s: dimension %d is outside the %d dimensions", what, d, rank)
		}
		if slices.Contains(dims[:i], d) {
			return fmt.Errorf("%s: dimension %d appears twice", what, d)
		}
	}
	return nil
}

func ones(n int) []int64 {
	l := make([]int64, n)
	for i := range l {
		l[i] = 1
	}
	return l
}

package traced

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// Run binds the arguments to a signature and imports the node by build.
func (c *Call) Run(signature string, build func() error) (err error) {
	if err := c.Bind(signature); err != nil {
		return err
	}
	defer func() {
		switch r := recover(); r {
		case nil:
		case unsized{}:
			c.Unsized, err = true, ErrForm
		default:
			panic(r)
		}
	}()
	if err = build(); err == nil {
		err = c.Err
	}
	return err
}

// Size is an integer argument that may be known at run time only; false if it is none.
func (c *Call) Size(v *pytext.Value) (ir.Dim, bool) {
	if v.Kind == pytext.Int {
		return ir.D(v.Int), true
	}
	if d := c.Trace.SizeOf(v); d != nil {
		return *d, true
	}
	return ir.Dim{}, false
}

// Sizes returns a list of sizes; a single one is a list of one; nil if absent.
func (c *Call) Sizes(param string) ir.Shape {
	v := c.Arg(param)
	if v == nil {
		return nil
	}
	list := []pytext.Value{*v}
	if _, ok := c.Size(v); !ok {
		list = c.ListOf(param)
	}
	var out ir.Shape
	for k := range list {
		d, ok := c.Size(&list[k])
		if !ok {
			c.Want(param, "an integer", &list[k])
			return nil
		}
		out = append(out, d)
	}
	return out
}

// SizedSlice are the attributes of a slice of a dimension that is known at run time only, from
// a place that is known to one that is, or to the end.
func (c *Call) SizedSlice(d int64) attr.List {
	start, end, step := c.Int("start", 0), c.Int("end", math.MaxInt64), c.Int("step", 1)
	if c.Err != nil || start < 0 || end < start || step < 1 {
		panic(unsized{})
	}
	l := DimAttr(d).With("start", attr.Int(start))
	if end < MaxElems {
		l = l.With("end", attr.Int(end))
	}
	if step != 1 {
		l = l.With("step", attr.Int(step))
	}
	return l
}

// SizedPiece copies every step-th element of a dimension from start on, length of them: a view
// begins where the program says when it is compiled.
func (c *Call) SizedPiece(x *ir.Value, d int64, start, length ir.Dim, step int64) *ir.Value {
	first, number := start.Const()
	if !number { // what is counted is a size, though start may be known to be one at run time only
		c.Trace.Require(start)
		first, _ = start.Eval(func(string) (int64, bool) { return 0, true })
		first = min(first, 0)
	}
	l := attr.Make(attr.Attr{Key: "start", Val: attr.Int(first)}, attr.Attr{Key: "step", Val: attr.Int(step)})
	at := c.Helper(ir.OpIota, l, ir.TensorOf(ir.I64, ir.Shape{length}))
	if !number {
		at = c.Make(ir.OpAdd, nil, at, c.Counted(start.Sub(ir.D(first))))
	}
	return c.Make(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(d)), x, at)
}

// counted bounds how many ones a sum has: those of larger products are multiplied.
const counted = 1 << 16

// Counted is a size as a tensor of one element: a sum of as many ones, which are one element
// in memory.
func (c *Call) Counted(d ir.Dim) *ir.Value {
	least, most, ok := c.Trace.Bounds(d)
	if times, factors := d.Terms(); (!ok || most-least > counted) && (len(times) > 1 || len(times) == 1 && (len(factors[0]) > 1 || times[0] != 1)) {
		return c.products(times, factors)
	}
	if least = min(least, 0); !ok { // a size may be an expression that is negative
		least = 0
	}
	one := c.Helper(ir.OpFull, attr.List(nil).With("value", attr.Int(1)), ir.Tensor(ir.I64))
	ones := c.Helper(ir.OpExpand, nil, ir.TensorOf(ir.I64, ir.Shape{d.Sub(ir.D(least))}).WithStrides([]int64{0}), one)
	sum := c.Helper(ir.OpSum, attr.List(nil).With("dims", attr.Ints(0)), ir.Tensor(ir.I64), ones)
	if least < 0 {
		sum = c.With(ir.OpAdd, sum, float64(least))
	}
	return sum
}

// products is a sum of products of sizes as a tensor of one element.
func (c *Call) products(times []int64, factors [][]ir.Dim) *ir.Value {
	var sum *ir.Value
	for i, n := range times {
		x := c.Filled(attr.Int(n), ir.I64)
		for k, f := range factors[i] {
			if y := c.Counted(f); k == 0 && n == 1 {
				x = y
			} else {
				x = c.Mul(x, y)
			}
		}
		if sum == nil {
			sum = x
		} else {
			sum = c.Add(sum, x)
		}
	}
	return sum
}

// By is op of a tensor and a size.
func (c *Call) By(op ir.Op, x *ir.Value, d ir.Dim) *ir.Value {
	if n, ok := d.Const(); ok {
		return c.With(op, x, float64(n))
	}
	return c.Make(op, nil, x, c.In(x.Type().DType(), c.Counted(d)))
}

// Placed reports whether a view of x from start on along d begins a number of elements behind x: that is not so where
// sizes of later dimensions are open.
func Placed(x *ir.Value, d int, start int64) bool {
	if start == 0 || d >= x.Type().Rank() {
		return true
	}
	_, ok := x.Type().SymbolicStrides()[d].Const()
	return ok
}

// Piece is length elements along d from start on.
func (c *Call) Piece(x *ir.Value, d int64, start, length ir.Dim) *ir.Value {
	have := x.Type().Shape()[d]
	c.Trace.Require(have.Sub(start).Sub(length))
	first, ok := start.Const()
	n, ok2 := length.Const()
	if ok && ok2 {
		return c.Slice(x, int(d), first, first+n)
	}
	return c.SizedPiece(x, d, start, length, 1)
}

// First is the first n elements along d.
func (c *Call) First(x *ir.Value, d int64, n ir.Dim) *ir.Value {
	if x.Type().Shape()[d].Equal(n) {
		return x
	}
	return c.Piece(x, d, ir.D(0), n)
}

// Padded has elements of one value behind those along d: as many in all as there may ever be.
func (c *Call) Padded(x *ir.Value, d int64, v attr.Value) *ir.Value {
	shape := slices.Clone(x.Type().Shape())
	if _, ok := shape[d].Const(); ok {
		return x
	}
	shape[d] = ir.D(c.Most(shape[d])).Sub(shape[d])
	return c.Make(ir.OpCat, DimAttr(d), x, c.Full(v, x.Type().DType(), shape))
}

// Most is the greatest value that a size may have.
func (c *Call) Most(d ir.Dim) int64 {
	_, most, ok := c.Trace.Bounds(d)
	if !ok || most > MaxElems {
		panic(unsized{})
	}
	return most
}

// Never reports whether no sizes that symbols may have take d above 0.
func (c *Call) Never(d ir.Dim) bool {
	_, most, ok := c.Trace.Bounds(d)
	return ok && most <= 0
}

// Empty reports whether a tensor has no elements whatever the sizes are that are open.
func Empty(x *ir.Value) bool { return slices.ContainsFunc(x.Type().Shape(), ir.D(0).Equal) }

// unsized is what Static panics with, and Run recovers: an operator is imported through
// sizes that the trace does not know.
type unsized struct{}

// open leaves an operator of open sizes that does not fit together: it may well do for numbers.
func (c *Call) open(types ...ir.Type) {
	if slices.ContainsFunc(types, func(t ir.Type) bool { _, ok := t.Shape().Static(); return !ok }) {
		panic(unsized{})
	}
}

// AsLong is x with sizes that are numbers where the operator takes them for these, which it
// broadcasts to: a check of the module.
func (c *Call) AsLong(x *ir.Value, want ir.Shape) *ir.Value {
	have, dense := x.Type().Shape(), x.Type().Contiguous()
	for d := range have {
		k := d + len(want) - len(have)
		if k < 0 {
			break
		}
		n, number := want[k].Const()
		if _, ok := have[d].Const(); ok || !number || !dense {
			continue
		}
		l := DimAttr(int64(d)).With("end", attr.Int(n))
		ts, err := ir.Infer(ir.OpSlice, nil, l, []ir.Type{x.Type()})
		if err != nil {
			break
		}
		c.Trace.Require(ir.D(n).Sub(have[d]))
		x = c.Helper(ir.OpSlice, l, ts[0], x)
	}
	return x
}

// Static returns the sizes of a tensor, for operators that are imported through them.
func Static(v *ir.Value) []int64 { return SizesOf(v.Type()) }

// SizeAt returns the size of one dimension, as Static does of all.
func SizeAt(v *ir.Value, d int64) int64 { return Constant(v.Type().Shape()[d]) }

// Constant is a size as a number, as sizesOf has all.
func Constant(d ir.Dim) int64 {
	n, ok := d.Const()
	if !ok {
		panic(unsized{})
	}
	return n
}

// SizesOf returns the sizes of a type. Where one is known at run time only, the node is
// imported in another way: it panics with unsized, which Run recovers.
func SizesOf(t ir.Type) []int64 {
	s, ok := t.Shape().Static()
	if !ok {
		panic(unsized{})
	}
	return s
}

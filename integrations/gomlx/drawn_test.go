package gomlx

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// steepness says how far off an operation's result is when its operands are.
type steepness int

const (
	exact  steepness = iota // as far, and no further
	smooth                  // as far, and rounded
	sums                    // as often as there are elements, and rounded
	times                   // that, and by the size of the other operand
	steep                   // by its own size, and rounded
	sharp                   // any amount: its operands must be exact
)

// node is an operation of a drawn computation, or a parameter of it.
type node struct {
	name  string
	ins   []int
	build func(f compute.Function, in []compute.Value) (compute.Value, error) // nil: a parameter
	flat  any                                                                 // of a parameter
	shape shapes.Shape
	steep steepness
	sure  bool // has the same bits on all backends
}

// drawing draws a computation; what f does not take is not drawn.
type drawing struct {
	*rand.Rand
	f     compute.Function
	at    []compute.Value
	nodes []node
}

var (
	floats    = []dtypes.DType{dtypes.Float32, dtypes.Float64, dtypes.Float16, dtypes.BFloat16}
	integers  = []dtypes.DType{dtypes.Int8, dtypes.Int16, dtypes.Int32, dtypes.Int64, dtypes.Uint8, dtypes.Uint16, dtypes.Uint32, dtypes.Uint64}
	drawnFrom = slices.Concat(floats, floats, integers, []dtypes.DType{dtypes.Bool})
)

// draw draws a computation of n operations and parameters, or some more.
func draw(seed uint64, f compute.Function, n int) []node {
	d := &drawing{rand.New(rand.NewPCG(seed, 7)), f, nil, nil}
	d.parameter(drawnFrom[d.IntN(len(drawnFrom))], d.dims(1+d.IntN(4)))
	for range 20 * n {
		if len(d.nodes) >= n {
			break
		}
		drawers[d.IntN(len(drawers))](d, d.late())
	}
	return d.nodes
}

// late is a node, rather one of the last.
func (d *drawing) late() int {
	return len(d.nodes) - 1 - min(d.IntN(len(d.nodes)), d.IntN(len(d.nodes)))
}

func (d *drawing) dims(rank int) []int {
	dims := make([]int, rank)
	for i := range dims {
		dims[i] = 1 + d.IntN(4)
	}
	return dims
}

// parameter adds a parameter whose numbers all types have that have a sign if it has.
func (d *drawing) parameter(dt dtypes.DType, dims []int) int {
	low, n, by := -8, 17, 1.0
	switch {
	case dt.IsFloat():
		low, n, by = -32, 65, 1.0/8
	case dt == dtypes.Bool:
		low, n = 0, 2
	case dt.IsUnsigned():
		low, n = 0, 9
	}
	return d.among(dt, dims, low, n, by)
}

// among adds a parameter of low to low+n-1, times by.
func (d *drawing) among(dt dtypes.DType, dims []int, low, n int, by float64) int {
	p := node{name: "Parameter", shape: shapes.Make(dt, dims...)}
	values := make([]float64, p.shape.Size())
	for i := range values {
		values[i] = float64(low+d.IntN(n)) * by
	}
	p.flat = typed(dt, values)
	return d.add(p)
}

// op adds an operation of nodes.
func (d *drawing) op(name string, how steepness, build func(f compute.Function, in []compute.Value) (compute.Value, error), ins ...int) {
	d.add(node{name: name, ins: ins, build: build, steep: how})
}

// add adds a node, if it is one: else it is -1.
func (d *drawing) add(n node) int {
	in := make([]compute.Value, len(n.ins))
	n.sure = n.steep == exact
	for i, k := range n.ins {
		if k < 0 || n.steep == sharp && !d.nodes[k].sure {
			return -1
		}
		in[i], n.sure = d.at[k], n.sure && d.nodes[k].sure
	}
	v, err := d.value(&n, in)
	if err == nil {
		n.shape, err = d.f.Shape(v)
	}
	if err != nil || n.shape.Size() > 1<<11 {
		return -1
	}
	n.sure = n.sure || !n.shape.DType.IsFloat()
	d.nodes, d.at = append(d.nodes, n), append(d.at, v)
	return len(d.nodes) - 1
}

// value adds a node to the function, which may panic.
func (d *drawing) value(n *node, in []compute.Value) (v compute.Value, err error) {
	defer recovered(&err)
	if n.build == nil {
		return d.f.Parameter(n.input(len(d.nodes)), n.shape, nil)
	}
	return n.build(d.f, in)
}

// input is a parameter's name; some are variables.
func (n *node) input(k int) string {
	if k%3 == 1 {
		return fmt.Sprint("/p", k)
	}
	return fmt.Sprint("p", k)
}

// mate is what a binary operation takes with node k.
func (d *drawing) mate(k int) int {
	s := d.nodes[k].shape
	for range 4 {
		if m := d.late(); d.nodes[m].shape.Equal(s) && d.IntN(2) == 0 {
			return m
		}
	}
	dims := slices.Clone(s.Dimensions)
	if d.IntN(4) == 0 {
		dims = nil
	}
	for i := range dims {
		if d.IntN(6) == 0 {
			dims[i] = 1
		}
	}
	return d.parameter(s.DType, dims)
}

type drawer = func(d *drawing, k int)

var drawers = slices.Concat(unaries(), binaries(), moves, reductions, products)

const ( // classes of types
	ofFloats = 1 << iota
	ofSigned
	ofUnsigned
	ofBools
	ofInts    = ofSigned | ofUnsigned
	ofNumbers = ofFloats | ofInts
	ofAll     = ofNumbers | ofBools
)

func is(dt dtypes.DType, class int) bool {
	switch {
	case dt.IsFloat():
		return class&ofFloats != 0
	case dt == dtypes.Bool:
		return class&ofBools != 0
	case dt.IsUnsigned():
		return class&ofUnsigned != 0
	}
	return class&ofSigned != 0
}

func unaries() (all []drawer) {
	type unary = func(compute.Function, compute.Value) (compute.Value, error)
	for _, o := range []struct {
		name  string
		op    unary
		class int
		how   steepness
	}{
		{"Neg", compute.Function.Neg, ofFloats | ofSigned, exact}, {"Abs", compute.Function.Abs, ofNumbers, exact}, {"Sign", compute.Function.Sign, ofNumbers, sharp},
		{"Floor", compute.Function.Floor, ofFloats, sharp}, {"Ceil", compute.Function.Ceil, ofFloats, sharp}, {"Round", compute.Function.Round, ofFloats, sharp},
		{"Exp", compute.Function.Exp, ofFloats, steep}, {"Expm1", compute.Function.Expm1, ofFloats, steep}, {"Erf", compute.Function.Erf, ofFloats, steep},
		{"Sin", compute.Function.Sin, ofFloats, smooth}, {"Cos", compute.Function.Cos, ofFloats, smooth}, {"Tanh", compute.Function.Tanh, ofFloats, smooth},
		{"Logistic", compute.Function.Logistic, ofFloats, smooth}, {"Log", compute.Function.Log, ofFloats, sharp}, {"Log1p", compute.Function.Log1p, ofFloats, sharp},
		{"Sqrt", compute.Function.Sqrt, ofFloats, sharp}, {"Rsqrt", compute.Function.Rsqrt, ofFloats, sharp},
		{"BitwiseNot", compute.Function.BitwiseNot, ofInts, exact}, {"BitCount", compute.Function.BitCount, ofInts, exact}, {"Clz", compute.Function.Clz, ofInts, exact},
		{"LogicalNot", compute.Function.LogicalNot, ofBools, exact}, {"IsFinite", compute.Function.IsFinite, ofFloats, sharp}, {"IsNaN", compute.Function.IsNaN, ofFloats, sharp},
		{"FusedGelu", func(f compute.Function, x compute.Value) (compute.Value, error) { return f.FusedGelu(x, true) }, ofFloats, steep},
		{"FusedGelu (tanh)", func(f compute.Function, x compute.Value) (compute.Value, error) { return f.FusedGelu(x, false) }, ofFloats, steep},
	} {
		all = append(all, func(d *drawing, k int) {
			if is(d.nodes[k].shape.DType, o.class) {
				d.op(o.name, o.how, func(f compute.Function, in []compute.Value) (compute.Value, error) { return o.op(f, in[0]) }, k)
			}
		})
	}
	return all
}

func binaries() (all []drawer) {
	const shifts, divides = 1, 2 // by few bits, by what is not zero
	for _, o := range []struct {
		name  string
		op    func(f compute.Function, x, y compute.Value) (compute.Value, error)
		class int
		how   steepness
		by    int
	}{
		{"Add", compute.Function.Add, ofNumbers, sums, 0}, {"Sub", compute.Function.Sub, ofNumbers, sums, 0}, {"Mul", compute.Function.Mul, ofNumbers, times, 0},
		{"Max", compute.Function.Max, ofNumbers, exact, 0}, {"Min", compute.Function.Min, ofNumbers, exact, 0}, {"Atan2", compute.Function.Atan2, ofFloats, sharp, divides},
		{"Div", compute.Function.Div, ofNumbers, smooth, divides}, {"Rem", compute.Function.Rem, ofNumbers, sharp, divides}, {"Pow", compute.Function.Pow, ofNumbers, sharp, shifts},
		{"BitwiseAnd", compute.Function.BitwiseAnd, ofInts, exact, 0}, {"BitwiseOr", compute.Function.BitwiseOr, ofInts, exact, 0}, {"BitwiseXor", compute.Function.BitwiseXor, ofInts, exact, 0},
		{"LogicalAnd", compute.Function.LogicalAnd, ofBools, exact, 0}, {"LogicalOr", compute.Function.LogicalOr, ofBools, exact, 0}, {"LogicalXor", compute.Function.LogicalXor, ofBools, exact, 0},
		{"ShiftLeft", compute.Function.ShiftLeft, ofInts, exact, shifts}, {"ShiftRightLogical", compute.Function.ShiftRightLogical, ofInts, exact, shifts},
		{"ShiftRightArithmetic", compute.Function.ShiftRightArithmetic, ofSigned, exact, shifts},
		{"Equal", compute.Function.Equal, ofAll, sharp, 0}, {"NotEqual", compute.Function.NotEqual, ofAll, sharp, 0}, {"LessThan", compute.Function.LessThan, ofNumbers, sharp, 0},
		{"LessOrEqual", compute.Function.LessOrEqual, ofNumbers, sharp, 0}, {"GreaterThan", compute.Function.GreaterThan, ofNumbers, sharp, 0}, {"GreaterOrEqual", compute.Function.GreaterOrEqual, ofNumbers, sharp, 0},
		{"EqualTotalOrder", compute.Function.EqualTotalOrder, ofNumbers, sharp, 0}, {"NotEqualTotalOrder", compute.Function.NotEqualTotalOrder, ofNumbers, sharp, 0},
		{"LessThanTotalOrder", compute.Function.LessThanTotalOrder, ofNumbers, sharp, 0}, {"GreaterOrEqualTotalOrder", compute.Function.GreaterOrEqualTotalOrder, ofNumbers, sharp, 0},
	} {
		all = append(all, func(d *drawing, k int) {
			s := d.nodes[k].shape
			if !is(s.DType, o.class) {
				return
			}
			m, build := -1, func(f compute.Function, in []compute.Value) (compute.Value, error) { return o.op(f, in[0], in[1]) }
			switch o.by {
			case 0:
				if m = d.mate(k); d.IntN(2) == 0 {
					k, m = m, k
				}
			case shifts:
				m = d.among(s.DType, s.Dimensions, 0, 4, 1)
			case divides:
				m = d.among(s.DType, s.Dimensions, 1, 4, 1)
			}
			d.op(o.name, o.how, build, k, m)
		})
	}
	return all
}

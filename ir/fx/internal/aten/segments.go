package aten

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// segmentOps fold rows that stand one after another, count elements in bins, and list where elements are not zero.
var segmentOps = []row{
	{"aten.segment_reduce.default", "data reduce * lengths indices offsets axis unsafe initial", segmentReduce},
	{"aten._segment_reduce_backward.default", "grad output data reduce * lengths offsets axis initial", segmentReduceBackward},
	{"aten.histogram.bin_ct", "self bins * range weight density", histogramOf},
	{"aten._histogramdd_bin_edges.default aten._histogramdd_from_bin_cts.default", "self bins * range weight density", histogramOfRows},
	{"aten.nonzero.default", "self", nonzero},
	{"aten.masked_select.default", "self mask", maskedSelect},
	{"aten._unique2.default", "self sorted return_inverse return_counts", unique(false)},
	{"aten.unique_consecutive.default", "self return_inverse return_counts dim", unique(true)},
	{"aten.nonzero_static.default", "self * size fill_value", nonzeroStatic},
	{"aten.embedding_renorm.default", "self indices max_norm norm_type", embeddingRenorm},
}

// segments are rows of data of which each belongs to one of count segments, or to none.
type segments struct {
	data    *ir.Value
	count   int64
	of      *ir.Value // i64 [rows]: the segment, count for what belongs to none
	lengths *ir.Value // i64 [count]
	how     string
	initial float64
	given   bool // the initial value is
}

func (c *call) segments() (s segments, err error) {
	s.data, s.how = c.Tensor("data"), c.Str("reduce")
	var ends *ir.Value
	switch {
	case c.IsTensor("lengths"):
		s.lengths = c.Tensor("lengths")
	case c.IsTensor("offsets"):
		ends = c.Tensor("offsets")
	default:
		return s, cmp.Or(c.Err, traced.ErrForm)
	}
	if c.Int("axis", 0) != 0 || c.IsTensor("indices") || c.Err != nil || !s.data.Type().DType().IsFloat() {
		return s, cmp.Or(c.Err, traced.ErrForm)
	}
	var first *ir.Value // the rows before each segment
	if s.lengths != nil {
		if s.lengths.Type().Rank() != 1 {
			return s, traced.ErrForm
		}
		s.count, s.lengths = traced.SizeAt(s.lengths, 0), c.In(ir.I64, s.lengths)
		ends = c.Make(ir.OpCumsum, traced.DimAttr(0), s.lengths)
		first = c.Sub(ends, s.lengths)
	} else {
		if ends.Type().Rank() != 1 || traced.SizeAt(ends, 0) < 1 {
			return s, traced.ErrForm
		}
		s.count, ends = traced.SizeAt(ends, 0)-1, c.In(ir.I64, ends)
		first, ends = c.Slice(ends, 0, 0, s.count), c.Slice(ends, 0, 1, s.count+1)
		s.lengths = c.Sub(ends, first)
	}
	shape := traced.Static(s.data)
	if len(shape) == 0 || s.count == 0 || intmath.Product(shape) == 0 {
		return s, traced.ErrForm
	}
	at := c.Counting(shape[0])
	passed := c.Make(ir.OpLe, nil, c.Unsqueezed(ends, 0), c.Unsqueezed(at, 1))
	s.of = c.Over(ir.OpSum, c.In(ir.I64, passed), false, 1)
	before := c.Make(ir.OpLt, nil, at, c.Slice(first, 0, 0, 1)) // the first segment
	s.of = c.Make(ir.OpWhere, nil, before, c.Filled(attr.Int(s.count), ir.I64), s.of)
	s.initial = map[string]float64{"max": math.Inf(-1), "min": math.Inf(1), "prod": 1}[s.how]
	if v, ok := c.Num("initial"); ok {
		s.given = true
		s.initial, _ = v.AsFloat()
	}
	return s, c.Err
}

// rows is a number for each segment, or row, in the data's dimensions.
func (c *call) rows(s segments, x *ir.Value) *ir.Value {
	shape := slices.Repeat([]int64{1}, s.data.Type().Rank())
	shape[0] = traced.SizeAt(x, 0)
	return c.Shaped(x, shape...)
}

// fold is what rows of x give together, from a start on, for each segment and, last, for what belongs to none.
func (c *call) fold(s segments, x *ir.Value, how string, start float64) *ir.Value {
	shape := slices.Clone(traced.Static(x))
	index, _ := c.Broadcast(c.rows(s, s.of), ir.Dims(shape...))
	shape[0] = s.count + 1
	acc := c.Filled(attr.Float(start), x.Type().DType(), shape...)
	return c.Make(ir.OpScatter, traced.DimAttr(0).With("reduce", attr.String(how)), acc, index, x)
}

// taken is the row of each one's segment, 0 of what belongs to none.
func (c *call) taken(s segments, x *ir.Value) *ir.Value {
	shape := slices.Clone(traced.Static(x))
	shape[0] = 1
	x = c.Make(ir.OpCat, traced.DimAttr(0), x, c.Filled(attr.Int(0), x.Type().DType(), shape...))
	return c.Make(ir.OpIndex, attr.List(nil).With("dims", attr.Ints(0)), x, s.of)
}

func segmentReduce(c *call) error {
	s, err := c.segments()
	if err != nil {
		return err
	}
	how, ok := map[string]string{"sum": "add", "mean": "add", "prod": "multiply", "max": "amax", "min": "amin"}[s.how]
	if !ok {
		return traced.ErrForm
	}
	acc := traced.AccType(s.data.Type().DType())
	y := c.Slice(c.fold(s, c.In(acc, s.data), how, s.initial), 0, 0, s.count)
	if s.how == "mean" {
		lengths := c.rows(s, s.lengths)
		mean := c.Make(ir.OpDiv, nil, y, c.In(acc, c.With(ir.OpMaximum, lengths, 1)))
		empty := y
		if !s.given {
			empty = c.Filled(attr.Float(math.NaN()), acc)
		}
		y = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, lengths, 0), empty, mean)
	}
	return c.Settle(y)
}

// segmentReduceBackward divides the gradients of largest and smallest elements among those that are.
func segmentReduceBackward(c *call) error {
	s, err := c.segments()
	g, out := c.Tensor("grad"), c.Tensor("output")
	if err = cmp.Or(err, c.Err); err != nil {
		return err
	}
	acc := traced.AccType(s.data.Type().DType())
	x, g, out := c.In(acc, s.data), c.In(acc, g), c.In(acc, out)
	zero := c.Filled(attr.Int(0), acc)
	switch s.how {
	case "sum":
		g = c.taken(s, g)
	case "mean":
		g = c.taken(s, c.Make(ir.OpDiv, nil, g, c.In(acc, c.With(ir.OpMaximum, c.rows(s, s.lengths), 1))))
	case "prod": // that of all others, of which zeros are counted apart
		none := c.With(ir.OpEq, x, 0)
		zeros := c.Slice(c.fold(s, c.In(acc, none), "add", 0), 0, 0, s.count)
		others := c.Slice(c.fold(s, c.Make(ir.OpWhere, nil, none, c.Filled(attr.Int(1), acc), x), "multiply", s.initial), 0, 0, s.count)
		alone := c.Make(ir.OpWhere, nil, c.With(ir.OpEq, zeros, 1), c.Mul(g, others), zero)
		g = c.Make(ir.OpWhere, nil, none, c.taken(s, alone), c.Make(ir.OpDiv, nil, c.taken(s, c.Mul(g, out)), x))
	case "max", "min":
		same := c.Make(ir.OpLogicalOr, nil, c.Make(ir.OpEq, nil, x, c.taken(s, out)), c.Make(ir.OpNe, nil, x, x))
		many := c.Slice(c.fold(s, c.In(acc, same), "add", 0), 0, 0, s.count)
		g = c.Make(ir.OpWhere, nil, same, c.taken(s, c.Make(ir.OpDiv, nil, g, c.With(ir.OpMaximum, many, 1))), zero)
	default:
		return traced.ErrForm
	}
	belongs := c.rows(s, c.With(ir.OpLt, s.of, float64(s.count)))
	return c.Settle(c.Make(ir.OpWhere, nil, belongs, g, zero))
}

// binned are the edges of bins of equal width, and the bin of each element of a line, bins for those in none.
func (c *call) binned(x *ir.Value, bins int64, ends []float64) (edges, at *ir.Value) {
	dt := x.Type().DType()
	low, high := c.Over(ir.OpAmin, x, false), c.Over(ir.OpAmax, x, false)
	if len(ends) == 2 {
		low, high = c.Filled(attr.Float(ends[0]), dt), c.Filled(attr.Float(ends[1]), dt)
	}
	same := c.Make(ir.OpEq, nil, low, high)
	low = c.Make(ir.OpWhere, nil, same, c.With(ir.OpSub, low, 0.5), low)
	high = c.Make(ir.OpWhere, nil, same, c.With(ir.OpAdd, high, 0.5), high)
	step, k := c.With(ir.OpDiv, c.Sub(high, low), float64(bins)), c.Counting(bins+1)
	left := c.Add(c.Mul(step, c.In(dt, k)), low)
	right := c.Sub(high, c.Mul(step, c.In(dt, c.With(ir.OpAdd, c.Make(ir.OpNeg, nil, k), float64(bins)))))
	edges = c.Make(ir.OpWhere, nil, c.With(ir.OpLt, k, float64((bins+1)/2)), left, right)
	passed := c.Make(ir.OpLe, nil, c.Unsqueezed(edges, 0), c.Unsqueezed(x, 1))
	at = c.With(ir.OpSub, c.Over(ir.OpSum, c.In(ir.I64, passed), false, 1), 1)
	within := c.Make(ir.OpLogicalAnd, nil, c.Make(ir.OpGe, nil, x, low), c.Make(ir.OpLe, nil, x, high))
	return edges, c.Make(ir.OpWhere, nil, within, c.With(ir.OpMinimum, at, float64(bins-1)), c.Filled(attr.Int(bins), ir.I64))
}

// counted adds up weights, ones if there are none, in n bins; what is in none is at n.
func (c *call) counted(at *ir.Value, n int64, dt ir.DType) *ir.Value {
	weight := c.Filled(attr.Int(1), dt, traced.Static(at)...)
	if c.IsTensor("weight") {
		weight = c.Flat(c.Tensor("weight"))
	}
	return c.Slice(c.Make(ir.OpIndexAdd, traced.DimAttr(0), c.Filled(attr.Int(0), dt, n+1), at, weight), 0, 0, n)
}

// histogramOf counts what lies in bins of equal width, and gives their edges.
func histogramOf(c *call) error {
	x, bins, ends := c.Tensor("self"), c.Need("bins"), c.numbers("range")
	if c.Err != nil {
		return c.Err
	}
	if !x.Type().DType().IsFloat() || bins < 1 || bins > 1<<20 || intmath.Product(traced.Static(x)) == 0 {
		return traced.ErrForm
	}
	edges, at := c.binned(c.Flat(x), bins, ends)
	y := c.counted(at, bins, x.Type().DType())
	if c.Bool("density", false) {
		widths := c.Sub(c.Slice(edges, 0, 1, bins+1), c.Slice(edges, 0, 0, bins))
		y = c.Make(ir.OpDiv, nil, y, c.Mul(c.Over(ir.OpSum, y, false), widths))
	}
	if c.Err != nil {
		return c.Err
	}
	return c.Settle(y, edges)
}

// histogramOfRows is histogramOf of rows, in as many dimensions as these are long: its edges, or its counts.
func histogramOfRows(c *call) error {
	x, bins, ends := c.Tensor("self"), c.Ints("bins"), c.numbers("range")
	if c.Err != nil {
		return c.Err
	}
	s, width := traced.Static(x), int64(len(bins))
	if len(s) < 2 || width == 0 || s[len(s)-1] != width || intmath.Product(s) == 0 || !x.Type().DType().IsFloat() || len(ends) != 0 && len(ends) != 2*len(bins) || c.Bool("density", false) {
		return traced.ErrForm
	}
	x = c.Shaped(x, intmath.Product(s)/width, width)
	var edges []*ir.Value
	at, all, none := c.Filled(attr.Int(0), ir.I64), int64(1), c.Filled(attr.Int(0), ir.Bool)
	for k, n := range bins {
		if n < 1 || n > 1<<20 || all > 1<<24 {
			return traced.ErrForm
		}
		column := c.Flat(c.Slice(x, 1, int64(k), int64(k)+1))
		var own []float64
		if len(ends) > 0 {
			own = ends[2*k : 2*k+2]
		}
		edge, in := c.binned(column, n, own)
		edges = append(edges, edge)
		at, all = c.Add(c.With(ir.OpMul, at, float64(n)), in), all*n
		none = c.Make(ir.OpLogicalOr, nil, none, c.With(ir.OpEq, in, float64(n)))
	}
	if c.Target == "aten._histogramdd_bin_edges.default" {
		return c.Settle(edges...)
	}
	at = c.Make(ir.OpWhere, nil, none, c.Filled(attr.Int(all), ir.I64), at)
	return c.Settle(c.Shaped(c.counted(at, all, x.Type().DType()), bins...))
}

// numbers are those of a list.
func (c *call) numbers(param string) (out []float64) {
	for _, v := range c.ListOf(param) {
		switch v.Kind {
		case pytext.Int:
			out = append(out, float64(v.Int))
		case pytext.Float:
			out = append(out, v.Float)
		default:
			c.Want(param, "a number", &v)
		}
	}
	return out
}

// nonzeroStatic lists the places of the first elements that are not zero, a number of them, and a number for
// those that there are not.
func nonzeroStatic(c *call) error {
	x, size, fill := c.Tensor("self"), c.Need("size"), c.Int("fill_value", -1)
	if c.Err != nil {
		return c.Err
	}
	shape := traced.Static(x)
	n := intmath.Product(shape)
	if size < 1 || size > traced.MaxElems || n == 0 || len(shape) == 0 {
		return traced.ErrForm
	}
	there := c.Flat(c.With(ir.OpNe, x, 0))
	if x.Type().DType() == ir.Bool {
		there = c.Flat(x)
	}
	flat := c.Slice(c.compacted(there, c.In(ir.I64, there), ir.D(size), -1), 0, 1, size+1)
	none := c.With(ir.OpLt, flat, 0)
	var columns []*ir.Value
	for d := range shape {
		k := c.With(ir.OpFloorDivide, flat, float64(intmath.Product(shape[d+1:])))
		k = c.With(ir.OpRemainder, k, float64(shape[d]))
		columns = append(columns, c.Unsqueezed(c.Make(ir.OpWhere, nil, none, c.Filled(attr.Int(fill), ir.I64), k), 1))
	}
	return c.Settle(c.Make(ir.OpCat, traced.DimAttr(1), columns...))
}

// embeddingRenorm shortens the rows that are looked up to a norm.
func embeddingRenorm(c *call) error {
	x, idx := c.Tensor("self"), c.Tensor("indices")
	most, ok := c.Num("max_norm")
	ord, fine := c.Num("norm_type")
	if c.Err != nil {
		return c.Err
	}
	s := traced.Static(x)
	if !ok || !fine || len(s) != 2 || !x.Type().DType().IsFloat() || empty(idx) || s[0] == 0 {
		return traced.ErrForm
	}
	limit, _ := most.AsFloat()
	p, _ := ord.AsFloat()
	acc := traced.AccType(x.Type().DType())
	wide := c.In(acc, x)
	norm := c.length(wide, p, true, 1)
	asked := c.Make(ir.OpIndexPut, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}), c.Filled(attr.Int(0), ir.Bool, s[0]), c.Filled(attr.Int(1), ir.Bool), c.Flat(idx))
	long := c.Make(ir.OpLogicalAnd, nil, c.Unsqueezed(asked, 1), c.With(ir.OpGt, norm, limit))
	factor := c.Make(ir.OpDiv, traced.Scalar(attr.Float(limit)).With("reverse", attr.Bool(true)), c.With(ir.OpAdd, norm, 1e-7))
	return c.Settle(c.Make(ir.OpWhere, nil, long, c.Mul(wide, factor), wide))
}

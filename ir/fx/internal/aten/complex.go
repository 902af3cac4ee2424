package aten

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// Complex finds what an operator is where it reads or makes complex numbers; look-up only. A
// tensor of them is one of pairs: its last dimension has the real and the imaginary part.
var Complex = func() map[string]Operator {
	m := map[string]Operator{}
	for _, r := range slices.Concat(complexOps, fourierOps) {
		for _, t := range strings.Fields(r.targets) {
			m[t] = Operator{signature: r.signature, build: r.build}
		}
	}
	for t, params := range pairedDims {
		m[t] = Operator{signature: Operators[t].signature, build: leading(params)}
	}
	return m
}()

var complexOps = []row{
	{"aten.view_as_real.default aten.view_as_complex.default aten.resolve_conj.default", "self", unary(ir.OpAlias)},
	{"aten.view.dtype", "self dtype", func(c *call) error { return c.EmitErr(ir.OpView, nil, c.Tensor("self")) }},
	{"aten._conj.default aten._conj_physical.default aten.conj_physical.default", "self", withOne(func(c *call, z pair) pair { return pair{z.re, c.Make(ir.OpNeg, nil, z.im)} })},
	{"aten.exp.default", "self", withOne(func(c *call, z pair) pair {
		return c.polar(c.Make(ir.OpExp, nil, z.re), z.im)
	})},
	{"aten.abs.default", "self", toReal(func(c *call, z pair) *ir.Value {
		return c.magnitude(z.wide(c))
	})},
	{"aten.angle.default", "self", toReal(func(c *call, z pair) *ir.Value { return c.Make(ir.OpAtan2, nil, z.im, z.re) })},
	{"aten.real.default", "self", toReal(func(c *call, z pair) *ir.Value { return z.re })},
	{"aten.imag.default", "self", toReal(func(c *call, z pair) *ir.Value { return z.im })},
	{"aten.polar.default", "abs angle", func(c *call) error {
		r, angle := c.Tensor("abs"), c.Tensor("angle")
		if c.Err != nil {
			return c.Err
		}
		return c.paired(c.polar(r, angle))
	}},
	{"aten.complex.default", "real imag", func(c *call) error { return c.paired(pair{c.Tensor("real"), c.Tensor("imag")}) }},
	{"aten.mul.Tensor aten.mul.Scalar", "self other", withTwo("other", (*call).times)},
	{"aten.div.Tensor aten.div.Scalar", "self other", withTwo("other", (*call).over)},
	{"aten.add.Tensor aten.add.Scalar", "self other", withTwo("other", func(c *call, a, b pair) pair { return c.sumOf(ir.OpAdd, a, b) })},
	{"aten.sub.Tensor aten.sub.Scalar", "self other", withTwo("other", func(c *call, a, b pair) pair { return c.sumOf(ir.OpSub, a, b) })},
	{"aten.mm.default aten.bmm.default", "self mat2", withTwo("mat2", (*call).product)},
	{"aten.where.self", "condition self other", wherePairs},
	{"aten.reciprocal.default", "self", withOne(func(c *call, z pair) pair {
		return c.over(pair{re: c.Filled(attr.Int(1), ir.F64)}, z)
	})},
	{"aten.sgn.default", "self", withOne(func(c *call, z pair) pair {
		z = z.wide(c)
		length := c.magnitude(z)
		length = c.Make(ir.OpWhere, nil, c.With(ir.OpEq, length, 0), c.Filled(attr.Int(1), ir.F64), length)
		return c.over(z, pair{re: length})
	})},
	{"aten.log.default", "self", withOne(func(c *call, z pair) pair {
		z = z.wide(c)
		return pair{c.Make(ir.OpLog, nil, c.magnitude(z)), c.Make(ir.OpAtan2, nil, z.im, z.re)}
	})},
	{"prims.convert_element_type.default", "self dtype", convertPairs},
	{"aten._to_copy.default", "self * dtype", convertPairs},
	{"aten.constant_pad_nd.default", "self pad value", padPairs},
	{"aten.full.default", "size fill_value", filledPairs},
	{"aten.scalar_tensor.default", "fill_value", filledPairs},
	{"aten.zeros.default", "size", filledPairs},
	{"aten.new_zeros.default", "self size", filledPairs},
	{"aten.zeros_like.default", "self", filledPairs},
	{"aten.full_like.default", "self fill_value", filledPairs},
	{"aten.sum.default aten.sum.dim_IntList", "self dim keepdim", foldPairs(ir.OpSum)},
	{"aten.mean.default aten.mean.dim", "self dim keepdim", foldPairs(ir.OpMean)},
	{"aten.copy.default", "self src non_blocking", func(c *call) error {
		if v := c.Arg("self"); v == nil || v.Kind != pytext.Name || !c.Complex(v.Text) {
			return traced.ErrForm // the real parts alone
		}
		return c.paired(c.parts("src"))
	}},
}

// pairedDims are operators that do with pairs what they do with numbers, but for the parameters
// that name dimensions from the end, or list sizes or places of all.
var pairedDims = map[string][]string{
	"aten.alias.default": nil, "aten.detach.default": nil, "aten.clone.default": nil, "aten.contiguous.default": nil, "aten.neg.default": nil,
	"aten.view.default": {"+size"}, "aten.reshape.default": {"+size"}, "aten._unsafe_view.default": {"+size"}, "aten.expand.default": {"+size"},
	"aten.permute.default": {"*dims"}, "aten.transpose.int": {"dim0", "dim1"}, "aten.unsqueeze.default": {"dim"}, "aten.squeeze.dim": {"dim"}, "aten.squeeze.dims": {"dim"},
	"aten.slice.Tensor": {"dim"}, "aten.select.int": {"dim"}, "aten.split.Tensor": {"dim"}, "aten.split_with_sizes.default": {"dim"}, "aten.unbind.int": {"dim"},
	"aten.cat.default": {"dim"}, "aten.index.Tensor": nil, "aten.index_select.default": {"dim"}, "aten.flip.default": {"dims"},
	"aten.select_scatter.default": {"dim"}, "aten.slice_scatter.default": {"dim"}, "aten.cumsum.default": {"dim"}, "aten.index_put.default": nil,
	"aten.lift_fresh_copy.default": nil, "prims.device_put.default": nil,
}

// leading imports an operator of pairs as itself: "dim" names one dimension or several of those of
// the numbers, "+size" is a size for each, "*dims" a place for each.
func leading(params []string) func(c *call) error {
	return func(c *call) error {
		for _, p := range []string{"self", "src", "values", "tensors"} {
			if v := c.Arg(p); v != nil && slices.ContainsFunc(append([]pytext.Value{*v}, v.List...), func(v pytext.Value) bool { return v.Kind == pytext.Name && !c.Complex(v.Text) }) {
				return traced.Unknown(errors.New("real numbers among complex ones"))
			}
		}
		for _, p := range params {
			all := p[0] == '+' || p[0] == '*'
			v := c.Arg(strings.TrimLeft(p, "+*"))
			switch {
			case v == nil:
				continue
			case v.Kind == pytext.Int && !all && v.Int < 0:
				v.Int--
			case v.Kind != pytext.List && v.Kind != pytext.Tuple:
				continue
			}
			for k := range v.List {
				if x := &v.List[k]; p[0] != '+' && x.Kind == pytext.Int && x.Int < 0 {
					x.Int--
				}
			}
			if p[0] == '+' {
				v.List = append(v.List, pytext.Value{Kind: pytext.Int, Int: 2, Col: v.Col})
			} else if all {
				v.List = append(v.List, pytext.Value{Kind: pytext.Int, Int: int64(len(v.List)), Col: v.Col})
			}
		}
		return Operators[c.Operator].Import(c.Call)
	}
}

// pair is complex numbers in two tensors; without im they are real.
type pair struct{ re, im *ir.Value }

// parts reads an argument: complex numbers, real ones, or a number.
func (c *call) parts(param string) pair {
	switch {
	case c.Arg(param) == nil:
		c.Want(param, "a tensor or a number", nil)
		return pair{}
	case !c.IsTensor(param):
		return c.number(param)
	}
	x := c.Tensor(param)
	if c.Err != nil || !c.Complex(c.Arg(param).Text) {
		return pair{re: x}
	}
	d := int64(x.Type().Rank() - 1)
	at := func(i int64) *ir.Value {
		return c.Make(ir.OpSelect, traced.DimAttr(d).With("index", attr.Int(i)), x)
	}
	return pair{at(0), at(1)}
}

// number is a number in the element type of the result's parts.
func (c *call) number(param string) pair {
	ts, err := c.Types()
	if err != nil {
		c.Err = cmp.Or(c.Err, err)
		return pair{}
	}
	v := c.Arg(param)
	if v.Kind == pytext.Tuple && len(v.List) == 1 { // (1+2j)
		v = &v.List[0]
	}
	part := func(x float64) *ir.Value { return c.Filled(attr.Float(x), traced.AccType(ts[0].DType())) }
	if v.Kind != pytext.Const {
		return pair{re: part(c.numOr(param, 0))}
	}
	z, err := strconv.ParseComplex(strings.TrimSuffix(v.Text, "j")+"i", 128)
	if err != nil {
		c.Want(param, "a tensor or a number", v)
	}
	return pair{part(real(z)), part(imag(z))}
}

// paired ends an operator whose results are complex.
func (c *call) paired(z pair) error {
	if c.Err != nil {
		return c.Err
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	r := ts[0].Rank() - 1
	if r < 0 {
		return traced.ErrForm
	}
	shape := ts[0].Shape()[:r]
	if z.im == nil {
		z.im = c.Full(attr.Float(0), ts[0].DType(), shape)
	}
	both := make([]*ir.Value, 2)
	for i, x := range []*ir.Value{z.re, z.im} {
		x, fits := c.Broadcast(c.In(ts[0].DType(), x), shape)
		if !fits {
			return traced.ErrForm
		}
		both[i] = c.Unsqueezed(x, int64(r))
	}
	return c.Settle(c.Make(ir.OpCat, traced.DimAttr(int64(r)), both...))
}

func withOne(f func(c *call, z pair) pair) func(c *call) error {
	return func(c *call) error {
		z := c.parts("self")
		if c.Err != nil {
			return c.Err
		}
		return c.paired(f(c, z))
	}
}

func toReal(f func(c *call, z pair) *ir.Value) func(c *call) error {
	return func(c *call) error {
		z := c.parts("self")
		if c.Err != nil {
			return c.Err
		}
		return c.Settle(f(c, z))
	}
}

func withTwo(second string, f func(c *call, a, b pair) pair) func(c *call) error {
	return func(c *call) error {
		a, b := c.parts("self"), c.parts(second)
		if c.Err != nil {
			return c.Err
		}
		return c.paired(f(c, a, b))
	}
}

// polar are numbers of a length at an angle.
func (c *call) polar(r, angle *ir.Value) pair {
	return pair{c.Mul(r, c.Make(ir.OpCos, nil, angle)), c.Mul(r, c.Make(ir.OpSin, nil, angle))}
}

// by multiplies by an op that is linear in both operands.
func (c *call) by(a, b pair, op ir.Op) pair {
	x := func(a, b *ir.Value) *ir.Value { return c.Make(op, nil, a, b) }
	switch {
	case a.im == nil && b.im == nil:
		return pair{re: x(a.re, b.re)}
	case a.im == nil:
		return pair{x(a.re, b.re), x(a.re, b.im)}
	case b.im == nil:
		return pair{x(a.re, b.re), x(a.im, b.re)}
	}
	return pair{c.Sub(x(a.re, b.re), x(a.im, b.im)), c.Add(x(a.re, b.im), x(a.im, b.re))}
}

func (c *call) times(a, b pair) pair { return c.by(a, b, ir.OpMul) }

func (c *call) product(a, b pair) pair {
	c.Shares = 4
	return c.by(a, b, ir.OpMatmul)
}

// wide has the range that squares of the numbers need.
func (z pair) wide(c *call) pair {
	z.re = c.In(ir.F64, z.re)
	if z.im != nil {
		z.im = c.In(ir.F64, z.im)
	}
	return z
}

func (c *call) square(z pair) *ir.Value { return c.Add(c.Mul(z.re, z.re), c.Mul(z.im, z.im)) }

func (c *call) magnitude(z pair) *ir.Value {
	if z.im == nil {
		return c.Make(ir.OpAbs, nil, z.re)
	}
	return c.hypot(z.re, z.im)
}

// over divides. By zero each part is divided alone, as PyTorch does.
func (c *call) over(a, b pair) pair {
	square := b.re
	if b.im != nil {
		a, b = a.wide(c), b.wide(c)
		square = c.square(b)
		re := c.Make(ir.OpWhere, nil, c.With(ir.OpEq, square, 0), c.Filled(attr.Int(1), ir.F64), b.re)
		a = c.times(a, pair{re, c.Make(ir.OpNeg, nil, b.im)})
	}
	q := pair{re: c.Make(ir.OpDiv, nil, a.re, square)}
	if a.im != nil {
		q.im = c.Make(ir.OpDiv, nil, a.im, square)
	}
	return q
}

// sumOf is a sum or a difference.
func (c *call) sumOf(op ir.Op, a, b pair) pair {
	z := pair{c.Make(op, nil, a.re, b.re), a.im}
	switch {
	case a.im == nil && b.im != nil && op == ir.OpSub:
		z.im = c.Make(ir.OpNeg, nil, b.im)
	case a.im == nil:
		z.im = b.im
	case b.im != nil:
		z.im = c.Make(op, nil, a.im, b.im)
	}
	return z
}

// filledPairs are all one number, real or not, or real numbers as many as there are complex ones.
func filledPairs(c *call) error {
	if !c.Complex(c.Name) {
		return Operators[c.Operator].Import(c.Call)
	}
	if !slices.Contains(c.Params, "fill_value") {
		return c.paired(pair{re: c.Filled(attr.Int(0), ir.F32)})
	}
	return c.paired(c.number("fill_value"))
}

// foldPairs folds dimensions of the numbers, all if none is named, by an op that is linear.
func foldPairs(op ir.Op) func(c *call) error {
	return func(c *call) error { return c.foldedPairs(op) }
}

func (c *call) foldedPairs(op ir.Op) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	r := x.Type().Rank() - 1
	dims := c.Dims("dim", r)
	for d := range r {
		if c.Arg("dim") == nil || len(c.Ints("dim")) == 0 {
			dims = append(dims, int64(d))
		}
	}
	keep := c.Bool("keepdim", false)
	if c.Err != nil {
		return c.Err
	}
	if len(dims) == 0 {
		return c.Settle(x)
	}
	return c.Settle(c.Over(op, x, keep, dims...))
}

// wherePairs takes each number from one of two tensors.
func wherePairs(c *call) error {
	on, a, b := c.Tensor("condition"), c.parts("self"), c.parts("other")
	if c.Err != nil {
		return c.Err
	}
	if a.im == nil && b.im == nil {
		return traced.ErrForm // the condition alone cannot make numbers complex
	}
	for _, z := range []*pair{&a, &b} {
		if z.im == nil {
			z.im = c.Filled(attr.Int(0), z.re.Type().DType())
		}
	}
	pick := func(a, b *ir.Value) *ir.Value { return c.Make(ir.OpWhere, nil, on, a, b) }
	return c.paired(pair{pick(a.re, b.re), pick(a.im, b.im)})
}

// convertPairs makes numbers complex, or leaves the real part, as PyTorch does, which warns. What is not
// zero is true.
func convertPairs(c *call) error {
	z := c.parts("self")
	ts, err := c.Types()
	switch {
	case cmp.Or(c.Err, err) != nil:
		return cmp.Or(c.Err, err)
	case c.Complex(c.Name):
		return c.paired(z)
	case z.im != nil && ts[0].DType() == ir.Bool:
		return c.Settle(c.Make(ir.OpLogicalOr, nil, c.In(ir.Bool, z.re), c.In(ir.Bool, z.im)))
	}
	return c.Settle(z.re)
}

// padPairs pads with zeros, which are the same for both parts.
func padPairs(c *call) error {
	pad := c.Arg("pad")
	if c.numOr("value", 0) != 0 || pad == nil || pad.Kind != pytext.List && pad.Kind != pytext.Tuple {
		return traced.ErrForm
	}
	pad.List = append([]pytext.Value{{Kind: pytext.Int, Col: pad.Col}, {Kind: pytext.Int, Col: pad.Col}}, pad.List...)
	return Operators[c.Operator].Import(c.Call)
}

package stablehlo

import (
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports functions that concert has as decompositions.

// function imports an elementwise operation of operands of one element type, of which ok
// says whether it takes them.
func function(ok func(ir.DType) bool, f func(e decompose.Emitter, args []*ir.Value) *ir.Value) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		args, err := im.irs(in)
		if err != nil {
			return nil, err
		}
		for _, a := range args {
			if dtypeOf(a) != dtypeOf(args[0]) || !ok(dtypeOf(a)) {
				return nil, im.errorf("%s of %s and %s", o.Name, dtypeOf(args[0]), dtypeOf(a))
			}
		}
		return im.decomposed([]*ir.Value{f(im.cur, args)}, nil)
	}
}

func one(f func(e decompose.Emitter, x *ir.Value) *ir.Value) func(decompose.Emitter, []*ir.Value) *ir.Value {
	return func(e decompose.Emitter, args []*ir.Value) *ir.Value { return f(e, args[0]) }
}

func two(f func(e decompose.Emitter, a, b *ir.Value) *ir.Value) func(decompose.Emitter, []*ir.Value) *ir.Value {
	return func(e decompose.Emitter, args []*ir.Value) *ir.Value { return f(e, args[0], args[1]) }
}

// functions are elementwise operations that decompose.
func functions() map[string]rule {
	ints, floats := ir.DType.IsInt, ir.DType.IsFloat
	return map[string]rule{
		"stablehlo.popcnt":              {1, true, function(ints, one(decompose.PopulationCount))},
		"stablehlo.count_leading_zeros": {1, true, function(ints, one(decompose.CountLeadingZeros))},
		"chlo.mulhi":                    {2, true, function(ints, two(decompose.MulHigh))},
		"chlo.next_after":               {2, true, function(floats, two(decompose.NextAfter))},
		"chlo.lgamma":                   {1, true, function(floats, one(decompose.Lgamma))},
		"chlo.digamma":                  {1, true, function(floats, one(decompose.Digamma))},
		"chlo.zeta":                     {2, true, function(floats, two(decompose.Zeta(math.NaN())))},
		"chlo.polygamma":                {2, true, function(floats, two(decompose.Polygamma(math.NaN())))},
		"chlo.erf_inv":                  {1, true, function(floats, one(decompose.ErfInv))},
		"chlo.bessel_i1e":               {1, true, function(floats, one(decompose.BesselI(1, true)))},
		"chlo.is_inf":                   {1, true, function(floats, infinite(true, true))},
		"chlo.is_pos_inf":               {1, true, function(floats, infinite(false, true))},
		"chlo.is_neg_inf":               {1, true, function(floats, infinite(true, false))},
	}
}

func bitcastConvert(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, dt, err := im.typedArgs(in)
	if err != nil {
		return nil, err
	}
	if im.vector && dt.Size() != dtypeOf(args[0]).Size() {
		return nil, im.errorf("op not supported: %s between widths in a body that is computed on whole tensors", im.op.Name)
	}
	return im.decomposed1(decompose.Bitcast(im.cur, args[0], dt))
}

// format reads an attribute such as e5m10.
func (im *importer) format() (exponent, digits int, err error) {
	if a, ok := im.op.Attr("format"); ok {
		e, m, _ := strings.Cut(strings.TrimPrefix(a.Text, "e"), "m")
		exponent, err = strconv.Atoi(e)
		if err == nil {
			digits, err = strconv.Atoi(m)
		}
		if err != nil {
			err = im.errorf("format = %s: want bits of exponent and mantissa, as in e5m10", a.Text)
		}
		return exponent, digits, err
	}
	e, err := im.integer("exponent_bits")
	if err != nil {
		return 0, 0, err
	}
	m, err := im.integer("mantissa_bits")
	return int(min(e, 64)), int(min(m, 64)), err
}

func reducePrecision(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	exponent, digits, err := im.format()
	if err != nil {
		return nil, err
	}
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	return im.decomposed1(decompose.ReducePrecision(im.cur, x, exponent, digits))
}

func randomBits(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	if len(im.op.Outs) != 2 {
		return nil, im.errorf("%s of %d results", im.op.Name, len(im.op.Outs))
	}
	t, err := im.result(1)
	if err != nil {
		return nil, err
	}
	typ, err := im.tensorType(t)
	if err != nil {
		return nil, im.errorf("%v", err)
	}
	state, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	algorithm := im.enum("rng_algorithm", -1)
	if algorithm == "" {
		algorithm = im.enum("algorithm", 0)
	}
	switch algorithm {
	case "THREE_FRY", "PHILOX", "DEFAULT":
	default:
		return nil, im.errorf("algorithm %q: want DEFAULT, THREE_FRY or PHILOX", algorithm)
	}
	next, out, err := decompose.RandomBits(im.cur, state, algorithm != "THREE_FRY", typ)
	return im.decomposed([]*ir.Value{next, out}, err)
}

// flag is a truth value among the attributes, false if absent.
func (im *importer) flag(name string) bool {
	a, ok := im.op.Attr(name)
	return ok && a.Text == "true"
}

func triangularSolve(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	transpose := im.enum("transpose_a", -1)
	switch transpose {
	case "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT": // of real numbers
	default:
		return nil, im.errorf("transpose_a %q: want NO_TRANSPOSE, TRANSPOSE or ADJOINT", transpose)
	}
	return im.decomposed1(decompose.TriangularSolve(im.cur, args[0], args[1], im.flag("left_side"), im.flag("lower"), im.flag("unit_diagonal"), transpose != "NO_TRANSPOSE"))
}

func cholesky(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	x, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	return im.decomposed1(decompose.Cholesky(im.cur, x, im.flag("lower")))
}

// topK gives the largest elements of the last dimension and where they stand, or the smallest.
func topK(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	k, err := im.integer("k")
	if err != nil {
		return nil, err
	}
	largest, ok := o.Attr("largest")
	return im.ranked(in[0], k, !ok || largest.Text != "false")
}

// calledTopK is that of a call, which may ask for the smallest.
func calledTopK(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	a, _ := o.Attr("mhlo.attributes")
	count, ok := a.Dict.Get("k")
	switch {
	case len(in) != 1:
		return nil, im.errorf("mhlo.topk of %d operands, want 1", len(in))
	case !ok:
		return nil, im.errorf("mhlo.topk without k")
	}
	k, err := im.m.Integer(count)
	if err != nil {
		return nil, err
	}
	largest, ok := a.Dict.Get("largest")
	return im.ranked(in[0], k, !ok || largest.Text != "false")
}

// ranked are the k largest, or smallest, elements of the last dimension and where they stand.
func (im *importer) ranked(v *value, k int64, largest bool) ([]*value, error) {
	x, err := im.ir(v)
	if err != nil {
		return nil, err
	}
	last := len(sizes(x)) - 1
	if last < 0 || k < 0 || k > sizes(x)[last] {
		return nil, im.errorf("%d elements of the last dimension of %s", k, x.Type())
	}
	attrs := ir.A("dim", last, "k", k)
	if !largest {
		attrs = ir.A("dim", last, "k", k, "largest", false)
	}
	key := x
	if dtypeOf(x).IsFloat() { // by their total order: 0 is more than -0, and NaN with a sign less than all
		key = decompose.TotalKey(im.cur, x)
	}
	r := im.cur.Op(ir.OpTopk, nil, attrs, []*ir.Value{key})
	if err := im.check(); err != nil {
		return nil, err
	}
	best := r[0]
	if key != x {
		if best, err = im.emit(ir.OpGather, ir.A("dim", last), []*ir.Value{x, r[1]}); err != nil {
			return nil, err
		}
	}
	at, err := im.converted(r[1], ir.I32)
	return im.decomposed([]*ir.Value{best, at}, err)
}

// infinite is where floats are -inf, inf or either.
func infinite(negative, positive bool) func(decompose.Emitter, []*ir.Value) *ir.Value {
	return func(e decompose.Emitter, args []*ir.Value) *ir.Value {
		x := args
		if negative && positive {
			x = e.Op(ir.OpAbs, nil, nil, x)
		}
		c := math.Inf(-1)
		if positive {
			c = math.Inf(1)
		}
		return e.Op(ir.OpEq, nil, ir.A("scalar", c), x)[0]
	}
}

// batchNorm imports a normalisation of args operands.
func batchNorm(args int, f func(n decompose.BatchNorm, e decompose.Emitter, x []*ir.Value) ([]*ir.Value, error)) rule {
	return rule{args, false, func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		var n decompose.BatchNorm
		a, ok := o.Attr("epsilon")
		if !ok {
			return nil, im.errorf("%s without epsilon", o.Name)
		}
		var err error
		if n.Epsilon, err = strconv.ParseFloat(a.Text, 64); err != nil {
			return nil, im.errorf("epsilon = %s is no number", a.Text)
		}
		if n.Feature, err = im.integer("feature_index"); err != nil {
			return nil, err
		}
		x, err := im.irs(in)
		if err != nil {
			return nil, err
		}
		return im.decomposed(f(n, im.cur, x))
	}}
}

// batchNorms are the normalisations.
func batchNorms() map[string]rule {
	return map[string]rule{
		"stablehlo.batch_norm_inference": batchNorm(5, func(n decompose.BatchNorm, e decompose.Emitter, x []*ir.Value) ([]*ir.Value, error) {
			y, err := n.Inference(e, x[0], x[1], x[2], x[3], x[4])
			return []*ir.Value{y}, err
		}),
		"stablehlo.batch_norm_training": batchNorm(3, func(n decompose.BatchNorm, e decompose.Emitter, x []*ir.Value) ([]*ir.Value, error) {
			return n.Training(e, x[0], x[1], x[2])
		}),
		"stablehlo.batch_norm_grad": batchNorm(5, func(n decompose.BatchNorm, e decompose.Emitter, x []*ir.Value) ([]*ir.Value, error) {
			return n.Gradients(e, x[0], x[1], x[2], x[3], x[4])
		}),
	}
}

// rng draws numbers that differ in every run.
func rng(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	shape, err := im.sizesOf(in, 2, "the shape")
	if err != nil {
		return nil, err
	}
	args, err := im.irs(in[:2])
	if err != nil {
		return nil, err
	}
	draw := decompose.Uniform
	switch d := im.enum("rng_distribution", 0) + im.enum("distribution", -1); d {
	case "UNIFORM":
	case "NORMAL":
		draw = decompose.Normal
	default:
		return nil, im.errorf("distribution %q: want UNIFORM or NORMAL", d)
	}
	return im.decomposed1(draw(im.cur, args[0], args[1], shape))
}

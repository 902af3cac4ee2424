package aten

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// primOps are PyTorch's primitives that are no ATen operator with the same operands.
var primOps = []row{
	{"prims.sum.default", "self dim * output_dtype", reduce(ir.OpSum)},
	{"prims.amax.default", "self dim * output_dtype", reduce(ir.OpAmax)},
	{"prims.amin.default", "self dim * output_dtype", reduce(ir.OpAmin)},
	{"prims.prod.default", "self dim * output_dtype", reduce(ir.OpProd)},
	{"prims.var.default", "self dim correction * output_dtype", variance},
	{"prims.full.default", "size fill_value * requires_grad", full},
	{"prims.full_like.default", "self fill_value * requires_grad", full},
	{"prims.broadcast_in_dim.default", "self shape broadcast_dimensions", broadcastInDim},
	{"prims.collapse_view.default prims.split_dim.default", "self first second", asView},
	{"prims.collapse.default", "self first second", func(c *call) error {
		x := c.Tensor("self")
		t, err := c.Trace.TypeOf(0)
		if err = cmp.Or(err, c.Err); err != nil {
			return err
		}
		return c.Settle(c.Shaped(x, traced.SizesOf(t)...))
	}},
}

// asView is self with its elements in the sizes that the trace has.
func asView(c *call) error { return c.EmitErr(ir.OpView, nil, c.Tensor("self")) }

// sameAs names the ATen operators that others equal, operand by operand.
var sameAs = func() map[string]string {
	m := map[string]string{
		"prims.erf_inv.default": "aten.erfinv.default", "prims.frexp.default": "aten.frexp.Tensor", "prims.fill.default": "aten.fill.Scalar", "prims.pow.default": "aten.pow.Tensor_Tensor",
		"prims.reshape.default": "aten._unsafe_view.default", "prims.scalar_tensor.default": "aten.scalar_tensor.default", "prims.squeeze.default": "aten.squeeze.dims",
		"prims.transpose.default": "aten.permute.default", "prims.view_of.default": "aten.alias.default", "prims.where.default": "aten.where.self",
		"prims.bessel_i0.default": "aten.i0.default", "prims.zeta.default": "aten.special_zeta.default", "prims.ndtri.default": "aten.special_ndtri.default",
		"prims.shift_left.default": "aten.bitwise_left_shift.Tensor", "prims.shift_right_arithmetic.default": "aten.bitwise_right_shift.Tensor",
	}
	for name := range strings.FieldsSeq(`abs acos acosh as_strided asin asinh atan atan2 atanh bitwise_not cat ceil clone cos cosh digamma erf erfc exp exp2 expm1 floor
		hypot igamma igammac lgamma log log10 log1p log2 maximum minimum neg nextafter reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc`) {
		m["prims."+name+".default"] = "aten." + name + ".default"
	}
	for name := range strings.FieldsSeq("add bitwise_and bitwise_or bitwise_xor div eq fmod ge gt le lt mul ne remainder sub") {
		m["prims."+name+".default"] = "aten." + name + ".Tensor"
	}
	for name := range strings.FieldsSeq("bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 erfcx spherical_bessel_j0") {
		special := name
		if strings.HasPrefix(name, "bessel_i") {
			special = strings.TrimPrefix(name, "bessel_")
		}
		m["prims."+name+".default"] = "aten.special_" + special + ".default"
	}
	for name := range strings.FieldsSeq("and or xor") {
		for overload := range strings.FieldsSeq("Tensor Scalar") {
			m["aten.__"+name+"__."+overload] = "aten.bitwise_" + name + "." + overload
		}
		m["aten.bitwise_"+name+".Scalar_Tensor"] = "aten.bitwise_" + name + ".Tensor"
	}
	return m
}()

// broadcastInDim is a view of self with its dimensions in given places, of a shape to which it broadcasts there.
func broadcastInDim(c *call) error {
	x, shape, dims := c.Tensor("self"), c.Ints("shape"), c.Ints("broadcast_dimensions")
	t, err := c.Trace.TypeOf(0)
	if err != nil || c.Err != nil {
		return err
	}
	s, strides := traced.Static(x), t.Strides()
	if len(dims) != len(s) || len(strides) != len(shape) {
		return traced.ErrForm
	}
	want := make([]int64, len(shape))
	for d, n := range shape {
		k := slices.Index(dims, int64(d))
		switch {
		case n < 2:
			want[d] = strides[d] // any
		case k >= 0 && s[k] == n:
			want[d] = x.Type().Strides()[k]
		case k >= 0 && s[k] != 1:
			return traced.ErrForm
		}
	}
	return c.strided(x, shape, want, 0)
}

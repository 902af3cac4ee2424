package hlo

import (
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// dot reads which dimensions of both operands belong together.
func dot(c *converter, _ int) error {
	if err := c.want(2); err != nil {
		return err
	}
	var attrs []mlir.Named
	for _, n := range [][2]string{{"batching_dims", "batch_dims"}, {"contracting_dims", "contracting_dims"}} {
		l, _, err := c.list("lhs_" + n[1])
		if err != nil {
			return err
		}
		r, _, err := c.list("rhs_" + n[1])
		if err != nil {
			return err
		}
		attrs = append(attrs, named(n[0], mlir.Parts(c.in.at, l, r))...)
	}
	if a := c.text("algorithm"); a != "" {
		attrs = append(attrs, named("algorithm", mlir.Text(c.in.at, a))...)
	}
	return c.operation("dot_general", attrs, nil)
}

// labels are the parts of dim_labels=b01f_01io->b01f.
func (c *converter) labels() []string {
	return strings.FieldsFunc(c.text("dim_labels"), func(r rune) bool { return r == '_' || r == '-' || r == '>' })
}

func convolution(c *converter, _ int) error {
	w, err := c.window()
	if err != nil {
		return err
	}
	attrs, err := c.renamed(renamed["convolution"])
	if err != nil {
		return err
	}
	for key, to := range map[string]string{"stride": "window_strides", "pad": "padding", "lhs_dilate": "lhs_dilation", "rhs_dilate": "rhs_dilation", "rhs_reversal": "window_reversal"} {
		if l := w[key]; l != nil {
			attrs = append(attrs, named(to, mlir.Numbers(c.in.at, l...))...)
		}
	}
	labels := c.labels()
	var parts []mlir.Attr
	for _, l := range labels {
		var dims []mlir.Attr
		for _, r := range l {
			if r >= '0' && r <= '9' {
				dims = append(dims, mlir.Number(c.in.at, int64(r-'0')))
			} else {
				dims = append(dims, mlir.Word(c.in.at, string(r)))
			}
		}
		parts = append(parts, mlir.List(c.in.at, dims...))
	}
	return c.operation("", append(attrs, named("dim_numbers", mlir.Parts(c.in.at, parts...))...), nil)
}

// raggedDot is a product whose rows, or what it sums over, are in groups.
func raggedDot(c *converter, _ int) error {
	var fields []mlir.Named
	for _, n := range [][2]string{{"lhs_batch_dims", "lhs_batching_dimensions"}, {"rhs_batch_dims", "rhs_batching_dimensions"}, {"lhs_contracting_dims", "lhs_contracting_dimensions"},
		{"rhs_contracting_dims", "rhs_contracting_dimensions"}, {"lhs_ragged_dims", "lhs_ragged_dimensions"}, {"rhs_group_dims", "rhs_group_dimensions"}} {
		l, _, err := c.list(n[0])
		if err != nil {
			return err
		}
		fields = append(fields, named(n[1], l)...)
	}
	if len(c.in.operands) > 2 {
		sizes, one := c.in.operands[2], *c.in
		if t := c.by[sizes].shape; t.elem != "s32" && t.elem != "s64" {
			t.elem = "s64"
			one.operands = []string{one.operands[0], one.operands[1], c.temporary()}
			c.as("stablehlo.convert", one.operands[2], c.typ(t), nil, sizes)
			c.in = &one
		}
	}
	return c.operation("chlo.ragged_dot", named("ragged_dot_dimension_numbers", mlir.Dict(c.in.at, fields...)), nil)
}

// Package dimensions reads the attributes that say which dimensions of a product or a convolution are
// which, and with what precision a product is computed.
package dimensions

import (
	"slices"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// reader reads the attributes of an operation.
type reader struct {
	m *mlir.Module
	o *mlir.Operation
}

func (r reader) errorf(format string, args ...any) error {
	return mlir.ErrorAt(r.m.Source, r.o.At, len(r.o.Name), "stablehlo", format, args...)
}

// Check checks that numbers of an operation are dimensions below rank, each once.
func Check(m *mlir.Module, o *mlir.Operation, l []int64, rank int, what string) error {
	seen := make([]bool, rank)
	for _, d := range l {
		if d < 0 || d >= int64(rank) || seen[d] {
			return reader{m, o}.errorf("%s = %v: want dimensions of %d, each once", what, l, rank)
		}
		seen[d] = true
	}
	return nil
}

// Pairs are the dimensions of both operands of a product that belong together: batches, and those that
// are summed over.
func Pairs(m *mlir.Module, o *mlir.Operation) (batch, contracting [2][]int64, err error) {
	r := reader{m, o}
	if batch[0], batch[1], err = r.pair("batching_dims", "lhs_batching_dimensions", "rhs_batching_dimensions"); err == nil {
		contracting[0], contracting[1], err = r.pair("contracting_dims", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
	}
	return batch, contracting, err
}

// pair is the attribute of dot_general that has dimensions of both operands: [0] x [1], or
// two fields of its dimension numbers.
func (r reader) pair(name, lhs, rhs string) (x, y []int64, err error) {
	if a, ok := r.o.Attr(name); ok {
		if a.Text != "parts" || len(a.List) != 2 {
			return nil, nil, r.errorf("%s: want dimensions of both operands, [...] x [...]", name)
		}
		if x, err = r.m.Ints(a.List[0]); err == nil {
			y, err = r.m.Ints(a.List[1])
		}
	} else if a, ok := r.o.Attr("dot_dimension_numbers"); ok {
		fields, err := r.m.Fields(a)
		if err != nil {
			return nil, nil, err
		}
		for _, f := range []struct {
			name string
			to   *[]int64
		}{{lhs, &x}, {rhs, &y}} {
			if v, ok := fields.Get(f.name); ok {
				if *f.to, err = r.m.Ints(v); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	if err == nil && len(x) != len(y) {
		err = r.errorf("%s: %d dimensions beside %d", name, len(x), len(y))
	}
	return x, y, err
}

// Layouts are where the dimensions of both operands and of the result of a convolution are, of each the
// two that are no part of the window, then those of the window in order: [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f].
func Layouts(m *mlir.Module, o *mlir.Operation, rank int) ([3][]int64, error) {
	return reader{m, o}.layouts(rank)
}

func (r reader) layouts(rank int) ([3][]int64, error) {
	var out [3][]int64
	names := [3][2]string{{"b", "f"}, {"o", "i"}, {"b", "f"}}
	a, ok := r.o.Attr("dim_numbers")
	if !ok {
		var g mlir.Attr
		if g, ok = r.o.Attr("dimension_numbers"); ok {
			p := r.m.Parser(g)
			if p.Keyword("raw") {
				return r.rawLayouts(rank, g, p)
			}
			if a = p.Parts(); p.Err != nil {
				return out, p.Err
			}
		}
	}
	if !ok || a.Text != "parts" || len(a.List) != 3 {
		return out, r.errorf("dim_numbers: want [...]x[...]->[...]")
	}
	for i, part := range a.List {
		l := make([]int64, rank)
		for k := range l {
			l[k] = -1
		}
		for d, e := range part.List {
			k := slices.Index(names[i][:], e.Text)
			if e.Kind == mlir.KindNumber {
				n, err := r.m.Integer(e)
				if err != nil {
					return out, err
				}
				k = int(min(max(n, -1), int64(rank))) + 2
			}
			if k < 0 || k >= rank || l[k] >= 0 || k == 1 && e.Kind == mlir.KindNumber {
				return out, r.errorf("dim_numbers: dimension %d of part %d", d, i)
			}
			l[k] = int64(d)
		}
		out[i] = l
	}
	return out, r.fullLayouts(out, rank)
}

// rawLayouts reads the fields of #stablehlo.conv<raw ...>.
func (r reader) rawLayouts(rank int, a mlir.Attr, p *mlir.Parser) ([3][]int64, error) {
	var out [3][]int64
	a.Start = p.Pos
	fields, err := r.m.Fields(a)
	if err != nil {
		return out, err
	}
	for i, names := range [3][3]string{
		{"input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"},
		{"kernel_output_feature_dimension", "kernel_input_feature_dimension", "kernel_spatial_dimensions"},
		{"output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"},
	} {
		for _, name := range names {
			v, ok := fields.Get(name)
			if !ok {
				return out, r.errorf("dimension_numbers without %s", name)
			}
			l, err := r.m.Ints(v)
			if err != nil {
				return out, err
			}
			out[i] = append(out[i], l...)
		}
	}
	return out, r.fullLayouts(out, rank)
}

// fullLayouts checks that each layout has every dimension once.
func (r reader) fullLayouts(ls [3][]int64, rank int) error {
	for _, l := range ls {
		if len(l) != rank {
			return r.errorf("dim_numbers of %d dimensions for operands of %d", len(l), rank)
		}
		if err := Check(r.m, r.o, l, rank, "dim_numbers"); err != nil {
			return err
		}
	}
	return nil
}

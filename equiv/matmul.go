package equiv

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/ir"
)

// matmulOfNothing makes zeros of a matmul whose operands have no elements to add up: these are
// constants, which do not tell what they were converted from.
func matmulOfNothing(z *normalizer, t *term) (termID, bool) {
	if t.op != ir.OpMatmul || t.types == nil {
		return 0, false
	}
	shape := t.types[1].Shape()
	if !shape[len(shape)-1].Equal(ir.D(0)) {
		return 0, false
	}
	return z.make(term{kind: kindFull, op: ir.OpFull, dt: t.dt, n: t.n, text: "0"}), true
}

// matmulOfWidened lets a matmul read 16-bit floats that were widened to f32.
func matmulOfWidened(z *normalizer, t *term) (termID, bool) {
	if t.op != ir.OpMatmul || t.dt != ir.F32 || t.types == nil || len(t.args) != 2 {
		return 0, false
	}
	out := *t
	out.args, out.types = slices.Clone(t.args), slices.Clone(t.types)
	for i, a := range t.args {
		x := z.at(a)
		if x.kind != kindPoint || x.op != ir.OpConvert || x.dt != ir.F32 {
			return 0, false
		}
		dt := z.at(x.args[0]).dt
		if dt != ir.BF16 && dt != ir.F16 || i > 0 && dt != out.types[1].DType() {
			return 0, false
		}
		out.args[i], out.types[1+i] = x.args[0], ir.TensorOf(dt, t.types[1+i].Shape())
	}
	return z.operation(out), true
}

// matmulRounds is a conversion of a matmul's f32 result to its operands' type.
func matmulRounds(z *normalizer, t *term) (termID, bool) {
	x := z.at(t.args[0])
	by := int32(-1)
	if x.kind == kindMove {
		by, x = x.layout, z.at(x.args[0])
	}
	if t.op != ir.OpConvert || x.op != ir.OpMatmul || x.dt != ir.F32 || x.types == nil || x.types[1].DType() != t.dt || x.types[2].DType() != t.dt || t.dt != ir.BF16 && t.dt != ir.F16 {
		return 0, false
	}
	m := *x
	m.dt, m.types = t.dt, slices.Clone(x.types)
	m.types[0] = ir.TensorOf(t.dt, x.types[0].Shape())
	id := z.operation(m)
	if by >= 0 {
		id = z.moveOf(by, t.n, id)
	}
	return id, true
}

// transposedMatmul makes the transpose of a matmul's result, in all of its batches, the matmul of
// the transposes of its operands in each other's place.
func transposedMatmul(z *normalizer, t *term) (termID, bool) {
	x := z.at(t.args[0])
	if x.kind != kindOpaque || x.op != ir.OpMatmul || x.types == nil {
		return 0, false
	}
	types := slices.Clone(x.types)
	var by [3]layout.Layout
	for i, typ := range x.types {
		l, shape, ok := swapped(typ.Shape())
		if !ok {
			return 0, false
		}
		by[i], types[i] = l, ir.TensorOf(typ.DType(), shape)
	}
	if t.layout != z.layout(by[0]) {
		return 0, false
	}
	m := *x
	m.types = []ir.Type{types[0], types[2], types[1]}
	m.args = []termID{z.move(by[2], z.at(x.args[1]).n, x.args[1]), z.move(by[1], z.at(x.args[0]).n, x.args[0])}
	return z.operation(m), true
}

// swapped is where the elements of a tensor lie in one of which the last two dimensions are
// exchanged, and the shape of it.
func swapped(s ir.Shape) (layout.Layout, ir.Shape, bool) {
	strides, ok := rowMajor(s)
	if !ok || len(s) < 2 {
		return layout.Layout{}, nil, false
	}
	k := len(s)
	shape := slices.Clone(s)
	strides = slices.Clone(strides)
	shape[k-2], shape[k-1] = shape[k-1], shape[k-2]
	strides[k-2], strides[k-1] = strides[k-1], strides[k-2]
	l, ok := layout.Plain(digits(shape, strides), 0)
	return l, shape, ok
}

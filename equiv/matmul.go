package equiv

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

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

package terms

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// matmulOfNothing makes zeros of a matmul whose operands have no elements to add up: these are
// constants, which do not tell what they were converted from.
func matmulOfNothing(z *Normalizer, t *term) (TermID, bool) {
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
func matmulOfWidened(z *Normalizer, t *term) (TermID, bool) {
	if t.op != ir.OpMatmul || t.dt != ir.F32 || t.types == nil || len(t.args) != 2 {
		return 0, false
	}
	out := *t
	out.args, out.types = slices.Clone(t.args), slices.Clone(t.types)
	for i, a := range t.args {
		x, ok := z.widened(a)
		dt := z.at(x).dt
		if !ok || dt != ir.BF16 && dt != ir.F16 || i > 0 && dt != out.types[1].DType() {
			return 0, false
		}
		out.args[i], out.types[1+i] = x, ir.TensorOf(dt, t.types[1+i].Shape())
	}
	return z.operation(out), true
}

// widened is the term that a term was converted from, zeros where a rank receives nothing among
// them: see convertOfReceived.
func (z *Normalizer) widened(a TermID) (TermID, bool) {
	x := *z.at(a)
	switch {
	case x.kind == kindPoint && x.op == ir.OpConvert:
		return x.args[0], true
	case z.received(&x):
		if y, ok := z.widened(x.args[1]); ok && z.at(y).dt.HasZero() {
			dt := z.at(y).dt
			return z.with(&x, dt, x.args[0], y, z.with(z.at(x.args[2]), dt)), true
		}
	}
	return 0, false
}

// matmulRounds is a conversion of a matmul's f32 result to its operands' type.
func matmulRounds(z *Normalizer, t *term) (TermID, bool) {
	x, moved := z.beneath(z.at(t.args[0]), t.n)
	if t.op != ir.OpConvert || x.op != ir.OpMatmul || x.dt != ir.F32 || x.types == nil || x.types[1].DType() != t.dt || x.types[2].DType() != t.dt || t.dt != ir.BF16 && t.dt != ir.F16 {
		return 0, false
	}
	m := *x
	m.dt, m.types = t.dt, slices.Clone(x.types)
	m.types[0] = ir.TensorOf(t.dt, x.types[0].Shape())
	return moved(z.operation(m)), true
}

// transposedMatmul makes every matmul one of a matmul and its transpose, which is the matmul of
// the transposes in each other's place: of the types, the rows and the first operands the lesser
// comes first.
func transposedMatmul(z *Normalizer, t *term) (TermID, bool) {
	u, ok := z.turned(t)
	if !ok {
		return 0, false
	}
	order := func(t *term) []int {
		a := t.types[1]
		rows, _ := a.Shape()[a.Rank()-2].Const()
		return []int{int(a.DType()), int(rows), int(t.args[0])}
	}
	if slices.Compare(order(&u), order(t)) >= 0 {
		return 0, false
	}
	return z.permuted(z.operation(u), u.types[0].Shape(), swapped(t.types[0].Rank())), true
}

// symmetricMatmul drops the transposition of what is its own transpose.
func symmetricMatmul(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	u, ok := z.turned(x)
	return t.args[0], ok && z.transposes(t, x) && u.types[0].Equal(x.types[0]) && slices.Equal(u.args, x.args)
}

// turned is the matmul of the transposes of t's operands, not yet in normal form.
func (z *Normalizer) turned(t *term) (u term, ok bool) {
	if t.kind != kindOpaque || t.op != ir.OpMatmul || t.types == nil {
		return u, false
	}
	u = *t
	u.types, u.args = slices.Clone(t.types), slices.Clone(t.args)
	for i, from := range [3]int{0, 2, 1} { // of u, of t
		shape, dims := t.types[from].Shape(), swapped(t.types[from].Rank())
		u.types[i] = ir.TensorOf(t.types[from].DType(), picked(shape, dims))
		if i > 0 {
			u.args[i-1] = z.permuted(t.args[from-1], shape, dims)
		}
	}
	return u, true
}

// transposes reports whether move t transposes the matmul x.
func (z *Normalizer) transposes(t, x *term) bool {
	l, ok := permutation(x.types[0].Shape(), swapped(x.types[0].Rank()))
	return ok && t.kind == kindMove && t.layout == z.layout(l)
}

// swapped are so many dimensions, the last two in each other's place.
func swapped(rank int) []int64 {
	dims := make([]int64, rank)
	for d := range dims {
		dims[d] = int64(d)
	}
	slices.Reverse(dims[rank-2:])
	return dims
}

package terms

import (
	"math"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// Integers that are known.

// Integer is the integer or truth value that every element of a value is; false if that is not
// known.
func (z *Normalizer) Integer(v ValueID) (int64, bool) { return z.constant(z.Norm(v)) }

// constant is the integer that a term is everywhere; false if that is not known, or it is so large
// that arithmetic may round it.
func (z *Normalizer) constant(id TermID) (int64, bool) {
	t := z.at(id)
	if t.kind != kindFull || t.dt.IsFloat() {
		return 0, false
	}
	f, err := strconv.ParseFloat(t.text, 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < scalar.MaxExact && fits(t.dt, int64(f))
}

// arithmeticOfConstants computes on integers that are known, and takes what a condition chooses
// that is.
func arithmeticOfConstants(z *Normalizer, t *term) (TermID, bool) {
	var args [2]int64
	for i, a := range t.args {
		v, ok := z.constant(a)
		switch {
		case t.op == ir.OpWhere && i == 0 && ok && len(t.args) == 3:
			if x := t.args[2-min(v*v, 1)]; z.at(x).dt == t.dt {
				return x, true
			}
			return 0, false
		case !ok || i >= len(args):
			return 0, false
		}
		args[i] = v
	}
	if s, has := t.attrs.Get("scalar"); has {
		v, ok := scalar.Whole(s)
		if !ok || len(t.args) != 1 || len(t.attrs) != 1 {
			return 0, false
		}
		args[1] = v
	} else if len(t.attrs) > 0 && t.op != ir.OpClamp || len(t.args) == 0 {
		return 0, false
	}
	v, ok := t.scalar().Known(args[0], args[1])
	if t.op == ir.OpConvert {
		v, ok = args[0], true
	}
	if !ok || t.dt.IsFloat() || !fits(t.dt, v) {
		return 0, false
	}
	return z.make(term{kind: kindFull, op: ir.OpFull, dt: t.dt, n: t.n, text: strconv.FormatFloat(float64(v), 'g', -1, 64)}), true
}

// fits reports whether a type has an integer.
func fits(dt ir.DType, v int64) bool {
	bits := 8 * dt.Size()
	switch {
	case dt == ir.Bool:
		return v == 0 || v == 1
	case dt.IsUnsigned():
		return v >= 0 && (bits > 32 || v < 1<<bits)
	}
	return bits > 32 || v >= -1<<(bits-1) && v < 1<<(bits-1)
}

// rowPut is one row put at an index that is known: it takes the place of that row.
func (z *Normalizer) rowPut(v *Value) (TermID, bool) {
	dims := v.Attrs.Ints("dims")
	if v.Attrs.Bool("accumulate", false) || len(v.Args) != 3 || len(dims) != 1 || dims[0] != 0 {
		return 0, false
	}
	table, ok := v.Type.Shape().Static()
	at, known := z.constant(z.memo[v.Args[2]])
	vals := z.vals.all[v.Args[1]].Type.Shape()
	if one, static := z.vals.all[v.Args[2]].Type.Shape().NumElems().Const(); !ok || !known || !static || one != 1 || at < 0 || at >= table[0] ||
		!vals.Equal(append(ir.Dims(1), v.Type.Shape()[1:]...)) || !z.vals.all[v.Args[0]].Type.Shape().Equal(v.Type.Shape()) {
		return 0, false
	}
	put := *v
	put.Op, put.Args = ir.OpSliceScatter, v.Args[:2]
	put.Attrs = attr.Make(attr.Attr{Key: "dim", Val: attr.Int(0)}, attr.Attr{Key: "end", Val: attr.Int(at + 1)}, attr.Attr{Key: "start", Val: attr.Int(at)})
	return z.opaque(&put), true
}

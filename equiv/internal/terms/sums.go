package terms

import (
	"strconv"

	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// reduceOfEqual takes out how often every operand counts: the greatest common divisor
// over all lists.
func reduceOfEqual(z *Normalizer, t *term) (TermID, bool) {
	rows := z.rows.All[t.rows]
	if !z.anyOrder(t.red, t.dt) || t.red != ir.Sum {
		return 0, false
	}
	times := int64(0)
	for _, row := range rows { // in ascending order, see reduceOverEqual
		run := int64(0)
		for i, q := range row {
			if run++; i+1 == len(row) || row[i+1] != q {
				times, run = intmath.GCD(times, run), 0
			}
		}
	}
	if times <= 1 {
		return 0, false
	}
	once := make([][]int32, len(rows))
	for r, row := range rows {
		for i := 0; i < len(row); i += int(times) {
			once[r] = append(once[r], row[i])
		}
	}
	return z.scaled(z.over(t, once, t.args[0]), times), true
}

// scaled is n times x.
func (z *Normalizer) scaled(x TermID, n int64) TermID {
	c := attr.Int(n)
	if z.at(x).dt.IsFloat() {
		c = attr.Float(float64(n))
	}
	return z.times(x, c)
}

func (z *Normalizer) times(x TermID, c attr.Value) TermID {
	attrs := attr.Make(attr.Attr{Key: "scalar", Val: c})
	return z.make(term{kind: kindPoint, op: ir.OpMul, dt: z.at(x).dt, n: z.at(x).n, attrs: attrs, text: attrs.String(), args: []TermID{x}})
}

// quotient is x by n.
func (z *Normalizer) quotient(x TermID, n float64) TermID {
	attrs := attr.Make(attr.Attr{Key: "scalar", Val: attr.Float(n)})
	return z.make(term{kind: kindPoint, op: ir.OpDiv, dt: z.at(x).dt, n: z.at(x).n, attrs: attrs, text: attrs.String(), args: []TermID{x}})
}

func (z *Normalizer) convert(x TermID, dt ir.DType) TermID {
	return z.make(term{kind: kindPoint, op: ir.OpConvert, dt: dt, n: z.at(x).n, text: noAttrs, args: []TermID{x}})
}

// truncated is x by n, both integers.
func (z *Normalizer) truncated(x TermID, n int) TermID {
	attrs := attr.Make(attr.Attr{Key: "scalar", Val: attr.Int(int64(n))})
	return z.make(term{kind: kindPoint, op: ir.OpTruncDivide, dt: z.at(x).dt, n: z.at(x).n, attrs: attrs, text: attrs.String(), args: []TermID{x}})
}

// averageIsQuotient makes sums of averages.
func averageIsQuotient(z *Normalizer, t *term) (TermID, bool) {
	rows := z.rows.All[t.rows]
	if t.red != ir.Avg || t.dt == ir.Bool {
		return 0, false
	}
	for _, row := range rows {
		if len(row) != len(rows[0]) {
			return 0, false
		}
	}
	u := *t
	u.red = ir.Sum
	switch {
	case t.dt == ir.I64 || t.dt == ir.U64:
		return z.truncated(z.make(u), len(rows[0])), true
	case t.dt.IsInt():
		u.args, u.dt = []TermID{z.convert(t.args[0], ir.I64)}, ir.I64
		return z.convert(z.truncated(z.make(u), len(rows[0])), t.dt), true
	case t.dt.Size() >= ir.F32.Size() || z.reassociate:
		return z.quotient(z.make(u), float64(len(rows[0]))), true
	}
	u.args, u.dt = []TermID{z.convert(t.args[0], ir.F32)}, ir.F32
	return z.convert(z.quotient(z.make(u), float64(len(rows[0]))), t.dt), true
}

// factorOfFactor joins two factors of integers, and any number of factors and divisors
// of floats. Products are told apart by twelve digits, so that their own
// rounding does not.
func factorOfFactor(z *Normalizer, t *term) (TermID, bool) {
	if t.op != ir.OpMul && t.op != ir.OpDiv || len(t.args) != 1 || z.at(t.args[0]).dt != t.dt {
		return 0, false
	}
	x := z.at(t.args[0])
	inner := x.kind == kindPoint && (x.op == ir.OpMul || x.op == ir.OpDiv) && len(x.args) == 1 && z.at(x.args[0]).dt == t.dt
	if inner && t.scalar().IntegerFactor() && x.scalar().IntegerFactor() {
		return z.times(x.args[0], attr.Int(t.attrs.Int("scalar", 0)*x.attrs.Int("scalar", 0))), true
	}
	if !z.reassociate || !t.scalar().PlainConstant() || t.scalar().Constant("scalar", 0) == 0 {
		return 0, false
	}
	c, arg := t.scalar().Factor(), t.args[0]
	if inner && x.scalar().PlainConstant() && x.scalar().Constant("scalar", 0) != 0 {
		c, arg = c*x.scalar().Factor(), x.args[0]
	}
	attrs := attr.Make(attr.Attr{Key: "scalar", Val: attr.Float(c)})
	switch near := strconv.FormatFloat(c, 'e', 11, 64); {
	case c-c != 0 || t.text == near:
		return 0, false
	case near == "1.00000000000e+00":
		return arg, true
	default:
		return z.make(term{kind: kindPoint, op: ir.OpMul, dt: t.dt, n: t.n, attrs: attrs, text: near, args: []TermID{arg}}), true
	}
}

// factorOfSum takes a factor into sums, differences and negations.
func factorOfSum(z *Normalizer, t *term) (TermID, bool) {
	if t.op != ir.OpMul && t.op != ir.OpDiv || len(t.args) != 1 || !t.scalar().IntegerFactor() && !(z.reassociate && t.scalar().PlainConstant()) {
		return 0, false
	}
	x := *z.at(t.args[0])
	if x.kind != kindPoint || x.dt != t.dt || x.op != ir.OpAdd && x.op != ir.OpSub && x.op != ir.OpNeg || !z.distributes(&x, ir.Sum) {
		return 0, false
	}
	return z.each(x, func(a TermID) TermID { return z.with(t, t.dt, a) }), true
}

// unsigned are the types of as many bits as signed ones.
var unsigned = map[ir.DType]ir.DType{ir.I8: ir.U8, ir.I16: ir.U16, ir.I32: ir.U32, ir.I64: ir.U64}

func reduceOfMonotone(z *Normalizer, t *term) (TermID, bool) {
	x := *z.at(t.args[0])
	if t.red != ir.Min && t.red != ir.Max || x.kind != kindPoint {
		return 0, false
	}
	if a, ok := z.widened(t.args[0]); ok && (scalar.Operation{Op: ir.OpConvert, DType: x.dt}).Monotone(z.at(a).dt, false) {
		return z.convert(z.again(t, a), x.dt), true
	}
	if len(x.args) != 1 {
		return 0, false
	}
	if id, ok := z.flipped(t.args[0]); ok {
		to, ok := unsigned[x.dt]
		if !ok {
			return 0, false
		}
		// Of a signed number that is taken for an unsigned one, both conversions are gone.
		return z.each(x, func(TermID) TermID { return z.convert(z.again(t, z.convert(id, to)), x.dt) }), true
	}
	if !x.scalar().Monotone(z.at(x.args[0]).dt, z.reassociate) {
		return 0, false
	}
	return z.each(x, func(a TermID) TermID { return z.again(t, a) }), true
}

// distributes reports whether op(reduce(a), reduce(b)) = reduce(op(a, b)), and the
// same of one operand.
func (z *Normalizer) distributes(p *term, red ir.Reduction) bool {
	for _, a := range p.args {
		if z.at(a).dt != p.dt {
			return false
		}
	}
	two := len(p.args) == 2
	switch p.op {
	case ir.OpAdd, ir.OpSub:
		return two && (red == ir.Sum || red == ir.Avg) && (p.dt.IsFloat() || len(p.attrs) == 0)
	case ir.OpNeg:
		return red == ir.Sum || red == ir.Avg
	case ir.OpMul:
		return two && red == ir.Product || !two && red == ir.Sum && p.scalar().IntegerFactor() ||
			!two && (red == ir.Sum || red == ir.Avg) && p.scalar().PlainConstant() && p.scalar().Constant("scalar", 0) != 0
	case ir.OpDiv:
		return !two && (red == ir.Sum || red == ir.Avg) && p.scalar().PlainConstant() && p.scalar().Constant("scalar", 0) != 0
	case ir.OpMaximum:
		return two && red == ir.Max
	case ir.OpMinimum:
		return two && red == ir.Min
	}
	return false
}

func reduceOfLinear(z *Normalizer, t *term) (TermID, bool) {
	x := *z.at(t.args[0])
	if x.kind != kindPoint || !z.anyOrder(t.red, t.dt) || !z.distributes(&x, t.red) {
		return 0, false
	}
	return z.each(x, func(a TermID) TermID { return z.again(t, a) }), true
}

// narrowed looks at a conversion to floats of 8 or 16 bits of a sum or product over ranks in f32,
// which is how the IR defines it for them. Where reassociation is allowed, rounding
// goes before divisions and sums.
func narrowed(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	if t.op != ir.OpConvert || !t.dt.IsFloat() || !x.dt.IsFloat() || t.dt.Size() >= x.dt.Size() ||
		!z.reassociate && (t.dt.Size() > 2 || x.dt != ir.F32) {
		return 0, false
	}
	if z.reassociate && x.kind == kindPoint && (x.op == ir.OpDiv || x.op == ir.OpMul) && len(x.args) == 1 && x.scalar().PlainConstant() {
		return z.with(x, t.dt, z.convert(x.args[0], t.dt)), true
	}
	x, moved := z.beneath(x, t.n)
	if x.kind != kindReduce || x.red != ir.Sum && (x.red != ir.Product || z.reassociate) {
		return 0, false
	}
	if w, ok := z.widened(x.args[0]); !z.reassociate && (!ok || z.at(w).dt != t.dt) {
		return 0, false
	}
	return moved(z.again(x, z.convert(x.args[0], t.dt))), true
}

// beneath is what x takes elements of, through moves that do not join, if it does nothing else,
// and takes them of another term.
func (z *Normalizer) beneath(x *term, n ir.Dim) (*term, func(TermID) TermID) {
	outer := *x
	if x.kind != kindMove && x.kind != kindShuffle {
		return x, func(id TermID) TermID { return id }
	}
	x, moved := z.beneath(z.at(outer.args[0]), z.at(outer.args[0]).n)
	return x, func(id TermID) TermID {
		if id = moved(id); outer.kind == kindMove {
			return z.moveOf(outer.layout, n, id)
		}
		return z.with(&outer, z.at(id).dt, id)
	}
}

// thereAndBack drops a conversion to a type that tells all elements apart, and back.
func thereAndBack(z *Normalizer, t *term) (TermID, bool) {
	if t.op != ir.OpConvert {
		return 0, false
	}
	if in, ok := z.flipped(t.args[0]); ok {
		if in, ok = z.flipped(in); ok {
			return z.convert(in, t.dt), true
		}
	}
	x := z.at(t.args[0])
	if x.kind != kindPoint || x.op != ir.OpConvert || z.at(x.args[0]).dt != t.dt {
		return 0, false
	}
	wider := x.dt.IsFloat() && t.dt.IsFloat() && (x.dt == ir.F64 || x.dt == ir.F32 && t.dt != ir.F64) || x.dt.IsInt() && t.dt.IsInt() && x.dt.Size() >= t.dt.Size()
	return x.args[0], wider
}

// flipped is what a term flips the highest bit of.
func (z *Normalizer) flipped(id TermID) (of TermID, ok bool) {
	t := z.at(id)
	if t.kind != kindPoint || t.op != ir.OpBitwiseXor || len(t.args) != 1 || t.attrs.Int("scalar", 0) != -1<<(8*t.dt.Size()-1) {
		return 0, false
	}
	return t.args[0], true
}

// wrapped looks at a conversion of integers that cuts off what sums and products wrap around by.
func wrapped(z *Normalizer, t *term) (TermID, bool) {
	x := z.at(t.args[0])
	if t.op != ir.OpConvert || !t.dt.IsInt() || !x.dt.IsInt() || t.dt.Size() >= x.dt.Size() {
		return 0, false
	}
	if x.kind == kindPoint && x.scalar().IntegerFactor() && z.at(x.args[0]).dt == x.dt {
		c := x.attrs.Int("scalar", 0)
		if c != int64(int8(c)) || c < 0 {
			return 0, false
		}
		return z.times(z.convert(x.args[0], t.dt), attr.Int(c)), true
	}
	x, moved := z.beneath(x, t.n)
	if x.kind != kindReduce || x.red != ir.Sum && x.red != ir.Product {
		return 0, false
	}
	return moved(z.again(x, z.convert(x.args[0], t.dt))), true
}

// reduceOfBools makes maxima of sums of bools, and minima of products.
func reduceOfBools(z *Normalizer, t *term) (TermID, bool) {
	if t.dt != ir.Bool || t.red != ir.Sum && t.red != ir.Product {
		return 0, false
	}
	u := *t
	u.red = ir.Max
	if t.red == ir.Product {
		u.red = ir.Min
	}
	return z.make(u), true
}

package equiv

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// The algebra of single elements: what the equations say of terms, and arithmetic on
// integers that are known.

type elemKind uint8

const (
	elemOp      elemKind = iota // an operation on elements, by its list
	elemNumber                  // a number: an integer is the list, else the text
	elemLinear                  // a sum of multiples: a constant, then elements and factors
	elemMost                    // min or max of the list: a set
	elemProduct                 // of the list, in any order
)

// element is an expression; list is its number among the lists.
type element struct {
	kind elemKind
	op   ir.Op
	dt   ir.DType
	text int32
	list int32
}

func (e *elements) intern(h element, list ...int64) elemID {
	h.list = e.list(list)
	return elemID(e.numbered.number(h, h))
}

func (e *elements) listOf(x elemID) []int64 { return e.lists[e.all[x].list] }

// integer is a number of an integer type or of bool, which wraps around.
func (e *elements) integer(dt ir.DType, v int64) elemID {
	switch dt {
	case ir.I32:
		v = int64(int32(v))
	case ir.I8:
		v = int64(int8(v))
	case ir.U8:
		v = int64(uint8(v))
	case ir.Bool:
		if v != 0 {
			v = 1
		}
	}
	return e.intern(element{kind: elemNumber, dt: dt}, v)
}

// number is a constant by its text.
func (e *elements) number(dt ir.DType, text string) elemID {
	if f, err := strconv.ParseFloat(text, 64); err == nil && !dt.IsFloat() && f == math.Trunc(f) && math.Abs(f) < maxExact {
		return e.integer(dt, int64(f))
	}
	return e.intern(element{kind: elemNumber, dt: dt, text: e.text(text)})
}

// maxExact bounds integers that arithmetic of every width does not round.
const maxExact = 1 << 24

// value is the integer that x is, if that is known.
func (e *elements) value(x elemID) (int64, bool) {
	if h := e.all[x]; h.kind == elemNumber && !h.dt.IsFloat() {
		if l := e.listOf(x); len(l) == 1 {
			return l[0], true
		}
	}
	return 0, false
}

// isZero reports whether x is the float constant of that text, 0 or -0.
func (e *elements) isZero(x elemID, text string) bool {
	h := e.all[x]
	return h.kind == elemNumber && h.dt.IsFloat() && h.text == e.text(text)
}

// point is an elementwise operation.
func (e *elements) point(t *term, args []elemID) elemID {
	if x, ok := e.decided(t, args); ok {
		return x
	}
	if x, ok := e.linear(t, args); ok {
		return x
	}
	if len(args) == 1 && e.all[args[0]].kind == elemMost && e.z.monotone(t) {
		most := e.all[args[0]]
		list := make([]elemID, 0, 4)
		for _, x := range e.listOf(args[0]) {
			list = append(list, e.point(t, []elemID{elemID(x)}))
		}
		return e.flat(elemMost, most.op, t.dt, list)
	}
	if t.op == ir.OpMul && len(args) == 2 && e.z.anyOrder(ir.Product, t.dt) && e.all[args[0]].dt == t.dt && e.all[args[1]].dt == t.dt {
		return e.flat(elemProduct, t.op, t.dt, args)
	}
	return e.apply(t.op, t.dt, t.text, args...)
}

func (e *elements) apply(op ir.Op, dt ir.DType, text string, args ...elemID) elemID {
	list := make([]int64, len(args))
	for i, a := range args {
		list[i] = int64(a)
	}
	return e.intern(element{kind: elemOp, op: op, dt: dt, text: e.text(text)}, list...)
}

// decided is what follows from numbers that are known, and from conversions.
func (e *elements) decided(t *term, args []elemID) (elemID, bool) {
	switch {
	case t.op == ir.OpWhere:
		if c, ok := e.value(args[0]); ok && e.all[args[1]].dt == t.dt && e.all[args[2]].dt == t.dt {
			if c != 0 {
				return args[1], true
			}
			return args[2], true
		}
		return 0, false
	case t.op == ir.OpConvert:
		return e.convert(t.dt, args[0])
	case t.op == ir.OpAdd && len(args) == 2 && len(t.attrs) == 0 && t.dt.IsFloat(): // x + -0 is x
		for i, a := range args {
			if b := args[1-i]; e.isZero(b, "-0") && e.all[a].dt == t.dt && e.all[b].dt == t.dt {
				return a, true
			}
		}
		return 0, false
	}
	a, ok := e.value(args[0])
	b := int64(0)
	if ok && len(args) == 2 && len(t.attrs) == 0 {
		b, ok = e.value(args[1])
	} else if s, has := t.attrs.Get("scalar"); ok && len(args) == 1 && has && len(t.attrs) == 1 {
		b, ok = whole(s)
	} else if t.op != ir.OpClamp {
		return 0, false
	}
	if !ok || t.dt.IsFloat() || max(a, -a, b, -b) >= maxExact {
		return 0, false
	}
	v, ok := arithmetic(t, a, b)
	return e.integer(t.dt, v), ok
}

// whole is a constant that is a small integer.
func whole(c attr.Value) (int64, bool) {
	if i, ok := c.AsInt(); ok {
		return i, true
	}
	f, ok := c.AsFloat()
	return int64(f), ok && f == math.Trunc(f) && math.Abs(f) < maxExact
}

// arithmetic computes on small integers.
func arithmetic(t *term, a, b int64) (int64, bool) {
	truth := func(v bool) (int64, bool) {
		if v {
			return 1, true
		}
		return 0, true
	}
	switch t.op {
	case ir.OpAdd:
		return a + b, true
	case ir.OpSub:
		return a - b, true
	case ir.OpMul:
		return a * b, true
	case ir.OpEq:
		return truth(a == b)
	case ir.OpNe:
		return truth(a != b)
	case ir.OpLt:
		return truth(a < b)
	case ir.OpLe:
		return truth(a <= b)
	case ir.OpGt:
		return truth(a > b)
	case ir.OpGe:
		return truth(a >= b)
	case ir.OpLogicalAnd:
		return truth(a != 0 && b != 0)
	case ir.OpLogicalOr:
		return truth(a != 0 || b != 0)
	case ir.OpMaximum:
		return max(a, b), true
	case ir.OpMinimum:
		return min(a, b), true
	case ir.OpClamp:
		for _, key := range []string{"min", "max"} {
			c, has := t.attrs.Get(key)
			limit, ok := whole(c)
			switch {
			case !has:
			case !ok:
				return 0, false
			case key == "min":
				a = max(a, limit)
			default:
				a = min(a, limit)
			}
		}
		return a, true
	}
	return 0, false
}

// convert drops conversions that change nothing, converts small integers, and rounds
// the parts of a sum where reassociation allows that.
func (e *elements) convert(dt ir.DType, x elemID) (elemID, bool) {
	h := e.all[x]
	if h.dt == dt {
		return x, true
	}
	if v, ok := e.value(x); ok && !dt.IsFloat() && max(v, -v) < maxExact {
		return e.integer(dt, v), true
	}
	switch {
	case !dt.IsFloat() && (e.isZero(x, "0") || e.isZero(x, "-0")):
		return e.integer(dt, 0), true
	case !dt.IsFloat() || !h.dt.IsFloat():
		return 0, false
	case e.isZero(x, "0"):
		return e.number(dt, "0"), true
	case e.isZero(x, "-0"):
		return e.number(dt, "-0"), true
	case h.kind == elemOp && h.op == ir.OpConvert:
		from := elemID(e.listOf(x)[0])
		if e.all[from].dt == dt && (h.dt == ir.F64 || h.dt == ir.F32 && dt != ir.F64) {
			return from, true
		}
	case h.kind == elemLinear && e.z.p.opts.Reassociate && dt.Size() < h.dt.Size():
		var l linear
		for _, p := range e.parts(x).of {
			l.add(linear{[]multiple{{e.converted(dt, p.x), 1, 1}}}, p)
		}
		return e.sum(dt, l), true
	}
	return 0, false
}

func (e *elements) converted(dt ir.DType, x elemID) elemID {
	if y, ok := e.convert(dt, x); ok {
		return y
	}
	return e.apply(ir.OpConvert, dt, noAttrs, x)
}

// reduce is a reduction of elements of several ranks, in order.
func (e *elements) reduce(red ir.Reduction, dt ir.DType, list []elemID) elemID {
	switch {
	case len(list) == 1:
		return list[0]
	case red == ir.Min:
		return e.flat(elemMost, ir.OpMinimum, dt, list)
	case red == ir.Max:
		return e.flat(elemMost, ir.OpMaximum, dt, list)
	case red == ir.Sum && e.z.anyOrder(red, dt):
		var l linear
		for _, x := range list {
			l.add(e.parts(x), same)
		}
		return e.sum(dt, l)
	case red == ir.Sum: // one after the other, 16-bit floats in f32
		at := dt
		if dt.Size() < ir.F32.Size() {
			at = ir.F32
		}
		sum := elemID(-1)
		for _, x := range list {
			if x = e.converted(at, x); sum < 0 || e.isZero(sum, "-0") {
				sum = x
			} else if !e.isZero(x, "-0") {
				sum = e.apply(ir.OpAdd, at, noAttrs, sum, x)
			}
		}
		return e.converted(dt, sum)
	case red == ir.Product && e.z.anyOrder(red, dt):
		return e.flat(elemProduct, ir.OpMul, dt, list)
	}
	return e.apply(ir.OpAllReduce, dt, string(red), list...)
}

// flat is min or max of a set, or a product, of which those that are such themselves count
// by their members.
func (e *elements) flat(kind elemKind, op ir.Op, dt ir.DType, list []elemID) elemID {
	var set []int64
	for _, x := range list {
		if h := e.all[x]; h.kind == kind && h.op == op && h.dt == dt {
			set = append(set, e.listOf(x)...)
		} else {
			set = append(set, int64(x))
		}
	}
	set = e.known(op, dt, set)
	slices.Sort(set)
	if kind == elemMost {
		set = slices.Compact(set)
	}
	if len(set) == 1 {
		return elemID(set[0])
	}
	return e.intern(element{kind: kind, op: op, dt: dt}, set...)
}

// known makes one integer of those of a list that are known.
func (e *elements) known(op ir.Op, dt ir.DType, list []int64) []int64 {
	one, found := int64(0), false
	rest := slices.DeleteFunc(slices.Clone(list), func(x int64) bool {
		v, ok := e.value(elemID(x))
		if ok = ok && max(v, -v, one, -one) < maxExact; !ok {
			return false
		}
		if found {
			v, _ = arithmetic(&term{op: op}, one, v)
			v, _ = e.value(e.integer(dt, v))
		}
		one, found = v, true
		return true
	})
	if found {
		rest = append(rest, int64(e.integer(dt, one)))
	}
	return rest
}

// linear is a sum of multiples. Factors are integers that wrap around, or floats.
type linear struct{ of []multiple }

type multiple struct {
	x elemID // -1 for the constant 1
	i int64
	f float64
}

// same and minus are factors.
var same, minus = multiple{i: 1, f: 1}, multiple{i: -1, f: -1}

// add adds m, times a factor.
func (l *linear) add(m linear, times multiple) {
	for _, p := range m.of {
		p.i, p.f = p.i*times.i, p.f*times.f
		k, ok := slices.BinarySearchFunc(l.of, p.x, func(q multiple, x elemID) int { return cmp.Compare(q.x, x) })
		if !ok {
			l.of = slices.Insert(l.of, k, p)
			continue
		}
		l.of[k].i += p.i
		l.of[k].f += p.f
	}
}

// parts takes x apart.
func (e *elements) parts(x elemID) linear {
	h := e.all[x]
	if v, ok := e.value(x); ok {
		return linear{[]multiple{{-1, v, 0}}}
	}
	switch {
	case e.isZero(x, "0") || e.isZero(x, "-0"):
		return linear{}
	case h.kind != elemLinear:
		return linear{[]multiple{{x, 1, 1}}}
	}
	return e.sums[x]
}

// sum is the element of a sum of multiples. Factors of floats are told apart by twelve
// digits, see factorOfFactor, and multiplied with all that they have.
func (e *elements) sum(dt ir.DType, l linear) elemID {
	if len(l.of) == 1 && dt.IsFloat() && !dt.IsFloat8() && l.of[0].f > 0 && e.all[l.of[0].x].kind == elemMost { // what scales scales all members
		most, list := e.all[l.of[0].x], []elemID(nil)
		for _, x := range e.listOf(l.of[0].x) {
			var m linear
			m.add(e.parts(elemID(x)), l.of[0])
			list = append(list, e.sum(dt, m))
		}
		return e.flat(elemMost, most.op, dt, list)
	}
	var list []int64
	var kept linear
	for _, p := range l.of {
		near, _ := strconv.ParseFloat(strconv.FormatFloat(p.f, 'e', 11, 64), 64)
		factor := int64(math.Float64bits(near))
		if dt.IsInt() {
			factor = e.listOf(e.integer(dt, p.i))[0]
		}
		if dt.IsInt() && factor == 0 {
			continue
		}
		list, kept.of = append(list, int64(p.x), factor), append(kept.of, p)
	}
	one := int64(1)
	if !dt.IsInt() {
		one = int64(math.Float64bits(1))
	}
	switch {
	case len(list) == 0:
		return e.number(dt, "0")
	case len(list) == 2 && list[0] < 0 && dt.IsInt():
		return e.integer(dt, list[1])
	case len(list) == 2 && list[0] >= 0 && list[1] == one:
		return elemID(list[0])
	}
	id := e.intern(element{kind: elemLinear, dt: dt}, list...)
	if _, ok := e.sums[id]; !ok {
		e.sums[id] = kept
	}
	return id
}

// linear adds up and scales where the order does not matter.
func (e *elements) linear(t *term, args []elemID) (elemID, bool) {
	if !e.z.anyOrder(ir.Sum, t.dt) {
		return 0, false
	}
	for _, a := range args {
		if e.all[a].dt != t.dt {
			return 0, false
		}
	}
	var times multiple
	var l linear
	switch c, _ := t.attrs.Get("scalar"); {
	case (t.op == ir.OpAdd || t.op == ir.OpSub) && len(args) == 2 && len(t.attrs) == 0:
		if times = same; t.op == ir.OpSub {
			times = minus
		}
		l.add(e.parts(args[0]), same)
		l.add(e.parts(args[1]), times)
		return e.sum(t.dt, l), true
	case t.op == ir.OpNeg:
		times = minus
	case integerFactor(t):
		times.i, _ = c.AsInt()
	case plainConstant(t) && (t.op == ir.OpMul || t.op == ir.OpDiv) && constantOf(t, "scalar", 0) != 0 && len(args) == 1:
		times.f = factorOf(t)
	default:
		return 0, false
	}
	l.add(e.parts(args[0]), times)
	return e.sum(t.dt, l), true
}

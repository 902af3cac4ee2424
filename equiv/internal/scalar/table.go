package scalar

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// noAttrs is the text of no attributes.
var noAttrs = attr.List(nil).String()

// ID names an expression of a table: equal ones have one.
type ID int32

type kind uint8

const (
	kindOp      kind = iota // an operation on elements, by its list
	kindNumber              // a number: an integer is the list, else the text
	kindLinear              // a sum of multiples: a constant, then elements and factors
	kindMost                // min or max of the list: a set
	kindProduct             // of the list, in any order
)

// Element is an expression; list is its number among the lists.
type Element struct {
	kind kind
	op   ir.Op
	dt   ir.DType
	text int32
	list int32
}

// Table numbers expressions.
type Table struct {
	reassociate bool
	all         []Element
	sums        map[ID]linear // what sums of multiples are of; look-up only, as are the following
	ids         slots         // of all
	lists       [][]int64
	listIDs     slots
	texts       map[string]int32
	room        []int64 // of which lists take theirs
}

// NewTable makes an empty one, where sums of floats may be reassociated or not.
func NewTable(reassociate bool) *Table {
	return &Table{reassociate: reassociate, sums: map[ID]linear{}, texts: map[string]int32{}}
}

// Head is an operation of which nothing is known but its text. Intern gives it operands.
func (e *Table) Head(op ir.Op, dt ir.DType, text string) Element {
	return Element{kind: kindOp, op: op, dt: dt, text: e.Text(text)}
}

// Intern is the expression of a head and a list: operands, and what else tells it apart.
func (e *Table) Intern(h Element, list ...int64) ID {
	h.list = e.List(list)
	hash := mixed(uint64(h.kind)|uint64(h.op)<<8|uint64(h.dt)<<40, uint64(uint32(h.text))|uint64(h.list)<<32)
	slot := e.ids.find(hash, func(id int32) bool { return e.all[id] == h })
	if slot.number == 0 {
		e.all = append(e.all, h)
		e.ids.add(slot, hash)
	}
	return ID(slot.number - 1)
}

// List numbers a list of numbers.
func (e *Table) List(l []int64) int32 {
	hash := uint64(len(l))
	for _, v := range l {
		hash = mixed(hash, uint64(v))
	}
	slot := e.listIDs.find(hash, func(id int32) bool { return slices.Equal(e.lists[id], l) })
	if slot.number == 0 {
		if len(e.room) < len(l) {
			e.room = make([]int64, max(len(l), min(1<<12, 64+2*len(e.lists))))
		}
		own := e.room[:len(l):len(l)]
		e.room = e.room[len(l):]
		copy(own, l)
		e.lists = append(e.lists, own)
		e.listIDs.add(slot, hash)
	}
	return slot.number - 1
}

// Text numbers a text.
func (e *Table) Text(s string) int32 {
	id, ok := e.texts[s]
	if !ok {
		id = int32(len(e.texts))
		e.texts[s] = id
	}
	return id
}

func (e *Table) listOf(x ID) []int64 { return e.lists[e.all[x].list] }

// Integer is a number of an integer type or of bool, which wraps around.
func (e *Table) Integer(dt ir.DType, v int64) ID {
	switch cut := 64 - 8*dt.Size(); {
	case dt == ir.Bool:
		if v != 0 {
			v = 1
		}
	case dt.IsUnsigned():
		v = int64(uint64(v) << cut >> cut)
	default:
		v = v << cut >> cut
	}
	return e.Intern(Element{kind: kindNumber, dt: dt}, v)
}

// Number is a constant by its text.
func (e *Table) Number(dt ir.DType, text string) ID {
	if f, err := strconv.ParseFloat(text, 64); err == nil && !dt.IsFloat() && f == math.Trunc(f) && math.Abs(f) < MaxExact {
		return e.Integer(dt, int64(f))
	}
	if text == "-0" && dt.IsFloat() && !math.Signbit(dt.Rounded(math.Copysign(0, -1))) {
		text = "0"
	}
	return e.Intern(Element{kind: kindNumber, dt: dt, text: e.Text(text)})
}

// Value is the integer that x is, if that is known.
func (e *Table) Value(x ID) (int64, bool) {
	if h := e.all[x]; h.kind == kindNumber && !h.dt.IsFloat() {
		if l := e.listOf(x); len(l) == 1 && (h.dt != ir.U64 || l[0] >= 0) { // that type has larger ones
			return l[0], true
		}
	}
	return 0, false
}

// isZero reports whether x is the float constant of that text, 0 or -0.
func (e *Table) isZero(x ID, text string) bool {
	h := e.all[x]
	return h.kind == kindNumber && h.dt.IsFloat() && h.dt.HasZero() && h.text == e.Text(text)
}

// Point is an elementwise operation; from is the type of the operand of one.
func (e *Table) Point(t Operation, from ir.DType, args []ID) ID {
	if x, ok := e.decided(t, args); ok {
		return x
	}
	if x, ok := e.linear(t, args); ok {
		return x
	}
	if len(args) == 1 && e.all[args[0]].kind == kindMost && t.Monotone(from, e.reassociate) {
		most := e.all[args[0]]
		list := make([]ID, 0, 4)
		for _, x := range e.listOf(args[0]) {
			list = append(list, e.Point(t, from, []ID{ID(x)}))
		}
		return e.flat(kindMost, most.op, t.DType, list)
	}
	if t.Op == ir.OpMul && len(args) == 2 && AnyOrder(ir.Product, t.DType, e.reassociate) && e.all[args[0]].dt == t.DType && e.all[args[1]].dt == t.DType {
		return e.flat(kindProduct, t.Op, t.DType, args)
	}
	return e.apply(t.Op, t.DType, t.Text, args...)
}

func (e *Table) apply(op ir.Op, dt ir.DType, text string, args ...ID) ID {
	list := make([]int64, len(args))
	for i, a := range args {
		list[i] = int64(a)
	}
	return e.Intern(e.Head(op, dt, text), list...)
}

// decided is what follows from numbers that are known, and from conversions.
func (e *Table) decided(t Operation, args []ID) (ID, bool) {
	switch {
	case t.Op == ir.OpWhere:
		if c, ok := e.Value(args[0]); ok && e.all[args[1]].dt == t.DType && e.all[args[2]].dt == t.DType {
			if c != 0 {
				return args[1], true
			}
			return args[2], true
		}
		return 0, false
	case t.Op == ir.OpConvert:
		return e.convert(t.DType, args[0])
	case t.Op == ir.OpAdd && len(args) == 2 && len(t.Attrs) == 0 && t.DType.IsFloat(): // x + -0 is x
		for i, a := range args {
			if b := args[1-i]; e.isZero(b, "-0") && e.all[a].dt == t.DType && e.all[b].dt == t.DType {
				return a, true
			}
		}
		return 0, false
	}
	a, ok := e.Value(args[0])
	b := int64(0)
	if ok && len(args) == 2 && len(t.Attrs) == 0 {
		b, ok = e.Value(args[1])
	} else if s, has := t.Attrs.Get("scalar"); ok && len(args) == 1 && has && len(t.Attrs) == 1 {
		b, ok = Whole(s)
	} else if t.Op != ir.OpClamp {
		return 0, false
	}
	if !ok || t.DType.IsFloat() {
		return 0, false
	}
	v, ok := t.Known(a, b)
	return e.Integer(t.DType, v), ok
}

// convert drops conversions that change nothing, converts small integers, and rounds
// the parts of a sum where reassociation allows that.
func (e *Table) convert(dt ir.DType, x ID) (ID, bool) {
	h := e.all[x]
	if h.dt == dt {
		return x, true
	}
	if v, ok := e.Value(x); ok && !dt.IsFloat() && max(v, -v) < MaxExact {
		return e.Integer(dt, v), true
	}
	switch {
	case !dt.IsFloat() && (e.isZero(x, "0") || e.isZero(x, "-0")):
		return e.Integer(dt, 0), true
	case !dt.IsFloat() || !h.dt.IsFloat():
		return 0, false
	case dt.HasZero() && e.isZero(x, "0"):
		return e.Number(dt, "0"), true
	case dt.HasZero() && e.isZero(x, "-0"):
		return e.Number(dt, "-0"), true
	case h.kind == kindOp && h.op == ir.OpConvert:
		from := ID(e.listOf(x)[0])
		if e.all[from].dt == dt && (h.dt == ir.F64 || h.dt == ir.F32 && dt != ir.F64) {
			return from, true
		}
	case h.kind == kindLinear && e.reassociate && dt.Size() < h.dt.Size():
		var l linear
		for _, p := range e.parts(x).of {
			l.add(linear{[]multiple{{e.Converted(dt, p.x), 1, 1}}}, p)
		}
		return e.sum(dt, l), true
	}
	return 0, false
}

// Converted is x in another type.
func (e *Table) Converted(dt ir.DType, x ID) ID {
	if y, ok := e.convert(dt, x); ok {
		return y
	}
	return e.apply(ir.OpConvert, dt, noAttrs, x)
}

// Reduce is a reduction of elements of several ranks, in order.
func (e *Table) Reduce(red ir.Reduction, dt ir.DType, list []ID) ID {
	switch {
	case len(list) == 1:
		return list[0]
	case red == ir.Min:
		return e.flat(kindMost, ir.OpMinimum, dt, list)
	case red == ir.Max:
		return e.flat(kindMost, ir.OpMaximum, dt, list)
	case red == ir.Sum && AnyOrder(red, dt, e.reassociate):
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
		sum := ID(-1)
		for _, x := range list {
			if x = e.Converted(at, x); sum < 0 || e.isZero(sum, "-0") {
				sum = x
			} else if !e.isZero(x, "-0") {
				sum = e.apply(ir.OpAdd, at, noAttrs, sum, x)
			}
		}
		return e.Converted(dt, sum)
	case red == ir.Product && AnyOrder(red, dt, e.reassociate):
		return e.flat(kindProduct, ir.OpMul, dt, list)
	}
	return e.apply(ir.OpAllReduce, dt, string(red), list...)
}

// flat is min or max of a set, or a product, of which those that are such themselves count
// by their members.
func (e *Table) flat(kind kind, op ir.Op, dt ir.DType, list []ID) ID {
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
	if kind == kindMost {
		set = slices.Compact(set)
	}
	if len(set) == 1 {
		return ID(set[0])
	}
	return e.Intern(Element{kind: kind, op: op, dt: dt}, set...)
}

// known makes one integer of those of a list that are known.
func (e *Table) known(op ir.Op, dt ir.DType, list []int64) []int64 {
	one, found := int64(0), false
	rest := slices.DeleteFunc(slices.Clone(list), func(x int64) bool {
		v, ok := e.Value(ID(x))
		if ok = ok && max(v, -v, one, -one) < MaxExact; !ok {
			return false
		}
		if found {
			v, _ = Operation{Op: op}.Arithmetic(one, v)
			v, _ = e.Value(e.Integer(dt, v))
		}
		one, found = v, true
		return true
	})
	if found {
		rest = append(rest, int64(e.Integer(dt, one)))
	}
	return rest
}

// linear is a sum of multiples. Factors are integers that wrap around, or floats.
type linear struct{ of []multiple }

type multiple struct {
	x ID // -1 for the constant 1
	i int64
	f float64
}

// same and minus are factors.
var same, minus = multiple{i: 1, f: 1}, multiple{i: -1, f: -1}

// add adds m, times a factor.
func (l *linear) add(m linear, times multiple) {
	for _, p := range m.of {
		p.i, p.f = p.i*times.i, p.f*times.f
		k, ok := slices.BinarySearchFunc(l.of, p.x, func(q multiple, x ID) int { return cmp.Compare(q.x, x) })
		if !ok {
			l.of = slices.Insert(l.of, k, p)
			continue
		}
		l.of[k].i += p.i
		l.of[k].f += p.f
	}
}

// parts takes x apart.
func (e *Table) parts(x ID) linear {
	h := e.all[x]
	if v, ok := e.Value(x); ok {
		return linear{[]multiple{{-1, v, 0}}}
	}
	switch {
	case e.isZero(x, "0") || e.isZero(x, "-0"):
		return linear{}
	case h.kind != kindLinear:
		return linear{[]multiple{{x, 1, 1}}}
	}
	return e.sums[x]
}

// sum is the element of a sum of multiples. Factors of floats are told apart by twelve
// digits, and multiplied with all that they have.
func (e *Table) sum(dt ir.DType, l linear) ID {
	if len(l.of) == 1 && dt.IsFloat() && !dt.IsFloat8() && l.of[0].f > 0 && e.all[l.of[0].x].kind == kindMost { // what scales scales all members
		most, list := e.all[l.of[0].x], []ID(nil)
		for _, x := range e.listOf(l.of[0].x) {
			var m linear
			m.add(e.parts(ID(x)), l.of[0])
			list = append(list, e.sum(dt, m))
		}
		return e.flat(kindMost, most.op, dt, list)
	}
	var list []int64
	var kept linear
	for _, p := range l.of {
		near, _ := strconv.ParseFloat(strconv.FormatFloat(p.f, 'e', 11, 64), 64)
		factor := int64(math.Float64bits(near))
		if dt.IsInt() {
			factor = e.listOf(e.Integer(dt, p.i))[0]
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
		return e.Number(dt, "0")
	case len(list) == 2 && list[0] < 0 && dt.IsInt():
		return e.Integer(dt, list[1])
	case len(list) == 2 && list[0] >= 0 && list[1] == one:
		return ID(list[0])
	}
	id := e.Intern(Element{kind: kindLinear, dt: dt}, list...)
	if _, ok := e.sums[id]; !ok {
		e.sums[id] = kept
	}
	return id
}

// linear adds up and scales where the order does not matter.
func (e *Table) linear(t Operation, args []ID) (ID, bool) {
	if !AnyOrder(ir.Sum, t.DType, e.reassociate) {
		return 0, false
	}
	for _, a := range args {
		if e.all[a].dt != t.DType {
			return 0, false
		}
	}
	var times multiple
	var l linear
	switch c, _ := t.Attrs.Get("scalar"); {
	case (t.Op == ir.OpAdd || t.Op == ir.OpSub) && len(args) == 2 && len(t.Attrs) == 0:
		if times = same; t.Op == ir.OpSub {
			times = minus
		}
		l.add(e.parts(args[0]), same)
		l.add(e.parts(args[1]), times)
		return e.sum(t.DType, l), true
	case t.Op == ir.OpNeg:
		times = minus
	case t.IntegerFactor():
		times.i, _ = c.AsInt()
	case t.PlainConstant() && (t.Op == ir.OpMul || t.Op == ir.OpDiv) && t.Constant("scalar", 0) != 0 && len(args) == 1:
		times.f = t.Factor()
	default:
		return 0, false
	}
	l.add(e.parts(args[0]), times)
	return e.sum(t.DType, l), true
}

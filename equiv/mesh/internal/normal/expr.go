package normal

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// expr is a base: a tensor as an operation on others makes it. Equal expressions are one.
type expr struct {
	id    int
	kind  kind
	text  string // what tells it from others of its operands and loops
	args  []arg
	loops []loop
	shape []int64

	// Where the result has each loop, none if it is summed, and each size of its own. A size
	// that one loop is minor to is of one dimension with it.
	place, own []digits.Digit
	joins      []int // by own: the loop, or none

	win      *window // of a view
	windowed []bool  // by dimension: whether it goes along places of a view
}

type kind uint8

const (
	leaf      kind = iota // an input, a constant, something unknown
	generic               // any operation, once for each place of its loops
	product               // of the operands, summed over loops
	linear                // a sum of the operands
	convert               // to another element type
	choice                // operand 1 where operand 0 holds, else operand 2
	reduction             // largest or smallest over loops, or the like
)

// arg is an operand: coef times a base.
type arg struct {
	base  *expr
	coef  float64
	inner []digits.Digit // what a generic operation sees of it at each place of its loops, row-major
}

// loop is a digit that operands have in common.
type loop struct {
	size   int64
	summed bool           // the result does not have it
	at     []digits.Digit // by operand; repeated: it does not have it
	tail   bool           // in the result's dimension, it is minor to the first size of its own
}

// Table holds expressions, by text.
type Table struct {
	exprs map[string]*expr
	sums  map[string]*digitMap
	views map[string]viewResult
	one   *expr // any number is a multiple of it
	buf   []byte
	depth int  // of views in the making
	apart bool // a part of what is concatenated along two dimensions
	work  int  // done: expressions that were made, and steps of views, which count as often as they are deep
	most  int  // of work
}

// NewTable is an empty table, and bounds the work on it.
func NewTable(budget int) *Table {
	t := &Table{most: budget, exprs: map[string]*expr{}, sums: map[string]*digitMap{}, views: map[string]viewResult{}}
	t.one = t.leaf("one")
	return t
}

// Len is how many expressions there are.
func (t *Table) Len() int { return len(t.exprs) }

// leaf is an expression of no operands.
func (t *Table) leaf(text string, shape ...int64) *expr {
	e, _ := t.make(&spec{kind: leaf, text: text, own: shape})
	return e
}

// spec is an operation before it has its normal form.
type spec struct {
	kind  kind
	text  string
	args  []arg
	loops []loop
	own   []int64 // sizes of the result that are no loops
	win   *window
}

// make is the expression of an operation, with the digit of the result for each of its loops
// and then for each size of its own. Loops are ordered by the operands that have them, and
// those that go on in all operands are one.
func (t *Table) make(s *spec) (*expr, []digits.Digit) {
	if s.kind != leaf {
		t.spend(1)
	}
	e := &expr{kind: s.kind, text: s.text, args: s.args, win: s.win}
	var of []int
	var stride []int64
	e.loops, of, stride = mergeLoops(s.loops)
	e.layOut(s, of)
	where := make([]digits.Digit, len(s.loops), len(s.loops)+len(s.own))
	for i, l := range s.loops {
		if where[i] = digits.Repeated(l.size); of[i] >= 0 {
			if d := e.place[of[i]].Dim; d != digits.None {
				where[i] = digits.Of(d, stride[i], l.size)
			}
		}
	}
	return t.intern(e), append(where, e.own...)
}

// layOut gives loops and own sizes their places in the result. of is the loop that each of the
// spec's became.
func (e *expr) layOut(s *spec, of []int) {
	major := make([]int, len(e.loops)) // the own size that a loop is minor to
	for k := range major {
		major[k] = digits.None
	}
	for i := range s.own {
		join := digits.None
		for m, l := range s.loops {
			if k := of[m]; l.tail && i == 0 && k >= 0 {
				if join != digits.None && join != k {
					join = digits.None
					break
				}
				join = k
			}
		}
		if e.joins = append(e.joins, join); join != digits.None {
			major[join] = i
		}
	}
	e.own = make([]digits.Digit, len(s.own))
	for k, l := range e.loops {
		d := digits.Of(digits.None, 0, l.size)
		if !l.summed {
			d = digits.Of(len(e.shape), 1, l.size)
			if i := major[k]; i != digits.None {
				e.own[i] = digits.Of(len(e.shape), l.size, s.own[i])
				l.size *= s.own[i]
			}
			e.shape = append(e.shape, l.size)
		}
		e.place = append(e.place, d)
	}
	for i, n := range s.own {
		if e.joins[i] != digits.None {
			continue
		}
		if e.own[i] = digits.Repeated(1); n > 1 {
			e.own[i] = digits.Of(len(e.shape), 1, n)
			e.shape = append(e.shape, n)
		}
	}
}

// loopOf is the loop that a digit of the result is of, -1 of one that is the result's own.
func (e *expr) loopOf(d digits.Digit) int {
	return slices.IndexFunc(e.place, func(p digits.Digit) bool { return p.Dim == d.Dim && d.Stride*d.Size <= p.Size })
}

// operandDigit is a digit of the result as one of operand k, of something of which an element is made of those in
// its place.
func (e *expr) operandDigit(d digits.Digit, k int) digits.Digit {
	x, ok := e.loopDigit(d, k)
	if !ok || d.Dim != digits.None && len(e.own) > 0 && e.win == nil {
		panic(digits.Uneven{})
	}
	return x
}

// loopDigit is a digit of the result as one of operand k; false for one of the result's own.
func (e *expr) loopDigit(d digits.Digit, k int) (digits.Digit, bool) {
	if d.Dim == digits.None {
		return d, true
	}
	of := e.loopOf(d)
	if of < 0 {
		return d, false
	}
	return e.loops[of].at[k].Part(d.Stride, d.Size), true
}

// mergeLoops are loops in their order, merged; by loop given the one that it became, -1 where no
// operand has it, and its stride there.
func mergeLoops(loops []loop) (out []loop, of []int, stride []int64) {
	order := make([]int, 0, len(loops))
	of, stride = make([]int, len(loops)), make([]int64, len(loops))
	for i, l := range loops {
		if of[i] = -1; l.size > 1 && firstOperand(l) >= 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := loops[a], loops[b]
		i, j := firstOperand(x), firstOperand(y)
		if i != j {
			return i - j
		}
		return cmp.Or(x.at[i].Dim-y.at[i].Dim, cmp.Compare(y.at[i].Stride, x.at[i].Stride))
	})
	for _, i := range order {
		l := loops[i]
		if n := len(out); n > 0 && continues(out[n-1], l) {
			last := &out[n-1]
			last.size *= l.size
			last.at = slices.Clone(last.at)
			for k, d := range l.at {
				last.at[k].Stride = d.Stride
				last.at[k].Size *= d.Size
			}
		} else {
			out = append(out, l)
		}
		of[i] = len(out) - 1
	}
	total := make([]int64, len(out))
	for _, i := range slices.Backward(order) {
		k := of[i]
		stride[i] = max(total[k], 1)
		total[k] = stride[i] * loops[i].size
	}
	return out, of, stride
}

// firstOperand is the first operand that has a loop, -1 if none has.
func firstOperand(l loop) int {
	return slices.IndexFunc(l.at, func(d digits.Digit) bool { return d.Dim != digits.None })
}

// continues reports whether loop b goes on where a ends.
func continues(a, b loop) bool {
	if a.summed != b.summed {
		return false
	}
	for i := range a.at {
		if !a.at[i].Follows(b.at[i]) {
			return false
		}
	}
	return true
}

// intern is the one expression that is equal to e.
func (t *Table) intern(e *expr) *expr {
	b := append(t.buf[:0], byte('a'+e.kind))
	b = append(b, e.text...)
	for _, a := range e.args {
		b = append(b, '|')
		b = strconv.AppendInt(b, int64(a.base.id), 10)
		b = append(b, '*')
		b = number(b, a.coef)
		for _, d := range a.inner {
			b = strconv.AppendInt(append(d.Text(append(b, ' ')), 'x'), d.Size, 10)
		}
	}
	for _, l := range e.loops {
		b = append(b, ';')
		if l.summed {
			b = append(b, 's')
		}
		b = strconv.AppendInt(b, l.size, 10)
		for _, d := range l.at {
			b = append(b, ' ')
			b = d.Text(b)
		}
	}
	for _, n := range e.shape {
		b = append(b, ',')
		b = strconv.AppendInt(b, n, 10)
	}
	t.buf = b
	if old, ok := t.exprs[string(b)]; ok {
		return old
	}
	e.id = len(t.exprs)
	e.markWindowed()
	t.exprs[string(b)] = e
	return e
}

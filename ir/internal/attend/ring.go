package attend

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// poly is a polynomial: coefficients by monomial. A monomial is spelt as symbols in order, each
// with its power: those of elements are e, the exponentials, and d, the gradient of the weights;
// all others are sums over rows of what stands in brackets.
type poly map[string]float64

// power is a symbol of a monomial.
type power struct {
	symbol string
	n      int
}

func monomial(ps []power) string {
	slices.SortFunc(ps, func(a, b power) int { return strings.Compare(a.symbol, b.symbol) })
	var b strings.Builder
	for _, p := range ps {
		if p.n != 0 {
			fmt.Fprintf(&b, "%s^%d ", p.symbol, p.n)
		}
	}
	return b.String()
}

// powers reads a monomial.
func powers(m string) []power {
	var out []power
	depth, start := 0, 0
	for i := range len(m) {
		switch m[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ' ':
			if depth > 0 {
				continue
			}
			at := strings.LastIndexByte(m[start:i], '^') + start
			n, _ := strconv.Atoi(m[at+1 : i])
			out = append(out, power{m[start:at], n})
			start = i + 1
		}
	}
	return out
}

// times multiplies monomials, the second to a power.
func times(a, b string, n int) string {
	ps := powers(a)
	for _, q := range powers(b) {
		if i := slices.IndexFunc(ps, func(p power) bool { return p.symbol == q.symbol }); i >= 0 {
			ps[i].n += n * q.n
		} else {
			ps = append(ps, power{q.symbol, n * q.n})
		}
	}
	return monomial(ps)
}

// maxTerms bounds polynomials.
const maxTerms = 16

func (p poly) plus(q poly, c float64) poly {
	out := maps.Clone(p)
	for m, x := range q {
		if out[m] += c * x; math.Abs(out[m]) < 1e-12*math.Abs(x) {
			delete(out, m)
		}
	}
	return out
}

func (p poly) mul(q poly) poly {
	out := poly{}
	for m, x := range p {
		for n, y := range q {
			out[times(m, n, 1)] += x * y
		}
	}
	return out
}

// inverse is that of a single term.
func (p poly) inverse() (poly, bool) {
	for m, x := range p {
		return poly{times("", m, -1): 1 / x}, len(p) == 1 && x != 0
	}
	return nil, false
}

// is reports whether two polynomials are the same but for rounding.
func (p poly) is(q poly) bool {
	for m, x := range p {
		if y, ok := q[m]; !ok || math.Abs(x-y) > 1e-6*math.Abs(x) {
			return false
		}
	}
	return len(p) == len(q)
}

// follower evaluates values between the products of a softmax.
type follower struct {
	exp, grad  *ir.Value // e, and d as it comes from its product; nil of the forward half
	keys       int64     // elements of a row
	rows       int64
	mask       axes // of what scores are seen by; without a root: all are
	triangular bool // that is the keys up to the query's own place
	memo       map[*ir.Value]poly
	steps, max int
}

// of is the polynomial of a value; nil if it is none.
func (f *follower) of(v *ir.Value) poly {
	if p, ok := f.memo[v]; ok {
		return p
	}
	f.memo[v] = nil
	if f.steps++; f.steps > f.max {
		return nil
	}
	p := f.compute(v)
	if len(p) > maxTerms {
		p = nil
	}
	f.memo[v] = p
	return p
}

func (f *follower) compute(v *ir.Value) poly {
	switch v {
	case f.exp:
		return poly{"e^1 ": 1}
	case f.grad:
		return poly{"d^1 ": 1}
	}
	n := v.Def()
	if c, ok := constant(v); ok {
		return poly{"": c}
	}
	if n.Op() != ir.OpConvert && !f.shaped(v) {
		return nil
	}
	switch n.Op() {
	case ir.OpConvert, ir.OpView, ir.OpClone, ir.OpAlias:
		if !v.Type().DType().IsFloat() || !n.Arg(0).Type().DType().IsFloat() || !f.shaped(n.Arg(0)) {
			return nil
		}
		return f.of(n.Arg(0))
	case ir.OpExpand: // a number for each row
		from, to := sizes(n.Arg(0)), sizes(v)
		if len(from) != len(to) || !slices.Equal(from[:len(from)-1], to[:len(to)-1]) {
			return nil
		}
		return f.of(n.Arg(0))
	case ir.OpNeg:
		if p := f.of(n.Arg(0)); p != nil {
			return poly{}.plus(p, -1)
		}
		return nil
	case ir.OpReciprocal:
		p, _ := f.of(n.Arg(0)).inverse()
		return p
	case ir.OpAdd, ir.OpSub:
		a, b := f.operands(n)
		if a == nil || b == nil || n.Attrs().Has("alpha") {
			return nil
		}
		return a.plus(b, map[ir.Op]float64{ir.OpAdd: 1, ir.OpSub: -1}[n.Op()])
	case ir.OpMul, ir.OpDiv:
		a, b := f.operands(n)
		if a == nil || b == nil {
			return nil
		}
		if n.Op() == ir.OpDiv {
			var ok bool
			if b, ok = b.inverse(); !ok {
				return nil
			}
		}
		return a.mul(b)
	case ir.OpSum:
		return f.sum(n)
	case ir.OpWhere: // what is hidden has exponentials of 0
		c, ok := constant(n.Arg(2))
		p := f.of(n.Arg(1))
		if !ok || c != 0 || !f.seen(n.Arg(0)) {
			return nil
		}
		for m := range p {
			if !strings.HasPrefix(m, "e^") && !strings.Contains(m, " e^") {
				return nil
			}
		}
		return p
	}
	return nil
}

// operands are those of an operation on two tensors, or on a tensor and a number; nil where one is
// nothing that is followed.
func (f *follower) operands(n *ir.Node) (a, b poly) {
	a = f.of(n.Arg(0))
	if len(n.Args()) == 2 {
		x, y := sizes(n.Arg(0)), sizes(n.Arg(1))
		if k := len(x) - 1; len(x) != len(y) || k < 0 || !slices.Equal(x[:k], y[:k]) || n.Attrs().Has("reverse") {
			return nil, nil
		}
		return a, f.of(n.Arg(1))
	}
	if c, ok := scalar(n); ok {
		b = poly{"": c}
	}
	if n.Attrs().Bool("reverse", false) {
		a, b = b, a
	}
	return a, b
}

// seen reports whether a mask is that of the scores.
func (f *follower) seen(mask *ir.Value) bool {
	a := axesOf(mask)
	return f.mask.root != nil && a.root == f.mask.root && slices.EqualFunc(a.dims, f.mask.dims, slices.Equal) || f.triangular && triangular(mask)
}

// shaped reports whether a value has an element for each score, or for each row of them.
func (f *follower) shaped(v *ir.Value) bool {
	s := sizes(v)
	n := intmath.Product(s)
	return len(s) > 0 && (n == f.rows || n == f.rows*f.keys && s[len(s)-1] == f.keys)
}

// sum adds up rows: what is the same all along one is a factor.
func (f *follower) sum(n *ir.Node) poly {
	from := sizes(n.Arg(0))
	dims := n.Attrs().Ints("dims")
	last := int64(len(from) - 1)
	dims = slices.DeleteFunc(slices.Clone(dims), func(d int64) bool { return from[(d+last+1)%(last+1)] == 1 })
	p := f.of(n.Arg(0))
	switch {
	case p == nil || len(dims) == 0:
		return p
	case len(dims) > 1 || dims[0] != last && dims[0] != -1 || from[last] != f.keys:
		return nil
	}
	out := poly{}
	for m, c := range p {
		var row, element []power
		for _, q := range powers(m) {
			if q.symbol == "e" || q.symbol == "d" {
				element = append(element, q)
			} else {
				row = append(row, q)
			}
		}
		if len(element) == 0 {
			c *= float64(f.keys)
		} else {
			row = append(row, power{"[" + monomial(element) + "]", 1})
		}
		out[monomial(row)] += c
	}
	return out
}

// constant is the number that all elements of a value are.
func constant(v *ir.Value) (float64, bool) {
	for {
		n := v.Def()
		switch {
		case n.Op() == ir.OpFull:
			return n.Attrs().Float("value", 0), true
		case n.Op() == ir.OpConvert && v.Type().DType().IsFloat() || neutral(n):
			v = n.Arg(0)
		default:
			return 0, false
		}
	}
}

// scalar is the number that an operation of one operand takes as the other.
func scalar(n *ir.Node) (float64, bool) {
	return n.Attrs().Float("scalar", 0), len(n.Args()) == 1 && n.Attrs().Has("scalar")
}

package dim

import (
	"maps"
	"math"
	"math/bits"
	"slices"
)

// Range is the integers from Min to Max, both included.
type Range struct{ Min, Max int64 }

// Bounds returns a range that holds every value that d takes when each symbol takes
// the values of its own range, independently of the others. No range may start below
// zero or be empty. It is false if a symbol has no range or if the values do not fit
// 64 bits.
//
// The range is exact, the least and the greatest value themselves, where d rises or
// falls with each symbol throughout (as sums of multiples of symbols do, and products
// of sizes), and wherever a search over at most maxBoxes boxes ends. Beyond that it may
// be too wide, never too narrow.
//
// # Method
//
// Where each symbol occurs with coefficients of one sign only, interval arithmetic is
// exact. Where each symbol is in one factor only, which no product has twice, the ends are at those
// of the factors' ranges. Else the greatest value over a box (a range for each symbol) is at an end of the range of
// every symbol that d rises or falls with, which partial derivatives tell in interval
// arithmetic. A box in which that is not known of some symbol is halved along the widest
// one, unless interval arithmetic shows that it holds nothing greater than a value
// found: branch and bound (Moore, Kearfott and Cloud, Introduction to Interval Analysis,
// 2009, chapter 6). A quotient that is rounded down rises and falls with its numerator;
// where boxes run out, it is replaced by (numerator - r) / denominator with a remainder
// r from 0 to denominator-1 of its own, which leaves a polynomial.
func (d Dim) Bounds(of func(sym string) (Range, bool)) (Range, bool) {
	if d.e == nil {
		return Range{d.n, d.n}, fits(d.n)
	}
	names := d.Symbols(nil)
	b := box{names: names, index: make(map[string]int, len(names)), sides: make([]Range, len(names))}
	for i, name := range names {
		r, ok := of(name)
		if !ok || r.Min < 0 || r.Min > r.Max {
			return Range{}, false
		}
		b.index[name], b.sides[i] = i, r
	}
	if d.uniform(1, make([]int, len(names)), b) || len(names)*d.NumTerms() > maxWork {
		e := d.enclose(b)
		return e, fits(e.Min) && fits(e.Max)
	}
	if r, ok := d.corners(b); ok {
		return r, fits(r.Min) && fits(r.Max)
	}
	most, ok := d.most(b)
	least, ok2 := d.Mul(New(-1)).most(b)
	return Range{-least, most}, ok && ok2
}

// corners is the range of d where each product has a factor once and no symbol is in two factors: such a sum is
// greatest and least where each factor is.
func (d Dim) corners(b box) (Range, bool) {
	var factors []factor
	seen := map[string]bool{}
	for _, t := range d.terms() {
		for i, f := range t.factors {
			if i > 0 && t.factors[i-1].key == f.key {
				return Range{}, false
			}
			if slices.ContainsFunc(factors, func(g factor) bool { return g.key == f.key }) {
				continue
			}
			names := []string{f.sym}
			if f.sym == "" {
				names = f.num.Symbols(nil)
				if !f.num.uniform(1, make([]int, len(b.names)), b) {
					return Range{}, false
				}
			}
			for _, s := range names {
				if seen[s] {
					return Range{}, false
				}
				seen[s] = true
			}
			factors = append(factors, f)
		}
	}
	if len(factors) > maxCorners {
		return Range{}, false
	}
	r := Range{math.MaxInt64, math.MinInt64}
	for corner := range 1 << len(factors) {
		at := map[string]int64{}
		for i, f := range factors {
			ends := Range{}
			if f.sym != "" {
				ends = b.sides[b.index[f.sym]]
			} else {
				e := f.num.enclose(b)
				ends = Range{floorDiv(e.Min, f.den), floorDiv(e.Max, f.den)}
			}
			if at[f.key] = ends.Min; corner>>i&1 == 1 {
				at[f.key] = ends.Max
			}
		}
		sum := int64(0)
		for _, t := range d.terms() {
			p := t.coef
			for _, f := range t.factors {
				p = satMul(p, at[f.key])
			}
			if p > 1<<50 || p < -1<<50 {
				return Range{}, false
			}
			sum += p // of maxWork terms at most
		}
		r = Range{min(r.Min, sum), max(r.Max, sum)}
	}
	return r, true
}

// maxCorners bounds the factors of corners.
const maxCorners = 8

// maxBoxes bounds the search of Bounds, and maxWork the expressions that it is for:
// symbols times terms.
const (
	maxBoxes = 256
	maxWork  = 1 << 12
)

// box gives each symbol a range.
type box struct {
	names []string       // of symbols, shared by all boxes of a search, as is
	index map[string]int // the index of each; look-up only
	sides []Range
}

func (b box) clone() box { return box{b.names, b.index, slices.Clone(b.sides)} }

// uniform reports whether every symbol occurs in sign*d with coefficients of one sign, which it
// notes in signs.
func (d Dim) uniform(sign int, signs []int, b box) bool {
	for _, t := range d.terms() {
		own := sign
		if t.coef < 0 {
			own = -sign
		}
		for _, f := range t.factors {
			if f.sym == "" {
				if len(t.factors) > 1 && f.num.enclose(b).Min < 0 || !f.num.uniform(own, signs, b) {
					return false
				}
				continue
			}
			i := b.index[f.sym]
			if signs[i] == -own {
				return false
			}
			signs[i] = own
		}
	}
	return true
}

// fits leaves room for one more addition.
func fits(n int64) bool { return n > math.MinInt64/2 && n < math.MaxInt64/2 }

// most is an upper bound of d over a box: its greatest value where the search ends.
func (d Dim) most(b box) (int64, bool) {
	best, rest := d.search(b)
	if rest <= best {
		return best, fits(best)
	}
	if e, den, r, ok := d.remainder(); ok {
		c := box{append(slices.Clone(b.names), r), maps.Clone(b.index), append(slices.Clone(b.sides), Range{0, den - 1})}
		c.index[r] = len(b.sides)
		if m, ok := e.most(c); ok {
			q, _ := New(m).Div(den).Const()
			rest = max(min(rest, q), best)
		}
	}
	return rest, fits(rest)
}

// search returns the greatest value that it found in a box, and a bound of what lies
// in the parts of the box that it has not searched.
func (d Dim) search(b box) (best, rest int64) {
	best, rest = math.MinInt64, math.MinInt64
	stack := []box{b.clone()}
	for n := 0; len(stack) > 0; n++ {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		d.shrink(b)
		e := d.enclose(b)
		if e.Max <= best {
			continue
		}
		widest := 0
		for i, s := range b.sides {
			if s.Max-s.Min > b.sides[widest].Max-b.sides[widest].Min {
				widest = i
			}
		}
		s := b.sides[widest]
		if s.Min == s.Max {
			best = e.Max
			continue
		}
		low, high := b.clone(), b.clone()
		for i := range low.sides {
			low.sides[i].Max = low.sides[i].Min
		}
		best = max(best, d.enclose(low).Min)
		if n >= maxBoxes {
			rest = max(rest, e.Max)
			continue
		}
		b.sides[widest].Max = s.Min + (s.Max-s.Min)/2
		high.sides[widest].Min = b.sides[widest].Max + 1
		stack = append(stack, b, high)
	}
	return best, rest
}

// shrink leaves, of the ranges of symbols that d rises or falls with in the box, the
// end where d is greatest.
func (d Dim) shrink(b box) {
	for again := true; again; {
		again = false
		for i, name := range b.names {
			s := &b.sides[i]
			if s.Min == s.Max {
				continue
			}
			switch t := d.monotonicity(name, b); {
			case t >= 0 && t != unknown:
				s.Min, again = s.Max, true
			case t < 0:
				s.Max, again = s.Min, true
			}
		}
	}
}

// unknown is the trend of what may rise and fall.
const unknown = 2

// monotonicity is 1 if d never falls while sym grows, anywhere in the box, -1 if it never
// rises, 0 if it stays, else unknown. A quotient within d counts as a variable that
// changes with sym: d never falls if it never falls with each of its variables in turn.
func (d Dim) monotonicity(sym string, b box) int {
	var seen []string
	trend := 0
	for _, t := range d.terms() {
		for _, f := range t.factors {
			if slices.Contains(seen, f.key) {
				continue
			}
			seen = append(seen, f.key)
			own := 0
			switch {
			case f.sym == sym:
				own = 1
			case f.sym == "":
				own = f.num.monotonicity(sym, b)
			}
			if own == 0 {
				continue
			}
			e := d.derivative(f.key).enclose(b)
			switch {
			case e == Range{}:
				continue
			case own == unknown, e.Min < 0 && e.Max > 0:
				return unknown
			case e.Max <= 0:
				own = -own
			}
			if trend == -own {
				return unknown
			}
			trend = own
		}
	}
	return trend
}

// derivative is the partial derivative of d by one of its factors.
func (d Dim) derivative(key string) Dim {
	var out []term
	for _, t := range d.terms() {
		power := int64(0)
		var rest []factor
		for _, f := range t.factors {
			if f.key == key {
				if power++; power == 1 {
					continue
				}
			}
			rest = append(rest, f)
		}
		if power > 0 {
			out = append(out, term{satMul(t.coef, power), rest})
		}
	}
	return fromTerms(out)
}

// remainder returns a polynomial e, a denominator and the name of a new symbol r such
// that d = e / denominator for one r from 0 to denominator-1: (num - r) / denominator
// stands for the first quotient of d. False if d has none, or one of a higher power.
func (d Dim) remainder() (e Dim, den int64, r string, ok bool) {
	var f *factor
	for _, t := range d.terms() {
		for i := range t.factors {
			if f == nil && t.factors[i].sym == "" {
				f = &t.factors[i]
			}
		}
	}
	if f == nil {
		return Dim{}, 0, "", false
	}
	r = "r(" + f.key + ")" // no symbol has such a name
	with := d.derivative(f.key)
	for _, t := range with.terms() {
		for _, g := range t.factors {
			if g.key == f.key {
				return Dim{}, 0, "", false
			}
		}
	}
	without := slices.DeleteFunc(slices.Clone(d.terms()), func(t term) bool {
		return slices.ContainsFunc(t.factors, func(g factor) bool { return g.key == f.key })
	})
	return fromTerms(without).Mul(New(f.den)).Add(with.Mul(f.num.Sub(Sym(r)))), f.den, r, true
}

// enclose evaluates d in interval arithmetic: exactly where every range is one value.
// An end of math.MinInt64 or math.MaxInt64 stands for no bound.
func (d Dim) enclose(b box) Range {
	if d.e == nil {
		return Range{d.n, d.n}
	}
	var sum Range
	for _, t := range d.e.terms {
		p := Range{t.coef, t.coef}
		for i := 0; i < len(t.factors); {
			f := t.factors[i]
			var v Range
			if i, ok := b.index[f.sym]; ok {
				v = b.sides[i]
			} else {
				v = f.num.enclose(b)
				v = Range{floorDiv(v.Min, f.den), floorDiv(v.Max, f.den)}
			}
			q := v
			for i++; i < len(t.factors) && t.factors[i].key == f.key; i++ {
				q = mulRange(q, v) // of one sign or, with quotients, perhaps too wide
			}
			p = mulRange(p, q)
		}
		sum = Range{addInf(sum.Min, p.Min, math.MinInt64), addInf(sum.Max, p.Max, math.MaxInt64)}
	}
	return sum
}

func mulRange(a, b Range) Range {
	p, q, r, s := mulInf(a.Min, b.Min), mulInf(a.Min, b.Max), mulInf(a.Max, b.Min), mulInf(a.Max, b.Max)
	return Range{min(p, q, r, s), max(p, q, r, s)}
}

// addInf adds ends of ranges; what is without bound, inf, stays so.
func addInf(a, b, inf int64) int64 {
	if a == inf || b == inf {
		return inf
	}
	return satAdd(a, b)
}

// mulInf multiplies ends of ranges; a product that does not fit is without bound.
func mulInf(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	switch {
	case hi == 0 && lo < math.MaxInt64 && a != math.MinInt64 && b != math.MinInt64 && a != math.MaxInt64 && b != math.MaxInt64:
		return a * b
	case (a < 0) == (b < 0):
		return math.MaxInt64
	}
	return math.MinInt64
}

func floorDiv(n, den int64) int64 {
	if n == math.MinInt64 || n == math.MaxInt64 {
		return n
	}
	q, _ := New(n).Div(den).Const()
	return q
}

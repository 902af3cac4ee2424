// Package dim holds tensor dimensions: numbers and integer expressions over named
// run-time sizes. The IR and the lowered program share it, so that a symbolic
// size survives lowering and is evaluated on each rank at run time.
package dim

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Dim is one dimension: a number, or an expression over the module's symbols.
// Expressions are integer polynomials whose factors are symbols and floor
// divisions of polynomials by constants, kept in a canonical form, so that Equal
// decides polynomial identity. The zero Dim is 0.
type Dim struct {
	n int64
	e *poly // nil for a number
}

// poly is a canonical sum: terms in ascending order of their factors, no zero
// coefficients, at least one term with a factor.
type poly struct {
	terms []term
}

// term is coef times the product of its factors, which are in ascending order.
type term struct {
	coef    int64
	factors []factor
}

// factor is a symbol, or num/den rounded down where num is set.
type factor struct {
	key string // text form, the sort key
	sym string
	num Dim
	den int64
}

// New returns a constant dimension.
func New(n int64) Dim { return Dim{n: n} }

// Sym returns the dimension that a symbol names.
func Sym(name string) Dim {
	return Dim{e: &poly{[]term{{1, []factor{{key: name, sym: name}}}}}}
}

// Const returns the number, or false if d is symbolic.
func (d Dim) Const() (int64, bool) { return d.n, d.e == nil }

// Equal reports whether both are the same polynomial.
func (d Dim) Equal(o Dim) bool {
	if d.e == nil || o.e == nil {
		return d.e == nil && o.e == nil && d.n == o.n
	}
	return d.e == o.e || slices.EqualFunc(d.e.terms, o.e.terms, func(a, b term) bool {
		return a.coef == b.coef && compareTerms(a, b) == 0
	})
}

// NumTerms is the number of terms of the expanded polynomial.
func (d Dim) NumTerms() int { return len(d.terms()) }

// Terms are the products of which d is the sum: the coefficient of each, and its factors, which are symbols or
// quotients.
func (d Dim) Terms() (coefs []int64, factors [][]Dim) {
	for _, t := range d.terms() {
		var fs []Dim
		for _, f := range t.factors {
			fs = append(fs, Dim{e: &poly{[]term{{1, []factor{f}}}}})
		}
		coefs, factors = append(coefs, t.coef), append(factors, fs)
	}
	return coefs, factors
}

func (d Dim) terms() []term {
	if d.e != nil {
		return d.e.terms
	}
	if d.n == 0 {
		return nil
	}
	return []term{{coef: d.n}}
}

// Add returns d + o.
func (d Dim) Add(o Dim) Dim {
	if d.e == nil && o.e == nil {
		return New(satAdd(d.n, o.n))
	}
	return fromTerms(append(slices.Clone(d.terms()), o.terms()...))
}

// Sum returns the sum of ds. O(n log n) in all their terms, which adding one by one is not.
func Sum(ds ...Dim) Dim {
	if len(ds) == 1 {
		return ds[0]
	}
	var ts []term
	n := int64(0)
	for _, d := range ds {
		if d.e == nil {
			n = satAdd(n, d.n)
		} else {
			ts = append(ts, d.e.terms...)
		}
	}
	if ts == nil {
		return New(n)
	}
	return fromTerms(append(ts, New(n).terms()...))
}

// RowMajor returns the strides, in elements, of a row-major tensor without gaps.
func RowMajor(shape []Dim) []Dim {
	out, row := make([]Dim, len(shape)), New(1)
	for i := len(shape) - 1; i >= 0; i-- {
		out[i], row = row, row.Mul(shape[i])
	}
	return out
}

// Sub returns d - o.
func (d Dim) Sub(o Dim) Dim { return d.Add(o.Mul(New(-1))) }

// Mul returns d * o.
func (d Dim) Mul(o Dim) Dim {
	if d.e == nil && o.e == nil {
		return New(satMul(d.n, o.n))
	}
	var ts []term
	for _, a := range d.terms() {
		for _, b := range o.terms() {
			fs := append(slices.Clone(a.factors), b.factors...)
			slices.SortFunc(fs, func(x, y factor) int { return strings.Compare(x.key, y.key) })
			ts = append(ts, term{satMul(a.coef, b.coef), fs})
		}
	}
	return fromTerms(ts)
}

// Div returns d divided by den, rounded down. Terms whose coefficients den divides are divided
// exactly; the rest is a quotient, one of a quotient and a number where it has a quotient among
// its terms: (2*s+t//3)//2 is s+t//6. den must be positive; a den
// of zero or less gives d itself (the parser and the verifier reject it first).
func (d Dim) Div(den int64) Dim {
	if den <= 1 {
		return d
	}
	if d.e == nil {
		q := d.n / den
		if d.n%den < 0 {
			q--
		}
		return New(q)
	}
	var exact, rest []term
	for _, t := range d.terms() {
		if t.coef%den == 0 {
			exact = append(exact, term{t.coef / den, t.factors})
		} else {
			rest = append(rest, t)
		}
	}
	if rest == nil {
		return fromTerms(exact)
	}
	num := fromTerms(rest)
	if n, ok := num.Const(); ok {
		return fromTerms(exact).Add(New(n).Div(den))
	}
	if i := slices.IndexFunc(rest, func(t term) bool { return t.coef == 1 && len(t.factors) == 1 && t.factors[0].sym == "" }); i >= 0 {
		q := rest[i].factors[0]
		if both := satMul(q.den, den); both < math.MaxInt64 {
			whole := fromTerms(slices.Delete(rest, i, i+1))
			return fromTerms(exact).Add(whole.Mul(New(q.den)).Add(q.num).Div(both))
		}
	}
	f := factor{num: num, den: den}
	f.key = f.text()
	return fromTerms(append(exact, term{1, []factor{f}}))
}

func (f factor) text() string {
	if f.sym != "" {
		return f.sym
	}
	num := f.num.String()
	if strings.ContainsAny(num, "+-*/") {
		num = "(" + num + ")"
	}
	return num + "//" + strconv.FormatInt(f.den, 10)
}

// fromTerms merges equal terms and sorts; higher products first, the constant last.
func fromTerms(ts []term) Dim {
	slices.SortStableFunc(ts, compareTerms)
	out := ts[:0:0]
	for _, t := range ts {
		if n := len(out); n > 0 && compareTerms(out[n-1], t) == 0 {
			out[n-1].coef = satAdd(out[n-1].coef, t.coef)
			continue
		}
		out = append(out, t)
	}
	out = slices.DeleteFunc(out, func(t term) bool { return t.coef == 0 })
	switch {
	case len(out) == 0:
		return New(0)
	case len(out) == 1 && len(out[0].factors) == 0:
		return New(out[0].coef)
	}
	return Dim{e: &poly{out}}
}

func compareTerms(a, b term) int {
	if c := cmp.Compare(len(b.factors), len(a.factors)); c != 0 {
		return c
	}
	return slices.CompareFunc(a.factors, b.factors, func(x, y factor) int { return strings.Compare(x.key, y.key) })
}

// Given returns d where zero is 0: the last of zero's products of most factors is replaced by the
// rest of zero. d itself where that product has another coefficient than 1 or -1, or is one symbol of
// a longer sum: sizes stay sums without differences.
func (d Dim) Given(zero Dim) Dim {
	ts := zero.terms()
	last := 0
	for i, t := range ts {
		if len(t.factors) == len(ts[0].factors) {
			last = i
		}
	}
	if len(ts) < 2 || ts[last].coef != 1 && ts[last].coef != -1 || len(ts[last].factors) < 2 && len(ts) > 2 {
		return d
	}
	lead := ts[last]
	rest := fromTerms(slices.Delete(slices.Clone(ts), last, last+1)).Mul(New(-lead.coef))
	for changed := true; changed; {
		changed = false
		for _, t := range d.terms() {
			if left, ok := t.without(lead); ok {
				d = d.Sub(fromTerms([]term{t})).Add(fromTerms([]term{left}).Mul(rest))
				changed = true
				break
			}
		}
	}
	return d
}

// without is what a product has besides the factors of another; false if it lacks one.
func (t term) without(of term) (term, bool) {
	left := slices.Clone(t.factors)
	for _, f := range of.factors {
		i := slices.IndexFunc(left, func(g factor) bool { return g.key == f.key })
		if i < 0 {
			return t, false
		}
		left = slices.Delete(left, i, i+1)
	}
	return term{t.coef, left}, true
}

// NotNegative reports whether d has no negative coefficient, and so is 0 or more wherever its
// symbols are. It errs to false.
func (d Dim) NotNegative() bool {
	return !slices.ContainsFunc(d.terms(), func(t term) bool {
		return t.coef < 0 || slices.ContainsFunc(t.factors, func(f factor) bool { return f.sym == "" && !f.num.NotNegative() })
	})
}

// Eval computes d with the given symbol values; false if a symbol has none or
// the result does not fit an int64.
func (d Dim) Eval(value func(sym string) (int64, bool)) (int64, bool) {
	if d.e == nil {
		return d.n, true
	}
	sum := 0.0
	var total int64
	for _, t := range d.e.terms {
		p, fp := t.coef, float64(t.coef)
		for _, f := range t.factors {
			v, ok := int64(0), false
			if f.sym != "" {
				v, ok = value(f.sym)
			} else if v, ok = f.num.Eval(value); ok {
				v, _ = New(v).Div(f.den).Const()
			}
			if !ok {
				return 0, false
			}
			p *= v
			fp *= float64(v)
		}
		total += p
		sum += fp
		if math.Abs(fp) > math.MaxInt64/2 || math.Abs(sum) > math.MaxInt64/2 {
			return 0, false
		}
	}
	return total, true
}

// Solve returns the value of a symbol at which d is n, given values of the others; false if one has
// none, if d is not linear in the symbol, or no whole number does.
func (d Dim) Solve(sym string, n int64, value func(sym string) (int64, bool)) (int64, bool) {
	var slope, rest []term
	for _, t := range d.terms() {
		left, has := t.without(term{factors: []factor{{key: sym}}})
		if has {
			slope = append(slope, left)
		} else {
			rest = append(rest, t)
		}
	}
	a, ok := fromTerms(slope).Eval(value)
	b, ok2 := fromTerms(rest).Eval(value)
	if !ok || !ok2 || a == 0 || (n-b)%a != 0 {
		return 0, false
	}
	return (n - b) / a, true
}

// Symbols appends the names of d's symbols to names, without repeats.
func (d Dim) Symbols(names []string) []string {
	if d.e == nil {
		return names
	}
	seen := make(map[string]bool, len(names)+len(d.e.terms))
	for _, n := range names {
		seen[n] = true
	}
	return d.symbols(names, seen)
}

func (d Dim) symbols(names []string, seen map[string]bool) []string {
	for _, t := range d.terms() {
		for _, f := range t.factors {
			if f.sym == "" {
				names = f.num.symbols(names, seen)
			} else if !seen[f.sym] {
				seen[f.sym] = true
				names = append(names, f.sym)
			}
		}
	}
	return names
}

// Determined reports whether the value of d follows from those of given: it is one of them, or of each
// of its symbols one of them is a multiple, plus a number.
func (d Dim) Determined(given []Dim) bool {
	if slices.ContainsFunc(given, d.Equal) {
		return true
	}
	for _, sym := range d.Symbols(nil) {
		if !slices.ContainsFunc(given, func(g Dim) bool { return g.line(sym) }) {
			return false
		}
	}
	return true
}

// line reports whether d is a multiple of a symbol, plus a number.
func (d Dim) line(sym string) bool {
	terms := slices.DeleteFunc(slices.Clone(d.terms()), func(t term) bool { return len(t.factors) == 0 })
	return len(terms) == 1 && len(terms[0].factors) == 1 && terms[0].factors[0].sym == sym
}

// String returns the text form: 8, s0, 2*s0*s1+4, (s0+1)//2.
func (d Dim) String() string { return string(d.AppendText(nil)) }

// AppendText appends the text form of d.
func (d Dim) AppendText(b []byte) []byte {
	if d.e == nil {
		return strconv.AppendInt(b, d.n, 10)
	}
	for i, t := range d.e.terms {
		if i > 0 && t.coef >= 0 {
			b = append(b, '+')
		}
		if t.coef == -1 && len(t.factors) > 0 {
			b = append(b, '-')
		} else if t.coef != 1 || len(t.factors) == 0 {
			b = strconv.AppendInt(b, t.coef, 10)
			if len(t.factors) > 0 {
				b = append(b, '*')
			}
		}
		for j, f := range t.factors {
			if j > 0 {
				b = append(b, '*')
			}
			b = append(b, f.key...)
		}
	}
	return b
}

// satAdd and satMul stay at the ends of int64 instead of wrapping, so that an
// absurd size stays absurd: Eval then refuses it and the verifier reports it.
func satAdd(a, b int64) int64 {
	c := a + b
	switch {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	}
	return c
}

func satMul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	if hi == 0 && lo <= math.MaxInt64 && a != math.MinInt64 && b != math.MinInt64 {
		return a * b
	}
	if a == 0 || b == 0 {
		return 0
	}
	if (a < 0) == (b < 0) {
		return math.MaxInt64
	}
	return math.MinInt64
}

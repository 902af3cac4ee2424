package layout

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// piece is a part of a digit of an outer layout that counts in one digit of an inner
// layout: coef of it for each step; level -1 if it does not move the index.
type piece struct {
	Digit
	Level int
	Coef  int64
}

// Radix is the inner layout's digits as a mixed-radix number, outermost first.
type Radix struct {
	Sizes   []int64 // -1 for a symbolic outermost
	Weights []int64
}

func radixOf(digits []Digit) Radix {
	x := Radix{make([]int64, len(digits)), make([]int64, len(digits))}
	w := int64(1)
	for j := len(digits) - 1; j >= 0; j-- {
		x.Sizes[j], x.Weights[j] = digits[j].N, w
		w *= max(digits[j].N, 1)
	}
	return x
}

// Cut cuts the digits of l into pieces that each count in one digit of x. False if a
// step does not fit.
func (x Radix) Cut(digits []Digit) ([]piece, bool) {
	var out []piece
	for _, d := range digits {
		var inner []piece // from the innermost
		for {
			if d.Stride == 0 {
				inner = append(inner, piece{Digit: d, Level: -1})
				break
			}
			j := len(x.Sizes) - 1
			for j > 0 && d.Stride >= x.Weights[j-1] {
				j--
			}
			if j < 0 || d.Stride < 0 || d.Stride%x.Weights[j] != 0 {
				return nil, false
			}
			p := piece{Digit: d, Level: j, Coef: d.Stride / x.Weights[j]}
			top := x.Sizes[j] < 0
			if top || d.N > 0 && d.N <= (x.Sizes[j]+p.Coef-1)/p.Coef {
				inner = append(inner, p)
				break
			}
			if x.Sizes[j]%p.Coef != 0 {
				return nil, false
			}
			p.N = x.Sizes[j] / p.Coef
			p.Sym = ir.Dim{}
			rest := d
			rest.Stride = d.Stride * p.N
			if d.N < 0 {
				q := d.Sym.Div(p.N)
				if d.Table || !q.Mul(ir.D(p.N)).Equal(d.Sym) {
					return nil, false
				}
				rest = Of(q, rest.Stride)
			} else {
				if d.N%p.N != 0 {
					return nil, false
				}
				rest.N = d.N / p.N
			}
			if p.N > 1 {
				inner = append(inner, p)
			}
			if j == 0 && rest.N != 1 {
				return nil, false // beyond the tensor
			}
			if d = rest; d.N == 1 {
				break
			}
		}
		for i := len(inner) - 1; i >= 0; i-- {
			out = append(out, inner[i])
		}
	}
	return out, true
}

// tabulate writes digits of a that x cannot cut, or that count in digit across of x, into a's
// table, as far as they count across digits of x.
func (x Radix) tabulate(a *Layout, across, world int) (Layout, bool) {
	out := Layout{Off: a.Off, Rank: slices.Clone(a.Rank), Add: slices.Clone(a.Add)}
	if out.Rank == nil {
		out.Add = make([]int64, world)
		for r := range world {
			out.Rank = append(out.Rank, int32(r))
		}
	}
	rest := a.Entries() // of the table digits that are to come
	for _, d := range a.Digits {
		if d.Table {
			rest /= int(d.N)
		}
		ps, ok := x.Cut([]Digit{d})
		if ok && !slices.ContainsFunc(ps, func(p piece) bool { return p.Level == across && across >= 0 && !d.Table }) {
			out.Digits = append(out.Digits, d)
			continue
		}
		if d.Table || d.N < 0 || d.Stride <= 0 || len(out.Rank)*int(d.N) > MaxTable {
			return out, false
		}
		j := len(x.Sizes) - 1
		for j > 0 && d.Stride >= x.Weights[j-1] {
			j--
		}
		fit := int64(1)
		if j != across && j >= 0 && d.Stride%x.Weights[j] == 0 && x.Sizes[j] > 0 {
			fit = intmath.GCD(d.N, max(1, x.Sizes[j]/(d.Stride/x.Weights[j])))
		}
		outer := int(d.N / fit)
		var rank []int32
		var add []int64
		for k := 0; k < len(out.Rank); k += rest { // the new table digit comes after those so far
			for v := range outer {
				rank = append(rank, out.Rank[k:k+rest]...)
				for _, was := range out.Add[k : k+rest] {
					add = append(add, was+int64(v)*d.Stride*fit)
				}
			}
		}
		out.Rank, out.Add = rank, add
		out.Digits = append(out.Digits, Digit{N: int64(outer), Table: true})
		if fit > 1 {
			out.Digits = append(out.Digits, Digit{N: fit, Stride: d.Stride})
		}
	}
	return out, true
}

// parts takes a constant apart: its value in every digit of x.
func (x Radix) parts(v int64, out []int64) {
	for j, w := range x.Weights {
		out[j] = v / w
		v %= w
	}
}

// room returns what the pieces count to at most in every digit of x.
func (x Radix) room(ps []piece) []int64 {
	sum := make([]int64, len(x.Sizes))
	for _, p := range ps {
		if p.Level >= 0 && p.N > 0 {
			sum[p.Level] += p.Coef * (p.N - 1)
		}
	}
	return sum
}

// Compose returns the layout that reads by b what a reads: a says from where in the
// middle tensor an element comes, b from where that one comes. False where the
// result is not a layout of this kind, as when a slice starts within a run that b takes apart.
func Compose(a, b *Layout, world int) (Layout, bool) {
	x := radixOf(b.Digits)
	across := -1
	if o := make([]int64, len(x.Sizes)); a.Rank == nil {
		x.parts(a.Off, o)
		if ps, ok := x.Cut(a.Digits); ok {
			for j, m := range x.room(ps) {
				if x.Sizes[j] >= 0 && o[j]+m >= x.Sizes[j] {
					across = j // counts on in the next digit
				}
			}
		}
	}
	ps, ok := x.Cut(a.Digits)
	if !ok || across > 0 {
		t, ok := x.tabulate(a, across, world)
		if !ok {
			return Layout{}, false
		}
		a = &t
		if ps, ok = x.Cut(a.Digits); !ok {
			return Layout{}, false
		}
	}
	out := Layout{}
	feeds := make([]bool, len(x.Sizes)) // b's table depends on the digit
	for j, d := range b.Digits {
		feeds[j] = d.Table
	}
	for _, p := range ps {
		d := Digit{N: p.N, Sym: p.Sym, Table: p.Table}
		if p.Level >= 0 {
			d.Stride = p.Coef * b.Digits[p.Level].Stride
			if feeds[p.Level] {
				if p.N < 0 {
					return out, false
				}
				d.Table = true
			}
		}
		out.Digits = append(out.Digits, d)
	}
	if a.Rank == nil && b.Rank == nil {
		o := make([]int64, len(x.Sizes))
		x.parts(a.Off, o)
		out.Off = b.Off
		for j, m := range x.room(ps) {
			if x.Sizes[j] >= 0 && o[j]+m >= x.Sizes[j] {
				return out, false
			}
			out.Off += o[j] * b.Digits[j].Stride
		}
		if len(x.Sizes) == 0 && a.Off != 0 {
			return out, false
		}
		out.Canonical(world)
		return out, true
	}
	if !out.composeTables(a, b, x, ps, world) {
		return out, false
	}
	out.Canonical(world)
	return out, true
}

// composeTables fills the tables of a composition.
func (out *Layout) composeTables(a, b *Layout, x Radix, ps []piece, world int) bool {
	entries := out.Entries()
	if entries*world > MaxTable || len(x.Sizes) == 0 && a.Off != 0 {
		return false
	}
	out.Off = b.Off
	out.Rank, out.Add = make([]int32, entries*world), make([]int64, entries*world)
	fromA := a.Entries()
	room := x.room(ps)
	o, at := make([]int64, len(x.Sizes)), make([]int64, len(x.Sizes))
	for r := range world {
		for e := range entries {
			ea := 0
			clear(at)
			rest, block := e, entries
			for i, p := range ps {
				if !out.Digits[i].Table {
					continue
				}
				block /= int(p.N)
				v := rest / block
				rest %= block
				if p.Table {
					ea = ea*int(p.N) + v
				}
				if p.Level >= 0 {
					at[p.Level] += int64(v) * p.Coef
				}
			}
			mid, add := int32(r), int64(0)
			if a.Rank != nil {
				mid, add = a.Rank[r*fromA+ea], a.Add[r*fromA+ea]
			}
			x.parts(a.Off+add, o)
			eb, sum := 0, int64(0)
			for j, d := range b.Digits {
				if x.Sizes[j] >= 0 && o[j]+room[j] >= x.Sizes[j] {
					return false
				}
				sum += o[j] * d.Stride
				if d.Table {
					eb = eb*int(d.N) + int(o[j]+at[j])
				}
			}
			k := r*entries + e
			out.Rank[k], out.Add[k] = mid, sum
			if b.Rank != nil {
				kb := int(mid)*b.Entries() + eb
				out.Rank[k] = b.Rank[kb]
				out.Add[k] += b.Add[kb]
			}
		}
	}
	return true
}

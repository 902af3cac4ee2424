package equiv

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// piece is a part of a digit of an outer layout that counts in one digit of an inner
// layout: coef of it for each step; level -1 if it does not move the index.
type piece struct {
	digit
	level int
	coef  int64
}

// radix is the inner layout's digits as a mixed-radix number, outermost first.
type radix struct {
	n      []int64 // sizes, -1 for a symbolic outermost
	weight []int64
}

func radixOf(digits []digit) radix {
	x := radix{make([]int64, len(digits)), make([]int64, len(digits))}
	w := int64(1)
	for j := len(digits) - 1; j >= 0; j-- {
		x.n[j], x.weight[j] = digits[j].n, w
		w *= max(digits[j].n, 1)
	}
	return x
}

// cut cuts the digits of l into pieces that each count in one digit of x. False if a
// step does not fit.
func (x radix) cut(digits []digit) ([]piece, bool) {
	var out []piece
	for _, d := range digits {
		var inner []piece // from the innermost
		for {
			if d.stride == 0 {
				inner = append(inner, piece{digit: d, level: -1})
				break
			}
			j := len(x.n) - 1
			for j > 0 && d.stride >= x.weight[j-1] {
				j--
			}
			if j < 0 || d.stride < 0 || d.stride%x.weight[j] != 0 {
				return nil, false
			}
			p := piece{digit: d, level: j, coef: d.stride / x.weight[j]}
			top := x.n[j] < 0
			if top || d.n > 0 && d.n <= (x.n[j]+p.coef-1)/p.coef {
				inner = append(inner, p)
				break
			}
			if x.n[j]%p.coef != 0 {
				return nil, false
			}
			p.n = x.n[j] / p.coef
			p.sym = ir.Dim{}
			rest := d
			rest.stride = d.stride * p.n
			if d.n < 0 {
				q := d.sym.Div(p.n)
				if d.table || !q.Mul(ir.D(p.n)).Equal(d.sym) {
					return nil, false
				}
				rest = sized(q, rest.stride)
			} else {
				if d.n%p.n != 0 {
					return nil, false
				}
				rest.n = d.n / p.n
			}
			if p.n > 1 {
				inner = append(inner, p)
			}
			if j == 0 && rest.n != 1 {
				return nil, false // beyond the tensor
			}
			if d = rest; d.n == 1 {
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
func (x radix) tabulate(a *layout, across, world int) (layout, bool) {
	out := layout{off: a.off, rank: slices.Clone(a.rank), add: slices.Clone(a.add)}
	if out.rank == nil {
		out.add = make([]int64, world)
		for r := range world {
			out.rank = append(out.rank, int32(r))
		}
	}
	rest := a.entries() // of the table digits that are to come
	for _, d := range a.digits {
		if d.table {
			rest /= int(d.n)
		}
		ps, ok := x.cut([]digit{d})
		if ok && !slices.ContainsFunc(ps, func(p piece) bool { return p.level == across && across >= 0 && !d.table }) {
			out.digits = append(out.digits, d)
			continue
		}
		if d.table || d.n < 0 || d.stride <= 0 || len(out.rank)*int(d.n) > maxTable {
			return out, false
		}
		j := len(x.n) - 1
		for j > 0 && d.stride >= x.weight[j-1] {
			j--
		}
		fit := int64(1)
		if j != across && j >= 0 && d.stride%x.weight[j] == 0 && x.n[j] > 0 {
			fit = gcd(d.n, max(1, x.n[j]/(d.stride/x.weight[j])))
		}
		outer := int(d.n / fit)
		var rank []int32
		var add []int64
		for k := 0; k < len(out.rank); k += rest { // the new table digit stands behind those so far
			for v := range outer {
				rank = append(rank, out.rank[k:k+rest]...)
				for _, was := range out.add[k : k+rest] {
					add = append(add, was+int64(v)*d.stride*fit)
				}
			}
		}
		out.rank, out.add = rank, add
		out.digits = append(out.digits, digit{n: int64(outer), table: true})
		if fit > 1 {
			out.digits = append(out.digits, digit{n: fit, stride: d.stride})
		}
	}
	return out, true
}

// parts takes a constant apart: its value in every digit of x.
func (x radix) parts(v int64, out []int64) {
	for j, w := range x.weight {
		out[j] = v / w
		v %= w
	}
}

// room returns what the pieces count to at most in every digit of x.
func (x radix) room(ps []piece) []int64 {
	sum := make([]int64, len(x.n))
	for _, p := range ps {
		if p.level >= 0 && p.n > 0 {
			sum[p.level] += p.coef * (p.n - 1)
		}
	}
	return sum
}

// compose returns the layout that reads by b what a reads: a says from where in the
// middle tensor an element comes, b from where that one comes. False where the
// result is not a layout of this kind, as when a slice starts within a run that b takes apart.
func compose(a, b *layout, world int) (layout, bool) {
	x := radixOf(b.digits)
	across := -1
	if o := make([]int64, len(x.n)); a.rank == nil {
		x.parts(a.off, o)
		if ps, ok := x.cut(a.digits); ok {
			for j, m := range x.room(ps) {
				if x.n[j] >= 0 && o[j]+m >= x.n[j] {
					across = j // counts on in the next digit
				}
			}
		}
	}
	ps, ok := x.cut(a.digits)
	if !ok || across > 0 {
		t, ok := x.tabulate(a, across, world)
		if !ok {
			return layout{}, false
		}
		a = &t
		if ps, ok = x.cut(a.digits); !ok {
			return layout{}, false
		}
	}
	out := layout{}
	feeds := make([]bool, len(x.n)) // b's table depends on the digit
	for j, d := range b.digits {
		feeds[j] = d.table
	}
	for _, p := range ps {
		d := digit{n: p.n, sym: p.sym, table: p.table}
		if p.level >= 0 {
			d.stride = p.coef * b.digits[p.level].stride
			if feeds[p.level] {
				if p.n < 0 {
					return out, false
				}
				d.table = true
			}
		}
		out.digits = append(out.digits, d)
	}
	if a.rank == nil && b.rank == nil {
		o := make([]int64, len(x.n))
		x.parts(a.off, o)
		out.off = b.off
		for j, m := range x.room(ps) {
			if x.n[j] >= 0 && o[j]+m >= x.n[j] {
				return out, false
			}
			out.off += o[j] * b.digits[j].stride
		}
		if len(x.n) == 0 && a.off != 0 {
			return out, false
		}
		out.canonical(world)
		return out, true
	}
	if !out.composeTables(a, b, x, ps, world) {
		return out, false
	}
	out.canonical(world)
	return out, true
}

// composeTables fills the tables of a composition.
func (out *layout) composeTables(a, b *layout, x radix, ps []piece, world int) bool {
	entries := out.entries()
	if entries*world > maxTable || len(x.n) == 0 && a.off != 0 {
		return false
	}
	out.off = b.off
	out.rank, out.add = make([]int32, entries*world), make([]int64, entries*world)
	fromA := a.entries()
	room := x.room(ps)
	o, at := make([]int64, len(x.n)), make([]int64, len(x.n))
	for r := range world {
		for e := range entries {
			ea := 0
			clear(at)
			rest, block := e, entries
			for i, p := range ps {
				if !out.digits[i].table {
					continue
				}
				block /= int(p.n)
				v := rest / block
				rest %= block
				if p.table {
					ea = ea*int(p.n) + v
				}
				if p.level >= 0 {
					at[p.level] += int64(v) * p.coef
				}
			}
			mid, add := int32(r), int64(0)
			if a.rank != nil {
				mid, add = a.rank[r*fromA+ea], a.add[r*fromA+ea]
			}
			x.parts(a.off+add, o)
			eb, sum := 0, int64(0)
			for j, d := range b.digits {
				if x.n[j] >= 0 && o[j]+room[j] >= x.n[j] {
					return false
				}
				sum += o[j] * d.stride
				if d.table {
					eb = eb*int(d.n) + int(o[j]+at[j])
				}
			}
			k := r*entries + e
			out.rank[k], out.add[k] = mid, sum
			if b.rank != nil {
				kb := int(mid)*b.entries() + eb
				out.rank[k] = b.rank[kb]
				out.add[k] += b.add[kb]
			}
		}
	}
	return true
}

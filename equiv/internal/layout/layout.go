// Package layout maps each element of a tensor, on all ranks, to the (rank, element) of the tensor it
// comes from, and composes such maps.
package layout

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// Layout says, for a rank and a flat row-major index of a tensor, from which rank and
// which flat index of another tensor its element comes. The index falls into digits,
// outermost first, whose sizes multiply to the number of elements; the source index
// is
//
//	Off + sum of digit*Stride + Add[rank, table digits]
//
// and the source rank Rank[rank, table digits], or the rank itself while Rank is
// nil. Table digits are those on which the rank or the rest depends; both tables
// are row-major over the reading rank and the table digits in order.
//
// In canonical form no digit has size 1; a table digit on which the table depends
// linearly is a stride instead; a table that says nothing is nil; and neighbours that
// count on are one digit. The symbolic size, if any, is that of the outermost digit.
type Layout struct {
	Digits []Digit
	Off    int64
	Rank   []int32
	Add    []int64
}

// Digit is one of those that an index falls into.
type Digit struct {
	N      int64  // size, -1 where it is symbolic
	Sym    ir.Dim // the size where N is -1
	Stride int64
	Table  bool
}

// MaxTable bounds the entries of a table: beyond it a movement stays a term of its
// own that no equation looks into.
const MaxTable = 1 << 20

// Size is the digit's size.
func (d Digit) Size() ir.Dim {
	if d.N < 0 {
		return d.Sym
	}
	return ir.D(d.N)
}

// Of is a digit of a size.
func Of(n ir.Dim, stride int64) Digit {
	if c, ok := n.Const(); ok {
		return Digit{N: c, Stride: stride}
	}
	return Digit{N: -1, Sym: n, Stride: stride}
}

// Identity is the layout of a tensor of n elements on itself.
func Identity(n ir.Dim) Layout {
	if n.Equal(ir.D(1)) {
		return Layout{}
	}
	return Layout{Digits: []Digit{Of(n, 1)}}
}

// Entries is the number of table entries of one rank.
func (l *Layout) Entries() int {
	n := 1
	for _, d := range l.Digits {
		if d.Table {
			n *= int(d.N)
		}
	}
	return n
}

// Plain makes a layout without a table canonical. It is false where a symbolic
// digit is not the outermost.
func Plain(digits []Digit, off int64) (Layout, bool) {
	l := Layout{Off: off}
	for _, d := range digits {
		if d.N == 1 {
			continue
		}
		if d.N < 0 && len(l.Digits) > 0 {
			return l, false
		}
		l.Digits = append(l.Digits, d)
	}
	l.merge()
	return l, true
}

// Canonical brings a layout with a table into canonical form.
func (l *Layout) Canonical(world int) {
	digits := l.Digits[:0:0]
	for _, d := range l.Digits {
		if d.N != 1 {
			digits = append(digits, d)
		}
	}
	l.Digits = digits
	if l.Rank != nil {
		l.fold()
		for i := 0; i < len(l.Digits); i++ {
			if l.Digits[i].Table {
				i += l.factor(i) - 1
			}
		}
		l.constant(world)
	}
	l.merge()
}

// fold writes the strides of table digits into the table and joins neighbours among
// them, so that it does not matter how they came together.
func (l *Layout) fold() {
	inner := l.Entries()
	var out []Digit
	for _, d := range l.Digits {
		if !d.Table {
			out = append(out, d)
			continue
		}
		inner /= int(d.N)
		for at := range l.Add {
			l.Add[at] += int64(at/inner%int(d.N)) * d.Stride
		}
		d.Stride = 0
		if n := len(out); n > 0 && out[n-1].Table {
			out[n-1].N *= d.N
			continue
		}
		out = append(out, d)
	}
	l.Digits = out
}

// factor cuts table digit i into prime factors, in the order that leaves the least in
// the table, and takes out of the table what does not belong there. It returns how many
// digits there are now in place of the one.
func (l *Layout) factor(i int) int {
	var primes []int64
	n := l.Digits[i].N
	for p := int64(2); n > 1; p++ {
		for ; n%p == 0; n /= p {
			primes = append(primes, p)
		}
	}
	var best Layout
	size := 0
	for _, order := range orders(primes) {
		c := Layout{Off: l.Off, Rank: slices.Clone(l.Rank), Add: slices.Clone(l.Add)}
		c.Digits = slices.Clone(l.Digits[:i])
		for _, p := range order {
			c.Digits = append(c.Digits, Digit{N: p, Table: true})
		}
		c.Digits = append(c.Digits, l.Digits[i+1:]...)
		for k := range order {
			c.extractDigit(i + k)
		}
		if size == 0 || c.Entries() < best.Entries() {
			best, size = c, len(order)
		}
	}
	*l = best
	return size
}

// orders lists the different orders of ascending numbers.
func orders(ns []int64) [][]int64 {
	if len(ns) == 0 {
		return [][]int64{nil}
	}
	var out [][]int64
	for i, n := range ns {
		if i > 0 && ns[i-1] == n {
			continue
		}
		for _, rest := range orders(slices.Delete(slices.Clone(ns), i, i+1)) {
			out = append(out, append([]int64{n}, rest...))
		}
	}
	return out
}

// constant moves what is the same everywhere from the table into the offset, and drops a
// table that says nothing.
func (l *Layout) constant(world int) {
	base := l.Add[0]
	l.Off += base
	trivial := len(l.Rank) == world
	for k := range l.Add {
		l.Add[k] -= base
		trivial = trivial && l.Add[k] == 0 && l.Rank[k] == int32(k)
	}
	if trivial {
		l.Rank, l.Add = nil, nil
	}
}

// extractDigit makes a stride of what is linear in table digit i, and takes the digit out
// of the table if nothing else depends on it.
func (l *Layout) extractDigit(i int) {
	d := &l.Digits[i]
	inner := 1 // entries of the table digits within this one
	for _, e := range l.Digits[i+1:] {
		if e.Table {
			inner *= int(e.N)
		}
	}
	block := inner * int(d.N)
	c, linear, same := l.Add[inner]-l.Add[0], true, true
	for at := 0; at < len(l.Add); at += block {
		for k := range inner {
			for v := 1; v < int(d.N); v++ {
				linear = linear && l.Add[at+k+v*inner]-l.Add[at+k] == int64(v)*c
				same = same && l.Rank[at+k+v*inner] == l.Rank[at+k]
			}
		}
	}
	linear = linear && c+d.Stride >= 0
	if !linear {
		c = -d.Stride // the whole dependence stays in the table
	}
	for at := range l.Add {
		l.Add[at] -= int64(at/inner%int(d.N)) * c
	}
	d.Stride += c
	if !linear || !same {
		return
	}
	var rank []int32
	var add []int64
	for at := range l.Add {
		if at/inner%int(d.N) == 0 {
			rank, add = append(rank, l.Rank[at]), append(add, l.Add[at])
		}
	}
	l.Rank, l.Add, d.Table = rank, add, false
}

// merge joins neighbouring digits of which the outer counts on where the inner ends.
func (l *Layout) merge() {
	out := l.Digits[:0:0]
	for _, d := range l.Digits {
		if n := len(out); n > 0 && out[n-1].Table == d.Table && out[n-1].Stride == d.Stride*d.N && d.N > 0 {
			o := &out[n-1]
			if o.N < 0 {
				o.Sym = o.Sym.Mul(ir.D(d.N))
			} else {
				o.N *= d.N
			}
			o.Stride = d.Stride
			continue
		}
		out = append(out, d)
	}
	l.Digits = out
}

// Elements is the number of elements that are read.
func (l *Layout) Elements() ir.Dim {
	n := ir.D(1)
	for _, d := range l.Digits {
		n = n.Mul(d.Size())
	}
	return n
}

// IsIdentity reports whether l is a tensor of n elements itself.
func (l *Layout) IsIdentity(n ir.Dim) bool {
	if l.Rank != nil || l.Off != 0 {
		return false
	}
	if len(l.Digits) == 0 {
		return n.Equal(ir.D(1))
	}
	return len(l.Digits) == 1 && l.Digits[0].Stride == 1 && l.Digits[0].Size().Equal(n)
}

// Key is equal for equal canonical layouts.
func (l *Layout) Key() string {
	b := binary.AppendVarint(nil, l.Off)
	b = binary.AppendUvarint(b, uint64(len(l.Digits)))
	for _, d := range l.Digits {
		b = binary.AppendVarint(b, d.N)
		if d.N < 0 {
			s := d.Sym.String()
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
		b = binary.AppendVarint(b, d.Stride)
		if d.Table {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	for i, r := range l.Rank {
		b = binary.AppendVarint(b, int64(r))
		b = binary.AppendVarint(b, l.Add[i])
	}
	return string(b)
}

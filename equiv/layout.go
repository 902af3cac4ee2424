package equiv

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// layout says, for a rank and a flat row-major index of a tensor, from which rank and
// which flat index of another tensor its element comes. The index falls into digits,
// outermost first, whose sizes multiply to the number of elements; the source index
// is
//
//	off + sum of digit*stride + add[rank, table digits]
//
// and the source rank rank[rank, table digits], or the rank itself while rank is
// nil. Table digits are those on which the rank or the rest depends; both tables
// are row-major over the reading rank and the table digits in order.
//
// In canonical form no digit has size 1; a table digit on which the table depends
// linearly is a stride instead; a table that says nothing is nil; and neighbours that
// count on are one digit. The symbolic size, if any, is that of the outermost digit.
type layout struct {
	digits []digit
	off    int64
	rank   []int32
	add    []int64
}

type digit struct {
	n      int64  // size, -1 where it is symbolic
	sym    ir.Dim // the size where n is -1
	stride int64
	table  bool
}

// maxTable bounds the entries of a table: beyond it a movement stays a term of its
// own that no equation looks into.
const maxTable = 1 << 20

func (d digit) size() ir.Dim {
	if d.n < 0 {
		return d.sym
	}
	return ir.D(d.n)
}

// sized is a digit of a size, false if size is zero.
func sized(n ir.Dim, stride int64) digit {
	if c, ok := n.Const(); ok {
		return digit{n: c, stride: stride}
	}
	return digit{n: -1, sym: n, stride: stride}
}

// identity is the layout of a tensor of n elements on itself.
func identity(n ir.Dim) layout {
	if n.Equal(ir.D(1)) {
		return layout{}
	}
	return layout{digits: []digit{sized(n, 1)}}
}

// entries is the number of table entries of one rank.
func (l *layout) entries() int {
	n := 1
	for _, d := range l.digits {
		if d.table {
			n *= int(d.n)
		}
	}
	return n
}

// plain makes a layout without a table canonical. It is false where a symbolic
// digit is not the outermost.
func plain(digits []digit, off int64) (layout, bool) {
	l := layout{off: off}
	for _, d := range digits {
		if d.n == 1 {
			continue
		}
		if d.n < 0 && len(l.digits) > 0 {
			return l, false
		}
		l.digits = append(l.digits, d)
	}
	l.merge()
	return l, true
}

// canonical brings a layout with a table into canonical form.
func (l *layout) canonical(world int) {
	digits := l.digits[:0:0]
	for _, d := range l.digits {
		if d.n != 1 {
			digits = append(digits, d)
		}
	}
	l.digits = digits
	if l.rank != nil {
		l.fold()
		for i := 0; i < len(l.digits); i++ {
			if l.digits[i].table {
				i += l.factor(i) - 1
			}
		}
		l.constant(world)
	}
	l.merge()
}

// fold writes the strides of table digits into the table and joins neighbours among
// them, so that it does not matter how they came together.
func (l *layout) fold() {
	inner := l.entries()
	var out []digit
	for _, d := range l.digits {
		if !d.table {
			out = append(out, d)
			continue
		}
		inner /= int(d.n)
		for at := range l.add {
			l.add[at] += int64(at/inner%int(d.n)) * d.stride
		}
		d.stride = 0
		if n := len(out); n > 0 && out[n-1].table {
			out[n-1].n *= d.n
			continue
		}
		out = append(out, d)
	}
	l.digits = out
}

// factor cuts table digit i into prime factors, in the order that leaves the least in
// the table, and takes out of the table what does not belong there. It returns how many
// digits there are now in place of the one.
func (l *layout) factor(i int) int {
	var primes []int64
	n := l.digits[i].n
	for p := int64(2); n > 1; p++ {
		for ; n%p == 0; n /= p {
			primes = append(primes, p)
		}
	}
	var best layout
	size := 0
	for _, order := range orders(primes) {
		c := layout{off: l.off, rank: slices.Clone(l.rank), add: slices.Clone(l.add)}
		c.digits = slices.Clone(l.digits[:i])
		for _, p := range order {
			c.digits = append(c.digits, digit{n: p, table: true})
		}
		c.digits = append(c.digits, l.digits[i+1:]...)
		for k := range order {
			c.extractDigit(i + k)
		}
		if size == 0 || c.entries() < best.entries() {
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
func (l *layout) constant(world int) {
	base := l.add[0]
	l.off += base
	trivial := len(l.rank) == world
	for k := range l.add {
		l.add[k] -= base
		trivial = trivial && l.add[k] == 0 && l.rank[k] == int32(k)
	}
	if trivial {
		l.rank, l.add = nil, nil
	}
}

// extractDigit makes a stride of what is linear in table digit i, and takes the digit out
// of the table if nothing else depends on it.
func (l *layout) extractDigit(i int) {
	d := &l.digits[i]
	inner := 1 // entries of the table digits within this one
	for _, e := range l.digits[i+1:] {
		if e.table {
			inner *= int(e.n)
		}
	}
	block := inner * int(d.n)
	c, linear, same := l.add[inner]-l.add[0], true, true
	for at := 0; at < len(l.add); at += block {
		for k := range inner {
			for v := 1; v < int(d.n); v++ {
				linear = linear && l.add[at+k+v*inner]-l.add[at+k] == int64(v)*c
				same = same && l.rank[at+k+v*inner] == l.rank[at+k]
			}
		}
	}
	linear = linear && c+d.stride >= 0
	if !linear {
		c = -d.stride // the whole dependence stays in the table
	}
	for at := range l.add {
		l.add[at] -= int64(at/inner%int(d.n)) * c
	}
	d.stride += c
	if !linear || !same {
		return
	}
	var rank []int32
	var add []int64
	for at := range l.add {
		if at/inner%int(d.n) == 0 {
			rank, add = append(rank, l.rank[at]), append(add, l.add[at])
		}
	}
	l.rank, l.add, d.table = rank, add, false
}

// merge joins neighbouring digits of which the outer counts on where the inner ends.
func (l *layout) merge() {
	out := l.digits[:0:0]
	for _, d := range l.digits {
		if n := len(out); n > 0 && out[n-1].table == d.table && out[n-1].stride == d.stride*d.n && d.n > 0 {
			o := &out[n-1]
			if o.n < 0 {
				o.sym = o.sym.Mul(ir.D(d.n))
			} else {
				o.n *= d.n
			}
			o.stride = d.stride
			continue
		}
		out = append(out, d)
	}
	l.digits = out
}

// elements is the number of elements that are read.
func (l *layout) elements() ir.Dim {
	n := ir.D(1)
	for _, d := range l.digits {
		n = n.Mul(d.size())
	}
	return n
}

// isIdentity reports whether l is a tensor of n elements itself.
func (l *layout) isIdentity(n ir.Dim) bool {
	if l.rank != nil || l.off != 0 {
		return false
	}
	if len(l.digits) == 0 {
		return n.Equal(ir.D(1))
	}
	return len(l.digits) == 1 && l.digits[0].stride == 1 && l.digits[0].size().Equal(n)
}

// key is equal for equal canonical layouts.
func (l *layout) key() string {
	b := binary.AppendVarint(nil, l.off)
	b = binary.AppendUvarint(b, uint64(len(l.digits)))
	for _, d := range l.digits {
		b = binary.AppendVarint(b, d.n)
		if d.n < 0 {
			s := d.sym.String()
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
		b = binary.AppendVarint(b, d.stride)
		if d.table {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	for i, r := range l.rank {
		b = binary.AppendVarint(b, int64(r))
		b = binary.AppendVarint(b, l.add[i])
	}
	return string(b)
}

package mesh

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// digit is a part of an index of a base: stride*(0..size-1) of dimension dim. A tensor that has
// elements of its base several times has digits of dimension none.
type digit struct {
	dim          int
	stride, size int64
}

// none is the dimension of a digit that the base does not have.
const none = -1

func repeated(n int64) digit { return digit{none, 0, n} }

// cut splits a digit: the minor part has n places.
func (d digit) cut(n int64) (major, minor digit) {
	if d.dim == none {
		return repeated(d.size / n), repeated(n)
	}
	return digit{d.dim, d.stride * n, d.size / n}, digit{d.dim, d.stride, n}
}

// follows reports whether minor goes on where d ends.
func (d digit) follows(minor digit) bool {
	return d.dim == minor.dim && (d.dim == none || d.stride == minor.stride*minor.size)
}

// add puts a digit behind a list, joined with the last one where they are one.
func add(l []digit, d digit) []digit {
	if d.size == 1 {
		return l
	}
	if n := len(l); n > 0 && l[n-1].follows(d) {
		l[n-1].stride, l[n-1].size = d.stride, l[n-1].size*d.size
		return l
	}
	return append(l, d)
}

// flat is one list of the digits of several.
func flat(lists [][]digit) (all []digit) {
	for _, l := range lists {
		for _, d := range l {
			all = add(all, d)
		}
	}
	return all
}

// joined is a list with digits joined where they are one.
func joined(l []digit) []digit {
	out := make([]digit, 0, len(l))
	for _, d := range l {
		out = add(out, d)
	}
	return out
}

// places is how many places the digits of a list have together.
func places(l []digit) int64 {
	n := int64(1)
	for _, d := range l {
		n *= d.size
	}
	return n
}

// minor takes n places from the end of a list; false where they cut digits unevenly.
func minor(l []digit, n int64) (rest, taken []digit, ok bool) {
	l = slices.Clone(l)
	for n > 1 {
		if len(l) == 0 {
			return nil, nil, false
		}
		d := l[len(l)-1]
		switch {
		case n%d.size == 0:
			l = l[:len(l)-1]
			taken = append(taken, d)
			n /= d.size
		case d.size%n == 0:
			major, m := d.cut(n)
			l[len(l)-1] = major
			taken = append(taken, m)
			n = 1
		default:
			return nil, nil, false
		}
	}
	slices.Reverse(taken)
	return l, taken, true
}

// leading takes n places from the front of a list.
func leading(l []digit, n int64) (taken, rest []digit, ok bool) {
	all := places(l)
	if all%n != 0 {
		return nil, nil, false
	}
	return minor(l, all/n)
}

// reshape lays the digits of some dimensions out in others, row-major.
func reshape(dims [][]digit, sizes []int64) ([][]digit, bool) {
	flat := slices.Concat(dims...)
	out := make([][]digit, len(sizes))
	for i, n := range slices.Backward(sizes) {
		var ok bool
		if flat, out[i], ok = minor(flat, n); !ok {
			return nil, false
		}
		out[i] = joined(out[i])
	}
	return out, places(flat) == 1
}

// align cuts the digits of one dimension of several tensors alike, major first. A list that is
// nil has no such dimension.
func align(lists [][]digit) ([][]digit, bool) {
	rest := make([][]digit, len(lists))
	for i, l := range lists {
		rest[i] = slices.Clone(l)
	}
	var rows [][]digit
	for {
		g := int64(0)
		for _, l := range rest {
			if len(l) > 0 {
				g = intmath.GCD(g, l[len(l)-1].size)
			}
		}
		if g == 0 {
			break
		}
		if g == 1 {
			return nil, false
		}
		row := make([]digit, len(lists))
		for i, l := range lists {
			row[i] = repeated(g)
			if l == nil {
				continue
			}
			n := len(rest[i])
			if n == 0 {
				return nil, false
			}
			major, m := rest[i][n-1].cut(g)
			if row[i] = m; major.size == 1 {
				rest[i] = rest[i][:n-1]
			} else {
				rest[i][n-1] = major
			}
		}
		rows = append(rows, row)
	}
	slices.Reverse(rows)
	return rows, true
}

// text appends a digit.
func (d digit) text(b []byte) []byte {
	if d.dim == none {
		return append(b, '_')
	}
	b = strconv.AppendInt(b, int64(d.dim), 10)
	b = append(b, '.')
	return strconv.AppendInt(b, d.stride, 10)
}

// Package digits expresses a tensor index as mixed-radix digits of another tensor's index.
package digits

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// Digit is a part of an index of a base: stride*(0..size-1) of dimension dim. A tensor that has
// elements of its base several times has digits of dimension none.
type Digit struct {
	Dim          int
	Stride, Size int64
}

// Of is such a digit.
func Of(dim int, stride, size int64) Digit { return Digit{dim, stride, size} }

// None is the dimension of a digit that the base does not have.
const None = -1

// Repeated is a digit of None.
func Repeated(n int64) Digit { return Digit{None, 0, n} }

// Cut splits a digit: the minor part has n places.
func (d Digit) Cut(n int64) (major, minor Digit) {
	return d.Part(n, d.Size/n), d.Part(1, n)
}

// Part is the digit of size places of d, a stride of them apart.
func (d Digit) Part(stride, size int64) Digit {
	if d.Dim == None {
		return Repeated(size)
	}
	return Digit{d.Dim, d.Stride * stride, size}
}

// Follows reports whether minor goes on where d ends.
func (d Digit) Follows(minor Digit) bool {
	return d.Dim == minor.Dim && (d.Dim == None || d.Stride == minor.Stride*minor.Size)
}

// Add puts a digit behind a list, joined with the last one where they are one.
func Add(l []Digit, d Digit) []Digit {
	if d.Size == 1 {
		return l
	}
	if n := len(l); n > 0 && l[n-1].Follows(d) {
		l[n-1].Stride, l[n-1].Size = d.Stride, l[n-1].Size*d.Size
		return l
	}
	return append(l, d)
}

// Flat is one list of the digits of several.
func Flat(lists [][]Digit) (all []Digit) {
	for _, l := range lists {
		for _, d := range l {
			all = Add(all, d)
		}
	}
	return all
}

// Joined is a list with digits joined where they are one.
func Joined(l []Digit) []Digit {
	out := make([]Digit, 0, len(l))
	for _, d := range l {
		out = Add(out, d)
	}
	return out
}

// Places is how many places the digits of a list have together.
func Places(l []Digit) int64 {
	n := int64(1)
	for _, d := range l {
		n *= d.Size
	}
	return n
}

// Minor takes n places from the end of a list; false where they cut digits unevenly.
func Minor(l []Digit, n int64) (rest, taken []Digit, ok bool) {
	l = slices.Clone(l)
	for n > 1 {
		if len(l) == 0 {
			return nil, nil, false
		}
		d := l[len(l)-1]
		switch {
		case n%d.Size == 0:
			l = l[:len(l)-1]
			taken = append(taken, d)
			n /= d.Size
		case d.Size%n == 0:
			major, m := d.Cut(n)
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

// Leading takes n places from the front of a list.
func Leading(l []Digit, n int64) (taken, rest []Digit, ok bool) {
	all := Places(l)
	if all%n != 0 {
		return nil, nil, false
	}
	return Minor(l, all/n)
}

// Reshape lays the digits of some dimensions out in others, row-major.
func Reshape(dims [][]Digit, sizes []int64) ([][]Digit, bool) {
	flat := slices.Concat(dims...)
	out := make([][]Digit, len(sizes))
	for i, n := range slices.Backward(sizes) {
		var ok bool
		if flat, out[i], ok = Minor(flat, n); !ok {
			return nil, false
		}
		out[i] = Joined(out[i])
	}
	return out, Places(flat) == 1
}

// Align cuts the digits of one dimension of several tensors alike, major first. A list that is
// nil has no such dimension.
func Align(lists [][]Digit) ([][]Digit, bool) {
	rest := make([][]Digit, len(lists))
	for i, l := range lists {
		rest[i] = slices.Clone(l)
	}
	var rows [][]Digit
	for {
		g := int64(0)
		for _, l := range rest {
			if len(l) > 0 {
				g = intmath.GCD(g, l[len(l)-1].Size)
			}
		}
		if g == 0 {
			break
		}
		if g == 1 {
			return nil, false
		}
		row := make([]Digit, len(lists))
		for i, l := range lists {
			row[i] = Repeated(g)
			if l == nil {
				continue
			}
			n := len(rest[i])
			if n == 0 {
				return nil, false
			}
			major, m := rest[i][n-1].Cut(g)
			if row[i] = m; major.Size == 1 {
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

// Text appends a digit.
func (d Digit) Text(b []byte) []byte {
	if d.Dim == None {
		return append(b, '_')
	}
	b = strconv.AppendInt(b, int64(d.Dim), 10)
	b = append(b, '.')
	return strconv.AppendInt(b, d.Stride, 10)
}

// Package index has symbolic element indices of tensors whose sizes are symbols: sums of
// variables, each of which counts from 0 to its size. Where the value at an index depends on the
// range of a variable, the range is split, and each part is treated as a case.
package index

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Index is an offset plus multiples of variables. The zero value is 0.
type Index struct {
	off ir.Dim
	of  []count // by ascending variable
}

type count struct {
	v    int // its number
	coef int64
}

// At is the index n.
func At(n ir.Dim) Index { return Index{off: n} }

// Plus is the sum with a multiple of another index.
func (i Index) Plus(o Index, times int64) Index {
	out := Index{i.off.Add(o.off.Mul(ir.D(times))), slices.Clone(i.of)}
	for _, c := range o.of {
		k, ok := slices.BinarySearchFunc(out.of, c.v, func(a count, v int) int { return a.v - v })
		if !ok {
			out.of = slices.Insert(out.of, k, count{c.v, 0})
		}
		out.of[k].coef += c.coef * times
	}
	return out
}

// Add is the sum with a number.
func (i Index) Add(n ir.Dim) Index { return Index{i.off.Add(n), i.of} }

// String tells indices apart.
func (i Index) String() string {
	var b strings.Builder
	b.WriteString(i.off.String())
	for _, c := range i.of {
		fmt.Fprintf(&b, "+%d#%d", c.coef, c.v)
	}
	return b.String()
}

// Space is the variables of indices.
type Space struct {
	// NotNegative reports whether a size is at least 0 for all values of its symbols.
	NotNegative func(d ir.Dim) bool
	// Cut says that a variable has been cut since it was reset: what was found out may be wrong.
	Cut bool

	sizes  []ir.Dim         // what the variables count to
	labels []string         // and what they are called
	names  map[string]int   // look-up only
	cuts   map[int][]ir.Dim // variables that count in pieces of sizes; look-up only
}

// Cuts is how many variables have been cut.
func (s *Space) Cuts() int { return len(s.cuts) }

// Label is what the variables of an index are called.
func (s *Space) Labels(i Index) (list []string) {
	for _, c := range i.of {
		list = append(list, s.labels[c.v])
	}
	return list
}

// Generic lists indices that stand for every element of a shape: one, and more where
// variables were cut.
func (s *Space) Generic(shape ir.Shape) [][]Index {
	all := [][]Index{nil}
	for d, n := range shape {
		all = Product(all, s.Counting(fmt.Sprint(d), n))
	}
	return all
}

// Product is each of some indices with each of those along one more dimension.
func Product(all [][]Index, along []Index) (next [][]Index) {
	for _, at := range all {
		for _, i := range along {
			next = append(next, append(slices.Clip(at), i))
		}
	}
	return next
}

// Counting is the index that counts to n, in pieces if its variable was cut; none counts to 0.
func (s *Space) Counting(name string, n ir.Dim) []Index {
	switch {
	case n.Equal(ir.D(0)):
		return nil
	case n.Equal(ir.D(1)):
		return []Index{{}}
	}
	key := name + ":" + n.String()
	v, ok := s.names[key]
	if !ok {
		if s.names == nil {
			s.names = map[string]int{}
		}
		v = len(s.sizes)
		s.sizes, s.labels, s.names[key] = append(s.sizes, n), append(s.labels, name), v
	}
	if s.cuts[v] == nil {
		return []Index{{of: []count{{v, 1}}}}
	}
	var out []Index
	var from ir.Dim
	for _, size := range s.cuts[v] {
		for _, i := range s.Counting(name+"'", size) {
			out = append(out, i.Add(from))
		}
		from = from.Add(size)
	}
	return out
}

// Piece says in which of several pieces that follow each other an index lies, and where
// there. False where that depends on a variable, which is then cut, or cannot be told.
func (s *Space) Piece(i Index, sizes []ir.Dim) (int, Index, bool) {
	most := i.off // of what the index counts to
	for _, c := range i.of {
		if c.coef < 0 {
			return 0, i, false
		}
		most = most.Add(s.sizes[c.v].Sub(ir.D(1)).Mul(ir.D(c.coef)))
	}
	var from ir.Dim
	for k, size := range sizes {
		if in := i.Add(from.Mul(ir.D(-1))); s.NotNegative(in.off) && s.NotNegative(from.Add(size).Sub(most).Sub(ir.D(1))) {
			return k, in, true
		}
		from = from.Add(size)
	}
	if len(i.of) == 1 && i.of[0].coef == 1 {
		s.split(i.of[0].v, i.off, sizes)
	}
	return 0, i, false
}

// split cuts a variable that counts from an offset where pieces end.
func (s *Space) split(v int, off ir.Dim, sizes []ir.Dim) {
	n := s.sizes[v]
	var parts []ir.Dim
	var from, end ir.Dim // of the part and of the piece
	end = end.Sub(off)
	for _, size := range sizes {
		end = end.Add(size)
		part := end.Sub(from)
		if !end.Equal(n) && !part.Equal(ir.D(0)) && s.NotNegative(part) && s.NotNegative(n.Sub(end)) {
			parts, from = append(parts, part), end
		}
	}
	if parts != nil {
		if s.cuts == nil {
			s.cuts = map[int][]ir.Dim{}
		}
		s.cuts[v], s.Cut = append(parts, n.Sub(from)), true
	}
}

// Broadcast is the index of an operand of which the result is made by broadcasting.
func Broadcast(from ir.Shape, at []Index) []Index {
	at = slices.Clone(at[len(at)-len(from):])
	for d, n := range from {
		if n.Equal(ir.D(1)) {
			at[d] = Index{}
		}
	}
	return at
}

// Reshape is the index in one shape of what differs from another in dimensions of size 1 only.
func Reshape(from, to ir.Shape, at []Index) ([]Index, bool) {
	var sizes []ir.Dim
	var kept []Index
	for d, n := range to {
		if !n.Equal(ir.D(1)) {
			sizes, kept = append(sizes, n), append(kept, at[d])
		}
	}
	out := make([]Index, len(from))
	for d, n := range from {
		if n.Equal(ir.D(1)) {
			continue
		}
		if len(sizes) == 0 || !n.Equal(sizes[0]) {
			return nil, false
		}
		out[d] = kept[0]
		sizes, kept = sizes[1:], kept[1:]
	}
	return out, len(sizes) == 0
}

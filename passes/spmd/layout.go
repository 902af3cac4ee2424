package spmd

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/sharding"
)

// layout says which piece of a tensor each rank has: of dimension d the piece, among as many
// as its atoms make, whose number is the rank's place along them. Pieces are of one size: a
// dimension counts as pad[d] long, and what lies behind its end says nothing. What no atom is
// named for is on all ranks along it.
type layout struct {
	dims   [][]int8
	pad    []int64
	parts  [][]part // nil, or by dimension: nil, or what it is cut in, each part by itself
	sum    set      // the tensor is the reduction of what ranks along these atoms have
	reduce string   // of sum
}

// part is a part of a dimension that is several in a row, of which each is cut by itself: the
// rows of a batch by some atoms, and the heads in each row by others. It has the next n atoms
// of the dimension, which divide it.
type part struct {
	size int64
	n    int
}

// of are the parts of dimension d, nil of one that is cut as a whole.
func (l layout) of(d int) []part {
	if l.parts == nil {
		return nil
	}
	return l.parts[d]
}

// inParts reports whether any dimension is cut in parts.
func (l layout) inParts() bool {
	return slices.ContainsFunc(l.parts, func(p []part) bool { return p != nil })
}

// cut makes parts those of dimension d.
func (l *layout) cut(d int, parts []part) {
	if parts == nil && l.parts == nil {
		return
	}
	if l.parts = slices.Clone(l.parts); l.parts == nil {
		l.parts = make([][]part, len(l.dims))
	}
	l.parts[d] = parts
}

// whole is the layout of a tensor that all ranks have.
func whole(shape []int64) layout {
	return layout{dims: make([][]int8, len(shape)), pad: slices.Clone(shape)}
}

// used are the atoms that a layout names.
func (l layout) used() set { return l.split() | l.sum }

// split are the atoms along which dimensions are cut.
func (l layout) split() set {
	s := set(0)
	for _, d := range l.dims {
		s |= setOf(d)
	}
	return s
}

// appendKey appends what tells layouts of one tensor apart.
func (l layout) appendKey(b []byte) []byte {
	for d, atoms := range l.dims {
		b = binary.AppendVarint(append(b, byte(len(atoms))), l.pad[d])
		for _, a := range atoms {
			b = append(b, byte(a))
		}
		b = append(b, byte(len(l.of(d))))
		for _, p := range l.of(d) {
			b = append(binary.AppendVarint(b, p.size), byte(p.n))
		}
	}
	b = binary.AppendUvarint(b, uint64(l.sum))
	return append(append(b, byte(len(l.reduce))), l.reduce...)
}

func (l layout) equal(m layout) bool {
	for d := range l.dims {
		if !slices.Equal(l.of(d), m.of(d)) {
			return false
		}
	}
	return l.sum == m.sum && (l.sum == 0 || l.reduce == m.reduce) && slices.Equal(l.pad, m.pad) && slices.EqualFunc(l.dims, m.dims, slices.Equal)
}

func (l layout) clone() layout {
	out := l
	out.dims, out.pad = slices.Clone(l.dims), slices.Clone(l.pad)
	return out
}

// with is the layout with other atoms of a dimension of n.
func (g *grid) with(l layout, d int, n int64, atoms []int8) layout {
	out := l.clone()
	out.dims[d], out.pad[d] = atoms, roundUp(n, g.size(atoms))
	out.cut(d, nil)
	return out
}

// reduced is the layout without parts of sums.
func (l layout) reduced() layout {
	l.sum, l.reduce = 0, ""
	return l
}

func roundUp(n, k int64) int64 { return (n + k - 1) / k * k }

// local is the shape of a rank's piece.
func (g *grid) local(l layout) []int64 {
	out := make([]int64, len(l.dims))
	for d, atoms := range l.dims {
		out[d] = l.pad[d] / g.size(atoms)
	}
	return out
}

// uneven reports whether pieces of a dimension of n hold more than the tensor has.
func (l layout) uneven(d int, n int64) bool { return l.pad[d] != n }

// layout is a sharding's layout of a tensor.
func (g *grid) layout(shape []int64, s *sharding.Sharding, without set) layout {
	l := whole(shape)
	if s == nil {
		return l
	}
	for d := range l.dims {
		var atoms []int8
		for _, a := range g.of(s.Dims[d].Axes) {
			if without&(1<<a) != 0 || g.atoms[a].size == 1 {
				break // what is left of it would be no contiguous piece
			}
			atoms = append(atoms, a)
		}
		l.dims[d], l.pad[d] = atoms, roundUp(shape[d], g.size(atoms))
	}
	return l
}

// text is the pieces that ranks have (ir.PiecesKey).
func (at placed) text() string {
	dims := make([]string, len(at.dims))
	for d, atoms := range at.dims {
		var axes []string
		for _, r := range at.g.refs(atoms) {
			name := "'" + r.Name + "'"
			if !r.Whole {
				name += fmt.Sprintf(":(%d)%d", r.Pre, r.Size)
			}
			axes = append(axes, name)
		}
		dims[d] = "{" + strings.Join(axes, ", ") + "}"
	}
	return "[" + strings.Join(dims, ", ") + "]"
}

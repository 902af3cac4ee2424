package sharding

import (
	"fmt"
	"slices"
)

// Dim says how a dimension is sharded.
type Dim struct {
	Axes     []Ref // major first
	Open     bool  // propagation may add axes
	Priority int   // of the axes, 0 first; below 0: none is said
}

// Sharding says how a tensor lies on a mesh. What no axis is named for is replicated.
type Sharding struct {
	Mesh       *Mesh
	Dims       []Dim
	Replicated []Ref  // explicitly: propagation may not use them
	Unreduced  []Ref  // along them lie parts of a reduction
	Reduction  string // of Unreduced, as the text says it; empty: a sum
}

// Open is the sharding that says nothing.
func Open(m *Mesh, rank int) *Sharding {
	s := &Sharding{Mesh: m, Dims: make([]Dim, rank)}
	for i := range s.Dims {
		s.Dims[i] = Dim{Open: true, Priority: -1}
	}
	return s
}

// Clone is a copy that shares the mesh only.
func (s *Sharding) Clone() *Sharding {
	c := *s
	c.Dims = slices.Clone(s.Dims)
	for i := range c.Dims {
		c.Dims[i].Axes = slices.Clone(c.Dims[i].Axes)
	}
	c.Replicated, c.Unreduced = slices.Clone(s.Replicated), slices.Clone(s.Unreduced)
	return &c
}

// Equal reports whether two shardings say the same; nil says nothing.
func (s *Sharding) Equal(t *Sharding) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.Mesh == t.Mesh && slices.EqualFunc(s.Dims, t.Dims, func(a, b Dim) bool {
		return a.Open == b.Open && max(a.Priority, -1) == max(b.Priority, -1) && slices.Equal(a.Axes, b.Axes)
	}) && slices.Equal(s.Replicated, t.Replicated) && slices.Equal(s.Unreduced, t.Unreduced) && s.Reduction == t.Reduction
}

// Empty reports whether no dimension has an axis, and none is named otherwise.
func (s *Sharding) Empty() bool {
	return s == nil || len(s.Replicated) == 0 && len(s.Unreduced) == 0 &&
		!slices.ContainsFunc(s.Dims, func(d Dim) bool { return len(d.Axes) > 0 })
}

// Free reports whether s says nothing at all.
func (s *Sharding) Free() bool {
	return s.Empty() && (s == nil || !slices.ContainsFunc(s.Dims, func(d Dim) bool { return !d.Open }))
}

// Close forbids more axes, and forgets priorities and what was kept free of axes.
func (s *Sharding) Close() {
	s.Replicated = nil
	for i := range s.Dims {
		s.Dims[i].Open, s.Dims[i].Priority = false, -1
	}
}

// Check reports what is wrong with a sharding of a tensor of some rank: another rank, or
// axes that overlap.
func (s *Sharding) Check(rank int) error {
	if s.Mesh.Maximal() {
		if len(s.Dims) > 0 {
			return fmt.Errorf("dimensions of a tensor on one device")
		}
		return nil
	}
	if rank >= 0 && len(s.Dims) != rank {
		return fmt.Errorf("a sharding of %d dimensions for a tensor of %d", len(s.Dims), rank)
	}
	var seen []Ref
	check := func(l []Ref) error {
		for _, a := range l {
			if _, ok := s.Mesh.Whole(a.Name); !ok {
				return fmt.Errorf("there is no axis %q", a.Name)
			}
			for _, b := range seen {
				if a.Overlaps(b) || !a.coexists(b) {
					return fmt.Errorf("axes %s and %s overlap", a, b)
				}
			}
			seen = append(seen, a)
		}
		return nil
	}
	for _, d := range s.Dims {
		if err := check(d.Axes); err != nil {
			return err
		}
	}
	if err := check(s.Replicated); err != nil {
		return err
	}
	return check(s.Unreduced)
}

// Local is the shape of each device's piece, the largest where sizes do not divide.
func (s *Sharding) Local(shape []int64) []int64 {
	out := slices.Clone(shape)
	if s == nil {
		return out
	}
	for i, d := range s.Dims {
		n := size(d.Axes)
		out[i] = (out[i] + n - 1) / n
	}
	return out
}

// Closed reports whether no dimension may get more axes.
func (s *Sharding) Closed() bool {
	return !slices.ContainsFunc(s.Dims, func(d Dim) bool { return d.Open })
}

// DropSmall takes axes of one device away: they shard nothing.
func (s *Sharding) DropSmall() {
	small := func(a Ref) bool { return a.Size == 1 }
	for i := range s.Dims {
		d := &s.Dims[i]
		if d.Axes = slices.DeleteFunc(d.Axes, small); len(d.Axes) == 0 && !d.Open {
			d.Priority = -1
		}
	}
	s.Replicated, s.Unreduced = slices.DeleteFunc(s.Replicated, small), slices.DeleteFunc(s.Unreduced, small)
}

// Reserve makes those of some axes replicated that the sharding does not use.
func (s *Sharding) Reserve(axes []string) {
	used := slices.Concat(s.Replicated, s.Unreduced)
	for _, d := range s.Dims {
		used = append(used, d.Axes...)
	}
	for _, name := range axes {
		a, ok := s.Mesh.Whole(name)
		if ok && !slices.ContainsFunc(used, a.Overlaps) {
			s.Replicated = append(s.Replicated, a)
		}
	}
	slices.SortFunc(s.Replicated, s.Mesh.compare)
}

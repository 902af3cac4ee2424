package suggest

import (
	"slices"

	"github.com/seed-ee968945/concert/sharding"
)

// This file splits the axis of a mesh that has one: roles are tried on two parts of it as on two axes,
// and what follows names the parts as sub-axes.

// split is a mesh on which roles are tried, and what its axes are of the given one.
type split struct {
	*sharding.Mesh
	of []sharding.Ref // by axis
}

// splits are the given mesh and, if it has one axis, those with two parts of it.
func splits(m *sharding.Mesh) []*split {
	given := &split{Mesh: m}
	for _, a := range m.Axes {
		ref, _ := m.Whole(a.Name)
		given.of = append(given.of, ref)
	}
	out := []*split{given}
	if len(m.Axes) != 1 {
		return out
	}
	a := m.Axes[0]
	for n := int64(2); n < a.Size; n++ {
		if a.Size%n != 0 {
			continue
		}
		x := &split{Mesh: &sharding.Mesh{}}
		for _, k := range [][2]int64{{1, n}, {n, a.Size / n}} {
			ref, _ := m.Part(a.Name, k[0], k[1])
			x.of = append(x.of, ref)
			x.Axes = append(x.Axes, sharding.Axis{Name: ref.String(), Size: ref.Size})
		}
		out = append(out, x)
	}
	return out
}

// on is a sharding by the axes of the given mesh: parts of an axis that follow each other are joined.
func (x *split) on(m *sharding.Mesh, s *sharding.Sharding) *sharding.Sharding {
	if s == nil || x.Mesh == m {
		return s
	}
	s = s.Clone()
	s.Mesh = m
	for d := range s.Dims {
		var l []sharding.Ref
		for _, a := range s.Dims[d].Axes {
			of := x.of[slices.IndexFunc(x.Axes, func(b sharding.Axis) bool { return b.Name == a.Name })]
			of.Pre, of.Size = of.Pre*a.Pre, a.Size
			if n := len(l); n > 0 && l[n-1].Pre*l[n-1].Size == of.Pre {
				l[n-1].Size *= of.Size
			} else {
				l = append(l, of)
			}
		}
		for i := range l {
			if whole, _ := m.Whole(l[i].Name); whole.Size == l[i].Size {
				l[i] = whole
			}
		}
		s.Dims[d].Axes = l
	}
	return s
}

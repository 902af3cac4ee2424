package sharding

import "slices"

// before is an edge's result as the rule relates it to the edge's sources: outside of a
// manual computation it has the manual axes, inside not.
func (m *Manual) before(s *Sharding) *Sharding {
	if m.In {
		return m.Add(s)
	}
	return m.Erase(s)
}

// after undoes before.
func (m *Manual) after(s *Sharding) *Sharding {
	if m.In {
		return m.Erase(s)
	}
	return m.Add(s)
}

// Has reports whether an axis is one of those that the body does not see.
func (m *Manual) Has(a Ref) bool { return slices.Contains(m.Axes, a.Name) }

func (m *Manual) free(a Ref) bool { return !m.Has(a) }

// Erase takes the manual axes away.
func (m *Manual) Erase(s *Sharding) *Sharding {
	if s == nil || len(m.Axes) == 0 {
		return s
	}
	s = s.Clone()
	for i := range s.Dims {
		s.Dims[i].Axes = slices.DeleteFunc(s.Dims[i].Axes, m.Has)
	}
	s.Replicated = slices.DeleteFunc(s.Replicated, m.Has)
	s.Unreduced = slices.DeleteFunc(s.Unreduced, m.Has)
	return s
}

// Add puts free axes behind the manual ones of the computation's own sharding.
func (m *Manual) Add(s *Sharding) *Sharding {
	if s == nil || len(m.Axes) == 0 {
		return s
	}
	out := m.Outer.Clone()
	out.Mesh, out.Reduction = s.Mesh, s.Reduction
	for i := range out.Dims {
		d := &out.Dims[i]
		d.Axes = append(slices.DeleteFunc(d.Axes, m.free), s.Dims[i].Axes...)
		d.Open, d.Priority = s.Dims[i].Open, s.Dims[i].Priority
	}
	out.Replicated = append(slices.DeleteFunc(out.Replicated, m.free), s.Replicated...)
	slices.SortFunc(out.Replicated, s.Mesh.compare)
	out.Unreduced = append(slices.DeleteFunc(out.Unreduced, m.free), s.Unreduced...)
	slices.SortFunc(out.Unreduced, s.Mesh.compare)
	return out
}

package sharding

import (
	"fmt"
	"slices"
)

// Axis is an axis of a mesh.
type Axis struct {
	Name string
	Size int64
}

// Mesh is a grid of devices with named axes, the first of them major.
type Mesh struct {
	Name    string
	Axes    []Axis
	Devices []int64 // in the order of the grid; nil: 0, 1, ...
}

// maxDevices bounds a mesh.
const maxDevices = 1 << 30

// Check reports what is wrong with a mesh: names that repeat, sizes below one, an order of
// devices that is none. A mesh without axes has one device, or none where no order says which.
func (m *Mesh) Check() error {
	n := int64(1)
	for i, a := range m.Axes {
		if a.Name == "" || slices.ContainsFunc(m.Axes[:i], func(b Axis) bool { return b.Name == a.Name }) {
			return fmt.Errorf("axis %q: want names, each once", a.Name)
		}
		if a.Size < 1 || a.Size > maxDevices/n {
			return fmt.Errorf("axis %q of %d: want a size from 1, and at most %d devices", a.Name, a.Size, maxDevices)
		}
		n *= a.Size
	}
	if m.Devices == nil {
		return nil
	}
	if len(m.Axes) == 0 {
		if len(m.Devices) != 1 || m.Devices[0] < 0 {
			return fmt.Errorf("device_ids %v: a mesh without axes has one device", m.Devices)
		}
		return nil
	}
	if int64(len(m.Devices)) != n {
		return fmt.Errorf("%d device_ids for %d devices", len(m.Devices), n)
	}
	seen := make([]bool, n)
	for _, d := range m.Devices {
		if d < 0 || d >= n || seen[d] {
			return fmt.Errorf("device_ids: device %d: want each of %d once", d, n)
		}
		seen[d] = true
	}
	return nil
}

// Maximal reports whether the mesh is one device by its number.
func (m *Mesh) Maximal() bool { return len(m.Axes) == 0 && len(m.Devices) == 1 }

// axis is the place of an axis, -1 if there is none of that name.
func (m *Mesh) axis(name string) int {
	return slices.IndexFunc(m.Axes, func(a Axis) bool { return a.Name == name })
}

// Whole names an axis of the mesh.
func (m *Mesh) Whole(name string) (Ref, bool) {
	i := m.axis(name)
	if i < 0 {
		return Ref{}, false
	}
	return Ref{name, 1, m.Axes[i].Size, true}, true
}

// Part names a sub-axis: size places of an axis that is split in pre parts of size*rest each.
func (m *Mesh) Part(name string, pre, size int64) (Ref, error) {
	i := m.axis(name)
	if i < 0 {
		return Ref{}, fmt.Errorf("there is no axis %q", name)
	}
	full := m.Axes[i].Size
	if pre < 1 || size < 2 || pre > full || size > full || full%(pre*size) != 0 || size == full {
		return Ref{}, fmt.Errorf("%q:(%d)%d is not a part of an axis of %d", name, pre, size, full)
	}
	return Ref{name, pre, size, false}, nil
}

// Ref names an axis of a mesh or a part of one: of the axis split in Pre parts, the first
// Size-fold split of each part.
type Ref struct {
	Name  string
	Pre   int64
	Size  int64
	Whole bool // then Pre is 1 and Size the axis's
}

// next is what comes before the part behind this one.
func (a Ref) next() int64 { return a.Pre * a.Size }

// Contains reports whether every place of b is one of a.
func (a Ref) Contains(b Ref) bool {
	return a.Name == b.Name && (a.Whole || !b.Whole && a.Pre <= b.Pre && a.next() >= b.next())
}

// PrefixOf reports whether b starts with a.
func (a Ref) PrefixOf(b Ref) bool { return b.Contains(a) && a.Pre == b.Pre }

// Overlaps reports whether a and b share places.
func (a Ref) Overlaps(b Ref) bool {
	return a.Name == b.Name && (a.Whole || b.Whole || a.Pre < b.next() && b.Pre < a.next())
}

// coexists reports whether one axis can be split so that both are parts of it.
func (a Ref) coexists(b Ref) bool {
	if a.Name != b.Name || a.Whole || b.Whole {
		return true
	}
	lo, hi := min(a.Pre, b.Pre), max(a.Pre, b.Pre)
	loNext, hiNext := min(a.next(), b.next()), max(a.next(), b.next())
	if loNext > hi { // they overlap
		return loNext%hi == 0 && hi%lo == 0 && hiNext%loNext == 0
	}
	return hi%loNext == 0
}

// without is the largest prefix of a that shares nothing with b, if there is one.
func (a Ref) without(b Ref) (Ref, bool) {
	switch {
	case !a.coexists(b):
		return Ref{}, false
	case !a.Overlaps(b):
		return a, true
	case a.Pre >= b.Pre:
		return Ref{}, false
	}
	return Ref{a.Name, a.Pre, b.Pre / a.Pre, false}, true
}

// withoutAll is without of each of a list.
func (a Ref) withoutAll(l []Ref) (Ref, bool) {
	ok := true
	for _, b := range l {
		if a, ok = a.without(b); !ok {
			break
		}
	}
	return a, ok
}

// merge joins two consecutive parts of an axis.
func (m *Mesh) merge(a, b Ref) (Ref, bool) {
	if a.Name != b.Name || a.Whole || b.Whole || a.next() != b.Pre {
		return Ref{}, false
	}
	out := Ref{a.Name, a.Pre, a.Size * b.Size, false}
	if i := m.axis(a.Name); i >= 0 && m.Axes[i].Size == out.Size {
		out.Whole = true
	}
	return out, true
}

// add appends an axis, joined with the last one where they are consecutive parts.
func (m *Mesh) add(l []Ref, a Ref) []Ref {
	if n := len(l); n > 0 {
		if j, ok := m.merge(l[n-1], a); ok {
			l[n-1] = j
			return l
		}
	}
	return append(l, a)
}

// compare is the order of axes in the mesh, and of parts within an axis.
func (m *Mesh) compare(a, b Ref) int {
	if a.Name != b.Name {
		return m.axis(a.Name) - m.axis(b.Name)
	}
	if a.Pre != b.Pre {
		return int(a.Pre - b.Pre)
	}
	return int(a.Size - b.Size)
}

// size is how many pieces axes make.
func size(l []Ref) int64 {
	n := int64(1)
	for _, a := range l {
		n *= a.Size
	}
	return n
}

// strictPrefix reports whether list b starts with list a and is more; the last axis of a may
// be a prefix of b's at its place.
func strictPrefix(a, b []Ref) bool { return prefix(a, b) && !slices.Equal(a, b) }

// prefix is strictPrefix, or equal.
func prefix(a, b []Ref) bool {
	n := len(a)
	if n == 0 {
		return true
	}
	return n <= len(b) && slices.Equal(a[:n-1], b[:n-1]) && a[n-1].PrefixOf(b[n-1])
}

// Groups are the devices along axes, the first axis major, for each place on the others.
func (m *Mesh) Groups(axes []Ref) [][]int {
	devices := func(i int) int {
		if m.Devices != nil {
			return int(m.Devices[i])
		}
		return i
	}
	n := 1
	for _, a := range m.Axes {
		n *= int(a.Size)
	}
	at := map[string]int{} // group by the places on other axes; look-up only
	width := int(size(axes))
	var out [][]int
	for i := range n {
		left, along := i, make([]int, len(axes))
		other := ""
		for _, a := range slices.Backward(m.Axes) {
			k := left % int(a.Size)
			left /= int(a.Size)
			for j, r := range axes {
				if r.Name == a.Name {
					step := int(a.Size / r.next())
					along[j] = k / step % int(r.Size)
					k -= along[j] * step
				}
			}
			other += fmt.Sprint(k, ",")
		}
		place := 0
		for j, r := range axes {
			place = place*int(r.Size) + along[j]
		}
		g, ok := at[other]
		if !ok {
			g = len(out)
			at[other] = g
			out = append(out, make([]int, width))
		}
		out[g][place] = devices(i)
	}
	return out
}

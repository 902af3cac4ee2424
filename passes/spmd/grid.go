package spmd

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/seed-ee968945/concert/sharding"
)

// grid is the mesh of a function, cut into atoms: the largest parts of its axes that every
// sharding of the function uses whole or not at all. A set of atoms is a word of bits.
type grid struct {
	mesh    *sharding.Mesh
	atoms   []atom // in the order of the grid, the first one major
	devices []int  // ranks in the order of the grid
	stride  []int  // by atom

	plans map[string]planned // that were found; look-up only
}

// atom is a part of an axis.
type atom struct {
	axis string
	pre  int64
	size int64
}

// maxAtoms bounds a grid: a set of atoms is a word.
const maxAtoms = 32

// newGrid cuts the mesh as shardings use its axes. The error says which parts of an axis do
// not go together.
func newGrid(mesh *sharding.Mesh, used []*sharding.Sharding) (*grid, error) {
	cuts := map[string][]int64{} // look-up only
	add := func(l []sharding.Ref) {
		for _, a := range l {
			cuts[a.Name] = append(cuts[a.Name], a.Pre, a.Pre*a.Size)
		}
	}
	for _, s := range used {
		for _, d := range s.Dims {
			add(d.Axes)
		}
		add(s.Replicated)
		add(s.Unreduced)
	}
	g := &grid{mesh: mesh, plans: map[string]planned{}}
	world := 1
	for _, a := range mesh.Axes {
		world *= int(a.Size)
		l := append(cuts[a.Name], 1, a.Size)
		slices.Sort(l)
		l = slices.Compact(l)
		for i, pre := range l[:len(l)-1] {
			if l[i+1]%pre != 0 {
				return nil, fmt.Errorf("axis %q of %d is cut after %d and after %d places: want parts of parts", a.Name, a.Size, pre, l[i+1])
			}
			g.atoms = append(g.atoms, atom{a.Name, pre, l[i+1] / pre})
		}
	}
	if len(g.atoms) > maxAtoms {
		return nil, fmt.Errorf("a mesh of %d parts, want %d at most", len(g.atoms), maxAtoms)
	}
	g.stride = make([]int, len(g.atoms))
	n := 1
	for i := len(g.atoms) - 1; i >= 0; i-- {
		g.stride[i] = n
		n *= int(g.atoms[i].size)
	}
	for i := range world {
		g.devices = append(g.devices, i)
	}
	for i, d := range mesh.Devices {
		g.devices[i] = int(d)
	}
	return g, nil
}

// of are the atoms of axes, in their order.
func (g *grid) of(l []sharding.Ref) []int8 {
	var out []int8
	for _, r := range l {
		for i, a := range g.atoms {
			if a.axis == r.Name && a.pre >= r.Pre && a.pre*a.size <= r.Pre*r.Size {
				out = append(out, int8(i))
			}
		}
	}
	return out
}

// refs are the axes that atoms make, joined where they are parts in a row.
func (g *grid) refs(l []int8) []sharding.Ref {
	var out []sharding.Ref
	for _, k := range l {
		a := g.atoms[k]
		whole, _ := g.mesh.Whole(a.axis)
		r := sharding.Ref{Name: a.axis, Pre: a.pre, Size: a.size, Whole: a.size == whole.Size}
		if n := len(out); n > 0 && out[n-1].Name == r.Name && out[n-1].Pre*out[n-1].Size == r.Pre {
			out[n-1].Size *= r.Size
			out[n-1].Whole = out[n-1].Size == whole.Size
			continue
		}
		out = append(out, r)
	}
	return out
}

// set is a set of atoms.
type set uint32

func setOf(l []int8) set {
	s := set(0)
	for _, a := range l {
		s |= 1 << a
	}
	return s
}

func (s set) list() []int8 {
	var out []int8
	for s != 0 {
		i := bits.TrailingZeros32(uint32(s))
		out = append(out, int8(i))
		s &^= 1 << i
	}
	return out
}

// size is how many pieces atoms make.
func (g *grid) size(l []int8) int64 {
	n := int64(1)
	for _, a := range l {
		n *= g.atoms[a].size
	}
	return n
}

// along are places of the grid along atoms, in row-major order of the atoms as listed.
func (g *grid) along(l []int8) []int {
	out := []int{0}
	for _, a := range l {
		var next []int
		for _, at := range out {
			for k := range int(g.atoms[a].size) {
				next = append(next, at+k*g.stride[a])
			}
		}
		out = next
	}
	return out
}

// rest are the atoms that are not in a list.
func (g *grid) rest(l []int8) []int8 {
	return ((set(1)<<len(g.atoms) - 1) &^ setOf(l)).list()
}

// groups are the ranks along atoms for each place on the others.
func (g *grid) groups(l []int8) [][]int {
	var out [][]int
	steps := g.along(l)
	for _, at := range g.along(g.rest(l)) {
		var ranks []int
		for _, s := range steps {
			ranks = append(ranks, g.devices[at+s])
		}
		out = append(out, ranks)
	}
	return out
}

// find are the atoms along which a group of ranks lies, in the order of its ranks.
func (g *grid) find(ranks [][]int) ([]int8, bool) {
	want := canonical(ranks)
	var search func(l []int8, size int) ([]int8, bool)
	search = func(l []int8, size int) ([]int8, bool) {
		if size == len(ranks[0]) {
			return l, slices.EqualFunc(canonical(g.groups(l)), want, slices.Equal)
		}
		for a := range g.atoms {
			k := int(g.atoms[a].size)
			if slices.Contains(l, int8(a)) || k == 1 || size*k > len(ranks[0]) {
				continue
			}
			if out, ok := search(append(slices.Clone(l), int8(a)), size*k); ok {
				return out, true
			}
		}
		return nil, false
	}
	return search(nil, 1)
}

func canonical(ranks [][]int) [][]int {
	out := slices.Clone(ranks)
	slices.SortFunc(out, slices.Compare[[]int])
	return out
}

// coordinates are a rank's places along the atoms.
func (g *grid) coordinates(rank int) []int {
	at := slices.Index(g.devices, rank)
	out := make([]int, len(g.atoms))
	for i, a := range g.atoms {
		out[i] = at / g.stride[i] % int(a.size)
	}
	return out
}

// place is where a rank stands among the pieces that atoms make.
func (g *grid) place(rank int, l []int8) int {
	c := g.coordinates(rank)
	n := 0
	for _, a := range l {
		n = n*int(g.atoms[a].size) + c[a]
	}
	return n
}

// Package placement describes which shard of a tensor each rank of a mesh holds: axes along its
// dimensions, as text and as annotations of values.
package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Axis is an axis of a mesh.
type Axis struct {
	Name string
	Size int64
}

// Mesh is a grid of ranks, the first axis major.
type Mesh struct {
	Axes  []Axis
	Ranks []int // in the order of the grid; nil: 0, 1, ...
}

// ParseMesh reads axes such as data=2,model=4.
func ParseMesh(text string) (Mesh, error) {
	var m Mesh
	for _, part := range strings.Split(text, ",") {
		name, size, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
		if !ok || err != nil {
			return m, fmt.Errorf("mesh %q: want axes such as data=2,model=4", text)
		}
		m.Axes = append(m.Axes, Axis{strings.TrimSpace(name), n})
	}
	_, err := m.Grid()
	return m, err
}

// Placement says which piece of a tensor each rank has: the axes along each dimension, major
// first. A part of an axis is written name:(pre)size, as in the sdy dialect.
type Placement [][]string

// ParsePlacement reads the axes of each dimension, such as [{"data"}, {}] or [{data}, {}].
func ParsePlacement(text string) (Placement, error) {
	p := Placement{}
	body, ok := strings.CutPrefix(strings.TrimSpace(text), "[")
	body, ok2 := strings.CutSuffix(body, "]")
	if !ok || !ok2 {
		return nil, fmt.Errorf("placement %q: want the axes of each dimension, such as [{data}, {}]", text)
	}
	for rest := strings.TrimSpace(body); rest != ""; {
		end := strings.Index(rest, "}")
		if rest[0] != '{' || end < 0 {
			return nil, fmt.Errorf("placement %q: want the axes of each dimension, such as [{data}, {}]", text)
		}
		axes := []string{}
		for _, a := range strings.Split(rest[1:end], ",") {
			if a = strings.ReplaceAll(strings.TrimSpace(a), `"`, ""); a != "" {
				axes = append(axes, a)
			}
		}
		p = append(p, axes)
		rest = strings.TrimLeft(rest[end+1:], ", ")
	}
	return p, nil
}

// String is the placement as ParsePlacement reads it.
func (p Placement) String() string {
	dims := make([]string, len(p))
	for i, l := range p {
		dims[i] = "{" + strings.Join(l, ", ") + "}"
	}
	return "[" + strings.Join(dims, ", ") + "]"
}

// Atom is a digit of the rank: its place in the grid is stride*(0..size-1).
type Atom struct {
	Size   int64
	axis   int
	stride int   // of the place in the grid
	pre    int64 // pieces of the axis before it
}

// Grid is a mesh as ranks of atoms.
type Grid struct {
	Mesh   Mesh
	World  int
	Atoms  []Atom // major first
	places []int  // by rank, in the grid
	groups map[*ir.Group][]int
}

// maxWorld bounds the ranks of a mesh.
const maxWorld = 1 << 20

// Grid is the mesh as a grid; the error says what is wrong with it.
func (m Mesh) Grid() (*Grid, error) { return m.GridFor(nil) }

// maxOrders bounds the orders of prime factors that are tried.
const maxOrders = 1 << 10

// GridFor is the mesh as a grid for groups and placements: the prime factors of an axis are in the order that the
// parts of axes in as many of them as possible need, by default the least are major.
func (m Mesh) GridFor(groups []*ir.Group, placements ...Placement) (*Grid, error) {
	factors := make([][]int64, len(m.Axes))
	for i, a := range m.Axes {
		factors[i] = primes(a.Size)
	}
	best, err := m.grid(factors)
	if err != nil {
		return nil, err
	}
	served := best.serves(groups, placements)
	for i, l := range factors {
		next := slices.Clone(l)
		for tried := 0; served < len(groups)+len(placements) && tried < maxOrders && permute(next); tried++ {
			factors[i] = next
			g, err := m.grid(factors)
			if err != nil {
				return nil, err
			}
			if n := g.serves(groups, placements); n > served {
				best, served, l = g, n, slices.Clone(next)
			}
		}
		factors[i] = l
	}
	return best, nil
}

// permute makes a list the next one in the order of its permutations; false where it is the last one.
func permute(l []int64) bool {
	i := len(l) - 2
	for i >= 0 && l[i] >= l[i+1] {
		i--
	}
	if i < 0 {
		return false
	}
	k := len(l) - 1
	for l[k] <= l[i] {
		k--
	}
	l[i], l[k] = l[k], l[i]
	slices.Reverse(l[i+1:])
	return true
}

// serves is how many groups run along atoms, and how many placements.
func (g *Grid) serves(groups []*ir.Group, placements []Placement) (n int) {
	for _, of := range groups {
		if _, ok := g.Group(of); ok {
			n++
		}
	}
	for _, p := range placements {
		if !slices.ContainsFunc(slices.Concat(p...), func(name string) bool {
			_, err := g.Axis(name)
			return err != nil
		}) {
			n++
		}
	}
	return n
}

// primes are the prime factors of a number of ranks, the least first.
func primes(n int64) (out []int64) {
	for p := int64(2); n > 1 && n <= maxWorld; p++ {
		for ; n%p == 0; n /= p {
			out = append(out, p)
		}
	}
	return out
}

// grid is the grid of axes with prime factors in an order.
func (m Mesh) grid(factors [][]int64) (*Grid, error) {
	g := &Grid{Mesh: m, World: 1, groups: map[*ir.Group][]int{}}
	for i, a := range m.Axes {
		if a.Name == "" || a.Size < 1 || a.Size > int64(maxWorld/g.World) || slices.ContainsFunc(m.Axes[:i], func(b Axis) bool { return b.Name == a.Name }) {
			return nil, fmt.Errorf("axis %q of %d: want names, each once, and at most %d ranks", a.Name, a.Size, maxWorld)
		}
		g.World *= int(a.Size)
		pre := int64(1)
		for _, p := range factors[i] {
			g.Atoms = append(g.Atoms, Atom{Size: p, axis: i, pre: pre})
			pre *= p
		}
	}
	stride := 1
	for i := range slices.Backward(g.Atoms) {
		g.Atoms[i].stride = stride
		stride *= int(g.Atoms[i].Size)
	}
	g.places = make([]int, g.World)
	for i := range g.places {
		g.places[i] = -1
	}
	for i := range g.World {
		r := i
		if m.Ranks != nil {
			if len(m.Ranks) != g.World {
				return nil, fmt.Errorf("%d ranks for a mesh of %d", len(m.Ranks), g.World)
			}
			r = m.Ranks[i]
		}
		if r < 0 || r >= g.World || g.places[r] >= 0 {
			return nil, fmt.Errorf("rank %d of a mesh: want each of %d once", r, g.World)
		}
		g.places[r] = i
	}
	return g, nil
}

// Axis is the atoms of an axis or of a part of one, major first.
func (g *Grid) Axis(name string) ([]int, error) {
	pre, size := int64(1), int64(0)
	base, part, parted := strings.Cut(name, ":")
	i := slices.IndexFunc(g.Mesh.Axes, func(a Axis) bool { return a.Name == base })
	if i < 0 {
		return nil, fmt.Errorf("there is no axis %q", base)
	}
	if size = g.Mesh.Axes[i].Size; parted {
		if _, err := fmt.Sscanf(part, "(%d)%d", &pre, &size); err != nil || pre < 1 || size < 1 {
			return nil, fmt.Errorf("%q: want a part of an axis such as x:(2)4", name)
		}
	}
	var out []int
	done := int64(1)
	for k, a := range g.Atoms {
		if a.axis == i && a.pre >= pre && a.pre < pre*size {
			out = append(out, k)
			done *= a.Size
		}
	}
	if done != size || size > 1 && g.Atoms[out[0]].pre != pre {
		return nil, fmt.Errorf("%q does not go with the prime factors of axis %q in the order that other parts of it need", name, base)
	}
	return out, nil
}

// Group is the atoms that a group's ranks differ in, such that the members count through
// them, the first one major; false where they do not.
func (g *Grid) Group(of *ir.Group) ([]int, bool) {
	if l, ok := g.groups[of]; ok {
		return l, l != nil
	}
	l, ok := g.decode(of.Ranks)
	if !ok {
		l = nil
	} else if l == nil {
		l = []int{}
	}
	g.groups[of] = l
	return l, ok
}

func (g *Grid) decode(lists [][]int) ([]int, bool) {
	first := lists[0]
	var out []int // minor first
	for n := 1; n < len(first); {
		step := g.places[first[n]] - g.places[first[0]]
		k := slices.IndexFunc(g.Atoms, func(a Atom) bool { return a.stride == step })
		if k < 0 || slices.Contains(out, k) || len(first)%(n*int(g.Atoms[k].Size)) != 0 {
			return nil, false
		}
		out = append(out, k)
		n *= int(g.Atoms[k].Size)
	}
	for _, l := range lists {
		if len(l) != len(first) {
			return nil, false
		}
		at := g.places[l[0]]
		for _, k := range out {
			if at/g.Atoms[k].stride%int(g.Atoms[k].Size) != 0 {
				return nil, false
			}
		}
		for i, r := range l {
			want, rest := at, i
			for _, k := range out {
				want += rest % int(g.Atoms[k].Size) * g.Atoms[k].stride
				rest /= int(g.Atoms[k].Size)
			}
			if g.places[r] != want {
				return nil, false
			}
		}
	}
	slices.Reverse(out)
	return out, true
}

// ParsePlacements reads placements with semicolons between them; an empty one follows from
// the shapes.
func ParsePlacements(text string) ([]Placement, error) {
	var out []Placement
	for _, part := range strings.Split(text, ";") {
		var p Placement
		if strings.TrimSpace(part) != "" {
			var err error
			if p, err = ParsePlacement(part); err != nil {
				return nil, err
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// maxChoices bounds the placements that a shape may stand for.
const maxChoices = 1 << 12

// Choices are the placements by which a tensor of one device has the shape of its piece.
func (m Mesh) Choices(device, rank ir.Type) []Placement {
	whole, ok := device.Shape().Static()
	local, ok2 := rank.Shape().Static()
	if !ok || !ok2 || len(whole) != len(local) {
		return []Placement{nil}
	}
	out := []Placement{{}}
	for d, n := range local {
		var next []Placement
		for _, p := range out {
			used := slices.Concat(p...)
			var grow func(axes []string, size int64)
			grow = func(axes []string, size int64) {
				if (whole[d]+size-1)/size == n && len(next) < maxChoices {
					next = append(next, append(slices.Clone(p), slices.Clone(axes)))
				}
				for _, a := range m.Axes {
					if a.Size > 1 && (whole[d]+size-1)/size > n && !slices.Contains(used, a.Name) && !slices.Contains(axes, a.Name) {
						grow(append(axes, a.Name), size*a.Size)
					}
				}
			}
			grow([]string{}, 1)
		}
		out = next
	}
	return out
}

package simplify

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// groupAlgebra answers questions about process groups as partitions of the world.
// Groups are told apart by their ranks, not by their names: two groups of equal
// lists are one to the algebra. Every answer holds for all ranks at once, so that
// nothing depends on the rank that compiles. Answers are kept, groups are few.
type groupAlgebra struct {
	m        *ir.Module
	info     map[*ir.Group]*groupInfo // this and the others: look-up only
	ids      map[string]int32         // by ordered form
	products map[groupPair][][]int
	grids    map[[2]int32]bool
	declared int
}

// groupInfo is a group by rank.
type groupInfo struct {
	id  int32   // equal for groups whose subgroups are equal lists
	set string  // equal for groups whose subgroups are equal sets
	sub [][]int // rank -> its subgroup
	at  []int   // rank -> its place there
}

// groupPair is a question about two groups.
type groupPair struct {
	kind byte // of product, see there
	a, b int32
}

func newGroupAlgebra(m *ir.Module) *groupAlgebra {
	return &groupAlgebra{m: m, info: map[*ir.Group]*groupInfo{}, ids: map[string]int32{}, products: map[groupPair][][]int{}, grids: map[[2]int32]bool{}}
}

func (a *groupAlgebra) of(g *ir.Group) *groupInfo {
	if i := a.info[g]; i != nil {
		return i
	}
	i := &groupInfo{sub: make([][]int, a.m.World), at: make([]int, a.m.World)}
	lists := slices.Clone(g.Ranks)
	slices.SortFunc(lists, slices.Compare[[]int])
	text := fmt.Sprint(lists)
	id, known := a.ids[text]
	if !known {
		id = int32(len(a.ids))
		a.ids[text] = id
	}
	i.id = id
	var sets [][]int
	for _, l := range g.Ranks {
		sets = append(sets, slices.Sorted(slices.Values(l)))
		for k, r := range l {
			i.sub[r], i.at[r] = l, k
		}
	}
	slices.SortFunc(sets, slices.Compare[[]int])
	i.set = fmt.Sprint(sets)
	a.info[g] = i
	return i
}

// equal reports whether both cut the world into the same lists.
func (a *groupAlgebra) equal(g, h *ir.Group) bool {
	return g == h || a.of(g).id == a.of(h).id
}

// inside reports whether every subgroup of g lies in one of h.
func (a *groupAlgebra) inside(g, h *ir.Group) bool {
	if g == h {
		return true
	}
	hs := a.of(h)
	for _, l := range g.Ranks {
		for _, r := range l {
			if &hs.sub[r][0] != &hs.sub[l[0]][0] {
				return false
			}
		}
	}
	return true
}

// The kinds of products: what two collectives in a row, first over g, then over
// h, do together, and what the order of the product's ranks has to be for that.
const (
	productReduce  = 'r' // two all_reduces: any order, ascending is taken
	productGather  = 'g' // two all_gathers along one dimension: by place in h, then in g
	productScatter = 's' // two reduce_scatters along one dimension: by place in g, then in h
)

// product returns the partition over which one collective does what one over g
// and then one over h do, or nil if there is none: the subgroups must form grids,
// in which each rank is reached exactly once. O(world * size).
func (a *groupAlgebra) product(kind byte, g, h *ir.Group) [][]int {
	q := groupPair{kind, a.of(g).id, a.of(h).id}
	p, known := a.products[q]
	if !known {
		p = a.makeProduct(kind, g, h)
		a.products[q] = p
	}
	return p
}

func (a *groupAlgebra) makeProduct(kind byte, g, h *ir.Group) [][]int {
	gi, hi := a.of(g), a.of(h)
	size := g.Size() * h.Size()
	if size > a.m.World {
		return nil
	}
	list := func(r int) []int {
		out := make([]int, size)
		for i := range out {
			out[i] = -1
		}
		for i, hr := range hi.sub[r] {
			if kind == productScatter && gi.at[hr] != gi.at[r] {
				return nil // h would add different pieces
			}
			for k, x := range gi.sub[hr] {
				at := i*g.Size() + k
				if kind == productScatter {
					at = gi.at[x]*h.Size() + hi.at[x]
				}
				out[at] = x
			}
		}
		if kind == productReduce {
			slices.Sort(out)
		}
		return out
	}
	seen := make([]bool, a.m.World)
	var out [][]int
	for r := range seen {
		if seen[r] {
			continue
		}
		l := list(r)
		for _, x := range l {
			if x < 0 || seen[x] || !slices.Equal(list(x), l) {
				return nil
			}
			seen[x] = true
		}
		if !slices.Contains(l, r) {
			return nil
		}
		out = append(out, l)
	}
	return out
}

// quotient returns the partition q such that reducing over h and then over q is
// reducing over g, where the subgroups of h lie inside those of g and q joins
// ranks of equal place in h; nil if h does not lie inside g or is g.
func (a *groupAlgebra) quotient(g, h *ir.Group) [][]int {
	if h.Size() >= g.Size() || !a.inside(h, g) {
		return nil
	}
	hi := a.of(h)
	var out [][]int
	for _, l := range g.Ranks {
		var subs [][]int
		for _, r := range l {
			if s := hi.sub[r]; s[0] == r {
				subs = append(subs, s)
			}
		}
		for k := range h.Size() {
			q := make([]int, len(subs))
			for i, s := range subs {
				q[i] = s[k]
			}
			out = append(out, q)
		}
	}
	return out
}

// grid reports whether g and h are rows and columns of grids: the ranks at place
// k of the g-subgroups that a subgroup of h touches are, in its order, again a
// subgroup of h. Then what is done over h commutes with gathering and scattering
// over g.
func (a *groupAlgebra) grid(g, h *ir.Group) bool {
	gi, hi := a.of(g), a.of(h)
	q := [2]int32{gi.id, hi.id}
	if ok, known := a.grids[q]; known {
		return ok
	}
	ok := true
	for _, column := range h.Ranks {
		for k := range g.Size() {
			first := hi.sub[gi.sub[column[0]][k]]
			for i, r := range column {
				ok = ok && first[i] == gi.sub[r][k]
			}
		}
	}
	a.grids[q] = ok
	return ok
}

// find returns a declared group of those subgroups, or nil. anyOrder accepts
// another order of the ranks in them.
func (a *groupAlgebra) find(ranks [][]int, anyOrder bool) *ir.Group {
	want := a.of(&ir.Group{Ranks: ranks})
	for _, g := range a.m.Groups() {
		i := a.of(g)
		if i.id == want.id || anyOrder && i.set == want.set {
			return g
		}
	}
	return nil
}

// declare returns a group of those subgroups, declaring one named after g and h
// if there is none.
func (a *groupAlgebra) declare(ranks [][]int, anyOrder bool, g, h *ir.Group) *ir.Group {
	if p := a.find(ranks, anyOrder); p != nil {
		return p
	}
	name := g.Name + "." + h.Name
	for k := 1; a.m.Group(name) != nil; k++ {
		name = fmt.Sprintf("%s.%s.%d", g.Name, h.Name, k)
	}
	a.declared++
	return a.m.AddGroup(name, ranks)
}

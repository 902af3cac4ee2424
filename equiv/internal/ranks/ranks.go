// Package ranks has groups of ranks and partitions of them, numbered.
package ranks

import (
	"encoding/binary"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/numbered"
)

// Group is a group by rank.
type Group struct {
	Size int
	List [][]int32 // the subgroup of a rank, in group-rank order
	At   []int32   // the rank's place in it
	// Ranks that are in no subgroup, as other stages may be, run nothing that communicates on
	// it: what stands for their values is exchanged with itself.
}

// NewGroup is a group of lists of ranks in a world.
func NewGroup(lists [][]int, world int) *Group {
	g := &Group{List: make([][]int32, world), At: make([]int32, world)}
	for _, l := range lists {
		g.Size = len(l)
		row := make([]int32, len(l))
		for i, r := range l {
			row[i] = int32(r)
		}
		for i, r := range l {
			if r >= 0 && r < world { // the verifier reports others
				g.List[r], g.At[r] = row, int32(i)
			}
		}
	}
	for r := range g.List {
		if g.List[r] == nil {
			g.List[r] = slices.Repeat([]int32{int32(r)}, g.Size)
		}
	}
	return g
}

// Partitions are partitions of the ranks, by number: each gives every rank the least
// rank of its block.
type Partitions struct {
	numbered.Values[string, []int32]
	both numbered.Pairs
}

// The partitions that there always are: of single ranks, and of all in one.
const (
	Single = 0
	All    = 1
)

// NewPartitions are those of a world.
func NewPartitions(world int) Partitions {
	var p Partitions
	single := make([]int32, world)
	for r := range single {
		single[r] = int32(r)
	}
	p.Number(Key(single), single)
	all := make([]int32, world)
	if p.Number(Key(all), all) == Single { // one rank: both are the same
		p.Values.All = append(p.Values.All, all)
	}
	return p
}

// Key is a text of a list of ranks.
func Key(l []int32) string {
	b := make([]byte, 0, 2*len(l))
	for _, r := range l {
		b = binary.AppendVarint(b, int64(r))
	}
	return string(b)
}

// Meet is the coarsest partition that refines both (their meet in the lattice).
func (p *Partitions) Meet(a, b int32) int32 {
	switch {
	case a == b || b == All:
		return a
	case a == All:
		return b
	case a == Single || b == Single:
		return Single
	}
	return p.both.Of(min(a, b), max(a, b), func() int32 {
		x, y := p.All[a], p.All[b]
		return p.By(len(x), func(r int) string { return Key([]int32{x[r], y[r]}) })
	})
}

// By is the partition of the ranks with equal keys.
func (p *Partitions) By(world int, key func(r int) string) int32 {
	block := make([]int32, world)
	first := map[string]int32{} // look-up only
	for r := range block {
		k := key(r)
		f, ok := first[k]
		if !ok {
			f = int32(r)
			first[k] = f
		}
		block[r] = f
	}
	return p.Number(Key(block), block)
}

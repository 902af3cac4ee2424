package stablehlo

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// This file makes groups of concert, which are of ranks and cut the world into equal parts, of
// those that package processgroups reads.

// group is the group of a collective.
func (im *importer) group(plain bool) (*ir.Group, error) {
	ranks, err := im.groups(plain)
	if err != nil {
		return nil, err
	}
	return im.declared(ranks)
}

// groups are the ranks that a collective is among, each in one of them.
func (im *importer) groups(plain bool) ([][]int, error) {
	groups, all, err := im.procs.Groups(im.op, plain)
	if err == nil && !all {
		err = im.errorf("replica_groups: a process is in no group")
	}
	return groups, err
}

// declared is the group of those ranks in the function.
func (im *importer) declared(ranks [][]int) (*ir.Group, error) {
	for _, g := range ranks {
		if len(g) != len(ranks[0]) {
			return nil, im.errorf("op not supported: %s of groups of different sizes", im.op.Name)
		}
	}
	switch {
	case im.cur.fb == nil:
		return nil, im.errorf("a collective in the body of an operation")
	case im.branch:
		return nil, im.errorf("op not supported: %s in a branch", im.op.Name)
	case im.separate:
		return nil, im.errorf("op not supported: %s in one of different programs", im.op.Name)
	}
	home := im.cur.root()
	for _, g := range home.groups {
		if slices.EqualFunc(g.Ranks, ranks, slices.Equal) {
			return g, nil
		}
	}
	name := fmt.Sprintf("g%d", len(home.groups))
	if len(ranks) == 1 && slices.IsSorted(ranks[0]) {
		name = "world" // whose order is fixed
	}
	g := home.b.Group(name, ranks)
	home.groups = append(home.groups, g)
	return g, nil
}

// everyone is the group of all ranks.
func (im *importer) everyone() (*ir.Group, error) {
	all := make([]int, im.cur.world)
	for i := range all {
		all[i] = i
	}
	return im.declared([][]int{all})
}

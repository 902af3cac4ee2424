package stablehlo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file says which ranks a collective is among. A process is a replica and a partition of it; its rank is
// replica * partitions + partition. Concert's groups are of ranks, and each cuts the world
// into equal parts.

// mode says what the numbers of a collective's groups stand for.
type mode uint8

const (
	crossReplica             mode = iota // replicas of each partition
	crossPartition                       // partitions of each replica
	crossReplicaAndPartition             // replicas with all of their partitions
	flattened                            // ranks
)

// mode is that of the collective that is imported. plain says that a channel makes it one
// of partitions, else one of both.
func (im *importer) mode(plain bool) (mode, error) {
	channel := int64(0)
	if a, ok := im.op.Attr("channel_handle"); ok {
		fields, err := im.m.Fields(a)
		if err != nil {
			return 0, err
		}
		if h, ok := fields.Get("handle"); ok {
			if channel, err = im.m.Integer(h); err != nil {
				return 0, err
			}
		}
	} else if a, ok := im.op.Attr("channel_id"); ok {
		var err error
		if channel, err = im.m.Integer(a); err != nil {
			return 0, err
		}
	}
	global := false
	if a, ok := im.op.Attr("use_global_device_ids"); ok {
		global = a.Kind == mlir.KindUnit || a.Text == "true"
	}
	switch {
	case global && channel <= 0:
		return 0, im.errorf("use_global_device_ids without a channel")
	case global:
		return flattened, nil
	case channel > 0 && plain:
		return crossPartition, nil
	case channel > 0:
		return crossReplicaAndPartition, nil
	}
	return crossReplica, nil
}

// ranks are the groups of ranks that groups of numbers stand for.
func (im *importer) ranks(m mode, groups [][]int) [][]int {
	var out [][]int
	switch m {
	case flattened:
		return groups
	case crossReplica:
		for p := range im.partitions {
			for _, g := range groups {
				var l []int
				for _, r := range g {
					l = append(l, r*im.partitions+p)
				}
				out = append(out, l)
			}
		}
	case crossPartition:
		for r := range im.replicas {
			for _, g := range groups {
				var l []int
				for _, p := range g {
					l = append(l, r*im.partitions+p)
				}
				out = append(out, l)
			}
		}
	default:
		for _, g := range groups {
			var l []int
			for p := range im.partitions {
				for _, r := range g {
					l = append(l, r*im.partitions+p)
				}
			}
			out = append(out, l)
		}
	}
	return out
}

// among is how many processes the numbers of a mode tell apart.
func (im *importer) among(m mode) int {
	switch m {
	case crossPartition:
		return im.partitions
	case flattened:
		return im.replicas * im.partitions
	}
	return im.replicas
}

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
	groups, all, err := im.someGroups(plain)
	if err == nil && !all {
		err = im.errorf("replica_groups: a process is in no group")
	}
	return groups, err
}

// someGroups are the ranks that a collective is among, and whether each is in a group.
func (im *importer) someGroups(plain bool) ([][]int, bool, error) {
	m, err := im.mode(plain)
	if err != nil {
		return nil, false, err
	}
	a, ok := im.op.Attr("replica_groups")
	if !ok {
		return nil, false, im.errorf("%s without replica_groups", im.op.Name)
	}
	if a.Kind == mlir.KindOpaque && strings.HasSuffix(a.Text, "replica_group_mesh_axes") {
		groups, err := im.alongAxes(a)
		return groups, true, err
	}
	key := said{m, im.replicas, im.partitions, a.At, ""}
	if a.Kind == mlir.KindDense {
		key.at, key.text = 0, im.m.Source.Text[a.Start:a.End]
	}
	if had, ok := im.had[key]; ok {
		return had.groups, had.all, nil
	}
	// What a few bytes say is of all ranks.
	if im.steps += im.cur.world / 64; im.tooLong() {
		return nil, false, im.errorf("groups of more ranks than a text of %d bytes may have", len(im.m.Source.Text))
	}
	groups, all, err := im.listed(m, a)
	if err == nil {
		im.had[key] = among{groups, all}
	}
	return groups, all, err
}

// said is what a text says of the groups of a collective, and among are their ranks.
type said struct {
	mode
	replicas, partitions, at int
	text                     string
}

type among struct {
	groups [][]int
	all    bool
}

// listed are the ranks that a list of groups names, and whether those are all.
func (im *importer) listed(m mode, a mlir.Attr) ([][]int, bool, error) {
	flat, err := im.m.Ints(a)
	if err != nil {
		return nil, false, err
	}
	n := im.among(m)
	width := n
	if len(flat) == 0 {
		for i := range n {
			flat = append(flat, int64(i))
		}
	} else if a.Type != nil && len(a.Type.Shape) == 2 && a.Type.Shape[1] > 0 {
		width = int(a.Type.Shape[1])
	}
	var groups [][]int
	seen := make([]bool, n)
	for row := range slices.Chunk(flat, width) {
		var g []int
		for _, r := range row {
			if r == -1 { // fills rows that are shorter
				continue
			}
			if r < 0 || r >= int64(n) || seen[r] {
				return nil, false, im.errorf("replica_groups: %d is not one of %d processes, or stands twice", r, n)
			}
			seen[r] = true
			g = append(g, int(r))
		}
		if len(g) > 0 {
			groups = append(groups, g)
		}
	}
	return im.ranks(m, groups), !slices.Contains(seen, false), nil
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

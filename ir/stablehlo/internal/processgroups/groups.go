// Package processgroups reads which processes a collective is among, in all spellings: replica
// groups as lists, with or without channels and global device ids, and axes of a mesh.
//
// A process is a replica and a partition of it, as the specification of StableHLO has it; its rank
// is replica * partitions + partition.
package processgroups

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Mode says what the numbers of a collective's groups stand for.
type Mode uint8

// The modes, by the names of the specification.
const (
	CrossReplica             Mode = iota // replicas of each partition
	CrossPartition                       // partitions of each replica
	CrossReplicaAndPartition             // replicas with all of their partitions
	Flattened                            // ranks
)

// Grid is how many processes there are.
type Grid struct{ Replicas, Partitions int }

// World is how many ranks there are.
func (g Grid) World() int { return g.Replicas * g.Partitions }

// Count is how many processes the numbers of a mode tell apart.
func (g Grid) Count(m Mode) int {
	switch m {
	case CrossPartition:
		return g.Partitions
	case Flattened:
		return g.World()
	}
	return g.Replicas
}

// Ranks are the groups of ranks that groups of numbers stand for.
func (g Grid) Ranks(m Mode, groups [][]int) [][]int {
	ranks := func(replicas, partitions []int) (l []int) {
		for _, p := range partitions {
			for _, r := range replicas {
				l = append(l, r*g.Partitions+p)
			}
		}
		return l
	}
	all := make([]int, g.Partitions)
	for p := range all {
		all[p] = p
	}
	var out [][]int
	switch m {
	case Flattened:
		return groups
	case CrossReplica:
		for p := range g.Partitions {
			for _, row := range groups {
				out = append(out, ranks(row, []int{p}))
			}
		}
	case CrossPartition:
		for r := range g.Replicas {
			for _, row := range groups {
				out = append(out, ranks([]int{r}, row))
			}
		}
	default:
		for _, row := range groups {
			out = append(out, ranks(row, all))
		}
	}
	return out
}

// Reader reads the groups that operations of a module name.
type Reader struct {
	Grid
	m    *mlir.Module
	had  map[said]among // look-up only
	read int            // ranks in lists
}

// New is a reader of a module's groups of one process.
func New(m *mlir.Module) *Reader {
	return &Reader{Grid: Grid{1, 1}, m: m, had: map[said]among{}}
}

// said is what a text says of the groups of a collective, and among are their ranks.
type said struct {
	Mode
	Grid
	at   int
	text string
}

type among struct {
	groups [][]int
	all    bool
}

func (r *Reader) errorf(o *mlir.Operation, format string, args ...any) error {
	at, n := r.m.At, 1
	if o != nil {
		at, n = o.At, len(o.Name)
	}
	return mlir.ErrorAt(r.m.Source, at, n, "stablehlo", format, args...)
}

// Mode is that of a collective. plain says that a channel makes it one of partitions, else
// one of both.
func (r *Reader) Mode(o *mlir.Operation, plain bool) (Mode, error) {
	channel := int64(0)
	if a, ok := o.Attr("channel_handle"); ok {
		fields, err := r.m.Fields(a)
		if err != nil {
			return 0, err
		}
		if h, ok := fields.Get("handle"); ok {
			if channel, err = r.m.Integer(h); err != nil {
				return 0, err
			}
		}
	} else if a, ok := o.Attr("channel_id"); ok {
		var err error
		if channel, err = r.m.Integer(a); err != nil {
			return 0, err
		}
	}
	global := false
	if a, ok := o.Attr("use_global_device_ids"); ok {
		global = a.Kind == mlir.KindUnit || a.Text == "true"
	}
	switch {
	case global && channel <= 0:
		return 0, r.errorf(o, "use_global_device_ids without a channel")
	case global:
		return Flattened, nil
	case channel > 0 && plain:
		return CrossPartition, nil
	case channel > 0:
		return CrossReplicaAndPartition, nil
	}
	return CrossReplica, nil
}

// maxRead is how many ranks lists of groups have at most, with 8 for each byte of the text.
const maxRead = 1 << 25

// Groups are the ranks that a collective is among, and whether each is in a group.
func (r *Reader) Groups(o *mlir.Operation, plain bool) ([][]int, bool, error) {
	m, err := r.Mode(o, plain)
	if err != nil {
		return nil, false, err
	}
	a, ok := o.Attr("replica_groups")
	if !ok {
		return nil, false, r.errorf(o, "%s without replica_groups", o.Name)
	}
	if a.Kind == mlir.KindOpaque && strings.HasSuffix(a.Text, "replica_group_mesh_axes") {
		groups, err := r.alongAxes(o, a)
		return groups, true, err
	}
	key := said{m, r.Grid, a.At, ""}
	if a.Kind == mlir.KindDense {
		key.at, key.text = 0, r.m.Source.Text[a.Start:a.End]
	}
	if had, ok := r.had[key]; ok {
		return had.groups, had.all, nil
	}
	// What a few bytes say is of all ranks.
	if r.read += r.World(); r.read > maxRead+8*len(r.m.Source.Text) {
		return nil, false, r.errorf(o, "groups of more ranks than a text of %d bytes may have", len(r.m.Source.Text))
	}
	groups, all, err := r.listed(o, m, a)
	if err == nil {
		r.had[key] = among{groups, all}
	}
	return groups, all, err
}

// listed are the ranks that a list of groups names, and whether those are all.
func (r *Reader) listed(o *mlir.Operation, m Mode, a mlir.Attr) ([][]int, bool, error) {
	flat, err := r.m.Ints(a)
	if err != nil {
		return nil, false, err
	}
	n := r.Count(m)
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
		for _, k := range row {
			if k == -1 { // fills rows that are shorter
				continue
			}
			if k < 0 || k >= int64(n) || seen[k] {
				return nil, false, r.errorf(o, "replica_groups: %d is not one of %d processes, or appears twice", k, n)
			}
			seen[k] = true
			g = append(g, int(k))
		}
		if len(g) > 0 {
			groups = append(groups, g)
		}
	}
	return r.Ranks(m, groups), !slices.Contains(seen, false), nil
}

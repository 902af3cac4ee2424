package fusion

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// A kernel computes a value at every index at which it is asked for. Data movement changes the
// index, so that a value that is read by two ways is computed twice, and one behind a chain of
// such reads 2, 4, 8, ... times: a running sum made of shifted sums does that.

// maxRecomputed is how many values a thread computes at most for each element of the results.
const maxRecomputed = 1024

// bounded reports whether that is kept. Two indices count as one where the same ways lead to
// them. O(nodes * maxRecomputed).
func (r *regionShape) bounded(nodes []*ir.Node) bool {
	if !slices.ContainsFunc(nodes, reindexes) {
		return true
	}
	at := map[*ir.Value][]uint64{} // indices at which values are asked for; look-up only
	total := 0
	for _, n := range slices.Backward(nodes) {
		for _, v := range n.Results() {
			if r.Writes(n) {
				at[v] = append(at[v], 0)
			}
			if !n.Op().IsView() {
				total += len(at[v])
			}
			if total > maxRecomputed {
				return false
			}
			for i, a := range n.Args() {
				for _, from := range at[v] {
					if k := accessPath(n, i, from); !slices.Contains(at[a], k) {
						at[a] = append(at[a], k)
					}
				}
			}
		}
	}
	return true
}

// reindexes reports whether n reads operands at another index than its own.
func reindexes(n *ir.Node) bool {
	return !n.Op().Info().Elementwise && n.Op() != ir.OpClone && !Reshapes(n)
}

// accessPath is the index at which n reads operand i for an element at an index. Equal views are the
// same way, whatever they are of.
func accessPath(n *ir.Node, i int, from uint64) uint64 {
	a, to := Sizes(n.Arg(i)), Sizes(n.Result(0))
	if !reindexes(n) && slices.Equal(a, to) {
		return from
	}
	key := binary.AppendUvarint(nil, from)
	key = binary.AppendUvarint(key, uint64(n.Op()))
	if !n.Op().IsView() && !n.Op().Info().Elementwise {
		key = binary.AppendVarint(binary.AppendUvarint(key, uint64(i)), int64(n.ID()))
	}
	for _, d := range slices.Concat(a, to) {
		key = binary.AppendVarint(key, d)
	}
	if n.Op().IsView() {
		key = n.Attrs().AppendText(key)
	}
	h := fnv.New64a()
	h.Write(key)
	return h.Sum64()
}

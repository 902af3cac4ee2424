// Package randseed defines the random numbers that a program draws, identically for the
// reference interpreter and the runtime.
package randseed

import (
	"fmt"
	"hash/fnv"
)

// Derive returns the seed of one drawing of a node: seed is the node's own
// attribute, run and step select the numbers of a run and of a step in it, rank
// is who draws. The node goes by its name and not by its place, so that a program
// draws the same numbers before and after a pass has reordered it. The derivation
// is part of what a recorded run means: changing it changes results.
func Derive(seed, run, step int64, node string, rank int) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %d %d %s", seed, run, step, rank, node) // a hash never fails to write
	return int64(h.Sum64())
}

//go:build linux

package coll

import (
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestCutRounds cuts random buckets and checks that every byte of every tensor is
// staged once, inside its slot and apart from the others of its round.
func TestCutRounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	several := 0
	for range 2000 {
		n, whole := 2+rng.IntN(7), rng.IntN(2) == 0
		slot := uint64(4096 * (1 + rng.IntN(4)))
		var ts []Tensor
		for range 1 + rng.IntN(6) {
			ts = append(ts, Tensor{Src: driver.Ptr(len(ts) + 1), Bytes: uint64(rng.IntN(40000))})
		}
		next := map[driver.Ptr]uint64{}
		rounds := cutRounds(ts, slot, n, whole)
		if len(rounds) > 1 {
			several++
		}
		for i, parts := range rounds {
			if len(parts) == 0 {
				t.Fatalf("round %d is empty", i)
			}
			b := engineBuilder{op: Op{Kind: kernels.ReduceScatter, DType: dtype.BF16}, n: n}
			if whole {
				b.op.Kind = kernels.AllReduce
			}
			unit := uint64(16)
			if i%2 == 0 {
				b.op.DType, unit = dtype.I32, 8
			} else if n&(n-1) != 0 { // no kernel of their own
				unit = 8
			}
			for r := range n {
				end := uint64(0)
				for j, off := range b.offsets(parts, r) {
					if off != (end+unit-1)/unit*unit {
						t.Fatalf("a part at %d of the slot, after one that ends at %d", off, end)
					}
					_, bytes := b.pieceOf(parts[j], r)
					if end = off + bytes; end > slot {
						t.Fatalf("a part that ends at %d of %d bytes", end, slot)
					}
				}
			}
			for _, c := range parts {
				if c.at != next[c.t.Src] || c.bytes == 0 || c.at%16 != 0 {
					t.Fatalf("a part of %d bytes at %d, expected at %d", c.bytes, c.at, next[c.t.Src])
				}
				next[c.t.Src] += c.bytes
				if !whole {
					continue
				}
				at := c.at
				for r := range n {
					from, bytes := c.slice(r)
					if bytes > 0 && (from != at || bytes > c.piece) {
						t.Fatalf("slice %d of %d bytes at %d, expected at %d", r, bytes, from, at)
					}
					at += bytes
				}
				if at != c.at+c.bytes {
					t.Fatalf("slices end at %d instead of %d", at, c.at+c.bytes)
				}
			}
		}
		for _, x := range ts {
			if next[x.Src] != x.Bytes {
				t.Fatalf("%d of %d bytes are staged", next[x.Src], x.Bytes)
			}
		}
	}
	if several < 500 {
		t.Errorf("only %d buckets took several rounds", several)
	}
}

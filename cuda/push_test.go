//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestPushCredits makes 2^31 chunks of calls that gave no credits, then calls that need
// them: counters that nobody raised must not look ahead.
func TestPushCredits(t *testing.T) {
	numbersOnly(t)
	n := ranksOf(4)
	if n == 3 {
		n = 2 // for three there is no push
	}
	r := newRigT(t, n)
	rng := rand.New(rand.NewPCG(4, 31))
	far := bytes.Repeat([]byte{0, 0, 0, 0x80}, kernels.MaxBlocks) // 2^31, where 0 begins to look ahead of 2^31+1
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.ReduceScatter} {
		if err := r.w.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		for rank := range n {
			r.write(rank, r.g.Scratch().Ctl+kernels.CtlChunks, far)
			r.write(rank, r.g.Scratch().Ctl+kernels.CtlPushed, bytes.Repeat(far, kernels.MaxRanks))
			r.write(rank, r.g.Scratch().Ctl+kernels.CtlCredit, make([]byte, 4*kernels.MaxBlocks*kernels.MaxRanks))
		}
		if err := r.w.Barrier(t.Context()); err != nil { // nobody begins while another still writes
			t.Fatal(err)
		}
		for _, chunks := range []int{1, 3 * kernels.ScatterDepth} {
			c := caseT{kind: kind, t: dtype.BF16, algo: kernels.Push, counts: []int{8 * chunks * kernels.PushUnits}, blocks: 1}
			if kind == kernels.AllReduce {
				c.counts[0] *= n
			}
			if err := r.runCase(c, rng); err != nil {
				t.Fatalf("%v of %d chunks: %v", kind, chunks, err)
			}
			for _, m := range r.g.Members() {
				done := binary.LittleEndian.Uint32(r.read(m.Rank.ID, r.g.Scratch().Ctl+kernels.CtlChunks, 4))
				credits := r.read(m.Rank.ID, r.g.Scratch().Ctl+kernels.CtlCredit, 4*uint64(n))
				if done <= 1<<31 {
					t.Errorf("rank %d has done chunk %d", m.Index, done)
				}
				for src := range n {
					if v := binary.LittleEndian.Uint32(credits[4*src:]); src != m.Index && v > done || src != m.Index && done-v > 3*kernels.ScatterDepth {
						t.Errorf("rank %d, %v of %d chunks: credit %d of rank %d after chunk %d", m.Index, kind, chunks, v, src, done)
					}
				}
			}
		}
	}
}

//go:build linux

package cuda

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestSignals passes a word around a ring of ranks.
func TestSignals(t *testing.T) {
	n := ranksOf(4)
	r := newRigT(t, n)
	a := r.alloc(256)
	for round := uint32(1); round < 5; round++ {
		for _, m := range r.g.Members() {
			i := m.Index
			s, next, prev := r.streams[i], (i+1)%n, (i+n-1)%n
			if i == 0 {
				if err := r.drv.Memset32(r.w.Rank(i).Ctx, s, r.w.Addr(1, a), round, 1); err != nil {
					t.Fatal(err)
				}
				if err := m.Signal(s, 3, next); err != nil {
					t.Fatal(err)
				}
				if err := m.Wait(s, 3, prev); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := m.Wait(s, 3, prev); err != nil {
				t.Fatal(err)
			}
			if err := r.drv.Copy(r.w.Rank(i).Ctx, s, r.w.Addr(next, a), r.w.Addr(i, a), 4); err != nil {
				t.Fatal(err)
			}
			if err := m.Signal(s, 3, next); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		if r.w.Rank(0) == nil {
			continue
		}
		if got := binary.LittleEndian.Uint32(r.read(0, a, 4)); got != round {
			t.Fatalf("round %d: %d came back", round, got)
		}
	}
	m := r.g.Members()[0]
	s, peer := r.streams[m.Index], (m.Index+1)%n
	for _, c := range []struct {
		err  error
		text string
	}{
		{m.Signal(s, symm.UserChannels, peer), "channel must be in [0, 60), got 60"},
		{m.Signal(s, -1, peer), "channel must be in"},
		{m.Wait(s, 0, n), fmt.Sprintf("rank must be in [0, %d), got %d", n, n)},
		{m.Wait(s, 0, -1), "rank must be in"},
		{m.Wait(s, 0, m.Index), fmt.Sprintf("rank %d cannot wait itself", m.Index)},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("got %v, want %q", c.err, c.text)
		}
	}
}

// TestGroups uses overlapping groups and strict subgroups beside the world, each made
// where the one before it was.
func TestGroups(t *testing.T) {
	n := ranksOf(4)
	r := newRigT(t, n)
	a := r.alloc(4096)
	for _, ranks := range [][]int{{0, 1}, {1, 2}, {3, 1, 0}, {1, 0}, {0, 1, 2, 3}} {
		if slices.Max(ranks) >= n {
			continue
		}
		g, err := coll.NewGroup(t.Context(), r.w, ranks, smallGroup(false, len(ranks)))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ranks {
			r.write(id, a, []byte{byte(10 + id), 0, 0, 0})
		}
		for _, m := range g.Members() {
			id := m.Rank.ID
			op := coll.Op{Kind: kernels.AllGather, DType: dtype.I32, Symmetric: true, Tensors: []coll.Tensor{{Src: r.w.Addr(id, a), Dst: r.w.Addr(id, a+64), Bytes: 4}}}
			if err := m.Enqueue(r.streams[id], op); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range g.Members() {
			if err := m.Check(t.Context(), r.streams[m.Rank.ID]); err != nil {
				t.Fatal(err)
			}
			got := r.read(m.Rank.ID, a+64, uint64(4*len(ranks)))
			for j, id := range ranks {
				if int(got[4*j]) != 10+id {
					t.Errorf("group %v rank %d: piece %d is %d", ranks, m.Index, j, got[4*j])
				}
			}
		}
		if err := r.w.Barrier(t.Context()); err != nil { // a group is closed when no rank's kernels run
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range [][]int{{0}, {0, 0}, {0, n}, {-1, 0}} {
		if _, err := coll.NewGroup(t.Context(), r.w, bad, coll.GroupOptions{}); err == nil {
			t.Errorf("group %v was accepted", bad)
		}
	}
}

//go:build linux

package cuda

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestSignals passes a word around a ring of ranks.
func TestSignals(t *testing.T) {
	const n = 4
	r := newRigT(t, n)
	a := r.alloc(256)
	for round := uint32(1); round < 5; round++ {
		for i, m := range r.g.Members() {
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
		if got := binary.LittleEndian.Uint32(r.read(0, a, 4)); got != round {
			t.Fatalf("round %d: %d came back", round, got)
		}
	}
	m := r.g.Members()[0]
	for _, c := range []struct {
		err  error
		text string
	}{
		{m.Signal(r.streams[0], UserChannels, 1), "channel must be in [0, 60), got 60"},
		{m.Signal(r.streams[0], -1, 1), "channel must be in"},
		{m.Wait(r.streams[0], 0, n), "rank must be in [0, 4), got 4"},
		{m.Wait(r.streams[0], 0, -1), "rank must be in"},
		{m.Wait(r.streams[0], 0, 0), "rank 0 cannot wait itself"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("got %v, want %q", c.err, c.text)
		}
	}
}

// TestGroups uses overlapping groups and a strict subgroup beside the world.
func TestGroups(t *testing.T) {
	const n = 4
	r := newRigT(t, n)
	a := r.alloc(4096)
	for _, ranks := range [][]int{{0, 1}, {1, 2}, {3, 1, 0}, {0, 1, 2, 3}} {
		g, err := r.w.NewGroup(ranks, smallGroup(false, len(ranks)))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ranks {
			r.write(id, a, []byte{byte(10 + id), 0, 0, 0})
		}
		for i, m := range g.Members() {
			id := ranks[i]
			op := Op{Kind: kernels.AllGather, DType: dtype.I32, Symmetric: true, Tensors: []Tensor{{Src: r.w.Addr(id, a), Dst: r.w.Addr(id, a+64), Bytes: 4}}}
			if err := m.Enqueue(r.streams[id], op); err != nil {
				t.Fatal(err)
			}
		}
		for i, m := range g.Members() {
			if err := m.Check(r.streams[ranks[i]]); err != nil {
				t.Fatal(err)
			}
			got := r.read(ranks[i], a+64, uint64(4*len(ranks)))
			for j, id := range ranks {
				if int(got[4*j]) != 10+id {
					t.Errorf("group %v rank %d: piece %d is %d", ranks, i, j, got[4*j])
				}
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range [][]int{{0}, {0, 0}, {0, 4}, {-1, 0}} {
		if _, err := r.w.NewGroup(bad, GroupOptions{}); err == nil {
			t.Errorf("group %v was accepted", bad)
		}
	}
}

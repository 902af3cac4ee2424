//go:build linux

package cuda

import (
	"encoding/binary"
	"testing"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// overlappingT is groups that have ranks in common. In every round each rank of a group has words
// of its own.
type overlappingT struct {
	r       *rigT
	lists   [][]int // ranks, by group
	groups  []*coll.Group
	at      []uint64                // operands and results, by group
	streams map[int][]driver.Stream // of a rank, one for each group
}

const overlappingRounds, overlappingWords, overlappingRoom = 6, 25, 4096

func newOverlappingT(t *testing.T, r *rigT, lists [][]int) *overlappingT {
	t.Helper()
	o := &overlappingT{r: r, lists: lists, streams: map[int][]driver.Stream{}}
	for _, ranks := range lists {
		g, err := coll.NewGroup(t.Context(), r.w, ranks, smallGroup(r.w.Shares(), len(ranks)))
		if err != nil {
			t.Fatal(err)
		}
		o.groups, o.at = append(o.groups, g), append(o.at, r.alloc(2*overlappingRounds*overlappingRoom))
	}
	for _, id := range r.local() {
		o.streams[id] = r.streamsOf(id, len(lists))
	}
	return o
}

// operand is where that of round k of group i is; its result follows it.
func (o *overlappingT) operand(i, k int) uint64 { return o.at[i] + uint64(2*k)*overlappingRoom }

// word is word j of round k of group i on rank id.
func (o *overlappingT) word(i, k, id, j int) uint32 {
	return uint32(1_000_000*i + 10_000*k + 100*id + j)
}

// each calls f for the members here of every group i.
func (o *overlappingT) each(f func(i int, m *coll.Member)) {
	for i, g := range o.groups {
		for _, m := range g.Members() {
			f(i, m)
		}
	}
}

// write writes the operands of round k.
func (o *overlappingT) write(k int) {
	o.each(func(i int, m *coll.Member) {
		var b []byte
		for j := range overlappingWords {
			b = binary.LittleEndian.AppendUint32(b, o.word(i, k, m.Rank.ID, j))
		}
		o.r.write(m.Rank.ID, o.operand(i, k), b)
	})
}

// enqueue starts round k.
func (o *overlappingT) enqueue(t *testing.T, k int) {
	t.Helper()
	o.each(func(i int, m *coll.Member) {
		src := o.r.w.Addr(m.Rank.ID, o.operand(i, k))
		op := coll.Op{Kind: kernels.AllReduce, DType: dtype.I32, Symmetric: true, Tensors: []coll.Tensor{{Src: src, Dst: src + overlappingRoom, Bytes: 4 * overlappingWords}}}
		op.Algo = []kernels.Algo{kernels.LL, kernels.Direct}[(i+k)%2]
		if err := m.Enqueue(o.streams[m.Rank.ID][i], op); err != nil {
			t.Fatal(err)
		}
	})
}

// compare compares the results of a member of group i.
func (o *overlappingT) compare(t *testing.T, i int, m *coll.Member) {
	t.Helper()
	id := m.Rank.ID
	for k := range overlappingRounds {
		got := o.r.read(id, o.operand(i, k)+overlappingRoom, 4*overlappingWords)
		for j := range overlappingWords {
			want := uint32(0)
			for _, other := range o.lists[i] {
				want += o.word(i, k, other, j)
			}
			if v := binary.LittleEndian.Uint32(got[4*j:]); v != want {
				t.Fatalf("group %v round %d rank %d word %d: %d, want %d", o.lists[i], k, id, j, v, want)
			}
		}
	}
}

// TestOverlappingGroups lets every rank take part in several groups at once, each on a
// stream of its own: nothing is waited for before all calls of all groups are enqueued.
func TestOverlappingGroups(t *testing.T) {
	n := ranksOf(4)
	r := newRigBytes(t, n, 64<<20)
	lists := [][]int{seqInts(n), {1, 0}}
	for k := 1; k+1 < n; k++ {
		lists = append(lists, []int{k, k + 1})
	}
	if n == 4 {
		lists = append(lists, []int{3, 1, 0})
	}
	o := newOverlappingT(t, r, lists)
	for k := range overlappingRounds {
		o.write(k)
	}
	for k := range overlappingRounds {
		o.enqueue(t, k)
	}
	o.each(func(i int, m *coll.Member) {
		if err := m.Check(t.Context(), o.streams[m.Rank.ID][i]); err != nil {
			t.Fatal(err)
		}
		o.compare(t, i, m)
	})
	if err := r.w.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, g := range o.groups {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

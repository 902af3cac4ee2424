package symm

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/kernels"
)

// Numbers start again without touching kind and channel.
func TestCallNumbers(t *testing.T) {
	var m Member
	m.seq.Store(1<<numberBits - 2)
	for i, want := range []uint32{1<<numberBits - 1, 0, 1} {
		if k, ch, n := Called(m.Number(callWait, UserChannels-1)); k != callWait || ch != UserChannels-1 || n != want {
			t.Errorf("%d: %v, channel %d, number %d", i, k, ch, n)
		}
	}
	m.seq.Store(math.MaxUint32)
	if k, ch, n := Called(m.Number(KindOf(kernels.Reduce), 0)); k.String() != "reduce" || ch != 0 || n != 0 {
		t.Errorf("%v, channel %d, number %d", k, ch, n)
	}
	if KindOf(kernels.Reduce) >= callSignal || UserChannels > 1<<channelBits {
		t.Error("kinds or channels have outgrown their bits")
	}
	for _, c := range []struct{ group, want string }{
		{"", "a collective, wait, all_reduce"},
		{"tp", `collective on "tp", wait on "tp", all_reduce on "tp"`},
	} {
		m := &Member{Group: &Group{name: c.group}}
		if got := m.Called(0) + ", " + m.Called(m.Number(callWait, 1)) + ", " + m.Called(m.Number(KindOf(kernels.AllReduce), 0)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.group, got, c.want)
		}
	}
}

func TestHeap(t *testing.T) {
	var h heap
	h.reset(1 << 12)
	a, _ := h.alloc(100, 0)
	b, _ := h.alloc(100, 256)
	c, _ := h.alloc(16, 16)
	if a != 0 || b != 256 || c != 112 {
		t.Errorf("offsets %d %d %d", a, b, c)
	}
	if err := h.free(b); err != nil {
		t.Fatal(err)
	}
	if err := h.free(b); err == nil {
		t.Error("freed twice")
	}
	if _, err := h.alloc(1<<12, 16); !errors.Is(err, ErrSymmetricFull) {
		t.Errorf("got %v", err)
	}
	if _, err := h.alloc(8, 24); err == nil {
		t.Error("an alignment of 24 was accepted")
	}
	// No two live allocations overlap, and everything fits again when all are freed.
	rng := rand.New(rand.NewPCG(5, 5))
	h.reset(1 << 16)
	type piece struct{ at, n uint64 }
	var live []piece
	for i := 0; i < 5000; i++ {
		if len(live) > 0 && rng.IntN(2) == 0 {
			k := rng.IntN(len(live))
			if err := h.free(live[k].at); err != nil {
				t.Fatal(err)
			}
			live = slices.Delete(live, k, k+1)
			continue
		}
		n, used := uint64(1+rng.IntN(3000)), uint64(0)
		for _, o := range live {
			used += o.n
		}
		at, err := h.alloc(n, 1<<rng.IntN(9))
		if err != nil {
			if !errors.Is(err, ErrSymmetricFull) || used < 1<<13 {
				t.Fatalf("%d bytes beside %d of %d: %v", n, used, 1<<16, err)
			}
			continue
		}
		for _, o := range live {
			if at < o.at+o.n && o.at < at+n {
				t.Fatalf("[%d, +%d) overlaps [%d, +%d)", at, n, o.at, o.n)
			}
		}
		live = append(live, piece{at, n})
	}
	for _, o := range live {
		if err := h.free(o.at); err != nil {
			t.Fatal(err)
		}
	}
	if at, err := h.alloc(1<<16, 16); err != nil || at != 0 {
		t.Errorf("all free, but %d %v", at, err)
	}
}

// TestHandleErrors refuses messages whose handles and descriptors do not fit.
func TestHandleErrors(t *testing.T) {
	f := fake.New(1)
	if _, err := (memHandle{fd: -1, fabric: []byte{1, 2}}).importMem(f, 0); err == nil {
		t.Error("a handle of two bytes was imported")
	}
}

package cuda

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// inMatmul is a collective within a matmul: calls of all ranks but one, and rounds that compare results.
type inMatmul interface {
	enqueue(absent int)
	rounds(n int) error
	close()
	fill(k int)
}

// inMatmuls are those whose groups tests break, each with some pieces and tiles.
var inMatmuls = []struct {
	name  string
	ranks int
	of    func(r *rigT, g *coll.Group) inMatmul
}{
	{"gather", 3, func(r *rigT, g *coll.Group) inMatmul {
		return newGathers(r, g, gatherT{dtype.BF16, 40, 1024, 16, false, false})
	}},
	{"scatter", 4, func(r *rigT, g *coll.Group) inMatmul {
		return newScatters(r, g, scatterT{dtype.BF16, 40, 1024, 16, false, false, kernels.Sum})
	}},
}

// TestInMatmulTimeout leaves a rank out: the others' kernels end, and the errors name whom they
// waited for.
func TestInMatmulTimeout(t *testing.T) {
	eachBroken(t, 50*time.Millisecond, func(t *testing.T, r *rigT, x inMatmul, g *coll.Group) {
		const absent = 1
		timeouts := 0
		x.enqueue(absent)
		for _, m := range g.Members() {
			var te *symm.TimeoutError
			err := m.Check(t.Context(), r.streams[m.Rank.ID])
			if m.Rank.ID != absent && !gaveUp(err) {
				t.Errorf("rank %d: %v", m.Rank.ID, err)
			}
			if errors.As(err, &te) && te.Rank == m.Rank.ID {
				if timeouts++; te.Peer == m.Rank.ID || te.Elapsed < 50*time.Millisecond {
					t.Errorf("rank %d: %+v", m.Rank.ID, *te)
				}
			}
		}
		if timeouts == 0 {
			t.Error("nobody reported the timeout")
		}
	})
}

// TestInMatmulAbort aborts a group whose kernels wait for a rank that is left out, and joins it anew:
// what the kernels have counted by then is forgotten.
func TestInMatmulAbort(t *testing.T) {
	eachBroken(t, plenty, func(t *testing.T, r *rigT, x inMatmul, g *coll.Group) {
		reason := errors.New("enough")
		x.enqueue(2)
		time.AfterFunc(10*time.Millisecond, func() { g.Members()[0].Abort(reason) })
		for _, m := range g.Members() {
			if err := m.Check(t.Context(), r.streams[m.Rank.ID]); !errors.Is(err, reason) {
				t.Errorf("rank %d: %v", m.Rank.ID, err)
			}
		}
		if err := g.Rejoin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := x.rounds(2); err != nil {
			t.Errorf("rejoined: %v", err)
		}
	})
}

// eachBroken runs a test that breaks a group, for each collective within a matmul.
func eachBroken(t *testing.T, timeout time.Duration, test func(*testing.T, *rigT, inMatmul, *coll.Group)) {
	if process != nil {
		t.Skip("TestTimeout leaves out the ranks of processes")
	}
	for _, c := range inMatmuls {
		t.Run(c.name, func(t *testing.T) {
			r := newRigT(t, c.ranks)
			o := smallGroup(false, c.ranks)
			o.Timeout = timeout
			g, err := coll.NewGroup(t.Context(), r.w, seqInts(c.ranks), o)
			if err != nil {
				t.Fatal(err)
			}
			x := c.of(r, g)
			t.Cleanup(func() {
				x.close()
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			})
			x.fill(0)
			test(t, r, x, g)
		})
	}
}

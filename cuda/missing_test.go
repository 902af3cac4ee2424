//go:build linux

package cuda

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// The peer that is named is the one whose flag would let the streams go on.
func TestAwaited(t *testing.T) {
	const n, self = 4, 1
	up := []int{0, 2, 3}
	for _, c := range []struct {
		name               string
		ready, done, left  []int // peers whose flags are up
		credit, nextCredit []int
		want               int
	}{
		{name: "nothing goes on", credit: up, nextCredit: up, want: 0},
		{name: "one has not come", ready: []int{0, 3}, credit: up, nextCredit: up, want: 2},
		{name: "one has not come, credits are taken", ready: []int{0, 3}, nextCredit: up, want: 2},
		{name: "one has not written", done: []int{2}, nextCredit: up, want: 0},
		{name: "the last has not left", left: []int{0, 2}, credit: up, nextCredit: up, want: 3},
		{name: "one has folded neither", credit: []int{0, 3}, nextCredit: []int{0, 3}, want: 2},
		{name: "one has folded neither and goes ahead", ready: []int{2}, credit: []int{0, 3}, nextCredit: []int{0, 3}, want: 2},
		{name: "one has folded the first only", credit: up, nextCredit: []int{0, 2}, want: 3},
		{name: "one folds while another has not come", ready: []int{0, 3}, credit: nil, nextCredit: []int{0, 2}, want: 2},
		{name: "all have come, nobody has folded", ready: up, want: 0},
	} {
		b := make([]byte, quietBytes)
		for row, peers := range [][]int{c.ready, c.done, c.left, c.credit, c.nextCredit} {
			for _, r := range peers {
				b[row*quietRow+4*r] = 1
			}
		}
		if got := awaited(b, n, self); got != c.want {
			t.Errorf("%s: rank %d, want %d", c.name, got, c.want)
		}
	}
}

// One rank sends and meets, but folds nothing, so that the others wait for its credits
// with all flags of their meetings down. Whoever gives up names that rank.
func TestAwaitsCredit(t *testing.T) {
	const n, slow, count = 4, 2, 64 << 10
	r := newRigT(t, n)
	src, dst, gate := r.alloc(4*n*count), r.alloc(4*count), r.alloc(256)
	for _, c := range []struct {
		name   string
		enough int // calls: how many until a part of staging is used again
		join   bool
	}{{"settling", 1, true}, {"the next round", StagingParts + 1, false}} {
		t.Run(c.name, func(t *testing.T) {
			o := smallGroup(false, n)
			o.Timeout = 200 * time.Millisecond
			g, err := r.w.NewGroup(t.Context(), []int{0, 1, 2, 3}, o)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			r.write(slow, gate, make([]byte, 4))
			m := g.Members()
			if err := r.drv.StreamWait32(m[slow].Rank.Ctx, m[slow].engine.in, r.w.Addr(slow, gate), 1); err != nil {
				t.Fatal(err)
			}
			defer func() { // its memory goes when the test ends, so its streams have to end before
				r.write(slow, gate, []byte{1, 0, 0, 0})
				for _, m := range m {
					if err := m.finishAll(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}()
			part := make([]int, n)
			for range c.enough {
				for i, m := range m {
					p, err := m.Prepare(Op{Kind: kernels.ReduceScatter, DType: dtype.F32, Symmetric: true, Beside: true, Algo: kernels.Engine, Part: part[i],
						Tensors: []Tensor{{Src: r.w.Addr(i, src), Dst: r.w.Addr(i, dst), Bytes: 4 * 1024}}})
					if err != nil {
						t.Fatal(err)
					}
					part[i] = (part[i] + p.Parts()) % StagingParts
					cmds := &driver.Commands{}
					if !p.AddAhead(cmds) {
						t.Fatal("not beside compute")
					}
					if c.join && i != slow {
						m.Join(cmds, driver.Main)
					}
					if err := r.drv.Run(m.Rank.Ctx, cmds.On(r.streams[i])); err != nil {
						t.Fatal(err)
					}
				}
			}
			named := 0
			for i, m := range m {
				if i == slow {
					continue
				}
				err := m.Check(t.Context(), r.streams[i])
				if te := (*TimeoutError)(nil); errors.As(err, &te) {
					if named++; te.Peer != slow {
						t.Errorf("rank %d waits for rank %d: %v", i, te.Peer, err)
					}
				} else if !errors.Is(err, ErrAborted) {
					t.Errorf("rank %d: %v", i, err)
				}
			}
			if named == 0 {
				t.Error("nobody gave up")
			}
		})
	}
}

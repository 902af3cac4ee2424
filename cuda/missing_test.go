//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// One rank sends and passes the barriers, but reduces nothing, so that the others time out waiting for its
// credits, not in a barrier. The error of each names that rank.
func TestAwaitsCredit(t *testing.T) {
	const n, slow, count = 4, 2, 64 << 10
	r := newRigT(t, n)
	src, dst, gate := r.alloc(4*n*count), r.alloc(4*count), r.alloc(256)
	for _, c := range []struct {
		name   string
		enough int // calls: how many until a part of staging is used again
		join   bool
	}{{"settling", 1, true}, {"the next round", coll.StagingParts + 1, false}} {
		eased(t, c.name, 200*time.Millisecond, func(t *testing.T, limit time.Duration) (others string) {
			g, err := coll.NewGroup(t.Context(), r.w, []int{0, 1, 2, 3}, smallGroup(false, n))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			r.write(slow, gate, make([]byte, 4))
			m := g.Members()
			if err := r.drv.StreamWait32(m[slow].Rank.Ctx, m[slow].ReductionStream(), r.w.Addr(slow, gate), 1); err != nil {
				t.Fatal(err)
			}
			defer func() { // its memory goes when the test ends, so its streams have to end before
				r.write(slow, gate, []byte{1, 0, 0, 0})
				for _, m := range m {
					for _, s := range []driver.Stream{m.ReductionStream(), r.streams[m.Index]} {
						err := m.Drain(t.Context(), func() (bool, error) { return r.drv.StreamQuery(m.Rank.Ctx, s) })
						if err != nil {
							t.Error(err)
						}
					}
				}
			}()
			part := make([]int, n)
			for range c.enough {
				for i, m := range m {
					p, err := m.Prepare(coll.Op{Kind: kernels.ReduceScatter, DType: dtype.F32, Symmetric: true, Overlapped: true, Algo: kernels.Engine, Part: part[i],
						Tensors: []coll.Tensor{{Src: r.w.Addr(i, src), Dst: r.w.Addr(i, dst), Bytes: 4 * 1024}}})
					if err != nil {
						t.Fatal(err)
					}
					part[i] = (part[i] + p.Parts()) % coll.StagingParts
					cmds := &driver.Commands{}
					if !p.AddAhead(cmds) {
						t.Fatal("not overlapped with compute")
					}
					if c.join && i != slow {
						m.Join(cmds, driver.Main)
					}
					if err := r.drv.Run(m.Rank.Ctx, cmds.On(r.streams[i])); err != nil {
						t.Fatal(err)
					}
				}
			}
			g.SetTimeout(limit)
			named := 0
			for i, m := range m {
				if i == slow {
					continue
				}
				err := m.Check(t.Context(), r.streams[i])
				if te := (*symm.TimeoutError)(nil); errors.As(err, &te) && te.Rank == i {
					if named++; te.Peer != slow {
						others = fmt.Sprintf("rank %d waits for rank %d: %v", i, te.Peer, err)
					}
				} else if !errors.Is(err, symm.ErrCanceled) {
					t.Errorf("rank %d: %v", i, err)
				}
			}
			if named == 0 {
				t.Error("nobody gave up")
			}
			return others
		})
	}
}

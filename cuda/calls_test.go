//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// TestTimeoutNames leaves rank 1 out of a call of every kind: the error of rank 0 names
// the call, however many others have been prepared since.
func TestTimeoutNames(t *testing.T) {
	r := newRigT(t, 2)
	a, b := r.w.Addr(0, r.alloc(64<<10)), r.w.Addr(0, r.alloc(64<<10))
	type callT struct {
		name    string
		op      string
		channel int
		run     func(m *coll.Member, s driver.Stream) error
	}
	var calls []callT
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll, kernels.Barrier, kernels.Broadcast, kernels.Permute, kernels.Reduce} {
		for _, algo := range []kernels.Algo{kernels.Auto, kernels.Direct, kernels.Engine} {
			for _, beside := range []bool{false, true} {
				op := coll.Op{Kind: kind, DType: dtype.F32, Symmetric: true, Algo: algo, Overlapped: beside, Root: 1, Pairs: [][2]int{{0, 1}, {1, 0}},
					Tensors: []coll.Tensor{{Src: a, Dst: b, Bytes: 16 << 10}}}
				calls = append(calls, callT{fmt.Sprintf("%v/%v/%v", kind, algo, beside), kind.String(), 0, func(m *coll.Member, s driver.Stream) error {
					p, err := m.Prepare(op)
					if err != nil {
						return err
					}
					for range 100 { // later calls take no names away
						if _, err := m.Prepare(coll.Op{Kind: kernels.Barrier}); err != nil {
							return err
						}
					}
					return p.Enqueue(s)
				}})
			}
		}
	}
	calls = append(calls,
		callT{"uneven", "all_to_all_uneven", 0, func(m *coll.Member, s driver.Stream) error {
			p, err := m.PrepareAllToAllV([]coll.Piece{{}, {At: a, Bytes: 64}}, []coll.Piece{{}, {At: b, Bytes: 128}})
			if err != nil {
				return err
			}
			return p.Enqueue(s)
		}},
		callT{"wait", "wait", 0, func(m *coll.Member, s driver.Stream) error { return m.Wait(s, 0, 1) }},
		callT{"wait, last channel", "wait", symm.UserChannels - 1, func(m *coll.Member, s driver.Stream) error { return m.Wait(s, symm.UserChannels-1, 1) }},
	)
	ran := 0
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			o := smallGroup(false, 2)
			o.Timeout = 20 * time.Millisecond
			g, err := coll.NewGroup(t.Context(), r.w, []int{0, 1}, o)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			m := g.Members()[0]
			err = c.run(m, r.streams[0])
			var plan *kernels.PlanError
			if errors.As(err, &plan) {
				return // the protocol does not serve it
			}
			if err != nil {
				t.Fatal(err)
			}
			ran++
			err = m.Check(t.Context(), r.streams[0])
			var te *symm.TimeoutError
			if !errors.As(err, &te) || te.Op != c.op || te.Rank != 0 || te.Peer != 1 {
				t.Fatalf("got %v, %+v", err, te)
			}
			if text := te.Error(); !strings.HasPrefix(text, "rank 0: "+c.op+": timed out") || strings.Contains(text, "channel "+fmt.Sprint(c.channel)) != (c.op == "wait") {
				t.Error(text)
			}
		})
	}
	if ran < 30 {
		t.Errorf("only %d calls timed out", ran)
	}
}

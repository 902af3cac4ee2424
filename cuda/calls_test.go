//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
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
		run     func(m *Member, s driver.Stream) error
	}
	var calls []callT
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll, kernels.Barrier, kernels.Broadcast, kernels.Permute, kernels.Reduce} {
		for _, algo := range []kernels.Algo{kernels.Auto, kernels.Direct, kernels.Engine} {
			for _, beside := range []bool{false, true} {
				op := Op{Kind: kind, DType: dtype.F32, Symmetric: true, Algo: algo, Beside: beside, Root: 1, Pairs: [][2]int{{0, 1}, {1, 0}},
					Tensors: []Tensor{{Src: a, Dst: b, Bytes: 16 << 10}}}
				calls = append(calls, callT{fmt.Sprintf("%v/%v/%v", kind, algo, beside), kind.String(), 0, func(m *Member, s driver.Stream) error {
					p, err := m.Prepare(op)
					if err != nil {
						return err
					}
					for range 100 { // later calls take no names away
						if _, err := m.Prepare(Op{Kind: kernels.Barrier}); err != nil {
							return err
						}
					}
					return p.Enqueue(s)
				}})
			}
		}
	}
	calls = append(calls,
		callT{"uneven", "all_to_all_uneven", 0, func(m *Member, s driver.Stream) error {
			p, err := m.PrepareUneven([]Piece{{}, {a, 64}}, []Piece{{}, {b, 128}})
			if err != nil {
				return err
			}
			return p.Enqueue(s)
		}},
		callT{"wait", "wait", 0, func(m *Member, s driver.Stream) error { return m.Wait(s, 0, 1) }},
		callT{"wait, last channel", "wait", UserChannels - 1, func(m *Member, s driver.Stream) error { return m.Wait(s, UserChannels-1, 1) }},
	)
	ran := 0
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			o := smallGroup(false, 2)
			o.Timeout = 20 * time.Millisecond
			g, err := r.w.NewGroup(t.Context(), []int{0, 1}, o)
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
			var te *TimeoutError
			if !errors.As(err, &te) || te.Op != c.op || te.Channel != c.channel || te.Rank != 0 || te.Peer != 1 {
				t.Fatalf("got %v, %+v", err, te)
			}
			if text := te.Error(); !strings.Contains(text, "in "+c.op+" rank 0 waited") || strings.Contains(text, "channel "+fmt.Sprint(c.channel)) != (c.op == "wait") {
				t.Error(text)
			}
		})
	}
	if ran < 30 {
		t.Errorf("only %d calls timed out", ran)
	}
}

// Numbers start again without touching kind and channel.
func TestCallNumbers(t *testing.T) {
	var m Member
	m.seq.Store(1<<numberBits - 2)
	for i, want := range []uint32{1<<numberBits - 1, 0, 1} {
		if k, ch, n := called(m.number(callWait, UserChannels-1)); k != callWait || ch != UserChannels-1 || n != want {
			t.Errorf("%d: %v, channel %d, number %d", i, k, ch, n)
		}
	}
	m.seq.Store(math.MaxUint32)
	if k, ch, n := called(m.number(kindOf(kernels.Reduce), 0)); k.String() != "reduce" || ch != 0 || n != 0 {
		t.Errorf("%v, channel %d, number %d", k, ch, n)
	}
	if kindOf(kernels.Reduce) >= callSignal || UserChannels > 1<<channelBits {
		t.Error("kinds or channels have outgrown their bits")
	}
	if e := (&TimeoutError{Rank: 1, Peer: 2}).Error(); !strings.Contains(e, "in a collective rank 1 waited") {
		t.Error(e)
	}
}

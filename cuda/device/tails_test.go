//go:build linux

package device_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

// chainModule is random collectives that follow each other in one stream while
// something computes beside them: reductions and gathers whose memory overlaps that of
// others in every way, so that the stream's order is all that keeps results apart.
func chainModule(rng *rand.Rand, calls int) (*rt.Module, func(*rt.Exec)) {
	const words, filler = 8192, 4 * 8192
	all := rt.C(0, rt.F32, words)
	rest, product := rt.C(filler, rt.F32, 16, 16), rt.C(filler+1024, rt.F32, 16, 16)
	m := &rt.Module{Name: "m", World: 2, Arena: filler + 2048, Streams: []string{"compute", "comm.g"}, Events: 2,
		Groups:  []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}}}},
		Inputs:  []rt.Param{{Name: "x", Tensors: rt.Ts{all}}},
		Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{all}}}}
	type call struct {
		reduce  bool
		in, out rt.Tensor
	}
	var list []call
	for len(list) < calls {
		c := call{reduce: rng.IntN(4) > 0}
		n := int64(512 * (1 + rng.IntN(3)))
		in, out := 2*n, n
		if !c.reduce {
			in, out = n, 2*n
		}
		a, b := 4*rng.Int64N(words-in), 4*rng.Int64N(words-out)
		if a < b+4*out && b < a+4*in {
			continue // within a call nothing overlaps
		}
		c.in, c.out = rt.C(a&^511, rt.F32, in), rt.C(b&^511, rt.F32, out)
		if a, b = a&^511, b&^511; a < b+4*out && b < a+4*in {
			continue
		}
		list = append(list, c)
	}
	return m, func(e *rt.Exec) {
		e.Record("compute", 0)
		e.Wait("comm.g", 0)
		for i, c := range list {
			if c.reduce {
				e.At(fmt.Sprint("rs", i)).ReduceScatter("comm.g", "g", "sum", 0, rt.Ts{c.out}, rt.Ts{c.in})
			} else {
				e.At(fmt.Sprint("ag", i)).AllGather("comm.g", "g", 0, rt.Ts{c.out}, rt.Ts{c.in})
			}
		}
		e.Record("comm.g", 1)
		e.At("filler").Launch("compute", "matmul", nil, rt.Ts{product}, rt.Ts{rest, rest})
		e.Wait("compute", 1)
	}
}

// Collectives that go ahead of the folds of others give what they give one by one.
func TestTails(t *testing.T) {
	symmetricOnly(t)
	fakeOnly(t)
	rng := rand.New(rand.NewPCG(3, 9))
	for round := range 20 {
		m, f := chainModule(rng, 2+rng.IntN(8))
		world(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			x := make([]byte, 4*8192)
			for i := 0; i < len(x); i += 4 { // small whole numbers: sums are exact
				x[i+2], x[i+3] = byte(0x80*(i/4%2)), 0x3f+byte(r.Info().Rank)
			}
			in := []rt.Value{{DType: rt.F32, Shape: []int64{8192}, Data: x}}
			want, err := rt.RunModule(ctx, r, m, f, in, rt.Options{})
			if err != nil {
				return err
			}
			eager := bytes.Clone(want[0].Data)
			for _, graph := range []bool{false, true} {
				s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, graph)
				if err != nil {
					return err
				}
				for i := range 3 {
					got, err := s.Run(ctx, in)
					if err != nil {
						return err
					}
					if !bytes.Equal(got[0].Data, eager) {
						return fmt.Errorf("program %d, graph %v, replay %d: not what the calls give one by one", round, graph, i)
					}
				}
				if err := s.Close(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

//go:build linux

package device_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

// chainModule is random collectives of one group that follow each other, in one stream
// or by turns in two, while something computes beside them: reductions and gathers whose
// memory overlaps that of others in every way, so that their order is all that keeps
// results apart. Kernels in between have memory of their own.
func chainModule(rng *rand.Rand, calls, streams int) (*rt.Module, func(*rt.Exec)) {
	const words, filler = 8192, 4 * 8192
	all := rt.C(0, rt.F32, words)
	rest, product := rt.C(filler, rt.F32, 16, 16), rt.C(filler+1024, rt.F32, 16, 16)
	own := map[string]rt.Tensor{"comm.g": rt.C(filler+2048, rt.F32, 16), "comm.h": rt.C(filler+2560, rt.F32, 16)}
	comm := []string{"comm.g", "comm.h"}[:streams]
	m := &rt.Module{Name: "m", World: 2, Arena: filler + 3072, Streams: append([]string{"compute"}, comm...), Events: 3,
		Groups:  []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}}}},
		Inputs:  []rt.Param{{Name: "x", Tensors: rt.Ts{all}}},
		Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{all}}}}
	type call struct {
		reduce  bool
		stream  string
		neg     bool // a kernel comes first
		in, out rt.Tensor
	}
	var list []call
	for len(list) < calls {
		c := call{reduce: rng.IntN(4) > 0, stream: comm[rng.IntN(streams)], neg: rng.IntN(4) == 0}
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
		for _, s := range comm {
			e.Wait(s, 0)
		}
		for i, c := range list {
			if c.neg {
				s := comm[i%streams]
				e.At(fmt.Sprint("neg", i)).Launch(s, "neg", nil, rt.Ts{own[s]}, rt.Ts{own[s]})
			}
			if c.reduce {
				e.At(fmt.Sprint("rs", i)).ReduceScatter(c.stream, "g", "sum", 0, rt.Ts{c.out}, rt.Ts{c.in})
			} else {
				e.At(fmt.Sprint("ag", i)).AllGather(c.stream, "g", 0, rt.Ts{c.out}, rt.Ts{c.in})
			}
		}
		for i, s := range comm {
			e.Record(s, 1+i)
		}
		e.At("filler").Launch("compute", "matmul", nil, rt.Ts{product}, rt.Ts{rest, rest})
		for i := range comm {
			e.Wait("compute", 1+i)
		}
	}
}

// Collectives that go ahead of the reductions of others give what they give one by one.
func TestTails(t *testing.T) {
	symmetricOnly(t)
	fakeOnly(t)
	rng := rand.New(rand.NewPCG(3, 9))
	for round := range 30 {
		m, f := chainModule(rng, 2+rng.IntN(8), 1+round%2)
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

// What an event in a stream stands for is all that the stream was given and has waited
// for, though reductions of the stream take place elsewhere.
func TestTailsWait(t *testing.T) {
	symmetricOnly(t)
	fakeOnly(t)
	const side = 160
	late := rt.C(0, rt.F32, side, side)
	x, y, z := rt.C(late.Bytes(), rt.F32, 2048), rt.C(late.Bytes()+8192, rt.F32, 1024), rt.C(late.Bytes()+12288, rt.F32, side, side)
	got := rt.C(z.Off+z.Bytes(), rt.F32, side, side)
	small := func(off int64) rt.Tensor { return rt.C(off, rt.F32, 16, 16) }
	end := got.Off + got.Bytes()
	m := &rt.Module{Name: "m", World: 2, Arena: end + 2048, Streams: []string{"compute", "compute.late", "comm.g"}, Events: 4,
		Groups:  []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}}}},
		Inputs:  []rt.Param{{Name: "late", Tensors: rt.Ts{late}}},
		Outputs: []rt.Param{{Name: "got", Tensors: rt.Ts{got}}}}
	f := func(e *rt.Exec) {
		e.Record("compute", 0)
		e.Wait("compute.late", 0)
		e.Wait("comm.g", 0)
		e.At("rs").ReduceScatter("comm.g", "g", "sum", 0, rt.Ts{y}, rt.Ts{x})
		e.At("late").Launch("compute.late", "matmul", nil, rt.Ts{z}, rt.Ts{late, late})
		e.Record("compute.late", 1)
		e.Wait("comm.g", 1)
		e.Record("comm.g", 2)
		e.At("filler").Launch("compute", "matmul", nil, rt.Ts{small(end)}, rt.Ts{small(end + 1024), small(end + 1024)})
		e.Wait("compute", 2)
		e.At("read").Launch("compute", "neg", nil, rt.Ts{got}, rt.Ts{z})
	}
	world(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for _, graph := range []bool{false, true} {
			s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, graph)
			if err != nil {
				return err
			}
			for i := range 3 {
				b := make([]byte, late.Bytes())
				for k := 0; k < side; k++ { // 2^i of the unit matrix: the matmul is 4^i of it
					v := math.Float32bits(float32(int(1) << i))
					binary.LittleEndian.PutUint32(b[4*(k*side+k):], v)
				}
				outs, err := s.Run(ctx, []rt.Value{{DType: rt.F32, Shape: []int64{side, side}, Data: b}})
				if err != nil {
					return err
				}
				last := math.Float32frombits(binary.LittleEndian.Uint32(outs[0].Data[len(b)-4:]))
				if want := -float32(int(1) << (2 * i)); last != want {
					return fmt.Errorf("graph %v, replay %d: %v, want %v", graph, i, last, want)
				}
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Two streams share a group by turns: a stream that waits for its reductions after its turn
// does not wait for the credits of what the other one stages meanwhile.
func TestTailsTurn(t *testing.T) {
	symmetricOnly(t)
	fakeOnly(t)
	const end = 6 * 8192
	in := func(k int64) rt.Tensor { return rt.C(8192*k, rt.F32, 2048) }
	out := func(k int64) rt.Tensor { return rt.C(3*8192+8192*k, rt.F32, 1024) }
	small := func(k int64) rt.Tensor { return rt.C(end+1024*k, rt.F32, 16, 16) }
	m := &rt.Module{Name: "m", World: 2, Arena: end + 4096, Streams: []string{"compute", "comm.g", "comm.h"}, Events: 3,
		Groups: []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}}}}}
	f := func(e *rt.Exec) {
		e.Record("compute", 0)
		e.Wait("comm.g", 0)
		e.Wait("comm.h", 0)
		for k, s := range []string{"comm.g", "comm.h", "comm.h", "comm.h"} {
			e.At(fmt.Sprint("rs", k)).ReduceScatter(s, "g", "sum", 0, rt.Ts{out(int64(k % 3))}, rt.Ts{in(int64(k % 3))})
			if k == 1 {
				e.At("join").Launch("comm.g", "neg", nil, rt.Ts{small(0)}, rt.Ts{small(0)})
			}
		}
		e.Record("comm.g", 1)
		e.Record("comm.h", 2)
		e.At("filler").Launch("compute", "matmul", nil, rt.Ts{small(1)}, rt.Ts{small(2), small(2)})
		e.Wait("compute", 1)
		e.Wait("compute", 2)
	}
	world(t, 2, rt.Config{Timeout: plenty}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for _, graph := range []bool{false, true} {
			s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, graph)
			if err != nil {
				return err
			}
			for range 3 {
				if err := s.Replay(ctx); err != nil {
					return err
				}
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

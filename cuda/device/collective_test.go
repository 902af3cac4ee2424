//go:build linux

package device_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// arenaBytes is the user memory of the collective tests.
const arenaBytes = 1 << 17

// layouts gives a tensor of a shape at a place in several layouts, and the bytes it
// takes: dense, with the first or last two dimensions exchanged in memory, and with gaps.
func layout(kind int, off int64, d rt.DType, shape []int64) (rt.Tensor, int64) {
	dense := rt.C(off, d, shape...)
	strides := dense.StridesOrDense()
	switch {
	case kind == 1 && len(shape) >= 2:
		s := append([]int64(nil), strides...)
		inner := int64(1)
		for _, n := range shape[2:] {
			inner *= n
		}
		s[0], s[1] = inner, shape[0]*inner
		return rt.S(off, d, shape, s), dense.Bytes()
	case kind == 3 && len(shape) >= 3:
		s, k := append([]int64(nil), strides...), len(shape)
		s[k-1], s[k-2] = shape[k-2], 1
		return rt.S(off, d, shape, s), dense.Bytes()
	case kind == 2:
		s := append([]int64(nil), strides...)
		for i := range s {
			s[i] *= 2
		}
		return rt.S(off, d, shape, s), 2 * dense.Bytes()
	}
	return dense, dense.Bytes()
}

// collectiveGen draws a collective for position pos of a subgroup of n.
type collectiveGen struct {
	rng    *rand.Rand
	n, pos int
	c      *rt.Collective
	uneven bool
	end    int64 // of what has been placed
}

// randomCollective makes a collective for a subgroup of n. All ranks that draw from
// equal generators make the same one, but for the rows of an uneven exchange.
func randomCollective(rng *rand.Rand, n, pos int) *rt.Collective {
	ops := []rt.CollOp{rt.AllReduce, rt.AllGather, rt.ReduceScatter, rt.AllToAll, rt.AllToAll, rt.Broadcast, rt.CollectivePermute}
	pick := rng.IntN(len(ops))
	c := &rt.Collective{Op: ops[pick], Group: "world", Label: "x"}
	g := &collectiveGen{rng: rng, n: n, pos: pos, c: c, uneven: pick == 4}
	c.Reduce = []string{"sum", "min", "max", "avg", "product"}[rng.IntN(5)]
	if c.Op == rt.CollectivePermute {
		for s, d := range rng.Perm(n) {
			if rng.IntN(4) > 0 {
				c.Pairs = append(c.Pairs, int64(s), int64(d))
			}
		}
	}
	c.Root = rng.IntN(n)
	for k := range 1 + rng.IntN(3) {
		dt := g.dtype()
		shape := g.shape(k == 0)
		in, out := g.shapes(shape)
		it := g.place(dt, in)
		ot := it
		if apart := c.Op == rt.AllGather || c.Op == rt.ReduceScatter || g.uneven; apart || rng.IntN(3) > 0 {
			ot = g.place(dt, out)
		}
		c.Ins, c.Outs = append(c.Ins, it), append(c.Outs, ot)
	}
	return c
}

func (g *collectiveGen) dtype() rt.DType {
	dts := []rt.DType{rt.F32, rt.BF16, rt.F16, rt.I32, rt.I64, rt.F64, rt.U8}
	dt := dts[g.rng.IntN(len(dts))]
	if g.c.Reduce == "avg" && (g.c.Op == rt.AllReduce || g.c.Op == rt.ReduceScatter) {
		dt = dts[g.rng.IntN(3)]
	}
	return dt
}

// shape has the collective's dimension, which the first one decides.
func (g *collectiveGen) shape(first bool) []int64 {
	shape := make([]int64, 1+g.rng.IntN(3))
	for i := range shape {
		shape[i] = int64(g.rng.IntN(5))
		if g.rng.IntN(8) > 0 && shape[i] == 0 {
			shape[i] = 3
		}
	}
	if first {
		g.c.Dim = g.rng.IntN(len(shape))
	}
	for len(shape) <= g.c.Dim {
		shape = append(shape, 2)
	}
	return shape
}

// shapes are those of an operand and its result, made from one that each rank has a piece of.
func (g *collectiveGen) shapes(shape []int64) (in, out []int64) {
	in, out = slices.Clone(shape), slices.Clone(shape)
	switch {
	case g.c.Op == rt.AllGather:
		out[g.c.Dim] *= int64(g.n)
	case g.c.Op == rt.ReduceScatter:
		in[g.c.Dim] *= int64(g.n)
	case g.uneven:
		rows := make([][]int64, g.n) // from, to
		for i := range rows {
			rows[i] = make([]int64, g.n)
			for j := range rows[i] {
				rows[i][j] = int64(g.rng.IntN(4))
			}
		}
		in[0], out[0] = 0, 0
		send, recv := rows[g.pos], make([]int64, g.n)
		for j := range g.n {
			recv[j] = rows[j][g.pos]
			in[0] += send[j]
			out[0] += recv[j]
		}
		g.c.InSplits, g.c.OutSplits = append(g.c.InSplits, slices.Clone(send)), append(g.c.OutSplits, recv)
	case g.c.Op == rt.AllToAll:
		in[0] *= int64(g.n)
		out[0] *= int64(g.n)
	}
	return in, out
}

func (g *collectiveGen) place(dt rt.DType, shape []int64) rt.Tensor {
	kind := g.rng.IntN(5)
	if g.uneven {
		kind = kind / 3 * 3 // dense enough: its offsets must not depend on sizes, which differ by rank
	}
	t, bytes := layout(kind, g.end, dt, shape)
	if g.uneven {
		bytes = 4 * int64(g.n) * 125 * 8
	}
	g.end += (bytes + 15) &^ 15
	return t
}

// fill gives numbers that stay exact and finite in every type under every reduction.
func fill(d rt.DType, rng *rand.Rand, b []byte) { fillMultiples(d, rng, 1, b) }

// fillMultiples fills with one to three times unit.
func fillMultiples(d rt.DType, rng *rand.Rand, unit int, b []byte) {
	for i := 0; i+d.Size() <= len(b); i += d.Size() {
		v := float64(unit * (1 + rng.IntN(3)))
		switch d {
		case rt.F32:
			binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(v)))
		case rt.F64:
			binary.LittleEndian.PutUint64(b[i:], math.Float64bits(v))
		case rt.BF16:
			binary.LittleEndian.PutUint16(b[i:], dtype.BF16FromF32(float32(v)))
		case rt.F16:
			binary.LittleEndian.PutUint16(b[i:], dtype.F16FromF32(float32(v)))
		case rt.I32:
			binary.LittleEndian.PutUint32(b[i:], uint32(v))
		case rt.I64:
			binary.LittleEndian.PutUint64(b[i:], uint64(v))
		default:
			b[i] = byte(v)
		}
	}
}

// runCollectives runs rounds of random collectives and gives the arena after each.
func runCollectives(ctx context.Context, r *rt.Rank, seed uint64, rounds int) ([][]byte, error) {
	me, n := r.Info().Rank, r.Info().World
	all := rt.C(0, rt.U8, arenaBytes)
	var out [][]byte
	for i := range rounds {
		c := randomCollective(rand.New(rand.NewPCG(seed, uint64(i))), n, me)
		if err := r.Upload(all, make([]byte, arenaBytes)); err != nil {
			return nil, err
		}
		mine := rand.New(rand.NewPCG(seed, uint64(i*100+me)))
		unit := 1
		if c.Reduce == "avg" {
			// NCCL multiplies by 1/n, rounded to the type, before it adds: these give whole numbers.
			unit = n
		}
		for _, t := range c.Ins {
			b := make([]byte, t.Bytes())
			fillMultiples(t.DType, mine, unit, b)
			if err := r.Upload(t, b); err != nil {
				return nil, err
			}
		}
		if err := r.Barrier(ctx); err != nil {
			return nil, err
		}
		w, err := r.Start(ctx, []string{"", "comm.a", "comm.b"}[i%3], c)
		if err != nil {
			return nil, fmt.Errorf("round %d: %v: %w", i, c, err)
		}
		if err := w.Wait(ctx); err != nil {
			return nil, fmt.Errorf("round %d: %v: %w", i, c, err)
		}
		b, err := r.Download(all)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// Random collectives, in all layouts, give on the CUDA device what they give on the
// host device, and touch nothing else.
func TestCollectives(t *testing.T) {
	const rounds = 60
	for _, n := range []int{2, 3, 4} { // of one: TestAlone
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			want := make([][][]byte, n)
			cfg := rt.Config{UserBytes: arenaBytes, Timeout: plenty}
			err := host.Local(t.Context(), n, cfg, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) (err error) {
				want[r.Info().Rank], err = runCollectives(ctx, r, 1, rounds)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			world(t, n, cfg, nil, func(ctx context.Context, r *rt.Rank) error {
				me := r.Info().Rank
				got, err := runCollectives(ctx, r, 1, rounds)
				for i := range got {
					if !bytes.Equal(got[i], want[me][i]) {
						return fmt.Errorf("rank %d, round %d: %+v differs", me, i, *randomCollective(rand.New(rand.NewPCG(1, uint64(i))), n, me))
					}
				}
				return err
			})
		})
	}
}

// Ranks that share a GPU do not hold each other up where it has few hardware queues, which
// streams take anew whenever they have nothing left. The variable is read when a process begins.
func TestFewQueues(t *testing.T) {
	if !*onGPU {
		t.Skip("the fake driver has no queues that streams share by chance")
	}
	args := []string{"-test.run=^TestCollectives$/^3$", "-test.count=10", "-gpu", "-test.timeout=2m"}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "CUDA_DEVICE_MAX_CONNECTIONS=8")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// A world of one rank: every collective is a copy.
func TestAlone(t *testing.T) {
	world(t, 1, rt.Config{UserBytes: 4096}, nil, func(ctx context.Context, r *rt.Rank) error {
		in, out := rt.C(0, rt.F32, 3, 4), rt.S(1024, rt.F32, rt.Dims{3, 4}, rt.Dims{1, 3})
		b := make([]byte, in.Bytes())
		fill(rt.F32, rand.New(rand.NewPCG(1, 1)), b)
		if err := r.Upload(in, b); err != nil {
			return err
		}
		for _, c := range []*rt.Collective{
			{Op: rt.AllReduce, Reduce: "avg"}, {Op: rt.AllGather, Dim: 1}, {Op: rt.ReduceScatter, Reduce: "sum"},
			{Op: rt.AllToAll}, {Op: rt.Broadcast}, {Op: rt.CollectivePermute, Pairs: []int64{0, 0}},
		} {
			c.Group, c.Ins, c.Outs = "world", rt.Ts{in}, rt.Ts{out}
			if err := r.Upload(out, make([]byte, in.Bytes())); err != nil {
				return err
			}
			w, err := r.Start(ctx, "", c)
			if err != nil {
				return err
			}
			if err := w.Wait(ctx); err != nil {
				return err
			}
			got, err := r.Download(out)
			if err != nil || !bytes.Equal(got, b) {
				return fmt.Errorf("%v: %v %v", c.Op, got, err)
			}
		}
		return r.Barrier(ctx)
	})
}

// Malformed calls are refused where they are made and break nothing.
func TestMalformedCalls(t *testing.T) {
	x := rt.C(0, rt.F32, 4)
	world(t, 2, rt.Config{UserBytes: 512}, nil, func(ctx context.Context, r *rt.Rank) error {
		for _, c := range []struct {
			want string
			call *rt.Collective
		}{
			{"no group", &rt.Collective{Op: rt.AllReduce, Group: "nobody", Reduce: "sum", Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"unknown reduction", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "median", Ins: rt.Ts{x}, Outs: rt.Ts{x}}},
			{"outside of the arena", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{rt.C(500, rt.F32, 4)}, Outs: rt.Ts{rt.C(500, rt.F32, 4)}}},
			{"overlap", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{x, x}, Outs: rt.Ts{x, x}}},
			{"scratch", &rt.Collective{Op: rt.Broadcast, Group: "world", Ins: rt.Ts{rt.S(0, rt.U8, rt.Dims{64 << 20}, rt.Dims{0})}, Outs: rt.Ts{rt.S(0, rt.U8, rt.Dims{64 << 20}, rt.Dims{0})}}},
			{"equal parts", &rt.Collective{Op: rt.AllToAll, Group: "world", Ins: rt.Ts{rt.C(0, rt.F32, 3)}, Outs: rt.Ts{rt.C(0, rt.F32, 3)}}},
		} {
			if _, err := r.Start(ctx, "", c.call); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%v: got %v, want %q", c.call.Op, err, c.want)
			}
		}
		if r.Err() != nil {
			return errors.New("a malformed call broke the world")
		}
		return r.Barrier(ctx)
	})
}

// Two groups of several subgroups each, whose collectives run side by side in streams
// of their own: the bits of the host device.
func TestSubgroups(t *testing.T) {
	const n = 4
	x, y, z := rt.C(0, rt.F32, 8, 6), rt.C(512, rt.F32, 16, 6), rt.C(1024, rt.F32, 8, 12)
	s := rt.C(2048, rt.F32, 4, 6)
	m := &rt.Module{Name: "m", World: n, Arena: 4096, Streams: []string{"compute", "comm.a", "comm.b"}, Events: 3,
		Groups: []rt.Group{{Name: "a", Ranks: [][]int{{0, 2}, {3, 1}}}, {Name: "b", Ranks: [][]int{{1, 0}, {2, 3}}}},
		Inputs: []rt.Param{{Name: "x", Tensors: rt.Ts{x}}},
		Outputs: []rt.Param{{Name: "y", Tensors: rt.Ts{y}}, {Name: "z", Tensors: rt.Ts{z}}, {Name: "s", Tensors: rt.Ts{s}},
			{Name: "x", Tensors: rt.Ts{x}}}}
	f := func(e *rt.Exec) {
		e.Record("compute", 0)
		e.Wait("comm.a", 0)
		e.Wait("comm.b", 0)
		e.At("y").AllGather("comm.a", "a", 0, rt.Ts{y}, rt.Ts{x})
		e.At("z").AllGather("comm.b", "b", 1, rt.Ts{z}, rt.Ts{x})
		e.At("s").ReduceScatter("comm.b", "b", "sum", 0, rt.Ts{s}, rt.Ts{x})
		e.Record("comm.a", 1)
		e.Record("comm.b", 2)
		e.Wait("compute", 1)
		e.Wait("compute", 2)
		e.At("x").AllReduce("compute", "a", "avg", rt.Ts{x}, rt.Ts{x}) // another stream of the group's
		e.At("w").AllReduce("compute", "world", "max", rt.Ts{x}, rt.Ts{x})
	}
	input := func(rank int) []rt.Value {
		b := make([]byte, x.Bytes())
		fill(rt.F32, rand.New(rand.NewPCG(7, uint64(rank))), b)
		return []rt.Value{{DType: rt.F32, Shape: x.Shape, Data: b}}
	}
	want := make([][]rt.Value, n)
	cfg := rt.Config{Timeout: plenty}
	err := host.Local(t.Context(), n, cfg, host.Options{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) (err error) {
		me := r.Info().Rank
		want[me], err = rt.RunModule(ctx, r, m, f, input(me), rt.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	world(t, n, cfg, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		return alike(ctx, r, m, f, input, want[me], 5, func(*rt.Step) error { return nil })
	})
}

// alike runs a module eagerly, and replays as a packed step and as a graph, and reports
// outputs that are not as wanted. then is called with each step after its replays.
func alike(ctx context.Context, r *rt.Rank, m *rt.Module, f func(*rt.Exec), input func(rank int) []rt.Value, want []rt.Value, replays int, then func(*rt.Step) error) error {
	me := r.Info().Rank
	check := func(what string, got []rt.Value, err error) error {
		if err != nil {
			return err
		}
		for i := range got {
			if !bytes.Equal(got[i].Data, want[i].Data) {
				return fmt.Errorf("%s: rank %d: output %s differs", what, me, m.Outputs[i].Name)
			}
		}
		return nil
	}
	got, err := rt.RunModule(ctx, r, m, f, input(me), rt.Options{})
	if err := check("eager", got, err); err != nil {
		return err
	}
	for _, graph := range []bool{false, true} {
		st, err := rt.Prepare(ctx, r, m, f, rt.Options{}, graph)
		if err != nil {
			return err
		}
		for range replays {
			got, err := st.Run(ctx, input(me))
			if err := check(fmt.Sprintf("graph %v", graph), got, err); err != nil {
				return err
			}
		}
		if err := then(st); err != nil {
			return err
		}
		if err := st.Close(); err != nil {
			return err
		}
	}
	return nil
}

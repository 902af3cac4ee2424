package host_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/leak"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// local runs a world of goroutines in which nothing may go wrong.
func local(t *testing.T, world int, cfg rt.Config, opts host.Options, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) {
	t.Helper()
	leak.Check(t)
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Minute
	}
	if err := host.Local(t.Context(), world, cfg, opts, mods, f); err != nil {
		t.Error(err)
	}
}

// bytesOf encodes numbers.
func bytesOf(d rt.DType, v ...float64) []byte {
	var b []byte
	for _, x := range v {
		switch d {
		case rt.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		case rt.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		case rt.BF16: // numbers of the tests are exact
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(x))>>16))
		case rt.I64:
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(x)))
		case rt.U8:
			b = append(b, byte(x))
		default:
			panic(d)
		}
	}
	return b
}

// numbersOf decodes them.
func numbersOf(d rt.DType, b []byte) []float64 {
	var v []float64
	for ; len(b) > 0; b = b[d.Size():] {
		switch d {
		case rt.F32:
			v = append(v, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		case rt.F64:
			v = append(v, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		case rt.BF16:
			v = append(v, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16)))
		case rt.I64:
			v = append(v, float64(int64(binary.LittleEndian.Uint64(b))))
		case rt.U8:
			v = append(v, float64(b[0]))
		default:
			panic(d)
		}
	}
	return v
}

// array is the reference's tensor: dense numbers.
type array struct {
	shape []int64
	v     []float64
}

func newArray(shape []int64) array {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return array{slices.Clone(shape), make([]float64, n)}
}

// part is elements lo to hi along dim; with set they are replaced by src's.
func (a array) part(dim int, lo, hi int64, set *array) array {
	outer, inner := int64(1), int64(1)
	for i, d := range a.shape {
		switch {
		case i < dim:
			outer *= d
		case i > dim:
			inner *= d
		}
	}
	shape := slices.Clone(a.shape)
	shape[dim] = hi - lo
	p := newArray(shape)
	k := 0
	for o := range outer {
		for i := lo * inner; i < hi*inner; i++ {
			at := o*a.shape[dim]*inner + i
			if set != nil {
				a.v[at] = set.v[k]
			} else {
				p.v[k] = a.v[at]
			}
			k++
		}
	}
	return p
}

func reduceRef(op string, in []array) array {
	out := newArray(in[0].shape)
	for i := range out.v {
		acc := in[0].v[i]
		for _, a := range in[1:] {
			switch op {
			case "sum", "avg":
				acc += a.v[i]
			case "product":
				acc *= a.v[i]
			case "min":
				acc = min(acc, a.v[i])
			case "max":
				acc = max(acc, a.v[i])
			}
		}
		if op == "avg" {
			acc /= float64(len(in))
		}
		out.v[i] = acc
	}
	return out
}

// reference computes what position pos of a subgroup gets, from the operands of
// all positions.
func reference(c *rt.Collective, k, pos int, in []array) array {
	n := int64(len(in))
	out := newArray(c.Outs[k].Shape)
	switch c.Op {
	case rt.AllReduce:
		return reduceRef(c.Reduce, in)
	case rt.AllGather:
		d := in[0].shape[c.Dim]
		for i := range in {
			out.part(c.Dim, int64(i)*d, int64(i+1)*d, &in[i])
		}
	case rt.ReduceScatter:
		full := reduceRef(c.Reduce, in)
		d := full.shape[c.Dim] / n
		return full.part(c.Dim, int64(pos)*d, int64(pos+1)*d, nil)
	case rt.AllToAll:
		d := in[0].shape[0] / n
		for i := range in {
			p := in[i].part(0, int64(pos)*d, int64(pos+1)*d, nil)
			out.part(0, int64(i)*d, int64(i+1)*d, &p)
		}
	case rt.Broadcast:
		return in[c.Root]
	case rt.CollectivePermute:
		for i := 0; i < len(c.Pairs); i += 2 {
			if int(c.Pairs[i+1]) == pos {
				return in[c.Pairs[i]]
			}
		}
	}
	return out
}

// randomCollective draws an operation with operands and results placed one after
// the other from offset 0, some strided, some in place; end is where they end.
func randomCollective(rng *rand.Rand, group string, n int) (c *rt.Collective, end int64) {
	c = &rt.Collective{Group: group, Op: rt.CollOp(1 + rng.IntN(6)), Reduce: []string{"sum", "product", "min", "max", "avg"}[rng.IntN(5)]}
	c.Root = rng.IntN(n)
	place := func(d rt.DType, shape []int64) rt.Tensor {
		t := rt.C(end, d, shape...)
		if len(shape) == 2 && rng.IntN(3) == 0 { // transposed storage
			t = rt.S(end, d, shape, rt.Dims{1, shape[0]})
		}
		end += (t.Bytes() + 15) / 16 * 16
		return t
	}
	for range 1 + rng.IntN(4) {
		d := []rt.DType{rt.F32, rt.F64, rt.BF16, rt.I64, rt.U8}[rng.IntN(5)]
		if c.Reduce == "avg" {
			d = rt.F64
		}
		shape := make([]int64, 1+rng.IntN(3))
		for i := range shape {
			shape[i] = int64(rng.IntN(5))
		}
		out := slices.Clone(shape)
		c.Dim = 0
		switch c.Op {
		case rt.AllGather:
			out[0] *= int64(n)
		case rt.ReduceScatter, rt.AllToAll:
			shape[0] *= int64(n)
			if c.Op == rt.AllToAll {
				out[0] *= int64(n)
			}
		}
		in := place(d, shape)
		c.Ins = append(c.Ins, in)
		if slices.Equal(shape, out) && rng.IntN(3) == 0 {
			c.Outs = append(c.Outs, in) // in place
		} else {
			c.Outs = append(c.Outs, place(d, out))
		}
	}
	if c.Op == rt.CollectivePermute {
		dst := rng.Perm(n)
		for i, s := range rng.Perm(n) {
			if rng.IntN(4) > 0 {
				c.Pairs = append(c.Pairs, int64(s), int64(dst[i]))
			}
		}
	}
	return c, end
}

// randomModule has groups of several shapes.
func randomModule() *rt.Module {
	return &rt.Module{Name: "m", Streams: []string{"compute"}, Arena: 1 << 16, Groups: []rt.Group{
		{Name: "all", Ranks: [][]int{{0, 1, 2, 3}}},
		{Name: "rows", Ranks: [][]int{{0, 1}, {2, 3}}},
		{Name: "columns", Ranks: [][]int{{2, 0}, {3, 1}}}, // not ascending
		{Name: "alone", Ranks: [][]int{{0}, {1}, {2}, {3}}},
	}}
}

// randomRounds compares collectives of every kind with a reference.
func randomRounds(ctx context.Context, r *rt.Rank, groups []rt.Group, rounds int) error {
	rng := rand.New(rand.NewPCG(1, 2)) // the same on every rank
	for round := range rounds {
		g := groups[rng.IntN(len(groups))]
		c, _ := randomCollective(rng, g.Name, len(g.Ranks[0]))
		ins := make([][]array, 4) // by rank
		for rank := range ins {
			for _, in := range c.Ins {
				a := newArray(in.Shape)
				for i := range a.v {
					a.v[i] = float64(1 + rng.IntN(3))
				}
				ins[rank] = append(ins[rank], a)
			}
		}
		me := r.Info().Rank
		for k, in := range c.Ins {
			if err := r.Upload(in, bytesOf(in.DType, ins[me][k].v...)); err != nil {
				return err
			}
		}
		if err := run(ctx, r, c); err != nil {
			return err
		}
		members, pos := g.Find(me)
		for k, out := range c.Outs {
			var in []array
			for _, m := range members {
				in = append(in, ins[m][k])
			}
			b, err := r.Download(out)
			if err != nil {
				return err
			}
			got, want := numbersOf(out.DType, b), reference(c, k, pos, in).v
			if !slices.Equal(got, want) {
				return fmt.Errorf("round %d rank %d: %s %s operand %d %v -> %v\ngot  %v\nwant %v",
					round, me, c.Name(), c.Reduce, k, c.Ins[k], out, got, want)
			}
		}
	}
	return nil
}

// wrapping makes every epoch counter wrap around early on.
const wrapping = 1<<32 - 40

func TestRandomCollectives(t *testing.T) {
	mod := randomModule()
	local(t, 4, rt.Config{}, host.Options{FirstEpoch: wrapping}, []*rt.Module{mod}, func(ctx context.Context, r *rt.Rank) error {
		return randomRounds(ctx, r, mod.Groups, 200)
	})
}

// TestGatherDims gathers and scatters along every dimension.
func TestGatherDims(t *testing.T) {
	local(t, 3, rt.Config{UserBytes: 4096}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		for dim := range 3 {
			small, large := rt.Dims{2, 3, 4}, rt.Dims{2, 3, 4}
			large[dim] *= 3
			for _, op := range []rt.CollOp{rt.AllGather, rt.ReduceScatter} {
				c := &rt.Collective{Op: op, Group: "world", Dim: dim, Reduce: "sum"}
				in, out := rt.C(0, rt.F32, small...), rt.C(1024, rt.F32, large...)
				if op == rt.ReduceScatter {
					in, out = rt.C(0, rt.F32, large...), rt.C(1024, rt.F32, small...)
				}
				c.Ins, c.Outs = rt.Ts{in}, rt.Ts{out}
				ins := make([]array, 3)
				for rank := range ins {
					ins[rank] = newArray(in.Shape)
					for i := range ins[rank].v {
						ins[rank].v[i] = float64(rank*100 + i)
					}
				}
				if err := r.Upload(in, bytesOf(rt.F32, ins[me].v...)); err != nil {
					return err
				}
				w, err := r.Start(ctx, "", c)
				if err != nil {
					return err
				}
				if err := w.Wait(ctx); err != nil {
					return err
				}
				b, err := r.Download(out)
				if err != nil {
					return err
				}
				if got, want := numbersOf(rt.F32, b), reference(c, 0, me, ins).v; !slices.Equal(got, want) {
					return fmt.Errorf("%v dim %d: got %v, want %v", op, dim, got, want)
				}
				if err := r.Barrier(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestUnevenAllToAll exchanges parts of every size, zero included, with more
// operands than one descriptor holds.
func TestUnevenAllToAll(t *testing.T) {
	const n, operands = 3, 19
	local(t, n, rt.Config{UserBytes: 1 << 16}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		rows := func(k, from, to int) int64 { return int64((k + 2*from + 3*to) % 4) }
		c := &rt.Collective{Op: rt.AllToAll, Group: "world"}
		var wants [][]float64
		at := int64(0)
		for k := range operands {
			var send, receive []int64
			var in, want []float64
			for p := range n {
				send, receive = append(send, rows(k, me, p)), append(receive, rows(k, p, me))
				for i := range rows(k, me, p) * 2 {
					in = append(in, float64(k*1000+me*100+p*10)+float64(i))
				}
				for i := range rows(k, p, me) * 2 {
					want = append(want, float64(k*1000+p*100+me*10)+float64(i))
				}
			}
			c.InSplits, c.OutSplits = append(c.InSplits, send), append(c.OutSplits, receive)
			x, y := rt.C(at, rt.F32, int64(len(in)/2), 2), rt.C(at+512, rt.F32, int64(len(want)/2), 2)
			at += 1024
			c.Ins, c.Outs = append(c.Ins, x), append(c.Outs, y)
			wants = append(wants, want)
			if err := r.Upload(x, bytesOf(rt.F32, in...)); err != nil {
				return err
			}
		}
		w, err := r.Start(ctx, "", c)
		if err != nil {
			return err
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
		for k, y := range c.Outs {
			b, err := r.Download(y)
			if err != nil {
				return err
			}
			if got := numbersOf(rt.F32, b); !slices.Equal(got, wants[k]) {
				return fmt.Errorf("rank %d operand %d: got %v, want %v", me, k, got, wants[k])
			}
		}
		return nil
	})
}

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
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// experts is a layer of experts, one on each of n ranks, which tokens choose: how many rows go
// where is known when the router has run. Each rank gives the sum of what its expert made, and a
// gradient of its weights, too, whose inner size is that of the rows that came. most bounds the
// rows of a pair.
func experts(t *testing.T, n, tokens, width, most int) *ir.Func {
	t.Helper()
	list := func(prefix, quote string) string {
		var s []string
		for i := range n {
			s = append(s, quote+prefix+fmt.Sprint(i)+quote)
		}
		return strings.Join(s, ",")
	}
	rows := strings.ReplaceAll(list("v", ""), ",", "+")
	var b strings.Builder
	var ranks []string
	for i := range n {
		ranks = append(ranks, fmt.Sprint(i))
	}
	fmt.Fprintf(&b, "world %d\ngroup @ep = [[%s]]\n", n, strings.Join(ranks, ", "))
	for _, prefix := range []string{"u", "v"} {
		for i := range n {
			fmt.Fprintf(&b, "sym %s%d hint 2 max %d\n", prefix, i, most)
		}
	}
	sub := strings.NewReplacer("TOKENS", fmt.Sprint(tokens), "WIDTH", fmt.Sprint(width), "RANKS", fmt.Sprint(n), "MINE", list("u", `"`), "THEIRS", list("v", `"`),
		"SEND", list("u", ""), "RECEIVE", list("v", ""), "ROWS", rows)
	b.WriteString(sub.Replace(`
func @f(%x: f32[TOKENS,WIDTH], %scores: f32[TOKENS,RANKS], %w: f32[WIDTH,6]) -> (f32[TOKENS,WIDTH], f32[WIDTH,6], f32[WIDTH], f32[ROWS,6], i64[RANKS]) {
  %to = argmax %scores {dim=1} : i64[TOKENS]
  %ranks = iota : i64[RANKS]
  %row = view %to : i64[TOKENS,1]
  %hot = eq %row, %ranks : bool[TOKENS,RANKS]
  %counts = sum %hot {dims=[0]} : i64[RANKS]
  %at = iota : i64[TOKENS]
  %far = mul %to {scalar=TOKENS.0} : i64[TOKENS]
  %key = add %far, %at : i64[TOKENS]
  %order:2 = topk %key {dim=0, k=TOKENS, largest=false} : i64[TOKENS], i64[TOKENS]
  %sorted = index %x, %order#1 {dims=[0]} : f32[TOKENS,WIDTH]
  %a = all_to_all %counts on @ep : async i64[RANKS]
  %theirs = wait_tensor %a : i64[RANKS]
  %mine = read_size %counts {symbols=[MINE]} : i64[RANKS]
  %other = read_size %theirs {symbols=[THEIRS]} : i64[RANKS]
  %s = all_to_all %sorted on @ep {in_splits=["SEND"], out_splits=["RECEIVE"]} : async f32[ROWS,WIDTH]
  %in = wait_tensor %s : f32[ROWS,WIDTH]
  %h = matmul %in, %w : f32[ROWS,6]
  %g = relu %h : f32[ROWS,6]
  %wt = permute %w {dims=[1, 0]} : f32[6,WIDTH:1,6]
  %y = matmul %g, %wt : f32[ROWS,WIDTH]
  %it = permute %in {dims=[1, 0]} : f32[WIDTH,ROWS:1,WIDTH]
  %dw = matmul %it, %g : f32[WIDTH,6]
  %sum = sum %y {dims=[0]} : f32[WIDTH]
  %b = all_to_all %y on @ep {in_splits=["RECEIVE"], out_splits=["SEND"]} : async f32[TOKENS,WIDTH]
  %z = wait_tensor %b : f32[TOKENS,WIDTH]
  %zero = full {value=0.0} : f32[TOKENS,WIDTH]
  %back = index_put %zero, %z, %order#1 {dims=[0]} : f32[TOKENS,WIDTH]
  return %back, %dw, %sum, %g, %counts
}
`))
	m, err := ir.Parse("experts.ir", b.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	return m.Func("f")
}

// routed are the inputs of a rank in a round. Numbers are small integers, so that sums are exact
// in any order; in round 0 all tokens of rank 0 choose the first expert, and those of others all in
// turn.
func routed(n, tokens, width, round, rank int) []rt.Value {
	rng := rand.New(rand.NewPCG(uint64(round), uint64(rank)))
	floats := func(shape rt.Dims, at func(i int) float32) rt.Value {
		v := rt.Value{DType: rt.F32, Shape: shape}
		for i := range shape[0] * shape[1] {
			v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(at(int(i))))
		}
		return v
	}
	small := func(int) float32 { return float32(rng.IntN(5) - 2) }
	return []rt.Value{floats(rt.Dims{int64(tokens), int64(width)}, small), floats(rt.Dims{int64(tokens), int64(n)}, func(i int) float32 {
		if round == 0 {
			token := i / n * min(rank, 1)
			return -float32(((i-token)%n + n) % n)
		}
		return rng.Float32()
	}), floats(rt.Dims{int64(width), 6}, small)}
}

// A captured step reads the sizes that tensors hold from memory: one capture serves loads that
// differ in every replay, no host waits, and results are those of the host device.
func TestSizesInSteps(t *testing.T) {
	symmetricOnly(t)
	wide := 512
	if testing.Short() {
		wide = 128
	}
	for _, c := range []struct{ n, tokens, width int }{{2, 8, 4}, {4, 24, 4}, {2, 300, wide}} {
		if *onGPU && c.n > 3 {
			continue
		}
		t.Run(fmt.Sprintf("%d ranks, %d tokens of %d", c.n, c.tokens, c.width), func(t *testing.T) {
			const rounds = 4
			s := lowered(t, experts(t, c.n, c.tokens, c.width, c.tokens), lower.Options{Kernels: true})
			want := make([][rounds][]rt.Value, c.n)
			cfg := rt.Config{Timeout: plenty}
			err := host.Local(t.Context(), c.n, cfg, host.Options{}, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) (err error) {
				me := r.Info().Rank
				for k := range rounds {
					if want[me][k], err = rt.RunModule(ctx, r, s.Module, s.Run, routed(c.n, c.tokens, c.width, k, me), rt.Options{}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			world(t, c.n, cfg, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
				me := r.Info().Rank
				for _, graph := range []bool{false, true} {
					st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, graph)
					if err != nil {
						return err
					}
					if why := st.HostControlFlow(); why != nil {
						return fmt.Errorf("the host reads sizes: %w", why)
					}
					for i := range 2 * rounds {
						k := (i * 3) % rounds
						got, err := st.Run(ctx, routed(c.n, c.tokens, c.width, k, me))
						if err != nil {
							return err
						}
						for o := range got {
							if !bytes.Equal(got[o].Data, want[me][k][o].Data) {
								return fmt.Errorf("rank %d, graph %v, round %d: output %s is %v, want %v", me, graph, k, s.Module.Outputs[o].Name, got[o].Shape, want[me][k][o].Shape)
							}
						}
					}
					if err := st.Close(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// A rank closes a step while a kernel of a peer on the same device waits for it: to free memory would wait
// for that kernel.
func TestCloseBesidePeer(t *testing.T) {
	if *onGPU {
		t.Skip("it has a driver of its own")
	}
	const n, tokens, width = 2, 8, 4
	s := lowered(t, experts(t, n, tokens, width, tokens), lower.Options{Kernels: true})
	drv, o := newFake(t, 1), small(n)
	o.ShareDevice = true
	err := device.Local(t.Context(), drv, []int{0, 0}, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		in := routed(n, tokens, width, 0, me)
		var steps [2]*rt.Step
		for i := range steps {
			var err error
			if steps[i], err = rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true); err != nil {
				return err
			}
			if _, err := steps[i].Time(ctx, 1); err != nil {
				return err
			}
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		if me == 0 {
			for drv.Waiting(0) == 0 {
				time.Sleep(100 * time.Microsecond)
			}
			if err := steps[0].Close(); err != nil {
				return err
			}
		}
		_, err := steps[1].Run(ctx, in)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// More rows than the bound on one rank are a typed error of a captured step on all ranks.
func TestSizesBeyondInSteps(t *testing.T) {
	symmetricOnly(t)
	const n, tokens, width = 2, 8, 4
	s := lowered(t, experts(t, n, tokens, width, 6), lower.Options{Kernels: true})
	drv, devs, o := target(t, n)
	var errs [n]error
	device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true)
		if err == nil {
			_, err = st.Run(ctx, routed(n, tokens, width, 0, me)) // 8 rows of rank 0 to itself
		}
		errs[me] = err
		return err
	})
	var beyond *rt.SymbolError
	if !errors.As(errs[0], &beyond) || beyond.Symbol != "u0" || beyond.Value != tokens || beyond.Max != 6 || beyond.Node != "mine" {
		t.Errorf("rank 0: %v", errs[0])
	}
	var other *rt.CanceledError
	if !errors.As(errs[1], &other) || other.Origin != 0 || !strings.Contains(errs[1].Error(), "symbol u0 is 8, expected 0 to 6 (read by %mine)") {
		t.Errorf("rank 1: %v", errs[1])
	}
}

// A step whose code wants the numbers, and one with an operation of such a size that no kernel of
// the device's reads, are chosen by the host, and say why.
func TestHostReadsSizes(t *testing.T) {
	fakeOnly(t)
	const n, tokens, width = 2, 8, 4
	s := lowered(t, experts(t, n, tokens, width, tokens), lower.Options{Kernels: true})
	want := make([][]rt.Value, n)
	err := host.Local(t.Context(), n, rt.Config{Timeout: plenty}, host.Options{}, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) (err error) {
		me := r.Info().Rank
		want[me], err = rt.RunModule(ctx, r, s.Module, s.Run, routed(n, tokens, width, 3, me), rt.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	world(t, n, rt.Config{}, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		st, err := rt.Prepare(ctx, r, s.Module, func(x *rt.Exec) {
			s.Run(x)
			x.Sym("u0")
		}, rt.Options{}, true)
		if err != nil {
			return err
		}
		if why := st.HostControlFlow(); why == nil || !strings.Contains(why.Error(), "wants the number u0") {
			return fmt.Errorf("the host reads sizes: %v", why)
		}
		for range 2 {
			got, err := st.Run(ctx, routed(n, tokens, width, 3, me))
			if err != nil {
				return err
			}
			for o := range got {
				if !bytes.Equal(got[o].Data, want[me][o].Data) {
					return fmt.Errorf("rank %d: output %s differs", me, s.Module.Outputs[o].Name)
				}
			}
		}
		return nil
	})
}

// Ranks whose tensors disagree on how many rows go where end with an error that says so, in a step that
// reads the sizes from memory.
func TestSizesDisagree(t *testing.T) {
	symmetricOnly(t)
	const n = 2
	m, err := ir.Parse("rows.ir", `world 2
group @g = [[0, 1]]
sym u0 hint 2 max 8
sym u1 hint 2 max 8
sym v0 hint 2 max 8
sym v1 hint 2 max 8
func @f(%x: f32[3,4], %mine: i64[2], %theirs: i64[2]) -> (f32[v0+v1,4]) {
  %a = read_size %mine {symbols=["u0", "u1"]} : i64[2]
  %b = read_size %theirs {symbols=["v0", "v1"]} : i64[2]
  %s = all_to_all %x on @g {in_splits=["u0,u1"], out_splits=["v0,v1"]} : async f32[v0+v1,4]
  %y = wait_tensor %s : f32[v0+v1,4]
  return %y
}
`)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := lowered(t, m.Func("f"), lower.Options{Kernels: true})
	ints := func(a ...int64) rt.Value {
		v := rt.Value{DType: rt.I64, Shape: rt.Dims{n}}
		for _, i := range a {
			v.Data = binary.LittleEndian.AppendUint64(v.Data, uint64(i))
		}
		return v
	}
	x := rt.Value{DType: rt.F32, Shape: rt.Dims{3, 4}, Data: make([]byte, 48)}
	for _, c := range []struct {
		from   int // the rank whose piece for rank 0 is of another size
		theirs rt.Value
		want   string
	}{
		{1, ints(2, 3), "bytes from rank 1 to rank 0 differ: 48 expected on rank 0, 16 sent on rank 1"},
		{0, ints(1, 1), "bytes from rank 0 to rank 0 differ: 16 expected on rank 0, 32 sent on rank 0"},
		{0, ints(7, 1), "bytes from rank 0 to rank 0 differ: 112 expected on rank 0, 32 sent on rank 0"},
	} {
		drv, devs, o := target(t, n)
		var errs [n]error
		device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, hosted(drv, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
			in := []rt.Value{x, ints(2, 1), c.theirs}
			if r.Info().Rank == 1 {
				in = []rt.Value{x, ints(1, 2), ints(1, 2)}
			}
			st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, true)
			if err == nil {
				_, err = st.Run(ctx, in)
			}
			errs[r.Info().Rank] = err
			return err
		})
		var differ *rt.MismatchError
		if !errors.As(errs[0], &differ) || differ.Peer != c.from || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("rank 0: %v, want %s", errs[0], c.want)
		}
		if errs[1] != nil && !errors.Is(errs[1], rt.ErrMismatch) {
			t.Errorf("rank 1: %v", errs[1])
		}
	}
}

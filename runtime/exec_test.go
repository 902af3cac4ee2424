package runtime_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// f32 is a value of numbers.
func f32(shape rt.Dims, v ...float32) rt.Value {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return rt.Value{DType: rt.F32, Shape: shape, Data: b}
}

func numbers(b []byte) []float32 {
	var v []float32
	for ; len(b) > 0; b = b[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return v
}

func parse(t *testing.T, text string) (*program.Program, *rt.Module) {
	t.Helper()
	p, err := program.Parse("test", text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := rt.ModuleOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}

// local runs a world of goroutines and returns what went wrong.
func local(t *testing.T, world int, cfg rt.Config, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) error {
	t.Helper()
	cfg.Timeout = 5 * time.Minute
	return host.Local(t.Context(), world, cfg, host.Options{}, mods, f)
}

const stepText = `program @step world 2
group @dp = [[0, 1]]
stream @compute
stream @comm.dp on @dp
events 3
arena 4096
buffer %x at 0 size 24
buffer %w at 512 size 24
buffer %xt at 1024 size 24
buffer %full at 1536 size 48
buffer %y at 2048 size 64
buffer %noise at 2560 size 16
input x {data} = %x: f32[2,3]
input w {parameter} = %w: f32[2,3]
output y = %y: f32[4,4]
output noise = %noise: f32[4]
body
@compute copy (%x: f32[3,2:1,3]) -> (%xt: f32[3,2]) from %xt
@compute record 0
@comm.dp wait 0
@comm.dp all_gather on @dp (%w: f32[2,3], %xt: f32[3,2]) -> (%full: f32[4,3], %y: f32[6,2]) {dim=0} from %ag
@comm.dp record 1
@compute launch rand () -> (%noise: f32[4]) from %noise
@compute wait 1
@compute launch matmul (%full: f32[4,3], %full: f32[3,4:1,3]) -> (%y: f32[4,4]) from %y
`

// stepEmitted is what the emitter prints for stepText.
func stepEmitted(x *rt.Exec) {
	x.At("xt").Copy("compute", rt.C(1024, rt.F32, 3, 2), rt.S(0, rt.F32, rt.Dims{3, 2}, rt.Dims{1, 3}))
	x.Record("compute", 0)
	x.Wait("comm.dp", 0)
	x.At("ag").AllGather("comm.dp", "dp", 0, rt.Ts{rt.C(1536, rt.F32, 4, 3), rt.C(2048, rt.F32, 6, 2)}, rt.Ts{rt.C(512, rt.F32, 2, 3), rt.C(1024, rt.F32, 3, 2)})
	x.Record("comm.dp", 1)
	x.At("noise").Launch("compute", "rand", nil, rt.Ts{rt.C(2560, rt.F32, 4)}, nil)
	x.Wait("compute", 1)
	x.At("y").Launch("compute", "matmul", nil, rt.Ts{rt.C(2048, rt.F32, 4, 4)}, rt.Ts{rt.C(1536, rt.F32, 4, 3), rt.S(1536, rt.F32, rt.Dims{3, 4}, rt.Dims{1, 3})})
}

// TestProgramAndEmittedCode runs a program and the code that stands for it on
// one world, several times, and compares them with the numbers they should give.
func TestProgramAndEmittedCode(t *testing.T) {
	p, m := parse(t, stepText)
	_, other := parse(t, strings.Replace(stepText, "@step", "@other", 1)) // shifts nothing but takes the first place
	var mu sync.Mutex
	noise := map[string][]float32{}
	err := local(t, 2, rt.Config{}, []*rt.Module{other, m}, func(ctx context.Context, r *rt.Rank) error {
		me := float32(r.Info().Rank)
		in := []rt.Value{f32(rt.Dims{2, 3}, 1, 2, 3, 4, 5, 6), f32(rt.Dims{2, 3}, me, 1, 2, 1, me, 0)}
		// Rows of the gathered w.
		rows := [][]float32{{0, 1, 2}, {1, 0, 0}, {1, 1, 2}, {1, 1, 0}}
		var want []float32
		for _, a := range rows {
			for _, b := range rows {
				want = append(want, a[0]*b[0]+a[1]*b[1]+a[2]*b[2])
			}
		}
		for step := range int64(2) {
			opts := rt.Options{Seed: 7, Step: step}
			a, err := rt.Run(ctx, r, p, in, opts)
			if err != nil {
				return err
			}
			in[1].Resident = true // the parameter stays
			b, err := rt.RunModule(ctx, r, m, stepEmitted, in, opts)
			if err != nil {
				return err
			}
			for i := range a {
				if !slices.Equal(a[i].Data, b[i].Data) {
					return fmt.Errorf("output %d: program %v, emitted code %v", i, numbers(a[i].Data), numbers(b[i].Data))
				}
			}
			if got := numbers(a[0].Data); !slices.Equal(got, want) || !slices.Equal(a[0].Shape, rt.Dims{4, 4}) {
				return fmt.Errorf("y is %v, want %v", got, want)
			}
			mu.Lock()
			noise[fmt.Sprint(me, step)] = numbers(a[1].Data)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for a, x := range noise {
		for b, y := range noise {
			if a != b && slices.Equal(x, y) {
				t.Errorf("rank and step %q and %q draw the same numbers", a, b)
			}
		}
		for _, v := range x {
			if v < 0 || v >= 1 {
				t.Errorf("%v is not in [0, 1)", v)
			}
		}
	}
}

const asyncText = `program @async world 2
group @dp = [[0, 1]]
stream @compute
stream @comm.dp on @dp
events 4
arena 4096
buffer %g at 0 size 16
buffer %h at 512 size 8
buffer %d at 1024 size 16
buffer %all at 1536 size 32
input g async 3 = %g: f32[4], %h: f32[2]
output d = %d: f32[4]
output all async 1 = %all: f32[8]
body
@compute wait 3
@compute launch mul (%g: f32[4]) -> (%d: f32[4]) {scalar=2.0} from %d
@compute record 0
@comm.dp wait 0
@comm.dp all_gather on @dp (%d: f32[4]) -> (%all: f32[8]) {dim=0} from %all
@comm.dp record 1
`

// TestAsyncInputAndOutput binds a collective of the caller, in place and from
// elsewhere, and takes one in flight back.
func TestAsyncInputAndOutput(t *testing.T) {
	p, m := parse(t, asyncText)
	err := local(t, 2, rt.Config{UserBytes: 4096}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		me := float32(r.Info().Rank)
		a, b := r.User(rt.C(0, rt.F32, 4)), r.User(rt.C(512, rt.F32, 2))
		if err := r.Upload(a, f32(nil, me, 1, 2, 3).Data); err != nil {
			return err
		}
		if err := r.Upload(b, f32(nil, 1, 1).Data); err != nil {
			return err
		}
		for _, inPlace := range []bool{false, true} {
			outs := rt.Ts{r.User(rt.C(1024, rt.F32, 4)), r.User(rt.C(1536, rt.F32, 2))}
			if inPlace {
				for i, x := range m.Inputs[0].Tensors {
					var err error
					if outs[i], err = r.In(m, x); err != nil {
						return err
					}
				}
			}
			w, err := r.Start(ctx, "comm.dp", &rt.Collective{Op: rt.AllReduce, Group: "dp", Reduce: "sum", Ins: rt.Ts{a, b}, Outs: outs})
			if err != nil {
				return err
			}
			out, err := rt.Run(ctx, r, p, []rt.Value{{Work: w}}, rt.Options{})
			if err != nil {
				return err
			}
			if got, want := numbers(out[0].Data), []float32{2, 4, 8, 12}; !slices.Equal(got, want) {
				return fmt.Errorf("in place %v: d is %v, want %v", inPlace, got, want)
			}
			if _, err := rt.Run(ctx, r, p, []rt.Value{{Work: w}}, rt.Options{}); err == nil || !strings.Contains(err.Error(), "not been awaited") {
				return fmt.Errorf("running over an output in flight: %v", err)
			}
			flight := out[1].Work
			if err := flight.Wait(ctx); err != nil {
				return err
			}
			data, err := r.Download(flight.Tensors()[0])
			if err != nil {
				return err
			}
			if got, want := numbers(data), []float32{2, 4, 8, 12, 2, 4, 8, 12}; !slices.Equal(got, want) {
				return fmt.Errorf("all is %v, want %v", got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

const symbolText = `program @route world 2
group @ep = [[0, 1]]
sym a hint 1 max 4
sym b hint 1 max 4
sym c hint 1 max 4
sym d hint 1 max 4
stream @compute
stream @comm.ep on @ep
events 2
arena 1024
buffer %x at 0 size 64
buffer %y at 512 size 64
input x = %x: f32[a+b,2]
output y = %y: f32[c+d,2]
body
@compute record 0
@comm.ep wait 0
@comm.ep all_to_all on @ep (%x: f32[a+b,2]) -> (%y: f32[c+d,2]) {in_splits=["a, b"], out_splits=["c, d"]} from %y
@comm.ep record 1
@compute wait 1
`

// TestSymbols routes rows whose numbers differ by rank.
func TestSymbols(t *testing.T) {
	p, m := parse(t, symbolText)
	send := [][]int64{{1, 3}, {0, 2}} // by rank
	err := local(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		syms := map[string]int64{"a": send[me][0], "b": send[me][1], "c": send[0][me], "d": send[1][me]}
		n := send[me][0] + send[me][1]
		var v, want []float32
		for i := range 2 * n {
			v = append(v, float32(100*me)+float32(i))
		}
		for from := range 2 {
			for i := range 2 * send[from][me] {
				want = append(want, float32(100*from)+float32(i+int64(me)*2*send[from][0]))
			}
		}
		x := f32(rt.Dims{n, 2}, v...)
		out, err := rt.Run(ctx, r, p, []rt.Value{x}, rt.Options{Symbols: syms})
		if err != nil {
			return err
		}
		if got := numbers(out[0].Data); !slices.Equal(got, want) || out[0].Shape[0] != int64(len(want)/2) {
			return fmt.Errorf("rank %d: %v is %v, want %v", me, out[0].Shape, got, want)
		}
		b, err := rt.RunModule(ctx, r, m, func(x *rt.Exec) {
			x.Record("compute", 0)
			x.Wait("comm.ep", 0)
			x.At("y").AllToAll("comm.ep", "ep", [][]int64{{x.Sym("a"), x.Sym("b")}}, [][]int64{{x.Sym("c"), x.Sym("d")}},
				rt.Ts{rt.C(512, rt.F32, x.Sym("c")+x.Sym("d"), 2)}, rt.Ts{rt.C(0, rt.F32, x.Sym("a")+x.Sym("b"), 2)})
			x.Record("comm.ep", 1)
			x.Wait("compute", 1)
		}, []rt.Value{x}, rt.Options{Symbols: syms})
		if err != nil {
			return err
		}
		if !slices.Equal(b[0].Data, out[0].Data) {
			return errors.New("emitted code differs from the program")
		}
		for _, bad := range []map[string]int64{{"a": 5}, {"a": -1}, {"zz": 1}} {
			if _, err := rt.Run(ctx, r, p, []rt.Value{x}, rt.Options{Symbols: bad}); err == nil {
				return fmt.Errorf("symbols %v were accepted", bad)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSolvedSymbols runs a program that no input's shape gives a symbol alone.
func TestSolvedSymbols(t *testing.T) {
	p, m := parse(t, `program @solved world 1
sym a hint 1 max 9
sym b hint 1 min 1 max 9
stream @compute
events 0
arena 1024
buffer %y at 0 size 324
buffer %x at 512 size 76
input y = %y: f32[a*b]
input x = %x: f32[2*b+1]
output v = %y: f32[a,b]
body
`)
	err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		out, err := rt.Run(ctx, r, p, []rt.Value{f32(rt.Dims{6}, 0, 1, 2, 3, 4, 5), f32(rt.Dims{7}, make([]float32, 7)...)}, rt.Options{})
		if err != nil {
			return err
		}
		if !slices.Equal(out[0].Shape, []int64{2, 3}) || !slices.Equal(numbers(out[0].Data), []float32{0, 1, 2, 3, 4, 5}) {
			return fmt.Errorf("got %v %v", out[0].Shape, numbers(out[0].Data))
		}
		var bad *rt.SymbolError
		_, err = rt.Run(ctx, r, p, []rt.Value{f32(rt.Dims{6}, make([]float32, 6)...), f32(rt.Dims{1}, 0)}, rt.Options{})
		if !errors.As(err, &bad) || bad.Symbol != "b" || bad.Value != 0 || bad.Min != 1 || bad.Input != "x" {
			return fmt.Errorf("b of 0: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestExecMisuse calls what a module does not have; the first error sticks.
func TestExecMisuse(t *testing.T) {
	mod := func() *rt.Module {
		return &rt.Module{Name: "m", Arena: 512, Streams: []string{"compute"}, Events: 1}
	}
	x := rt.C(0, rt.F32, 4)
	for want, step := range map[string]func(e *rt.Exec){
		`no stream "side"`:      func(e *rt.Exec) { e.Launch("side", "relu", nil, rt.Ts{x}, rt.Ts{x}) },
		"event 1 of 1":          func(e *rt.Exec) { e.Record("compute", 1) },
		"nothing has recorded":  func(e *rt.Exec) { e.Wait("compute", 0) },
		"outside of the module": func(e *rt.Exec) { e.At("far").Launch("compute", "relu", nil, rt.Ts{rt.C(508, rt.F32, 4)}, rt.Ts{x}) },
		"no host kernel":        func(e *rt.Exec) { e.Launch("compute", "fly", nil, nil, nil) },
		"no function":           func(e *rt.Exec) { e.Call("compute", "f", "", nil, nil, nil) },
		"malformed attributes":  func(e *rt.Exec) { e.Launch("compute", "relu", rt.A("x"), rt.Ts{x}, rt.Ts{x}) },
		`no symbol "s"`:         func(e *rt.Exec) { e.Launch("compute", "relu", nil, rt.Ts{rt.C(0, rt.F32, e.Sym("s"))}, rt.Ts{x}) },
		`no group "tp"`:         func(e *rt.Exec) { e.AllReduce("compute", "tp", "sum", rt.Ts{x}, rt.Ts{x}) },
		"copy (c): from f32[4]": func(e *rt.Exec) { e.At("c").Copy("compute", rt.C(0, rt.F32, 2, 2), x) },
		"unknown reduction":     func(e *rt.Exec) { e.AllReduce("compute", "world", "mode", rt.Ts{x}, rt.Ts{x}) },
		"strides":               func(e *rt.Exec) { e.Copy("compute", rt.S(0, rt.F32, rt.Dims{4}, rt.Dims{1, 1}), x) },
	} {
		m := mod()
		err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			_, err := rt.RunModule(ctx, r, m, func(e *rt.Exec) {
				step(e)
				e.Launch("compute", "later", nil, nil, nil)
			}, nil, rt.Options{})
			if err == nil || strings.Contains(err.Error(), "later") {
				return fmt.Errorf("got %v", err)
			}
			if r.Err() == nil {
				return errors.New("the rank still works after a failed run")
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestInputMisuse is found before anything runs and leaves the world whole.
func TestInputMisuse(t *testing.T) {
	p, m := parse(t, stepText)
	good := []rt.Value{f32(rt.Dims{2, 3}, 1, 2, 3, 4, 5, 6), f32(rt.Dims{2, 3}, 1, 2, 3, 4, 5, 6)}
	err := local(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		short := good[0]
		short.Data = short.Data[:20]
		for want, in := range map[string][]rt.Value{
			"1 inputs, expected 2":     good[:1],
			"expected f32[2 3]":        {f32(rt.Dims{3, 2}, 1, 2, 3, 4, 5, 6), good[1]},
			"20 bytes for f32[2 3]":    {short, good[1]},
			"is bf16[2 3], expected f": {{DType: rt.BF16, Shape: rt.Dims{2, 3}}, good[1]},
			"is not async":             {{Work: &rt.Work{}}, good[1]},
		} {
			if _, err := rt.Run(ctx, r, p, in, rt.Options{}); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want %q", err, want)
			}
		}
		other, _ := parse(t, strings.Replace(stepText, "@step", "@other", 1))
		if _, err := rt.Run(ctx, r, other, good, rt.Options{}); err == nil || !strings.Contains(err.Error(), "not passed to Join") {
			return fmt.Errorf("a program that was not loaded: %v", err)
		}
		_, err := rt.Run(ctx, r, p, good, rt.Options{})
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCancelledRun cancels one rank's context while it waits for the other.
func TestCancelledRun(t *testing.T) {
	p, m := parse(t, stepText)
	in := []rt.Value{f32(rt.Dims{2, 3}, 1, 2, 3, 4, 5, 6), f32(rt.Dims{2, 3}, 1, 2, 3, 4, 5, 6)}
	synctest.Test(t, func(t *testing.T) {
		err := local(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			if r.Info().Rank == 1 {
				for r.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				return nil
			}
			ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Millisecond, errors.New("enough"))
			defer cancel()
			_, err := rt.Run(ctx, r, p, in, rt.Options{})
			if !errors.Is(err, rt.ErrCanceled) || !strings.Contains(err.Error(), "enough") {
				return fmt.Errorf("unexpected: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestJoinMisuse(t *testing.T) {
	bad := func(f func(m *rt.Module)) *rt.Module {
		_, m := parse(t, stepText)
		f(m)
		return m
	}
	twice := bad(func(*rt.Module) {})
	for want, mods := range map[string][]*rt.Module{
		"is for 3 ranks":           {bad(func(m *rt.Module) { m.World = 3 })},
		"has no stream":            {bad(func(m *rt.Module) { m.Streams = nil })},
		"has 1 of the world's 2":   {bad(func(m *rt.Module) { m.Groups[0].Ranks = [][]int{{1}} })},
		"outside of the arena":     {bad(func(m *rt.Module) { m.Arena = 512 })},
		"given twice":              {twice, twice},
		"nil or given":             {nil},
		`group "dp" is`:            {twice, bad(func(m *rt.Module) { m.Groups[0].Ranks = [][]int{{1, 0}} })},
		"parameter x: event 9":     {bad(func(m *rt.Module) { m.Inputs[0].Async, m.Inputs[0].Event = true, 9 })},
		"-5 events":                {bad(func(m *rt.Module) { m.Events = -5 })},
		"parameter y has 0 tensor": {bad(func(m *rt.Module) { m.Outputs[0].Tensors = nil })},
	} {
		err := local(t, 2, rt.Config{}, mods, func(context.Context, *rt.Rank) error { return nil })
		var re *rt.RendezvousError
		if !errors.As(err, &re) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestShard takes each rank's own piece, along both dimensions and of a strided
// tensor.
func TestShard(t *testing.T) {
	m := &rt.Module{Name: "m", Arena: 4096, Streams: []string{"compute"}, Groups: []rt.Group{{Name: "swapped", Ranks: [][]int{{1, 0}}}},
		Inputs: []rt.Param{{Name: "x", Tensors: rt.Ts{rt.C(0, rt.F32, 2, 4)}}},
		Outputs: []rt.Param{{Name: "rows", Tensors: rt.Ts{rt.C(512, rt.F32, 1, 4)}}, {Name: "columns", Tensors: rt.Ts{rt.C(1024, rt.F32, 2, 2)}},
			{Name: "transposed", Tensors: rt.Ts{rt.C(1536, rt.F32, 2, 2)}}}}
	err := local(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		in := []rt.Value{f32(rt.Dims{2, 4}, 0, 1, 2, 3, 4, 5, 6, 7)}
		out, err := rt.RunModule(ctx, r, m, func(x *rt.Exec) {
			x.Shard("compute", "swapped", 0, m.Outputs[0].Tensors, m.Inputs[0].Tensors)
			x.Shard("compute", "swapped", 1, m.Outputs[1].Tensors, m.Inputs[0].Tensors)
			x.Shard("compute", "swapped", 0, m.Outputs[2].Tensors, rt.Ts{rt.S(0, rt.F32, rt.Dims{4, 2}, rt.Dims{1, 4})})
		}, in, rt.Options{})
		if err != nil {
			return err
		}
		want := [][]float32{{4, 5, 6, 7}, {2, 3, 6, 7}, {2, 6, 3, 7}} // position 1
		if r.Info().Rank == 1 {
			want = [][]float32{{0, 1, 2, 3}, {0, 1, 4, 5}, {0, 4, 1, 5}}
		}
		for i, w := range want {
			if got := numbers(out[i].Data); !slices.Equal(got, w) {
				return fmt.Errorf("rank %d: %s is %v, want %v", r.Info().Rank, m.Outputs[i].Name, got, w)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

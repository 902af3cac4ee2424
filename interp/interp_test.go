package interp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// Every operation that launches has a kernel; views, communication, calls and
// what depends on the rank are the interpreter's own.
func TestKernelsForEveryOp(t *testing.T) {
	for _, op := range ir.Ops() {
		switch op.Class() {
		case ir.ClassCompute, ir.ClassMemory:
			if op != ir.OpCall && op != ir.OpShard && op.Info().Bodies == nil && !hostops.Has(op.Name()) {
				t.Errorf("no host kernel for %s", op)
			}
		case ir.ClassCollective:
			if !slices.ContainsFunc(collectiveCases, func(c collectiveCase) bool { return strings.HasPrefix(c.name, op.Name()) }) {
				t.Errorf("no test of the collective %s", op)
			}
		}
	}
	for _, name := range hostops.Names() {
		if _, ok := ir.OpByName(name); !ok {
			t.Errorf("host kernel %s has no op", name)
		}
	}
}

// Every view op against the numbers that its layout must select.
func TestViews(t *testing.T) {
	cases := []struct {
		name, text string
		want       []float64
	}{
		{"view", "view %x : f32[4,3]", seq(0, 12)},
		{"view of a permuted tensor that keeps runs", "permute %x {dims=[0, 1]} : f32[3,4]", seq(0, 12)},
		{"permute", "permute %x {dims=[1, 0]} : f32[4,3:1,4]", []float64{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}},
		{"slice", "slice %x {dim=1, end=4, start=1, step=2} : f32[3,2:4,2]", []float64{1, 3, 5, 7, 9, 11}},
		{"select row", "select %x {dim=0, index=2} : f32[4]", []float64{8, 9, 10, 11}},
		{"select column", "select %x {dim=1, index=3} : f32[3:4]", []float64{3, 7, 11}},
		{"alias", "alias %x : f32[3,4]", seq(0, 12)},
		{"unsqueeze", "unsqueeze %x {dim=1} : f32[3,1,4]", seq(0, 12)},
		{"as_strided", "as_strided %x {offset=1} : f32[2,3:5,2]", []float64{1, 3, 5, 6, 8, 10}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			typ := c.text[strings.LastIndex(c.text, "f32"):]
			out := "f32[" + strings.SplitN(strings.TrimSuffix(strings.TrimPrefix(typ, "f32["), "]"), ":", 2)[0] + "]"
			f := parse(t, "world 1\nfunc @f(%x: f32[3,4]) -> ("+out+") {\n  %v = "+c.text+"\n  %y = clone %v : "+out+"\n  return %y\n}\n")
			got := run(t, f, each(tensor(t, ir.F32, seq(0, 12), 3, 4)), Options{})
			want(t, got, 0, 0, c.want...)
		})
	}
	f := parse(t, `world 1
func @f(%x: f32[3,4]) -> (f32[3,1:4,1], f32[3:4], f32[2,3:0,4], f32[2,2,1:4,1,1]) {
  %s:2 = split %x {dim=1, sizes=[3, 1]} : f32[3,3:4,1], f32[3,1:4,1]
  %q = squeeze %s#1 {dims=[1]} : f32[3:4]
  %e = expand %q : f32[2,3:0,4]
  %a = slice %x {dim=0, end=3, start=1} : f32[2,4]
  %b = slice %a {dim=1, end=4, start=2} : f32[2,2:4,1]
  %c = unsqueeze %b {dim=2} : f32[2,2,1:4,1,1]
  return %s#1, %q, %e, %c
}
`)
	got := run(t, f, each(tensor(t, ir.F32, seq(0, 12), 3, 4)), Options{})
	want(t, got, 0, 0, 3, 7, 11)
	want(t, got, 0, 1, 3, 7, 11)
	want(t, got, 0, 2, 3, 7, 11, 3, 7, 11)
	want(t, got, 0, 3, 6, 7, 10, 11)
}

// Views lie where the IR's analysis of storages says, which lowering relies on.
func TestPlacements(t *testing.T) {
	file, err := fx.ReadFile("../testdata/graphs/tiny_tp2.fw.graph.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	traced, err := file.Import()
	if err != nil {
		t.Fatal(err)
	}
	byHand := parse(t, two+`func @f(%x: f32[4,6]) -> (f32[2,2:1,1], f32[2:1]) {
  %a = slice %x {dim=0, end=4, start=1} : f32[3,6]
  %b:3 = split %a {dim=1, sizes=[1, 2, 3]} : f32[3,1:6,1], f32[3,2:6,1], f32[3,3:6,1]
  %p = permute %b#2 {dims=[1, 0]} : f32[3,3:1,6]
  %s = select %p {dim=1, index=2} : f32[3:1]
  %o = as_strided %a {offset=3} : f32[2,2:1,1]
  %c = broadcast %x, %x on @g {root=0} : async(f32[4,6], f32[4,6])
  %w:2 = wait_tensor %c : f32[4,6], f32[4,6]
  %z = slice %w#1 {dim=0, end=2, start=1} : f32[1,6]
  %e = slice %s {dim=0, end=3, start=1} : f32[2]
  return %o, %e
}
`)
	for _, f := range []*ir.Func{traced.Func, byHand} {
		st, err := ir.ComputeStorages(f)
		if err != nil {
			t.Fatal(err)
		}
		in, err := RandomInputs(f, 1, RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		at := map[ir.StorageID]*storage{}
		views := 0
		run(t, f, in, Options{Trace: func(e Event) error {
			for _, v := range e.Node.Results() {
				for k, x := range e.m.env[v.ID()][1].ts {
					p := st.Of(v)[k]
					if x.Offset != p.Offset {
						t.Errorf("%s lies at element %d, the IR says %d", v, x.Offset, p.Offset)
					}
					if at[p.Storage] == nil {
						at[p.Storage] = x.st
					} else if views++; at[p.Storage] != x.st {
						t.Errorf("%s has a storage of its own", v)
					}
				}
			}
			return nil
		}})
		if views < 5 || len(at) != st.Len() {
			t.Errorf("%d views, %d storages of %d", views, len(at), st.Len())
		}
	}
}

// Declared layouts of inputs and results change nothing but the layout.
func TestLayouts(t *testing.T) {
	f := parse(t, `world 1
func @f(%x: f32[2,3:1,2], %e: f32[2,3:1,0]) -> (f32[2,3:1,4], f32[2,3]) {
  %y = add %x, %x : f32[2,3:1,4]
  %z = mul %y, %e : f32[2,3]
  return %y, %z
}
`)
	in := [][]Tensor{{tensor(t, ir.F32, seq(1, 6), 2, 3), tensor(t, ir.F32, []float64{2, 2, 2, 3, 3, 3}, 2, 3)}}
	out := run(t, f, in, Options{})
	want(t, out, 0, 0, 2, 4, 6, 8, 10, 12)
	want(t, out, 0, 1, 4, 8, 12, 24, 30, 36)
	in[0][1] = tensor(t, ir.F32, seq(1, 6), 2, 3)
	if _, err := Run(context.Background(), f, in, Options{}); !errors.Is(err, hostops.ErrRepeats) {
		t.Fatalf("got %v, want %v", err, hostops.ErrRepeats)
	}
	takesRandom(t, f)
	f = parse(t, `world 1
func @f(%w: f32[2,2,3:9,2,1]) -> (f32[2,2,3]) {
  %y = neg %w : f32[2,2,3]
  return %y
}
`)
	in[0] = []Tensor{tensor(t, ir.F32, []float64{1, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9, 10}, 2, 2, 3)}
	want(t, run(t, f, in, Options{}), 0, 0, -1, -2, -3, -3, -4, -5, -6, -7, -8, -8, -9, -10)
	takesRandom(t, f)
	in[0] = []Tensor{tensor(t, ir.F32, seq(1, 12), 2, 2, 3)}
	if _, err := Run(context.Background(), f, in, Options{}); !errors.Is(err, hostops.ErrRepeats) {
		t.Fatalf("got %v, want %v", err, hostops.ErrRepeats)
	}
}

// takesRandom runs f on random inputs.
func takesRandom(t *testing.T, f *ir.Func) {
	t.Helper()
	in, err := RandomInputs(f, 1, RandomOptions{})
	if err == nil {
		_, err = Run(context.Background(), f, in, Options{})
	}
	if err != nil {
		t.Error(err)
	}
}

const inFlight = `world 2
group @g = [[0, 1]]

func @f(%x: f32[2], %in: async(f32[2], i32[2])) -> (f32[2], f32[2], i32[2], async f32[2]) {
  %a = add %x, %x : f32[2]
  %c = all_reduce.sum %a on @g : async f32[2]
  %o0 = slice %a {dim=0, end=1} : f32[1]
  %o = all_gather %o0 on @g : async f32[2]
  %w:2 = wait_tensor %in : f32[2], i32[2]
  %y = wait_tensor %c : f32[2]
  return %y, %w#0, %w#1, %o
}
`

// Async inputs are waited for inside, async outputs come back finished.
func TestAsyncInputsAndOutputs(t *testing.T) {
	f := parse(t, inFlight)
	in := [][]Tensor{
		{tensor(t, ir.F32, []float64{1, 2}, 2), tensor(t, ir.F32, []float64{7, 8}, 2), tensor(t, ir.I32, []float64{3, 4}, 2)},
		{tensor(t, ir.F32, []float64{10, 20}, 2), tensor(t, ir.F32, []float64{9, 8}, 2), tensor(t, ir.I32, []float64{5, 6}, 2)},
	}
	if s := InputSlots(f); len(s) != 3 || s[2].Name != "in.1" || !s[2].Async || s[0].Async {
		t.Fatalf("%+v", s)
	}
	if s := OutputSlots(f); len(s) != 4 || s[3].Name != "o" || !s[3].Async {
		t.Fatalf("%+v", s)
	}
	for _, poison := range []bool{false, true} {
		out := run(t, f, in, Options{Poison: poison})
		want(t, out, 0, 0, 22, 44)
		want(t, out, 1, 1, 9, 8)
		want(t, out, 1, 2, 5, 6)
		want(t, out, 0, 3, 2, 20)
		want(t, out, 1, 3, 2, 20)
	}
}

// Under Poison the results of a collective in flight are NaN, or 0xAA bytes.
func TestPoisonHidesResults(t *testing.T) {
	f := parse(t, inFlight)
	in := [][]Tensor{
		{tensor(t, ir.F32, []float64{1, 2}, 2), tensor(t, ir.F32, []float64{7, 8}, 2), tensor(t, ir.I32, []float64{3, 4}, 2)},
		{tensor(t, ir.F32, []float64{10, 20}, 2), tensor(t, ir.F32, []float64{9, 8}, 2), tensor(t, ir.I32, []float64{5, 6}, 2)},
	}
	seen := 0
	trace := func(e Event) error {
		x, err := e.Result(1, 0)
		if err != nil {
			return err
		}
		switch e.Node.Name() {
		case "c", "o", "in":
			seen++
			for _, v := range x.Float64s() {
				if !math.IsNaN(v) {
					t.Errorf("%s in flight shows %v", e.Node.Name(), v)
				}
			}
		case "y", "w":
			seen++
			if !x.Finite() {
				t.Errorf("%s after the wait is %v", e.Node.Name(), x)
			}
		}
		if e.Node.Name() == "in" {
			if x, _ := e.Result(0, 1); x.Data[0] != poisonOther {
				t.Errorf("integers in flight show %v", x)
			}
			if _, err := e.Result(0, 2); err == nil {
				t.Error("a third tensor of two")
			}
		}
		return nil
	}
	run(t, f, in, Options{Poison: true, Trace: trace})
	if seen != 5 {
		t.Fatalf("saw %d of 5 nodes", seen)
	}
}

// scribble writes its operand in place.
var scribble = PerRank(func(_ context.Context, _ *ir.Node, rank int, args, _ []Tensor) error {
	args[0].Data[0] ^= 1
	return nil
})

func TestPoisonFindsWrites(t *testing.T) {
	text := func(order ...string) string {
		return two + "func @f(%x: f32[2]) -> (f32[2]) {\n  %a = add %x, %x : f32[2]\n  %s = slice %a {dim=0, end=1} : f32[1]\n  " +
			strings.Join(order, "\n  ") + "\n  return %y\n}\n"
	}
	start := "%c = all_reduce.sum %a on @g : async f32[2]"
	write := `call %s {effects=["writes"], target="scribble"}`
	wait := "%y = wait_tensor %c : f32[2]"
	in := each(tensor(t, ir.F32, []float64{1, 2}, 2), tensor(t, ir.F32, []float64{3, 4}, 2))
	o := Options{Poison: true, Calls: map[string]CallFunc{"scribble": scribble}}
	early, err := ir.Parse("t.ir", text(start, write, wait))
	if err != nil {
		t.Fatal(err)
	}
	unverified := o
	unverified.SkipVerify = true // the verifier would find it first
	if _, err := Run(context.Background(), early.Funcs()[0], in, unverified); err == nil ||
		!strings.Contains(err.Error(), "operand 0 of the collective was changed while in flight, first at element 0") {
		t.Fatalf("a write in flight gave %v", err)
	}
	out := run(t, parse(t, text(start, wait, write)), in, o)
	want(t, out, 0, 0, 8, 12)
	// A legal write before the start is seen by every rank.
	out = run(t, parse(t, text(write, start, wait)), in, o)
	if got := out[0][0].Float64s(); got[0] == 8 || got[1] != 12 {
		t.Fatalf("the write before the start is lost: %v", got)
	}
	// The caller's tensors are never written to.
	f := parse(t, two+"func @f(%x: f32[2]) -> (f32[2]) {\n  call %x {effects=[\"writes\"], target=\"scribble\"}\n  return %x\n}\n")
	o.Poison = false
	out = run(t, f, in, o)
	want(t, each(in[0][0]), 0, 0, 1, 2)
	if Equal(out[0][0], in[0][0]) {
		t.Fatal("the call's write is lost")
	}
}

// No op can write to a result in flight; a fault of the interpreter could.
func TestPoisonFindsWritesToResults(t *testing.T) {
	m := &machine{world: 1, live: make([]int64, 1)}
	for at := range int64(3) {
		v, err := m.alloc(ir.Tensor(ir.BF16, 3), 0)
		if err != nil {
			t.Fatal(err)
		}
		b := binding{ts: []view{v}}
		if err := m.takeOff(&b, nil); err != nil {
			t.Fatal(err)
		}
		v.Data[2*at+1] = 0
		text := fmt.Sprintf("result 0 of the collective was changed while in flight, first at element %d", at)
		if err := m.land(b.fl); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
}

func TestCalls(t *testing.T) {
	f := parse(t, two+`func @f(%x: f32[2]) -> (f32[2], f32[2], f32[1]) {
  %p = call %x {target="plus_rank"} : f32[2]
  %s = call %p on @g {effects=["communicates"], target="swap"} : f32[2]
  %v = call %s {effects=["alias"], target="first"} : f32[1]
  return %p, %s, %v
}
`)
	calls := map[string]CallFunc{
		"plus_rank": PerRank(func(_ context.Context, _ *ir.Node, rank int, args, results []Tensor) error {
			v := args[0].Float64s()
			for i := range v {
				v[i] += float64(rank)
			}
			x, err := FromFloats(ir.F32, v, 2)
			copy(results[0].Data, x.Data)
			args[0].Data[0] = 99 // a copy: without the effect "writes" nobody sees this
			return err
		}),
		"swap": func(_ context.Context, c *Call) error {
			copy(c.Results[0][0].Data, c.Args[1][0].Data)
			copy(c.Results[1][0].Data, c.Args[0][0].Data)
			return nil
		},
		"first": func(context.Context, *Call) error { return nil },
	}
	in := each(tensor(t, ir.F32, []float64{1, 2}, 2), tensor(t, ir.F32, []float64{10, 20}, 2))
	out := run(t, f, in, Options{Calls: calls})
	want(t, out, 0, 0, 1, 2)
	want(t, out, 1, 0, 11, 21)
	want(t, out, 0, 1, 11, 21)
	want(t, out, 1, 1, 1, 2)
	want(t, out, 0, 2, 11)
	delete(calls, "swap")
	_, err := Run(context.Background(), f, in, Options{Calls: calls})
	if err == nil || !strings.Contains(err.Error(), `no function is registered for target "swap"`) {
		t.Fatal(err)
	}
	calls["swap"] = func(_ context.Context, c *Call) error { c.Results[1][0].Shape = nil; return nil }
	_, err = Run(context.Background(), f, in, Options{Calls: calls})
	if e := (*Error)(nil); !errors.As(err, &e) || e.Rank != 1 || e.Node != "s" || e.Pos.Line != 5 {
		t.Fatal(err)
	}
}

func TestErrors(t *testing.T) {
	f := parse(t, `world 2
func @f(%w: f32[4,2], %i: i64[2]) -> (f32[2,2]) {
  %e = embedding %w, %i : f32[2,2]
  return %e
}
`)
	w, i := tensor(t, ir.F32, seq(0, 8), 4, 2), tensor(t, ir.I64, []float64{0, 3}, 2)
	bad := tensor(t, ir.I64, []float64{0, 4}, 2)
	_, err := Run(context.Background(), f, [][]Tensor{{w, i}, {w, bad}}, Options{})
	var e *Error
	if !errors.As(err, &e) || e.Op != "embedding" || e.Node != "e" || e.Rank != 1 || e.Pos != (diag.Pos{Line: 3, Col: 3}) || !errors.Is(err, hostops.ErrIndex) {
		t.Fatalf("%#v: %v", e, err)
	}
	if !strings.HasPrefix(err.Error(), "interp: t.ir:3:3: embedding %e on rank 1: ") {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, f, [][]Tensor{{w, i}, {w, i}}, Options{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if _, err := Run(context.Background(), f, [][]Tensor{{w, i}, {w, i}}, Options{Trace: func(Event) error { return stop }}); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	for _, in := range [][][]Tensor{nil, {{w, i}}, {{w, i}, {w}}, {{w, i}, {i, w}}, {{w, i}, {w, {}}}, {{w, i}, {w, Tensor{DType: ir.I64, Shape: []int64{2}}}}} {
		if _, err := Run(context.Background(), f, in, Options{}); err == nil {
			t.Errorf("inputs %v went through", in)
		}
	}
	if _, err := Run(context.Background(), f, [][]Tensor{{w, i}, {w, i}}, Options{MemoryLimit: 100}); err == nil || !strings.Contains(err.Error(), "beyond the memory limit of 100") {
		t.Error(err)
	}
	run(t, f, [][]Tensor{{w, i}, {w, i}}, Options{MemoryLimit: 128}) // 2 * (32 + 16 + 16)
	m := ir.NewModule(1)
	if _, err := Run(context.Background(), m.AddFunc("empty"), [][]Tensor{nil}, Options{}); err == nil {
		t.Error("a function without a return went through")
	}
}

// A chain of n additions holds two storages at a time, whatever n is.
func TestMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString("world 1\ngroup @g = [[0]]\nfunc @f(%x0: f32[256]) -> (f32[256]) {\n  %y = alias %x0 : f32[256]\n")
	last := "y"
	for i := range 10 {
		name := "a" + string(rune('0'+i))
		b.WriteString("  %" + name + " = add %" + last + ", %" + last + " : f32[256]\n")
		last = name
	}
	b.WriteString("  %c = all_reduce.sum %" + last + " on @g : async f32[256]\n  %z = wait_tensor %c : f32[256]\n  return %z\n}\n")
	for _, poison := range []bool{false, true} {
		var live []int64
		run(t, parse(t, b.String()), each(tensor(t, ir.F32, seq(0, 256), 256)), Options{Poison: poison, Trace: func(e Event) error {
			live = append(live, e.Live[0])
			held := 0
			for _, b := range e.m.env {
				if b != nil {
					held++
				}
			}
			if held > 3 { // operand, its alias and result
				t.Errorf("%d values are held at %s", held, e.Node.Name())
			}
			return nil
		}})
		if got := slices.Max(live); got != 2048 {
			t.Errorf("poison %v: peak %d bytes, want 2048: %v", poison, got, live)
		}
		if got := live[len(live)-1]; got != 1024 {
			t.Errorf("poison %v: %d bytes after the wait, want 1024: %v", poison, got, live)
		}
	}
}

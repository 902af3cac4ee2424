package step

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

const (
	graphs  = "../../testdata/graphs"
	vectors = "../../testdata/vectors"
)

// Limits below LossTolerance and GradientTolerance. The kernels round where
// PyTorch's do, so most results are equal to the bit; attention that rounds its
// weights elsewhere would be inside of those, but not inside of these.
const (
	tightLoss     = 1e-4
	tightGradient = 8e-3
)

// The traced steps, forward then backward, against PyTorch's numbers.
func TestTracedSteps(t *testing.T) {
	for _, name := range []string{"tiny_fsdp2", "tiny_tp2", "tiny_tpsp2", "tiny_ddp2"} {
		for _, poison := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				p, err := Load(graphs, name)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				rs, err := p.Check(context.Background(), Interpret(interp.Options{Poison: poison}), vectors)
				if err != nil {
					t.Fatal(err)
				}
				loss, grad := Worst(rs)
				if loss == nil || grad == nil {
					t.Fatal("no loss or no gradient was compared")
				}
				t.Logf("%s: loss %.3g (limit %.3g), worst gradient %.3g at %s (limit %.3g), %d outputs, %v",
					name, loss.Diff.Rel, loss.Bound.Rel, grad.Diff.Rel, grad.Name, grad.Bound.Rel, len(rs), time.Since(start).Round(time.Millisecond))
				ranks := map[int]int{}
				for _, r := range rs {
					ranks[r.Rank]++
					if r.Bound.Rel = tightLoss; r.Backward {
						r.Bound.Rel = tightGradient
					}
					if !r.OK() {
						t.Errorf("rank %d %s: %s", r.Rank, r.Name, r.Diff)
					}
				}
				if len(ranks) != 2 || ranks[0] != ranks[1] || ranks[0] < 20 {
					t.Errorf("outputs compared by rank: %v", ranks)
				}
			})
		}
	}
}

// The mixture of experts has no recording; it must run and stay finite.
func TestMoE(t *testing.T) {
	p, err := Load(graphs, "tiny_moe2")
	if err != nil {
		t.Fatal(err)
	}
	in, err := interp.RandomInputs(p.Forward, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fw, bw, err := p.Run(context.Background(), Interpret(interp.Options{Poison: true}), in)
	if err != nil {
		t.Fatal(err)
	}
	for r := range fw {
		for i, x := range append(fw[r], bw[r]...) {
			if !x.Finite() {
				t.Errorf("rank %d tensor %d is not finite", r, i)
			}
		}
		if loss := fw[r][0].Float64s()[0]; loss <= 0 {
			t.Errorf("rank %d: loss %v", r, loss)
		}
	}
	if math.Abs(fw[0][0].Float64s()[0]-fw[1][0].Float64s()[0]) == 0 {
		t.Error("ranks with different data have one loss")
	}
}

// Random inputs of every tiny graph are valid, of backward graphs by themselves too.
func TestRandomInputsOfTracedGraphs(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(graphs, "tiny_*.gz"))
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		f, err := readFile(path)
		if err != nil {
			t.Fatal(err)
		}
		in, err := interp.RandomInputs(f, 3, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := interp.Run(context.Background(), f, in, interp.Options{}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func parse(t *testing.T, text string) *ir.Func {
	t.Helper()
	m, err := ir.Parse("t.ir", text)
	if err != nil {
		t.Fatal(err)
	}
	return m.Funcs()[0]
}

const forward = `world 1
func @fw(%w: f32[2] !{role="parameter"}, %x: f32[2] !{role="data"}) -> (f32[], f32[2], f32[2]) {
  %y = mul %w, %x : f32[2]
  %l = sum %y : f32[]
  return %l, %x, %w !{outputs=[0, 1, -1, 2]}
}
`

const backward = `world 1
func @bw(%s: f32[2] !{from="x", role="saved"}, %t: f32[] !{role="tangent"}) -> (f32[2]) {
  %g = mul %s, %t : f32[2]
  return %g
}
`

func TestBackwardInputs(t *testing.T) {
	fw, bw := parse(t, forward), parse(t, backward)
	p, err := traced("s", fw, bw)
	if err != nil {
		t.Fatal(err)
	}
	w, _ := interp.FromSlice([]float32{1, 2}, 2)
	x, _ := interp.FromSlice([]float32{3, 4}, 2)
	_, grads, err := p.Run(context.Background(), Interpret(interp.Options{}), [][]interp.Tensor{{w, x}})
	if err != nil || !interp.Equal(grads[0][0], x) {
		t.Fatal(grads, err)
	}
	for _, c := range []struct{ fw, bw, text string }{
		{forward, strings.Replace(backward, `from="x"`, `from="z"`, 1), "comes from z, but the forward output at its place is x"},
		{strings.Replace(forward, "[0, 1, -1, 2]", "[0, -1]", 1), backward, "no forward output 1"},
		{strings.Replace(forward, "[0, 1, -1, 2]", "[0, 9, 1, 2]", 1), backward, "operand 9"},
		{forward, strings.NewReplacer("f32[2]", "f32[3]").Replace(backward), "forward output 1 is %x"},
		{forward, strings.Replace(backward, "world 1", "world 2", 1), "forward runs on 1 ranks"},
	} {
		if _, err := traced("s", parse(t, c.fw), parse(t, c.bw)); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("got %v, want %q", err, c.text)
		}
	}
}

// Where an output after the loss and the last ones have the types of what backward takes, names decide, in
// what passes make of the functions, too, who keep no names.
func TestOutputsOfOneType(t *testing.T) {
	fw, bw := parse(t, forward), parse(t, strings.Replace(backward, `from="x"`, `from="w"`, 1))
	p, err := traced("s", fw, bw)
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.NewReplacer("%w", "%a", "%x", "%b").Replace(forward)
	q, err := p.Compiled(parse(t, renamed), parse(t, backward))
	if err != nil {
		t.Fatal(err)
	}
	w, _ := interp.FromSlice([]float32{1, 2}, 2)
	x, _ := interp.FromSlice([]float32{3, 4}, 2)
	for _, p := range []*Pair{p, q} {
		_, grads, err := p.Run(context.Background(), Interpret(interp.Options{}), [][]interp.Tensor{{w, x}})
		if err != nil || !interp.Equal(grads[0][0], w) {
			t.Error(grads, err)
		}
	}
}

// A constant that only backward reads is handed on by forward, and not among what was
// recorded of it.
func TestReadInputs(t *testing.T) {
	p, err := traced("s", parse(t, forward), parse(t, backward))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w, _ := interp.FromSlice([]float32{1, 2}, 2)
	write := func(file, tensor string) {
		f := &safetensors.File{Tensors: []safetensors.Tensor{{Name: tensor, DType: w.DType, Shape: w.Shape, Data: w.Data}}}
		if err := safetensors.WriteFile(filepath.Join(dir, file), f); err != nil {
			t.Fatal(err)
		}
	}
	write("s.fw.rank0.in.safetensors", "x")
	if _, err := p.ReadInputs(dir, 0); err == nil || !strings.Contains(err.Error(), "no tensor w") {
		t.Error(err)
	}
	write("s.data.safetensors", "w")
	if in, err := p.ReadInputs(dir, 0); err != nil || len(in) != 2 || !interp.Equal(in[0], w) {
		t.Error(in, err)
	}
}

func TestCompare(t *testing.T) {
	one, _ := interp.FromSlice([]float32{1})
	near, _ := interp.FromSlice([]float32{1.015})
	want := []Expected{{false, 0, "loss", one}, {true, 0, "g", one}}
	rs, err := Compare(1, want, []interp.Tensor{near}, []interp.Tensor{near})
	if err != nil {
		t.Fatal(err)
	}
	if rs[0].OK() || !rs[1].OK() {
		t.Errorf("1.5%% off: loss %v, gradient %v", rs[0].OK(), rs[1].OK())
	}
	if s := Table(rs); strings.Count(s, "TOO FAR") != 1 || strings.Count(s, "\n") != 3 {
		t.Errorf("table:\n%s", s)
	}
	if _, err := Compare(0, want, []interp.Tensor{near}, nil); err == nil {
		t.Error("a missing gradient went unnoticed")
	}
	if (Result{Diff: interp.Diff{Rel: math.NaN()}, Bound: Bound{Rel: 1}}).OK() {
		t.Error("NaN is close enough")
	}
}

// What is the same throughout is named, with what it is; a single number is not, unless
// it is 0 or NaN.
func TestFlat(t *testing.T) {
	for _, c := range []struct {
		of   []float32
		want string
	}{
		{[]float32{}, "empty"}, {[]float32{0}, "zeros"}, {[]float32{0, 0}, "zeros"}, {[]float32{float32(math.NaN())}, "all NaN"},
		{[]float32{5.5}, ""}, {[]float32{5.5, 5.5}, "all 5.5"}, {[]float32{5.5, 0}, ""},
	} {
		x, _ := interp.FromSlice(c.of, int64(len(c.of)))
		rs, err := Compare(0, []Expected{{false, 0, "x", x}}, []interp.Tensor{x}, nil)
		if err != nil || rs[0].Flat != c.want || !rs[0].OK() || !strings.Contains(Table(rs), c.want) {
			t.Errorf("%v: %+v, %v", c.of, rs, err)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	p, err := Load(graphs, "tiny_fsdp2")
	if err != nil {
		b.Fatal(err)
	}
	in, err := p.ReadAllInputs(vectors)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := p.Run(context.Background(), Interpret(interp.Options{}), in); err != nil {
			b.Fatal(err)
		}
	}
}

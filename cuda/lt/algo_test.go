//go:build linux

package lt

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// What truncated sums explain is admitted, and a missing step of a sum is not, at any
// length of it.
func TestTolerance(t *testing.T) {
	for _, k := range []int64{64, 1024, 14336, 128256} {
		p := Problem{Type: dtype.BF16, Out: dtype.BF16, M: 1, N: 1, K: k, Batch: 1}
		rng := rand.New(rand.NewPCG(9, uint64(k)))
		missed := 0
		for range 200 {
			var want, squares, part float64
			cut := float32(0)
			group := 0.0
			for i := range k {
				v := rng.NormFloat64() * rng.NormFloat64()
				want += v
				squares += v * v
				if i < 16 {
					part += v
				}
				if group += v; i%16 == 15 {
					sum := float64(cut) + group
					cut, group = float32(sum), 0
					if math.Abs(float64(cut)) > math.Abs(sum) {
						cut = math.Nextafter32(cut, 0)
					}
				}
			}
			round := func(v float64) float64 { return float64(dtype.BF16ToF32(dtype.BF16FromF32(float32(v)))) }
			if _, err := p.verify([]sample{{want, squares, round(float64(cut))}}); err != nil {
				t.Errorf("k=%d: a truncated sum: %v", k, err)
			}
			if _, err := p.verify([]sample{{want, squares, round(want - part)}}); err != nil {
				missed++
			}
		}
		if missed < 50 {
			t.Errorf("k=%d: of 200 sums without 16 products %d are noticed", k, missed)
		}
		for _, got := range []float64{math.NaN(), math.Inf(1)} {
			if _, err := p.verify([]sample{{1, 1, got}}); !errors.Is(err, ErrWrongResult) {
				t.Errorf("%v where 1 should be: %v", got, err)
			}
		}
	}
}

// The first suggestion stays unless another wins clearly, in most rounds.
func TestChoose(t *testing.T) {
	one := []float64{1, 1, 1, 1, 1}
	for _, c := range []struct {
		ratios [][]float64
		want   int
	}{
		{[][]float64{one}, 0},
		{[][]float64{one, {0.98, 0.98, 0.98, 0.98, 0.98}}, 0},
		{[][]float64{one, {0.96, 0.96, 0.96, 0.96, 0.96}}, 1},
		{[][]float64{one, {0.5, 0.5, 1, 1, 1.1}}, 0},
		{[][]float64{one, {0.9, 0.9, 1.5, 0.9, 0.9}, {0.8, 0.95, 0.95, 0.95, 0.7}}, 1},
	} {
		if got, _ := choose(c.ratios, 0.03); got != c.want {
			t.Errorf("%v: %d, want %d", c.ratios, got, c.want)
		}
	}
}

// The tunings that come along can be read, fit one machine each, and hold nothing that
// no problem asks for.
func TestKnown(t *testing.T) {
	files, err := known.ReadDir("tunings")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		tn, err := readKnown(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if tn.gpu == "" || tn.library == 0 || tn.Len() == 0 || Known(tn.gpu, tn.library).Digest() != tn.Digest() {
			t.Errorf("%s is for GPU %q and library %d, %d problems", f.Name(), tn.gpu, tn.library, tn.Len())
		}
		if key := fmt.Sprint(tn.gpu, tn.library); seen[key] {
			t.Errorf("%s: a second file for %s", f.Name(), key)
		} else {
			seen[key] = true
		}
		if Known(tn.gpu, tn.library+1) != nil || Known(tn.gpu+" NVL", tn.library) != nil {
			t.Errorf("%s is used for others", f.Name())
		}
	}
	mat := func(m, n, ld int64, align int) Operand {
		return Operand{Type: dtype.BF16, Shape: []int64{m, n}, Strides: []int64{ld, 1}, Align: align}
	}
	w := Operand{Type: dtype.BF16, Shape: []int64{4096, 256}, Strides: []int64{1, 4096}, Align: 16}
	p, err := ProblemOf(mat(16, 4096, 4096, 16), w, mat(16, 256, 256, 64), Config{})
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := Known("NVIDIA H200", 130100).Get(p); !ok || a.Skinny == (Skinny{}) {
		t.Errorf("%v with operands aligned to 16 bytes: %v, %v", &p, a, ok)
	}
	p.X.Align = 8
	if a, ok := Known("NVIDIA H200", 130100).Get(p); ok {
		t.Errorf("%v with operands aligned to 8 bytes: %v", &p, a)
	}
}

// joinBench is three products with one left operand.
type joinBench struct {
	*bench
	tuning Tuning
	calls  []*library.Call
}

func newJoinBench(t *testing.T) *joinBench {
	b := &joinBench{bench: newBench(t, Options{})}
	const m, k = 16, 128
	rng := rand.New(rand.NewPCG(5, 6))
	buffer := func(data []byte) driver.Ptr {
		p := b.buffer(data)
		t.Cleanup(func() { b.free(p) })
		return p
	}
	tensor := func(at driver.Ptr, shape, strides []int64) library.Tensor {
		return library.Tensor{At: at, DType: dtype.BF16, Shape: shape, Strides: strides}
	}
	x := tensor(buffer(random(rng, dtype.BF16, m*k)), []int64{m, k}, []int64{k, 1})
	for _, n := range []int64{32, 48, 16} {
		w := tensor(buffer(random(rng, dtype.BF16, n*k)), []int64{k, n}, []int64{1, k})
		out := tensor(buffer(make([]byte, 2*m*n)), []int64{m, n}, []int64{n, 1})
		b.calls = append(b.calls, &library.Call{Op: "matmul", Ins: []library.Tensor{x, w}, Outs: []library.Tensor{out}})
	}
	return b
}

// plan plans the calls with the tuning as it is.
func (b *joinBench) plan() (list []library.Step) {
	b.t.Helper()
	srv, err := b.lib.Serve(b.ctx, Options{Tuning: &b.tuning}, Config{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { srv.Close() })
	for _, c := range b.calls {
		st, err := srv.Plan(c)
		if err != nil {
			b.t.Fatal(err)
		}
		list = append(list, st)
	}
	return list
}

// run gives the results of steps, and clears them.
func (b *joinBench) run(list ...library.Step) (out [][]byte) {
	b.t.Helper()
	var cmds driver.Commands
	for _, st := range list {
		st.AddTo(&cmds)
	}
	if err := b.drv.Run(b.ctx, cmds.On(b.s)); err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.calls {
		size := 2 * c.Outs[0].Shape[0] * c.Outs[0].Shape[1]
		out = append(out, b.read(c.Outs[0].At, int(size)))
		if err := b.drv.Memset32(b.ctx, b.s, c.Outs[0].At, 0, uint64(size/4)); err != nil {
			b.t.Fatal(err)
		}
	}
	return out
}

// Products with one left operand become one launch if the tuning says so and their
// results are apart.
func TestJoin(t *testing.T) {
	if *onGPU {
		t.Skip("the fake's kernel")
	}
	b := newJoinBench(t)
	list := b.plan()
	want := b.run(list...)
	if _, n, err := list[0].(library.Joiner).Join(list[1:]); n != 0 || err != nil {
		t.Errorf("%d joined without a tuning, %v", n, err)
	}
	var ps []Problem
	for _, st := range list {
		ps = append(ps, st.(*step).plan.problem)
	}
	b.tuning.SetGroup(ps, Algo{Skinny: Skinny{1, 4, 1, 2, 2, 3}})
	list = b.plan()
	j, n, err := list[0].(library.Joiner).Join(list[1:])
	if err != nil || n != 2 {
		t.Fatalf("%d joined, %v", n, err)
	}
	if got := b.run(j); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Error("joined products give other results")
	}
	var early driver.Commands
	j.(library.DependentLauncher).AddDependentTo(&early)
	if early.Len() == 0 || len(j.(library.DependentLauncher).Ahead()) != 3 || !strings.Contains(j.String(), "members=3") {
		t.Errorf("%v, %v", j, j.(library.DependentLauncher).Ahead())
	}
	if _, n, err := list[1].(library.Joiner).Join(list[2:]); n != 0 || err != nil {
		t.Errorf("%d joined that are no group of the tuning, %v", n, err)
	}
	b.calls[2].Outs[0].At = b.calls[1].Ins[1].At // the last result is the second matmul's weights
	list = b.plan()
	if _, n, err := list[0].(library.Joiner).Join(list[1:]); n != 0 || err != nil {
		t.Errorf("%d joined of which one writes another's operand, %v", n, err)
	}
}

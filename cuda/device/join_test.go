//go:build linux

package device_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
)

// thin is a layer of few rows: a kernel, then three matmuls of its result. change
// may put something else between.
type thin struct {
	m    *rt.Module
	step func(*rt.Exec)
}

const thinRows, thinK = 16, 128

var thinCols = []int64{32, 48, 16}

func newThin(between func(e *rt.Exec), last int64) thin {
	const x, y, w, out = 0, 4096, 8192, 40960
	m := &rt.Module{Name: "thin", World: 1, Arena: 65536, Streams: []string{"compute"}, Events: 1, Groups: []rt.Group{}}
	in := rt.C(x, rt.BF16, thinRows, thinK)
	a := rt.C(y, rt.BF16, thinRows, thinK)
	m.Inputs = []rt.Param{{Name: "x", Tensors: rt.Ts{in}}}
	m.Source = "// for GPUs"
	m.Kernels = []rt.Code{{Name: "k0", Grid: 1, Block: 32, Body: []rt.CodeStep{{Op: "neg", Outs: []rt.CodeTensor{rt.P(1, 0, rt.BF16, rt.Dims{thinRows, thinK}, nil)},
		Ins: []rt.CodeTensor{rt.P(0, 0, rt.BF16, rt.Dims{thinRows, thinK}, nil)}}}}}
	var ws, outs []rt.Tensor
	at, to := int64(w), int64(out)
	for i, n := range thinCols {
		m.Inputs = append(m.Inputs, rt.Param{Name: "w" + string(rune('0'+i)), Tensors: rt.Ts{rt.C(at, rt.BF16, n, thinK)}})
		ws = append(ws, rt.S(at, rt.BF16, rt.Dims{thinK, n}, rt.Dims{1, thinK}))
		if i == 2 && last != 0 {
			to = last
		}
		outs = append(outs, rt.C(to, rt.BF16, thinRows, n))
		m.Outputs = append(m.Outputs, rt.Param{Name: "o" + string(rune('0'+i)), Tensors: rt.Ts{outs[i]}})
		at, to = at+n*thinK*2, to+n*thinRows*2
	}
	return thin{m, func(e *rt.Exec) {
		e.Fused("compute", "k0", rt.Ts{a}, rt.Ts{in})
		for i := range ws {
			if i == 1 && between != nil {
				between(e)
			}
			e.At("p"+string(rune('0'+i))).Launch("compute", "matmul", nil, rt.Ts{outs[i]}, rt.Ts{a, ws[i]})
		}
	}}
}

// thinTuning knows the three matmuls and them together.
func thinTuning(t *testing.T) *lt.Tuning {
	tn := &lt.Tuning{}
	var ps []lt.Problem
	for _, n := range thinCols {
		op := func(shape, strides []int64) lt.Operand {
			return lt.Operand{Type: dtype.BF16, Shape: shape, Strides: strides}
		}
		p, err := lt.ProblemOf(op([]int64{thinRows, thinK}, []int64{thinK, 1}), op([]int64{thinK, n}, []int64{1, thinK}), op([]int64{thinRows, n}, []int64{n, 1}), lt.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
		tn.Set(p, lt.Algo{Skinny: lt.Skinny{Rows: 1, Parts: 4, Cluster: 1, Unroll: 1, Tokens: 2}})
	}
	tn.SetGroup(ps, lt.Algo{Skinny: lt.Skinny{Rows: 1, Parts: 4, Cluster: 1, Unroll: 1, Tokens: 2, Members: 3}})
	return tn
}

// Captured steps join what the tuning knows together, and let it begin before the
// kernel in front has ended; neither changes results, and neither happens where
// something stands between or where memory is shared.
func TestJoin(t *testing.T) {
	fakeOnly(t)
	for _, c := range []struct {
		name          string
		between       func(*rt.Exec)
		last          int64 // where the last result goes
		empty, off    bool
		joined, early int
		fetch         int64
		fetched       int
	}{
		{name: "plain", joined: 1, early: 1},
		{name: "no tuning", empty: true},
		{name: "weights fetched", joined: 1, early: 1, fetch: 1 << 20, fetched: 1},
		{name: "weights fetched, apart", between: func(e *rt.Exec) { e.Record("compute", 0); e.Wait("compute", 0) }, early: 1, fetch: 1 << 20, fetched: 2},
		{name: "early off", off: true, joined: 1},
		{name: "an event between", between: func(e *rt.Exec) { e.Record("compute", 0) }, early: 1},
		{name: "a result on the second product's weights", last: 8192 + 32*thinK*2, early: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := newThin(c.between, c.last)
			var mu sync.Mutex
			var log bytes.Buffer
			drv, devs, o := target(t, 1)
			o.NoDependentLaunch = c.off
			o.Prefetch = c.fetch
			o.Matmuls = &lt.Tuning{}
			if !c.empty {
				o.Matmuls = thinTuning(t)
			}
			o.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
			err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{th.m}, func(ctx context.Context, r *rt.Rank) error {
				in := make([]rt.Value, len(th.m.Inputs))
				for i := range in {
					x := th.m.Inputs[i].Tensors[0]
					in[i] = rt.Value{DType: x.DType, Shape: x.Shape, Data: make([]byte, x.Bytes())}
					for j := range in[i].Data {
						in[i].Data[j] = []byte{byte(j * 7), 0x3f}[j%2]
					}
				}
				want, err := rt.RunModule(ctx, r, th.m, th.step, in, rt.Options{})
				if err != nil {
					return err
				}
				s, err := rt.Prepare(ctx, r, th.m, th.step, rt.Options{}, true)
				if err != nil {
					return err
				}
				defer s.Close()
				for range 2 {
					got, err := s.Run(ctx, in)
					if err != nil {
						return err
					}
					for i := range got {
						if !bytes.Equal(got[i].Data, want[i].Data) {
							t.Errorf("output %d differs from the eager run's", i)
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			text := log.String()
			if j, e := strings.Count(text, "msg=joined"), strings.Count(text, "msg=early"); j != c.joined || e != c.early {
				t.Errorf("%d joined and %d early, want %d and %d:\n%s", j, e, c.joined, c.early, text)
			}
			if n := strings.Count(text, "msg=fetch"); n != c.fetched {
				t.Errorf("%d fetched, want %d:\n%s", n, c.fetched, text)
			}
			if c.joined > 0 && !strings.Contains(text, "members=3") {
				t.Errorf("the log does not name the kernel:\n%s", text)
			}
		})
	}
}

// A tuning for another machine is refused, and what comes along for an unknown one is
// nothing.
func TestProductsOption(t *testing.T) {
	fakeOnly(t)
	for _, c := range []struct {
		products *lt.Tuning
		ok       bool
	}{{nil, true}, {&lt.Tuning{}, true}, {lt.NewTuning("another GPU", 1), false}} {
		th := newThin(nil, 0)
		drv, devs, o := target(t, 1)
		o.Matmuls = c.products
		err := device.Local(t.Context(), drv, devs, rt.Config{Timeout: plenty}, o, []*rt.Module{th.m}, func(ctx context.Context, r *rt.Rank) error { return nil })
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "another GPU than") {
			t.Errorf("a tuning with digest %s: %v", c.products.Digest(), err)
		}
	}
}

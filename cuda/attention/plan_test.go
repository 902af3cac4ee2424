package attention

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/library/librarytest"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// shaped is a call with tensors at aligned addresses.
func shaped(op string, typ dtype.DType, causal bool, b, h, hk, s, t, d int64) *library.Call {
	at := driver.Ptr(1 << 20)
	tensor := func(typ dtype.DType, shape ...int64) library.Tensor {
		x := library.Tensor{At: at, DType: typ, Shape: shape, Strides: make([]int64, len(shape))}
		n := int64(1)
		for i := len(shape) - 1; i >= 0; i-- {
			x.Strides[i] = n
			n *= shape[i]
		}
		at += driver.Ptr(n*int64(typ.Size())+255) &^ 255
		return x
	}
	q, k, v := tensor(typ, b, h, s, d), tensor(typ, b, hk, t, d), tensor(typ, b, hk, t, d)
	rest := []library.Tensor{tensor(typ, b, h, s, d), tensor(dtype.F32, b, h, s, 1), tensor(dtype.I64), tensor(dtype.I64)}
	c := &library.Call{Op: op, Attrs: attr.List{}.With("causal", attr.Bool(causal)), WorkspaceBytes: 1 << 30}
	if op == Forward {
		c.Ins, c.Outs = []library.Tensor{q, k, v}, rest
		return c
	}
	c.Ins = append([]library.Tensor{tensor(typ, b, h, s, d), q, k, v}, rest...)
	c.Outs = []library.Tensor{tensor(typ, b, h, s, d), tensor(typ, b, hk, t, d), tensor(typ, b, hk, t, d)}
	return c
}

func TestPlans(t *testing.T) {
	bf := dtype.BF16
	for _, c := range []struct {
		call *library.Call
		want string // kernels with grid, block and shared memory; then whether it is preferred
	}{
		{shaped(Forward, bf, false, 1, 8, 8, 16, 16, 128), "attention_short 8x32+0 preferred"},
		{shaped(Forward, bf, true, 2, 8, 2, 64, 64, 128), "attention_short 64x128+33280 preferred"},
		{shaped(Forward, bf, true, 1, 8, 8, 33, 4096, 64), "attention_short 24x128+16896 preferred"},
		{shaped(Forward, bf, false, 1, 8, 8, 1, 512, 128), "attention_short 8x256+66560 preferred"},
		{shaped(Forward, bf, true, 1, 8, 8, 256, 256, 128), "attention_short 128x256+66560 preferred"},
		{shaped(Forward, bf, true, 64, 8, 8, 64, 64, 128), "attention_forward 512x128+98304"},
		{shaped(Forward, bf, true, 64, 32, 32, 1, 512, 128), "attention_short 2048x32+0"},
		{shaped(Forward, bf, false, 1, 8, 8, 1, 513, 128), "attention_forward 8x128+81920"},
		{shaped(Forward, bf, true, 1, 32, 32, 2048, 2048, 128), "attention_forward 512x128+98304"},
		{shaped(Forward, bf, true, 1, 8, 8, 2048, 2048, 128), "attention_forward 256x128+81920"},
		{shaped(Forward, bf, true, 1, 2, 2, 130, 130, 64), "attention_short 18x256+33792 preferred"},
		{shaped(Forward, bf, true, 1, 2, 2, 530, 530, 64), "attention_forward 18x128+40960"},
		{shaped(Forward, bf, true, 1, 2, 2, 16, 16, 20), "attention_simple 8x128+0"},
		{shaped(Forward, bf, true, 1, 2, 2, 16, 16, 256), "attention_simple 16x128+0"},
		{shaped(Forward, dtype.F32, true, 1, 8, 8, 16, 16, 128), "attention_simple 32x128+0"},
		{shaped(Forward, bf, true, 1, 2, 2, 5, 0, 16), "attention_simple 3x128+0"},
		{shaped(Forward, bf, true, 0, 2, 2, 5, 5, 16), ""},
		{shaped(Backward, bf, true, 1, 8, 8, 16, 16, 128), "attention_backward_both 16x32+24832 preferred"},
		{shaped(Backward, bf, true, 1, 8, 2, 17, 30, 128), "attention_backward_both 10x64+49664 preferred"},
		{shaped(Backward, bf, true, 1, 8, 8, 200, 100, 128), "attention_backward_both 48x128+99328 preferred"},
		{shaped(Backward, bf, true, 1, 8, 2, 2048, 1024, 128), "attention_backward_queries 256x128+99328 attention_backward_keys 32x128+99328"},
		{shaped(Backward, dtype.F64, true, 1, 8, 2, 3, 5, 200), "attention_simple_backward 17x128+0"},
	} {
		p, err := ProblemOf(c.call)
		if err != nil {
			t.Fatal(err)
		}
		if p.DType == dtype.F64 {
			p.LSE.DType = dtype.F64
		}
		ks, err := plan(p)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range ks {
			got = append(got, fmt.Sprintf("%s %dx%d+%d", k.name, k.grid, k.block, k.shared))
			if !strings.Contains(k.unit.source(), ") "+k.name+"(const args a)") {
				t.Errorf("the source of %s lacks it", k.name)
			}
		}
		if Prefer(p) {
			got = append(got, "preferred")
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%s %v of %v on %v: %q, want %q", p.Op, p.DType, p.Q.Shape, p.K.Shape, g, c.want)
		}
	}
}

// Every case was measured beside cuDNN, or bounds what was; see Prefer.
func TestPrefer(t *testing.T) {
	const fw, bw = Forward, Backward
	for _, c := range []struct {
		op                string
		causal            bool
		b, h, hk, s, t, d int64
		sms               int
		want              bool
	}{
		{fw, false, 1, 8, 8, 16, 16, 128, 0, true},
		{fw, true, 1, 32, 8, 16, 16, 128, 0, true},
		{fw, true, 1, 8, 8, 32, 32, 128, 0, true},
		{fw, true, 1, 8, 8, 64, 64, 128, 0, true},
		{fw, true, 64, 8, 8, 16, 16, 128, 0, true},
		{fw, false, 4, 8, 8, 16, 16, 64, 0, true},
		{fw, false, 1, 32, 8, 1, 128, 128, 0, true},
		{fw, false, 1, 32, 8, 1, 512, 128, 0, true},
		{fw, false, 1, 8, 8, 16, 512, 128, 0, true},
		{fw, false, 1, 8, 8, 64, 256, 128, 0, true},
		{fw, true, 1, 8, 8, 128, 128, 128, 0, true},
		{fw, true, 1, 16, 16, 128, 128, 128, 0, true},
		{fw, true, 1, 17, 17, 128, 128, 128, 0, false}, // more warps than fit
		{fw, true, 1, 8, 8, 256, 256, 128, 0, true},
		{fw, true, 1, 9, 9, 256, 256, 128, 0, false},
		{fw, true, 1, 4, 4, 257, 257, 128, 0, false},
		{fw, true, 64, 8, 8, 64, 64, 128, 0, false},
		{fw, false, 1, 8, 8, 1, 513, 128, 0, false},
		{fw, false, 1, 132, 4, 1, 512, 128, 0, true},
		{fw, false, 1, 136, 4, 1, 512, 128, 0, false},
		{fw, false, 1, 132, 4, 1, 512, 128, 128, false}, // communication has the rest
		{fw, true, 1, 8, 8, 2048, 2048, 128, 0, false},
		{fw, true, 1, 8, 8, 16, 16, 20, 0, false}, // rows of 40 bytes
		{bw, true, 1, 8, 8, 16, 16, 128, 0, true},
		{bw, true, 1, 32, 8, 16, 16, 128, 0, true},
		{bw, true, 1, 8, 8, 64, 64, 128, 0, true},
		{bw, true, 1, 8, 8, 128, 128, 128, 0, true},
		{bw, true, 1, 8, 8, 256, 256, 128, 0, true},
		{bw, true, 64, 8, 8, 16, 16, 128, 0, true},
		{bw, false, 4, 8, 8, 16, 16, 64, 0, true},
		{bw, true, 1, 8, 8, 257, 256, 128, 0, false},
		{bw, true, 1, 8, 8, 512, 512, 128, 0, false},
		{bw, true, 64, 8, 8, 64, 64, 128, 0, false},
		{bw, true, 1, 8, 4, 128, 128, 128, 0, true},
		{bw, true, 1, 8, 4, 256, 256, 128, 0, false}, // eight steps
	} {
		call := shaped(c.op, dtype.BF16, c.causal, c.b, c.h, c.hk, c.s, c.t, c.d)
		call.SMs = c.sms
		p, err := ProblemOf(call)
		if err != nil {
			t.Fatal(err)
		}
		if got := Prefer(p); got != c.want {
			t.Errorf("%s of %d x %d:%d x %d:%d x %d: preferred %v", c.op, c.b, c.h, c.hk, c.s, c.t, c.d, got)
		}
	}
}

// What suits no kernel for half precision is done by the simple one.
func TestLayouts(t *testing.T) {
	for name, change := range map[string]func(p *Problem){
		"columns apart":      func(p *Problem) { p.K.Strides[3] = 2 },
		"odd row stride":     func(p *Problem) { p.V.Strides[2] = 129 },
		"odd address":        func(p *Problem) { p.Out.At += 2 },
		"log-sum-exp of f64": func(p *Problem) { p.LSE.DType = dtype.F64 },
		"bias of f16":        func(p *Problem) { p.Bias = &library.Tensor{DType: dtype.F16, Strides: make([]int64, 4)} },
	} {
		p, err := ProblemOf(shaped(Forward, dtype.BF16, true, 1, 8, 8, 16, 16, 128))
		if err != nil {
			t.Fatal(err)
		}
		if formOf(p) != short {
			t.Fatal("the case is not short")
		}
		change(p)
		if f := formOf(p); f != simple {
			t.Errorf("%s: form %d", name, f)
		}
	}
}

func TestRefusals(t *testing.T) {
	long := shaped(Backward, dtype.BF16, true, 1, 8, 8, 2048, 2048, 128)
	long.WorkspaceBytes = 4*8*2048 - 1
	huge := shaped(Forward, dtype.BF16, true, 1, 1, 1, 1<<31, 16, 8)
	blocks := shaped(Forward, dtype.BF16, true, 1<<16, 1<<12, 1, 2048, 16, 64)
	dropout := shaped(Forward, dtype.BF16, true, 1, 8, 8, 16, 16, 128)
	dropout.Attrs = dropout.Attrs.With("dropout", attr.Float(0.1))
	odd := shaped(Forward, dtype.BF16, true, 1, 8, 8, 16, 16, 128)
	odd.Outs[0].DType = dtype.F32
	l := &Library{}
	for _, c := range []*library.Call{long, huge, blocks, dropout, odd} {
		if _, err := l.Plan(c); !errors.Is(err, library.ErrNotServed) {
			t.Errorf("%s of %v: %v", c.Op, c.Ins[0].Shape, err)
		}
	}
	l.short = true
	if _, err := l.Plan(shaped(Forward, dtype.BF16, true, 1, 8, 8, 512, 512, 128)); !errors.Is(err, library.ErrNotServed) {
		t.Errorf("a long call of the library of short ones: %v", err)
	}
	if _, err := l.Workspace(long); !errors.Is(err, library.ErrNotServed) {
		t.Errorf("workspace of a long call: %v", err)
	}
	l.short = false
	if n, err := l.Workspace(long); n != 4*8*2048 || err != nil {
		t.Errorf("workspace of a long call: %d bytes, %v", n, err)
	}
	// Without a compiler another library may do.
	l.code = library.NewCode(nil, 1, func(string, string, ...string) ([]byte, error) { return nil, nvrtc.ErrNoCompiler }, nil)
	if _, err := l.Plan(shaped(Forward, dtype.BF16, true, 1, 8, 8, 16, 16, 128)); !errors.Is(err, library.ErrNotServed) {
		t.Errorf("without a compiler: %v", err)
	}
}

// Steps leave nothing to load: each kernel is loaded when the first call that launches
// it is planned, whatever the addresses.
func TestLoads(t *testing.T) {
	drv := &librarytest.Driver{}
	l, err := Open(drv, &symm.Rank{Ctx: 1}, Options{Compile: func(string, string, ...string) ([]byte, error) { return []byte{1}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	bf := dtype.BF16
	long := shaped(Backward, bf, true, 1, 8, 8, 2048, 2048, 128)
	for i, c := range []struct {
		call  *library.Call
		loads int
	}{
		{shaped(Forward, bf, false, 1, 8, 8, 16, 16, 128), 1},
		{shaped(Forward, bf, false, 1, 8, 8, 16, 16, 128), 0},
		{long, 2},
		{long, 0},
		{shaped(Forward, bf, true, 0, 2, 2, 5, 5, 16), 1}, // nothing but zeros
		{shaped(Forward, bf, true, 0, 2, 2, 5, 5, 16), 0},
	} {
		drv.Loads = 0
		s, err := l.Plan(c.call)
		if err != nil {
			t.Fatal(err)
		}
		if drv.Loads != c.loads || drv.Runs != 0 {
			t.Errorf("call %d, %v: %d loads, want %d; %d runs", i, s, drv.Loads, c.loads, drv.Runs)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	drv.Check(t)
}

// Equal problems at other addresses share a unit, other layouts too.
func TestUnitsAreShared(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sources := map[string]bool{}
	for _, lay := range []layout{dense, swapped, spread} {
		for _, s := range []int64{520, 700, 2048} {
			m := &memory{rng: rng}
			c := trial{b: 1, h: 2, hk: 1, s: s, t: s, d: 16, dv: 16, causal: s > 600, typ: dtype.BF16, lay: lay}
			p, err := ProblemOf(c.forward(m))
			if err != nil {
				t.Fatal(err)
			}
			ks, err := plan(p)
			if err != nil {
				t.Fatal(err)
			}
			sources[ks[0].unit.source()] = true
		}
	}
	if len(sources) != 1 {
		t.Errorf("%d units, want 1", len(sources))
	}
}

// The short forward kernel may begin early, and then reads its values only; no other
// kernel of this package waits for the one in front.
func TestEarly(t *testing.T) {
	for _, c := range []struct {
		call  *library.Call
		early bool
	}{
		{shaped(Forward, dtype.BF16, true, 1, 8, 2, 16, 16, 128), true},
		{shaped(Forward, dtype.BF16, true, 1, 8, 2, 2048, 2048, 128), false},
		{shaped(Forward, dtype.F32, true, 1, 8, 2, 16, 16, 128), false},
		{shaped(Backward, dtype.BF16, true, 1, 8, 2, 16, 16, 128), false},
	} {
		p, err := ProblemOf(c.call)
		if err != nil {
			t.Fatal(err)
		}
		ks, err := plan(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range ks {
			if (len(k.ahead) > 0) != c.early {
				t.Errorf("%s: reads %v ahead", k.name, k.ahead)
			}
			if waits := strings.Contains(k.unit.body, "front_ended()"); waits != c.early {
				t.Errorf("%s: waits for the kernel in front: %v", k.name, waits)
			}
		}
	}
	v := shaped(Forward, dtype.BF16, true, 1, 8, 2, 16, 16, 128).Ins[2]
	v.Strides = []int64{2 * 16 * 128, -16 * 128, 256, 1}
	want := library.Memory{At: v.At - 16*128*2, Bytes: 2 * (16*128 + 15*256 + 128)}
	if got := spanned(&v); got != want {
		t.Errorf("values span %v, want %v", got, want)
	}
}

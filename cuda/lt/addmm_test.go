//go:build linux

package lt

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// dense is a row-major tensor of a call.
func dense(at driver.Ptr, d dtype.DType, shape ...int64) library.Tensor {
	t := library.Tensor{At: at, DType: d, Shape: shape, Strides: make([]int64, len(shape))}
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		t.Strides[i] = step
		step *= shape[i]
	}
	return t
}

// A sum with a row is the epilogue of the matmul: one rounding, and what is tuned for the matmul is taken,
// but for kernels of this package.
func TestAddmm(t *testing.T) {
	b := newBench(t, Options{})
	tuning := NewTuning("", 0)
	skinny := Algo{Skinny: Skinny{Tokens: 1, Rows: 4, Parts: 2, Cluster: 1, Unroll: 1}}
	row, err := ProblemOfCall(&library.Call{Op: "matmul", Ins: []library.Tensor{dense(0, dtype.BF16, 1, 512), dense(0, dtype.BF16, 512, 64)},
		Outs: []library.Tensor{dense(0, dtype.BF16, 1, 64)}}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	tuning.Set(row, skinny)
	srv, err := b.lib.Serve(b.ctx, Options{Tuning: tuning}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16, dtype.F32} {
		for _, size := range [][3]int64{{64, 96, 40}, {1, 32, 64}, {200, 64, 8}, {33, 24, 16}, {1, 512, 64}} {
			m, k, n := size[0], size[1], size[2]
			hc, ha, hb := random(rng, d, n), random(rng, d, m*k), random(rng, d, k*n)
			pc, pa, pb, po := b.buffer(hc), b.buffer(ha), b.buffer(hb), b.buffer(make([]byte, m*n*int64(d.Size())))
			for _, expanded := range []bool{false, true} {
				c := &library.Call{Op: "addmm", Ins: []library.Tensor{dense(pc, d, n), dense(pa, d, m, k), dense(pb, d, k, n)}, Outs: []library.Tensor{dense(po, d, m, n)}}
				if expanded {
					c.Ins[0].Shape, c.Ins[0].Strides = []int64{m, n}, []int64{0, 1}
				}
				st, err := srv.Plan(c)
				if err != nil {
					t.Fatalf("%v %v: %v", d, size, err)
				}
				if strings.HasPrefix(st.String(), "skinny") {
					t.Errorf("%v %v by %v", d, size, st)
				}
				var cmds driver.Commands
				st.AddTo(&cmds)
				if err := b.drv.Run(b.ctx, cmds.On(b.s)); err != nil {
					t.Fatal(err)
				}
				got, want := b.read(po, int(m*n)*d.Size()), make([]byte, m*n*int64(d.Size()))
				host := func(x library.Tensor, data []byte) hostops.Tensor {
					return hostops.Tensor{DType: x.DType, Shape: x.Shape, Strides: x.Strides, Data: data}
				}
				if err := hostops.Run("addmm", attr.List{}, []hostops.Tensor{host(c.Outs[0], want)},
					[]hostops.Tensor{host(c.Ins[0], hc), host(c.Ins[1], ha), host(c.Ins[2], hb)}); err != nil {
					t.Fatal(err)
				}
				if msg := differ(d, got, want, k); msg != "" {
					t.Errorf("%v %v: %s", d, size, msg)
				}
				if err := errors.Join(b.drv.StreamSync(b.ctx, b.s), st.(library.Releaser).Release()); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range []driver.Ptr{pc, pa, pb, po} {
				b.free(p)
			}
		}
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is not the sum with a row is left to kernels that add anything.
func TestAddmmNotServed(t *testing.T) {
	const m, k, n = 16, 8, 32
	call := func(change func(c *library.Call)) error {
		c := &library.Call{Op: "addmm", Ins: []library.Tensor{dense(1<<16, dtype.BF16, n), dense(1<<17, dtype.BF16, m, k), dense(1<<18, dtype.BF16, k, n)},
			Outs: []library.Tensor{dense(1<<19, dtype.BF16, m, n)}}
		change(c)
		_, err := ProblemOfCall(c, Config{})
		return err
	}
	if err := call(func(*library.Call) {}); err != nil {
		t.Fatal(err)
	}
	p, err := ProblemOfCall(&library.Call{Op: "addmm", Ins: []library.Tensor{dense(1<<16+8, dtype.BF16, n), dense(1<<17, dtype.BF16, m, k), dense(1<<18, dtype.BF16, k, n)},
		Outs: []library.Tensor{dense(1<<19, dtype.BF16, m, n)}}, Config{})
	if err != nil || p.D.Align != 8 {
		t.Errorf("a row at a multiple of 8: %v, %v", &p, err)
	}
	for name, change := range map[string]func(c *library.Call){
		"a factor":      func(c *library.Call) { c.Attrs = attr.Of("alpha", 2.0) },
		"a column":      func(c *library.Call) { c.Ins[0] = dense(1<<16, dtype.BF16, m, 1) },
		"a matrix":      func(c *library.Call) { c.Ins[0] = dense(1<<16, dtype.BF16, m, n) },
		"one number":    func(c *library.Call) { c.Ins[0] = dense(1<<16, dtype.BF16, 1) },
		"another type":  func(c *library.Call) { c.Ins[0].DType = dtype.F32 },
		"spread":        func(c *library.Call) { c.Ins[0].Strides = []int64{2} },
		"column-major":  func(c *library.Call) { c.Outs[0].Strides = []int64{1, m} },
		"two operands":  func(c *library.Call) { c.Ins = c.Ins[1:] },
		"wider results": func(c *library.Call) { c.Outs[0].DType, c.Ins[0].DType = dtype.F32, dtype.F32 },
	} {
		if err := call(change); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

//go:build linux && cgo && (amd64 || arm64)

package cudnn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/intmath"
)

// laid places a tensor with numbers of about an amount.
func (g *gpu) laid(t *testing.T, x library.Tensor, amount float64) *placed {
	p := &placed{Tensor: x, bytes: make([]byte, intmath.Product(x.Shape)*int64(x.DType.Size()))}
	const period = 65521 // numbers of their own are enough
	size := int64(x.DType.Size())
	for i := range min(intmath.Product(x.Shape), period) {
		dtype.StoreFloat(x.DType, p.bytes[i*size:], amount*g.rng.NormFloat64())
	}
	for n := int64(period) * size; n < int64(len(p.bytes)); n *= 2 {
		copy(p.bytes[n:], p.bytes[:n])
	}
	return g.alloc(t, p)
}

// convolve places the tensors of a call.
func (g *gpu) convolve(t *testing.T, c convCall, space driver.Ptr) (call *library.Call, ins [2]*placed, out *placed) {
	ins, out = [2]*placed{g.laid(t, c.ins[0], 1), g.laid(t, c.ins[1], 1)}, g.laid(t, c.out, 1e4)
	return &library.Call{Op: opConvolution, Attrs: c.attrs, Ins: []library.Tensor{ins[0].Tensor, ins[1].Tensor}, Outs: []library.Tensor{out.Tensor},
		Workspace: space, WorkspaceBytes: workspace}, ins, out
}

// TestGPUConvolutions compares convolutions and their gradients with the host's kernels.
func TestGPUConvolutions(t *testing.T) {
	g := openGPU(t)
	l := g.open(t, false)
	space, err := g.drv.MemAlloc(g.rank.Ctx, workspace)
	if err != nil {
		t.Fatal(err)
	}
	limits := map[dtype.DType]float64{dtype.BF16: 4e-3, dtype.F16: 5e-4, dtype.F32: 2e-6}
	for _, c := range convCases {
		for _, typ := range []dtype.DType{dtype.BF16, dtype.F16, dtype.F32} {
			for _, call := range c.calls(typ) {
				t.Run(fmt.Sprintf("%s/%v/%s", c.name, typ, call.name), func(t *testing.T) {
					k, ins, out := g.convolve(t, call, space)
					s, err := l.Plan(k)
					if errors.Is(err, library.ErrNotServed) {
						fmt.Printf("NOT SERVED %s: %v\n", t.Name(), err)
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					data, differ := g.check(t, s, out)
					if differ > 0 {
						t.Errorf("%v: %d of %d runs differ from the first", s, differ, *repeats)
					}
					want := hostops.Tensor{DType: typ, Shape: out.Shape, Strides: out.Strides, Data: make([]byte, len(out.bytes))}
					host := func(p *placed) hostops.Tensor {
						return hostops.Tensor{DType: typ, Shape: p.Shape, Strides: p.Strides, Data: p.bytes}
					}
					if err := hostops.Run(opConvolution, call.attrs, []hostops.Tensor{want}, []hostops.Tensor{host(ins[0]), host(ins[1])}); err != nil {
						t.Fatal(err)
					}
					got := want
					got.Data = data[0]
					e := distance(got, want)
					if fmt.Printf("%s: %.1e %v\n", t.Name(), e, s); !(e < limits[typ]) {
						t.Errorf("%v: relative error %.2e", s, e)
					}
				})
			}
		}
	}
}

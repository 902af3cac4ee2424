package device

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/hostops"
	rt "github.com/seed-ee968945/concert/runtime"
)

// hostKernels computes on a driver whose memory is the host's: the fake one. Launches
// are functions that the driver calls in stream order.
type hostKernels struct{ drv driver.HostDriver }

// newHostKernels is nil on a real driver.
func newHostKernels(drv driver.Driver) *hostKernels {
	if d, ok := drv.(driver.HostDriver); ok {
		return &hostKernels{d}
	}
	return nil
}

// add adds a function to a command buffer. Its error breaks the device.
func (h *hostKernels) add(c *driver.Commands, d *Device, name string, run func() error) {
	c.Call(driver.Main, h.drv.RegisterCall(func([]uint64) error {
		if err := run(); err != nil {
			d.fail(d.call(name, err))
			return err
		}
		return nil
	}))
}

// view is t as the host's kernels see it.
func (h *hostKernels) view(d *Device, t rt.Tensor) hostops.Tensor {
	lo, hi, _ := t.Span()
	return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.StridesOrDense(), Offset: (t.Off - lo) / int64(t.DType.Size()),
		Data: driver.HostBytes(d.base+driver.Ptr(lo), uint64(hi-lo))}
}

func (h *hostKernels) views(d *Device, ts []rt.Tensor) []hostops.Tensor {
	out := make([]hostops.Tensor, len(ts))
	for i, t := range ts {
		out[i] = h.view(d, t)
	}
	return out
}

// planHost runs a fused kernel, of which the text is for GPUs, operation by operation.
func (d *Device) planHost(p *plan, k *rt.Kernel) error {
	p.algo = "host"
	run, err := d.host.body(d, k)
	if err != nil {
		return err
	}
	d.host.add(&p.cmds, d, p.name, run)
	return nil
}

// body runs the operations of a fused kernel one after the other.
func (h *hostKernels) body(d *Device, k *rt.Kernel) (func() error, error) {
	params := slices.Concat(k.Ins, k.Outs)
	sizes := map[int]int64{} // of temporaries in bytes
	for i := range k.Code.Body {
		s := &k.Code.Body[i]
		for _, t := range slices.Concat(s.Outs, s.Ins) {
			w, err := t.Place(params)
			if err != nil {
				return nil, fmt.Errorf("%s: step %d (%s): %w", k.Code.Name, i, s.Op, err)
			}
			if t.Param >= 0 {
				continue
			}
			if _, hi, err := w.Span(); err == nil {
				sizes[t.Temp] = max(sizes[t.Temp], hi)
			}
		}
	}
	return func() error {
		temps := map[int][]byte{}
		for n, size := range sizes {
			temps[n] = make([]byte, size)
		}
		views := func(ts []rt.CodeTensor) []hostops.Tensor {
			out := make([]hostops.Tensor, len(ts))
			for i := range ts {
				w, _ := ts[i].Place(params)
				if ts[i].Param >= 0 {
					out[i] = h.view(d, w)
					continue
				}
				lo, hi, _ := w.Span()
				out[i] = hostops.Tensor{DType: w.DType, Shape: w.Shape, Strides: w.StridesOrDense(),
					Offset: (w.Off - lo) / int64(w.DType.Size()), Data: temps[ts[i].Temp][lo:hi]}
			}
			return out
		}
		for i := range k.Code.Body {
			s := &k.Code.Body[i]
			if err := hostops.Run(s.Op, s.Attrs, views(s.Outs), views(s.Ins)); err != nil {
				return fmt.Errorf("step %d (%s): %w", i, s.Node, err)
			}
		}
		return nil
	}, nil
}

package library

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// OnHost is a step that does a call by the host's kernels, on a driver whose memory is the
// host's: what a library gives there for the calls that it serves on GPUs.
func OnHost(drv driver.HostDriver, name string, c *Call) Step {
	outs, ins := onHost(c.Outs), onHost(c.Ins)
	s := &hostStep{name: name}
	s.cmds.Call(driver.Main, drv.RegisterCall(func([]uint64) error {
		return hostops.Run(c.Op, c.Attrs, outs, ins)
	}))
	return s
}

type hostStep struct {
	name string
	cmds driver.Commands
}

// AddTo implements Step.
func (s *hostStep) AddTo(c *driver.Commands) { c.Append(&s.cmds) }

// String implements Step.
func (s *hostStep) String() string { return s.name }

// onHost is tensors as the host's kernels see them.
func onHost(ts []Tensor) []hostops.Tensor {
	out := make([]hostops.Tensor, len(ts))
	for i, t := range ts {
		lo, hi := int64(0), int64(1)
		for d, n := range t.Shape {
			if n == 0 {
				lo, hi = 0, 0
				break
			}
			if far := (n - 1) * t.Strides[d]; far < 0 {
				lo += far
			} else {
				hi += far
			}
		}
		size := int64(t.DType.Size())
		out[i] = hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.Strides, Offset: -lo,
			Data: driver.HostBytes(t.At+driver.Ptr(lo*size), uint64((hi-lo)*size))}
	}
	return out
}

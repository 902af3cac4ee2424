package device

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/device/internal/callkey"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/hostops"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Copy implements runtime.Device.
func (d *Device) Copy(s rt.Stream, dst, src rt.Tensor) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	d.key = callkey.Copy(d.key[:0], dst, src)
	p, err := d.planned(d.key, func() (*plan, error) {
		if err := d.inArena([]rt.Tensor{dst, src}); err != nil {
			return nil, err
		}
		if !dst.SameType(src) {
			return nil, fmt.Errorf("from %v to %v", src, dst)
		}
		p := &plan{name: "copy"}
		return p, d.copyInto(&p.cmds, dst, src)
	}, []rt.Tensor{dst, src})
	if err != nil {
		return d.call("copy", err)
	}
	return d.emit(st, p)
}

// copyInto adds an elementwise copy between tensors of one type: by a copy engine
// where both are the same bytes in the same order, else by a kernel.
func (d *Device) copyInto(c *driver.Commands, dst, src rt.Tensor) error {
	if dst.NumElems() == 0 {
		return nil
	}
	if layout.Alike(dst, src) {
		to, _, _ := dst.Span()
		lo, hi, _ := src.Span()
		if to != lo {
			c.Copy(driver.Main, d.base+driver.Ptr(to), d.base+driver.Ptr(lo), uint64(hi-lo))
		}
		return nil
	}
	if d.host != nil {
		return d.host.launch(c, d, "copy", &rt.Kernel{Op: "clone", Outs: []rt.Tensor{dst}, Ins: []rt.Tensor{src}})
	}
	return d.code.Copy(c, d.at(dst), d.at(src), dst, src)
}

// zero adds clearing a tensor.
func (d *Device) zero(c *driver.Commands, t rt.Tensor) error {
	if t.NumElems() == 0 {
		return nil
	}
	lo, hi, _ := t.Span()
	if _, full := layout.MemoryOrder(t); full && (hi-lo)%4 == 0 && lo%4 == 0 {
		c.Memset32(driver.Main, d.base+driver.Ptr(lo), 0, uint64(hi-lo)/4)
		return nil
	}
	if d.host != nil {
		return d.host.launch(c, d, "full", &rt.Kernel{Op: "full", Attrs: rt.A("value", 0), Outs: []rt.Tensor{t}})
	}
	return d.code.Zero(c, d.at(t), t)
}

// Upload implements runtime.Device.
func (d *Device) Upload(dst rt.Tensor, src []byte) error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.leave()
	d.domain.Gate.RLock()
	defer d.domain.Gate.RUnlock()
	if err := d.transferable("upload", dst, len(src)); err != nil || len(src) == 0 {
		return err
	}
	to := func(off int64, b []byte) error {
		return d.drv.CopyIn(d.rank.Ctx, d.rank.Setup(), d.base+driver.Ptr(off), b)
	}
	if dst.Dense() {
		return d.driver("upload", to(dst.Off, src))
	}
	laid, data, err := layout.InMemoryOrder(dst, src)
	if err != nil {
		return d.call("upload", err)
	}
	// Only the tensor's own bytes may be written: what is between may be in use.
	run, each := layout.Runs(laid)
	size := int64(dst.DType.Size())
	each(func(off, i int64) {
		if err == nil {
			err = to(off, data[i*size:(i+run)*size])
		}
	})
	return d.driver("upload", err)
}

// Download implements runtime.Device.
func (d *Device) Download(dst []byte, src rt.Tensor) error {
	if d.life.Begin() != nil {
		return rt.ErrClosed
	}
	defer d.leave()
	d.domain.Gate.RLock()
	defer d.domain.Gate.RUnlock()
	if err := d.transferable("download", src, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	from := func(b []byte, off int64) error {
		return d.drv.CopyOut(d.rank.Ctx, d.rank.Setup(), b, d.base+driver.Ptr(off))
	}
	if src.Dense() {
		return d.driver("download", from(dst, src.Off))
	}
	lo, hi, _ := src.Span()
	all := make([]byte, hi-lo)
	if err := from(all, lo); err != nil {
		return d.driver("download", err)
	}
	t := hostops.Tensor{DType: src.DType, Shape: src.Shape, Strides: src.StridesOrDense(), Offset: (src.Off - lo) / int64(src.DType.Size()), Data: all}
	out := hostops.Tensor{DType: src.DType, Shape: src.Shape, Strides: hostops.RowMajor(src.Shape), Data: dst}
	if err := hostops.Copy(out, t); err != nil {
		return d.call("download", err)
	}
	return nil
}

func (d *Device) transferable(op string, t rt.Tensor, n int) error {
	if err := d.inArena([]rt.Tensor{t}); err != nil {
		return d.call(op, err)
	}
	if int64(n) != t.Bytes() {
		return d.call(op, fmt.Errorf("%d bytes for %v, which has %d", n, t, t.Bytes()))
	}
	return nil
}

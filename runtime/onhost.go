package runtime

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/program"
)

// OnHost readies a launch, which may run any number of times, for a device whose arena the
// host sees: arena gives the bytes lo to hi of it, in which the launch's tensors have been
// found. A fused kernel is its operations one after the other, on the parameters and on
// temporary memory: the results are, bit for bit, those of launching them one by one. The
// error says that no host kernel computes an operation, or that a temporary is malformed;
// what else is wrong with the launch is an error of run.
func (k *Kernel) OnHost(arena func(lo, hi int64) []byte) (run func() error, err error) {
	view := func(t Tensor) hostops.Tensor { return t.over(arena) }
	if k.Op == program.OpFused && k.Code != nil {
		return k.Code.onHost(slices.Concat(k.Ins, k.Outs), view)
	}
	if !hostops.Has(k.Op) {
		return nil, fmt.Errorf("no host kernel: %w", ErrUnsupported)
	}
	run, wrong := hostops.Bind(k.Op, k.Attrs, views(k.Outs, view), views(k.Ins, view))
	if wrong != nil {
		return func() error { return wrong }, nil
	}
	return run, nil
}

func views(ts []Tensor, view func(Tensor) hostops.Tensor) []hostops.Tensor {
	out := make([]hostops.Tensor, len(ts))
	for i, t := range ts {
		out[i] = view(t)
	}
	return out
}

// over is t, which has been checked, as the host's kernels see it.
func (t Tensor) over(memory func(lo, hi int64) []byte) hostops.Tensor {
	lo, hi, _ := t.Span()
	return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.StridesOrDense(), Offset: (t.Off - lo) / int64(t.DType.Size()), Data: memory(lo, hi)}
}

// onHost readies a kernel's operations for a launch with these parameters.
func (c *Code) onHost(params []Tensor, view func(Tensor) hostops.Tensor) (func() error, error) {
	for i := range c.Body {
		if op := c.Body[i].Op; !hostops.Has(op) {
			return nil, fmt.Errorf("step %d: no host kernel for %s: %w", i, op, ErrUnsupported)
		}
	}
	sizes, err := c.temporaries()
	if err != nil {
		return nil, err
	}
	return func() error {
		temps := make([][]byte, len(sizes))
		for i, n := range sizes {
			temps[i] = make([]byte, n)
		}
		place := func(ts []CodeTensor) ([]hostops.Tensor, error) {
			out := make([]hostops.Tensor, len(ts))
			for i := range ts {
				w, err := Place(&ts[i], params)
				switch {
				case err != nil:
					return nil, err
				case ts[i].Param >= 0:
					out[i] = view(w)
				default: // temporaries has checked
					out[i] = w.over(func(lo, hi int64) []byte { return temps[ts[i].Temp][lo:hi:hi] })
				}
			}
			return out, nil
		}
		for i := range c.Body {
			s := &c.Body[i]
			outs, err := place(s.Outs)
			var ins []hostops.Tensor
			if err == nil {
				ins, err = place(s.Ins)
			}
			if err == nil {
				err = hostops.Run(s.Op, s.Attrs, outs, ins)
			}
			if err != nil {
				return fmt.Errorf("step %d (%%%s): %w", i, s.Node, err)
			}
		}
		return nil
	}, nil
}

// temporaries gives the size of each temporary in bytes.
func (c *Code) temporaries() ([]int64, error) {
	var sizes []int64
	tensors := 0
	for i := range c.Body {
		tensors += len(c.Body[i].Outs) + len(c.Body[i].Ins)
	}
	for i := range c.Body {
		for _, t := range slices.Concat(c.Body[i].Outs, c.Body[i].Ins) {
			if t.Param >= 0 {
				continue
			}
			lo, hi, err := window(&t).Span()
			if err != nil || lo < 0 || t.Temp < 0 || t.Temp >= tensors {
				return nil, fmt.Errorf("step %d (%s): temporary %d: %v", i, c.Body[i].Op, t.Temp, err)
			}
			for len(sizes) <= t.Temp {
				sizes = append(sizes, 0)
			}
			sizes[t.Temp] = max(sizes[t.Temp], hi)
		}
	}
	return sizes, nil
}

// Call is a launch's call of a function, of whose operands and results place says how the
// function reaches them.
func (k *Kernel) Call(rank, world int, place func(Tensor) FuncTensor) *FuncCall {
	c := &FuncCall{Rank: rank, World: world, Target: k.Target, Group: k.Group, Attrs: k.Attrs}
	for _, t := range k.Outs {
		c.Outs = append(c.Outs, place(t))
	}
	for _, t := range k.Ins {
		c.Ins = append(c.Ins, place(t))
	}
	return c
}

// Run makes the call. The function is the user's: its panic becomes this call's error
// instead of taking down a process that other ranks depend on. Else the error is f's.
func (c FuncCall) Run(f func(c *FuncCall) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("function %q panicked: %v", c.Target, v)
		}
	}()
	return f(&c)
}

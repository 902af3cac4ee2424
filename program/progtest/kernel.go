package progtest

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/program"
)

// RunKernel runs a kernel's body, one operation after the other, on the launch's
// operands and results, with the sizes that it takes.
func RunKernel(k *program.Kernel, outs, ins []hostops.Tensor, sizes ...int64) error {
	params := slices.Concat(ins, outs)
	temps := map[int][]byte{}
	view := func(t *program.BodyTensor) (hostops.Tensor, error) {
		v := hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.Strides}
		if v.Strides == nil {
			v.Strides = hostops.RowMajor(t.Shape)
		}
		n, ok := program.Span(t.DType, t.Shape, t.Strides)
		if !ok {
			return v, fmt.Errorf("a tensor of %v%v has no extent", t.DType, t.Shape)
		}
		hi := t.Offset + n
		if t.Param >= 0 {
			v.Data = params[t.Param].Data[t.Offset:hi:hi]
			return v, nil
		}
		if have := temps[t.Temp]; int64(len(have)) < hi {
			temps[t.Temp] = append(have, make([]byte, hi-int64(len(have)))...)
		}
		v.Data = temps[t.Temp][t.Offset:hi:hi]
		return v, nil
	}
	views := func(ts []program.BodyTensor) ([]hostops.Tensor, error) {
		out := make([]hostops.Tensor, len(ts))
		for i := range ts {
			var err error
			if out[i], err = view(&ts[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	body, err := k.At(sizes)
	if err != nil {
		return err
	}
	for i := range body {
		s := &body[i]
		to, err := views(s.Outs)
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		from, err := views(s.Ins)
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if err := hostops.Run(s.Op, s.Attrs, to, from); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

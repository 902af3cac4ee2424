package host

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	rt "github.com/seed-ee968945/concert/runtime"
)

// fused prepares a launch of a module's own kernel: its operations one after the
// other, on the parameters and on temporary memory. The results are, bit for bit,
// those of launching the operations one by one.
func (d *Device) fused(k *rt.Kernel) (func() error, error) {
	steps := k.Code.Body
	for i := range steps {
		if !hostops.Has(steps[i].Op) {
			return nil, fmt.Errorf("step %d: no host kernel for %s: %w", i, steps[i].Op, rt.ErrUnsupported)
		}
	}
	sizes, err := temporaries(steps)
	if err != nil {
		return nil, err
	}
	params := slices.Concat(k.Ins, k.Outs)
	return func() error {
		temps := make([][]byte, len(sizes))
		for i, n := range sizes {
			temps[i] = make([]byte, n)
		}
		view := func(ts []rt.CodeTensor) ([]hostops.Tensor, error) {
			out := make([]hostops.Tensor, len(ts))
			for i := range ts {
				w, err := ts[i].Place(params)
				if err != nil {
					return nil, err
				}
				if ts[i].Param >= 0 {
					out[i] = d.view(d.spec.Rank, w)
					continue
				}
				lo, hi, _ := w.Span() // temporaries has checked
				out[i] = hostops.Tensor{DType: w.DType, Shape: w.Shape, Strides: w.StridesOrDense(),
					Offset: (w.Off - lo) / int64(w.DType.Size()), Data: temps[ts[i].Temp][lo:hi:hi]}
			}
			return out, nil
		}
		for i := range steps {
			outs, err := view(steps[i].Outs)
			if err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			ins, err := view(steps[i].Ins)
			if err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			if err := hostops.Run(steps[i].Op, steps[i].Attrs, outs, ins); err != nil {
				return fmt.Errorf("step %d (%%%s): %w", i, steps[i].Node, err)
			}
		}
		return nil
	}, nil
}

// temporaries returns the size of each temporary in bytes.
func temporaries(steps []rt.CodeStep) ([]int64, error) {
	var sizes []int64
	tensors := 0
	for i := range steps {
		tensors += len(steps[i].Outs) + len(steps[i].Ins)
	}
	for i := range steps {
		for _, t := range slices.Concat(steps[i].Outs, steps[i].Ins) {
			if t.Param >= 0 {
				continue
			}
			lo, hi, err := t.Tensor().Span()
			if err != nil || lo < 0 || t.Temp < 0 || t.Temp >= tensors {
				return nil, fmt.Errorf("step %d (%s): temporary %d: %v", i, steps[i].Op, t.Temp, err)
			}
			for len(sizes) <= t.Temp {
				sizes = append(sizes, 0)
			}
			sizes[t.Temp] = max(sizes[t.Temp], hi)
		}
	}
	return sizes, nil
}

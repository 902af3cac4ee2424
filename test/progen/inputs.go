package progen

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

var special = []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.MaxFloat32, 5e-324, 1e-45, 65504, -1}

// Inputs makes the inputs of f for every rank under one assignment of its symbols:
// small numbers, and in some tensors special ones. Equal seeds give equal bytes.
func Inputs(f *ir.Func, seed uint64, symbols []map[string]int64) ([][]interp.Tensor, error) {
	r := rand.New(rand.NewPCG(seed, 0xda7a))
	out := make([][]interp.Tensor, f.Module().World)
	for _, s := range interp.InputSlots(f) {
		wild := r.IntN(5) == 0
		same := r.IntN(8) == 0 // on all ranks
		for rank := range out {
			t, err := tensor(s.Type, symbols[rank])
			if err != nil {
				return nil, fmt.Errorf("input %%%s: %w", s.Name, err)
			}
			if same && rank > 0 && len(out[0][len(out[rank])].Data) == len(t.Data) {
				copy(t.Data, out[0][len(out[rank])].Data)
			} else {
				fill(r, t, wild)
			}
			out[rank] = append(out[rank], t)
		}
	}
	return out, nil
}

func tensor(t ir.Type, symbols map[string]int64) (interp.Tensor, error) {
	var sizes []int64
	for _, d := range t.Shape() {
		n, ok := d.Eval(func(name string) (int64, bool) { v, ok := symbols[name]; return v, ok })
		if !ok || n < 0 {
			return interp.Tensor{}, fmt.Errorf("size %s is %d (known: %v)", d, n, ok)
		}
		sizes = append(sizes, n)
	}
	return interp.NewTensor(t.DType(), sizes...)
}

func fill(r *rand.Rand, t interp.Tensor, wild bool) {
	size := t.DType.Size()
	for i := 0; i+size <= len(t.Data); i += size {
		b := t.Data[i : i+size]
		switch {
		case t.DType == dtype.Bool:
			b[0] = byte(r.IntN(2))
		case t.DType.IsFloat() && wild && r.IntN(3) == 0:
			dtype.StoreFloat(t.DType, b, special[r.IntN(len(special))])
		case t.DType.IsFloat() && r.IntN(2) == 0:
			dtype.StoreFloat(t.DType, b, float64(r.IntN(17)-8))
		case t.DType.IsFloat():
			dtype.StoreFloat(t.DType, b, r.NormFloat64())
		case wild && r.IntN(3) == 0:
			dtype.StoreInt(t.DType, b, []int64{math.MaxInt64, math.MinInt64, math.MaxInt32, math.MinInt32, 1<<53 + 1, -128}[r.IntN(6)])
		default:
			dtype.StoreInt(t.DType, b, int64(r.IntN(15)-7))
		}
	}
}

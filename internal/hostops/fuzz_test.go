package hostops

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// FuzzRun calls kernels with operands that are mostly plausible and sometimes
// broken. Nothing may panic, and errors must be of this package's type. The fuzzer
// chooses the kernel, the seed and the attributes.
func FuzzRun(f *testing.F) {
	for i, c := range opCases() {
		f.Add(c.op, uint64(i), c.attrs)
	}
	for i, s := range samples(rand.New(rand.NewPCG(7, 7)), dtype.BF16) {
		f.Add(s.op, uint64(i), s.attrs)
	}
	f.Fuzz(func(t *testing.T, op string, seed uint64, text string) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l, _, err := attr.Scan(text)
		if err != nil {
			l = nil
		}
		var outs, ins []Tensor
		if k, ok := kernels[op]; ok {
			base := fuzzShape(rng)
			for range k.minIn + rng.IntN(2) {
				ins = append(ins, fuzzTensor(rng, base))
			}
			for range k.outs {
				outs = append(outs, fuzzTensor(rng, base))
			}
		}
		if err := Run(op, l, outs, ins); err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
		}
		if len(outs) > 0 && len(ins) > 0 {
			_ = Reduce("avg", outs[0], ins)
			_ = CopyRange(outs[0], int64(rng.IntN(5)), ins[0], int64(rng.IntN(5)), int64(rng.IntN(9)))
		}
	})
}

func fuzzShape(rng *rand.Rand) shape {
	s := make(shape, rng.IntN(5))
	for i := range s {
		s[i] = int64(rng.IntN(5))
	}
	return s
}

func fuzzTensor(rng *rand.Rand, base shape) Tensor {
	ds := dtype.All()
	d := dtype.F32
	switch rng.IntN(4) {
	case 0:
		d = ds[rng.IntN(len(ds))]
	case 1:
		d = dtype.I64
	}
	s := append(shape{}, base...)
	switch {
	case len(s) > 0 && rng.IntN(4) == 0:
		s[rng.IntN(len(s))] = int64(rng.IntN(5))
	case rng.IntN(8) == 0:
		s = fuzzShape(rng)
	}
	x := random(rng, d, 4, s)
	for i := range x.Strides {
		switch rng.IntN(24) {
		case 0:
			x.Strides[i] = 0
		case 1:
			x.Strides[i] = -x.Strides[i]
			x.Offset -= x.Strides[i] * (s[i] - 1)
		case 2:
			x.Strides[i] = rng.Int64() - 1<<62
		}
	}
	switch rng.IntN(40) {
	case 0:
		x.Data = x.Data[:rng.IntN(len(x.Data)+1)]
	case 1:
		x.Offset = rng.Int64() - 1<<62
	case 2:
		x.Shape = append(x.Shape, 1<<rng.IntN(63))
	}
	return x
}

package lt

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
)

//go:embed check.cu
var checkSource string

// ErrWrongResult is wrapped by errors about a candidate whose results are not the sums of
// products that they should be, within what rounding explains.
var ErrWrongResult = errors.New("wrong results")

// samples is how many elements of a result are compared with sums in double.
const samples = 2048

// checker compares results on the device with sums in double.
type checker struct {
	h    *Handle
	mod  driver.Module
	f    driver.Func
	sums driver.Ptr // 3 doubles for each sample
}

// newChecker loads the kernel; on a fake driver the host does its work.
func (h *Handle) newChecker() (*checker, error) {
	c := &checker{h: h}
	if onHost(h.lib.drv) {
		return c, nil
	}
	if h.opts.Compile == nil {
		return nil, errors.New("results cannot be checked without a compiler: set Options.Compile")
	}
	image, err := h.opts.Compile("check.cu", checkSource)
	if err != nil {
		return nil, err
	}
	if c.mod, err = h.lib.drv.ModuleLoad(h.ctx, image); err != nil {
		return nil, err
	}
	c.f, err = h.lib.drv.Function(h.ctx, c.mod, "concert_check")
	if err == nil {
		c.sums, err = h.lib.drv.MemAlloc(h.ctx, 24*samples)
	}
	if err != nil {
		return nil, errors.Join(err, h.lib.drv.ModuleUnload(h.ctx, c.mod))
	}
	return c, nil
}

func (c *checker) close() error {
	if c.f == 0 {
		return nil
	}
	return errors.Join(c.h.lib.drv.MemFree(c.h.ctx, c.sums), c.h.lib.drv.ModuleUnload(c.h.ctx, c.mod))
}

// sample is one element: the sum in double, the sum of the products' squares, and
// what the result holds.
type sample struct{ want, squares, got float64 }

// run takes the samples of a product that is in its result already, on the stream.
func (c *checker) run(s driver.Stream, p *Problem, x, y, d driver.Ptr) ([]sample, error) {
	n := min(samples, p.M*p.N*p.Batch)
	if c.f == 0 {
		return p.sampleOnHost(n, x, y, d)
	}
	var b []byte
	word := func(v ...uint64) {
		for _, w := range v {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	matrix := func(at driver.Ptr, m Matrix, t dtype.DType) {
		row, col := int64(1), m.LD
		if m.Trans {
			row, col = col, row
		}
		word(uint64(at), uint64(row), uint64(col), uint64(m.Stride), checkTypeOf[t])
	}
	matrix(x, p.X, p.Type)
	matrix(y, p.Y, p.Type)
	matrix(d, p.D, p.Out)
	word(uint64(c.sums), uint64(p.M), uint64(p.N), uint64(p.K), uint64(p.Batch), uint64(n))
	drv, ctx := c.h.lib.drv, c.h.ctx
	if err := drv.Launch(ctx, s, c.f, int(n), 128, 0, b); err != nil {
		return nil, err
	}
	raw := make([]byte, 24*n)
	if err := drv.CopyOut(ctx, s, raw, c.sums); err != nil {
		return nil, err
	}
	out := make([]sample, n)
	for i := range out {
		f := func(j int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(raw[24*i+8*j:])) }
		out[i] = sample{f(0), f(1), f(2)}
	}
	return out, nil
}

var checkTypeOf = map[dtype.DType]uint64{dtype.BF16: 0, dtype.F16: 1, dtype.F32: 2, dtype.F64: 3}

// roundoff is half a unit in the last place of one.
var roundoff = map[dtype.DType]float64{dtype.BF16: 0x1p-8, dtype.F16: 0x1p-11, dtype.F32: 0x1p-24, dtype.F64: 0x1p-53}

// tolerance is what a result may be off, where dev is the root of the sum of the
// products' squares, which is how large a sum of products of random signs is.
//
// The result is rounded once. The sum before is in float32: tensor cores take 8 or 16
// products at a time and cut off what is below the last place of the sum so far, an
// error of up to 2^-23 of it that always points to zero, so it grows with k, not with
// its root. (On an H200, 65536 elements of a product in bf16 with k = 128256 were off by
// up to 1.0535 roundings. A model of sums of 16 that are cut off gives that very number
// for these operands; cut off every 8 it is 1.12, rounded to nearest or summed in
// float64 it is 0.995.) Leaving out one step of 16 products is an error of about
// 4/sqrt(k) of dev, far more at any k.
func (p *Problem) tolerance(want, dev float64) float64 {
	k := float64(p.K)
	sum := (4+math.Sqrt(k))*0x1p-23 + k*0x1p-26
	switch {
	case p.Type == dtype.F64:
		sum = (4 + math.Sqrt(k)) * 0x1p-51
	case p.TF32:
		sum += 0x1p-8 // both factors are rounded to 11 bits: some 5 standard deviations of that
	}
	return roundoff[p.Out]*math.Max(math.Abs(want), dev)*1.001 + sum*dev
}

// verify compares samples with the sums in double. worst is the largest error in units
// of what may be.
func (p *Problem) verify(list []sample) (worst float64, err error) {
	for _, s := range list {
		dev := math.Sqrt(s.squares)
		if math.IsNaN(s.want) || math.IsInf(dev, 0) {
			return 0, fmt.Errorf("operands of %v are not finite", p)
		}
		e := math.Abs(s.got-s.want) / p.tolerance(s.want, dev)
		switch {
		case s.got == s.want:
			continue
		case !(e <= 1): // also NaN
			return e, fmt.Errorf("%w: %g where the sum is %g, the products' root of squares %g", ErrWrongResult, s.got, s.want, dev)
		}
		worst = max(worst, e)
	}
	return worst, nil
}

package hostops

import (
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/window"
)

// underWindows calls fn for each window and each of its places that meets an element of a tensor
// or, with element nil, padding.
func underWindows(dims []window.Dim, sizes []int64, fn func(o, tap, element []int64)) {
	o, tap, element := make([]int64, len(dims)), make([]int64, len(dims)), make([]int64, len(dims))
	var walk func(d int, padding bool)
	walk = func(d int, padding bool) {
		if d == len(dims) {
			if padding {
				fn(o, tap, nil)
			} else {
				fn(o, tap, element)
			}
			return
		}
		w := dims[d]
		for o[d] = 0; o[d] < w.Count(sizes[d]); o[d]++ {
			for tap[d] = 0; tap[d] < w.Size; tap[d]++ {
				at := o[d]*w.Stride + w.Tap(tap[d])*w.Dilation - w.Low
				if at >= 0 && at%w.Base == 0 && at/w.Base < sizes[d] {
					element[d] = at / w.Base
					walk(d+1, padding)
				} else if at < 0 || at >= (sizes[d]-1)*w.Base+1 {
					walk(d+1, true)
				}
			}
		}
	}
	walk(0, false)
}

// flat is the place of an index in row-major order.
func flat(shape, at []int64) int64 {
	i := int64(0)
	for d, n := range shape {
		i = i*n + at[d]
	}
	return i
}

// randomWindow draws a window over a tensor of the given sizes.
func randomWindow(rng *rand.Rand, rank int) (attr.List, []int64) {
	var sizes, strides, padding, base, dilation, reverse []int64
	for range rank {
		sizes, strides, reverse = append(sizes, 1+rng.Int64N(3)), append(strides, 1+rng.Int64N(3)), append(reverse, rng.Int64N(2))
		padding = append(padding, rng.Int64N(5)-1, rng.Int64N(5)-1)
		base, dilation = append(base, 1+rng.Int64N(3)), append(dilation, 1+rng.Int64N(2))
	}
	return attr.Of(window.StridesKey, strides, window.PaddingKey, padding, window.BaseKey, base, window.DilationKey, dilation, window.ReverseKey, reverse), sizes
}

// TestConvolution compares with sums in the order of the definition, in all layouts.
func TestConvolution(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		rank := rng.IntN(4)
		l, sizes := randomWindow(rng, rank)
		groups, batches := int64(1), int64(1)
		switch rng.IntN(3) {
		case 0:
			groups = 1 + rng.Int64N(3)
		case 1:
			batches = 1 + rng.Int64N(3)
		}
		l = l.With("groups", attr.Int(groups)).With("batch_groups", attr.Int(batches))
		dims, err := window.Parse(l.Ints, sizes)
		if err != nil {
			t.Fatal(err)
		}
		n, c, o := 1+rng.Int64N(3), 1+rng.Int64N(3), groups*batches*(1+rng.Int64N(6))
		xs, ws, ys := shape{n * batches, c * groups}, append(shape{o, c}, sizes...), shape{n, o}
		for d := range rank {
			xs = append(xs, 1+rng.Int64N(6))
			ys = append(ys, dims[d].Count(xs[2+d]))
		}
		x, w := random(rng, dtype.F32, 0, xs), random(rng, dtype.F32, 0, ws)
		xv, wv, want := values(t, x), values(t, w), make([]float32, numelOf(ys))
		for b := range n {
			for k := range o {
				g := k / (o / (groups * batches))
				for ch := range c {
					xc, xb := ch, b
					if groups > 1 {
						xc += g * c
					} else {
						xb += g * n
					}
					underWindows(dims, xs[2:], func(at, tap, element []int64) {
						v := float32(0)
						if element != nil {
							v = float32(xv[flat(xs, append([]int64{xb, xc}, element...))])
						}
						to := flat(ys, append([]int64{b, k}, at...))
						want[to] += v * float32(wv[flat(ws, append([]int64{k, ch}, tap...))])
					})
				}
			}
		}
		got := relayout(t, rng, mk(dtype.F32, ys))
		if err := Run("convolution", l, []Tensor{got}, []Tensor{relayout(t, rng, x), relayout(t, rng, w)}); err != nil {
			t.Fatalf("%v of %v and %v: %v", l, xs, ws, err)
		}
		for i, v := range values(t, got) {
			if float32(v) != want[i] {
				t.Fatalf("%v of %v and %v: element %d is %v, want %v", l, xs, ws, i, v, want[i])
			}
		}
	}
}

func numelOf(s shape) int64 {
	n, _ := numel(s)
	return n
}

func BenchmarkConvolution(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, bench := range []struct {
		name, attrs string
		x, w, y     shape
		macs        int64 // of an element of the result
	}{
		{"3x3", "{padding=[1, 1, 1, 1]}", shape{4, 64, 28, 28}, shape{64, 64, 3, 3}, shape{4, 64, 28, 28}, 64 * 9},
		{"depthwise", "{groups=64, padding=[3, 3, 3, 3]}", shape{4, 64, 28, 28}, shape{64, 1, 7, 7}, shape{4, 64, 28, 28}, 49},
		{"gradient", "{base_dilation=[2, 2], padding=[1, 1, 1, 1], reverse=[1, 1]}", shape{4, 64, 14, 14}, shape{64, 64, 2, 2}, shape{4, 64, 28, 28}, 64},
		{"window", "{padding=[1, 1, 1, 1]}", shape{64, 4, 28, 28}, shape{64, 4, 28, 28}, shape{64, 64, 3, 3}, 4 * 28 * 28},
	} {
		x, w, y := random(rng, dtype.BF16, 0, bench.x), random(rng, dtype.BF16, 0, bench.w), mk(dtype.BF16, bench.y)
		b.Run(bench.name, func(b *testing.B) {
			benchmark(b, "convolution", bench.attrs, []Tensor{y}, []Tensor{x, w})
			b.ReportMetric(float64(2*numelOf(bench.y)*bench.macs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gflop/s")
		})
	}
}

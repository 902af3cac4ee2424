package hostops

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

func benchmark(b *testing.B, op, text string, outs, ins []Tensor) {
	b.Helper()
	l := attrs(b, text)
	for b.Loop() {
		if err := Run(op, l, outs, ins); err != nil {
			b.Fatal(err)
		}
	}
}

// transposed views a matrix the other way round.
func transposed(x Tensor) Tensor {
	x.Shape = []int64{x.Shape[1], x.Shape[0]}
	x.Strides = []int64{x.Strides[1], x.Strides[0]}
	return x
}

func BenchmarkMatmul(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, d := range []dtype.DType{dtype.F32, dtype.BF16} {
		for _, n := range []int64{32, 256, 1024} {
			x, y, out := random(rng, d, 0, shape{n, n}), random(rng, d, 0, shape{n, n}), mk(d, shape{n, n})
			for _, layout := range []string{"nn", "nt"} {
				b.Run(fmt.Sprintf("%v/%d/%s", d, n, layout), func(b *testing.B) {
					y := y
					if layout == "nt" {
						y = transposed(y)
					}
					benchmark(b, "matmul", "", []Tensor{out}, []Tensor{x, y})
					b.ReportMetric(float64(2*n*n*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gflop/s")
				})
			}
		}
	}
}

func BenchmarkPointwise(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 1 << 10
	for _, d := range []dtype.DType{dtype.F32, dtype.BF16} {
		x, y, row, out := random(rng, d, 0, shape{n, n}), random(rng, d, 0, shape{n, n}), random(rng, d, 0, shape{n}), mk(d, shape{n, n})
		cases := []struct {
			name, op, attrs string
			ins             []Tensor
		}{
			{"add", "add", "", []Tensor{x, y}},
			{"add-row", "add", "", []Tensor{x, row}},
			{"add-transposed", "add", "", []Tensor{x, transposed(y)}},
			{"mul-scalar", "mul", "{scalar=0.5}", []Tensor{x}},
			{"exp", "exp", "", []Tensor{x}},
			{"full", "full", "{value=0.5}", nil},
		}
		for _, c := range cases {
			b.Run(fmt.Sprintf("%v/%s", d, c.name), func(b *testing.B) {
				b.SetBytes(int64(n*n*d.Size()) * int64(len(c.ins)+1))
				benchmark(b, c.op, c.attrs, []Tensor{out}, c.ins)
			})
		}
	}
}

// Masks as random draws are counted with: bits that no processor foresees.
func BenchmarkMasks(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 4))
	const n = 1 << 20
	flags := func() Tensor { return mk(dtype.Bool, shape{n}) }
	x, small, mask, words := random(rng, dtype.F32, 0, shape{n}), random(rng, dtype.I8, 100, shape{n}), flags(), random(rng, dtype.U64, 1000, shape{n})
	for i := range mask.Data {
		mask.Data[i] = byte(rng.IntN(2))
	}
	for _, c := range []struct {
		name, op, attrs string
		out             Tensor
		ins             []Tensor
	}{
		{"i8/lt", "lt", "", flags(), []Tensor{small, mk(dtype.I8, shape{}, 50)}},
		{"f32/lt", "lt", "{scalar=0.0}", flags(), []Tensor{x}},
		{"bool/logical_and", "logical_and", "", flags(), []Tensor{mask, mask}},
		{"bool/convert", "convert", "", mk(dtype.F32, shape{n}), []Tensor{mask}},
		{"u64/add", "add", "", mk(dtype.U64, shape{n}), []Tensor{words, words}},
		{"u64/mul-one", "mul", "", mk(dtype.U64, shape{n}), []Tensor{words, mk(dtype.U64, shape{}, 1000)}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.op, c.attrs, []Tensor{c.out}, c.ins) })
	}
}

// Tensors so small that what is done for each launch counts, as a device launches them.
func BenchmarkSmall(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 5))
	x, y, bias, scalar := random(rng, dtype.F64, 0, shape{128, 32}), random(rng, dtype.F64, 0, shape{32, 32}), random(rng, dtype.F64, 0, shape{32}), random(rng, dtype.F64, 0, shape{})
	out := func(s ...int64) Tensor { return mk(dtype.F64, s) }
	for _, c := range []struct {
		name, op, attrs string
		out             Tensor
		ins             []Tensor
	}{
		{"one", "add", "", out(), []Tensor{scalar, scalar}},
		{"add-row", "add", "", out(128, 32), []Tensor{x, bias}},
		{"sum", "sum", "{dims=[0]}", out(32), []Tensor{x}},
		{"cat", "cat", "{dim=1}", out(128, 64), []Tensor{x, x}},
		{"matmul", "matmul", "", out(128, 32), []Tensor{x, y}},
	} {
		b.Run(c.name, func(b *testing.B) {
			run, err := Bind(c.op, attrs(b, c.attrs), []Tensor{c.out}, c.ins)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReduction(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 3))
	const n = 1 << 10
	x := random(rng, dtype.F32, 0, shape{n, n})
	for _, dim := range []int{0, 1} {
		b.Run(fmt.Sprintf("sum/dim%d", dim), func(b *testing.B) {
			b.SetBytes(4 * n * n)
			benchmark(b, "sum", fmt.Sprintf("{dims=[%d]}", dim), []Tensor{f32(shape{n})}, []Tensor{x})
		})
	}
	b.Run("softmax", func(b *testing.B) {
		b.SetBytes(8 * n * n)
		benchmark(b, "softmax", "{dim=1}", []Tensor{like(x)}, []Tensor{x})
	})
}

func BenchmarkAttention(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 4))
	q := random(rng, dtype.BF16, 0, shape{1, 4, 256, 64})
	outs := attentionOuts(dtype.BF16, 1, 4, 256, 64)
	b.Run("forward", func(b *testing.B) {
		benchmark(b, "attention", "{causal=true}", outs, []Tensor{q, q, q})
	})
	b.Run("backward", func(b *testing.B) {
		benchmark(b, "attention_backward", "{causal=true}", []Tensor{like(q), like(q), like(q)},
			[]Tensor{q, q, q, q, outs[0], outs[1], outs[2], outs[3]})
	})
}

func BenchmarkCopy(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 5))
	const n = 1 << 10
	x, out := random(rng, dtype.BF16, 0, shape{n, n}), bf16(shape{n, n})
	for name, src := range map[string]Tensor{"dense": x, "transposed": transposed(x)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(4 * n * n)
			benchmark(b, "clone", "", []Tensor{out}, []Tensor{src})
		})
	}
}

func BenchmarkReduceRanks(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 6))
	const n = 1 << 20
	var ins []Tensor
	for range 4 {
		ins = append(ins, random(rng, dtype.BF16, 0, shape{n}))
	}
	b.SetBytes(2 * n * 4)
	for b.Loop() {
		if err := Reduce("sum", ins[0], ins); err != nil {
			b.Fatal(err)
		}
	}
}

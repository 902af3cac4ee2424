package hostops

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// sample is a call on random operands, for properties that hold of any values.
type sample struct {
	op, attrs string
	ins       []Tensor
	outs      []Tensor // result types
	inPlace   bool     // result 0 may be operand 0
}

// samples draws a call of every kernel, for one floating type.
func samples(rng *rand.Rand, d dtype.DType) []sample {
	x := func(s ...int64) Tensor { return random(rng, d, 0, s) }
	positive := func(s ...int64) Tensor {
		t := x(s...)
		v := make([]float64, t.NumElems())
		loadInto(v, &t)
		for i := range v {
			v[i] = math.Abs(v[i]) + 0.5
		}
		storeAll(&t, v)
		return t
	}
	idx := func(limit int, s ...int64) Tensor { return random(rng, dtype.I64, limit, s) }
	o := func(s ...int64) []Tensor { return []Tensor{mk(d, s)} }
	ob := func(s ...int64) []Tensor { return []Tensor{mk(dtype.Bool, s)} }
	var l []sample
	for _, op := range []string{"neg", "exp", "abs", "sigmoid", "tanh", "relu", "silu", "gelu", "sin", "cos", "floor", "convert"} {
		l = append(l, sample{op, "", in(x(3, 40, 7)), o(3, 40, 7), true})
	}
	for _, op := range []string{"log", "sqrt", "rsqrt", "reciprocal"} {
		l = append(l, sample{op, "", in(positive(5, 700)), o(5, 700), true})
	}
	for _, op := range []string{"add", "sub", "mul", "div", "maximum", "minimum"} {
		l = append(l,
			sample{op, "", in(x(3, 40, 7), x(40, 1)), o(3, 40, 7), true},
			sample{op, "{reverse=true, scalar=1.5}", in(x(3, 600)), o(3, 600), true})
	}
	l = append(l, sample{"pow", "", in(positive(4, 5), x(4, 5)), o(4, 5), true}, sample{"add", "{alpha=0.3}", in(x(4, 5), x(5)), o(4, 5), true})
	for _, op := range []string{"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"} {
		l = append(l, sample{op, "", in(x(3, 40), x(3, 1)), ob(3, 40), false})
	}
	for _, op := range []string{"sum", "mean", "amax", "amin", "prod"} {
		l = append(l,
			sample{op, "{dims=[1]}", in(x(3, 40, 17)), o(3, 17), false},
			sample{op, "{dims=[0, 2], keepdim=true}", in(x(3, 40, 17)), o(1, 40, 1), false},
			sample{op, "{dims=[2]}", in(x(3, 2, 1100)), o(3, 2), false},
			sample{op, "", in(x(3, 40)), o(), false})
	}
	return append(l,
		sample{"logical_not", "", in(x(3, 4)), ob(3, 4), false},
		sample{"fma", "", in(x(6, 7), x(7), x(6, 1)), o(6, 7), true},
		sample{"where", "", in(idxBool(rng, 6, 7), x(7), x(6, 1)), o(6, 7), false},
		sample{"clamp", "{max=0.5, min=-0.5}", in(x(6, 7)), o(6, 7), true},
		sample{"argmax", "{dim=1}", in(x(3, 40, 17)), []Tensor{mk(dtype.I64, shape{3, 17})}, false},
		sample{"cumsum", "{dim=1}", in(x(3, 700, 2)), o(3, 700, 2), true},
		sample{"softmax", "{dim=1}", in(x(3, 40, 2)), o(3, 40, 2), true},
		sample{"log_softmax", "{dim=2}", in(x(3, 4, 25)), o(3, 4, 25), true},
		sample{"matmul", "", in(x(37, 300), x(300, 131)), o(37, 131), false},
		sample{"matmul", "", in(x(2, 3, 5, 7), x(2, 3, 7, 4)), o(2, 3, 5, 4), false},
		sample{"matmul", "", in(x(150, 9), x(9, 5)), o(150, 5), false},
		sample{"addmm", "{alpha=0.5, beta=2}", in(x(4), x(5, 6), x(6, 4)), o(5, 4), false},
		sample{"attention", "{causal=true}", in(x(2, 4, 9, 8), x(2, 2, 9, 8), x(2, 2, 9, 6)), attentionOuts(d, 2, 4, 9, 6), false},
		sample{"attention", "", in(x(1, 2, 3, 8), x(1, 2, 9, 8), x(1, 2, 9, 8), x(3, 9)), attentionOuts(d, 1, 2, 3, 8), false},
		sample{"attention_backward", "{causal=true}", in(x(1, 4, 5, 8), x(1, 4, 5, 8), x(1, 2, 6, 8), x(1, 2, 6, 8), x(1, 4, 5, 8), positive(1, 4, 5, 1), i64(shape{}), i64(shape{}), x(5, 1)),
			[]Tensor{mk(d, shape{1, 4, 5, 8}), mk(d, shape{1, 2, 6, 8}), mk(d, shape{1, 2, 6, 8})}, false},
		sample{"clone", "", in(x(3, 4, 5)), o(3, 4, 5), true},
		sample{"cat", "{dim=1}", in(x(3, 4, 5), x(3, 2, 5)), o(3, 6, 5), false},
		sample{"slice_scatter", "{dim=1, end=6, start=1, step=2}", in(x(3, 7, 5), x(3, 3, 5)), o(3, 7, 5), true},
		sample{"index", "{dims=[0, 2]}", in(x(3, 7, 5), idx(3, 4, 1), idx(5, 2)), o(4, 2, 7), false},
		sample{"index", "{dims=[1]}", in(x(3, 7, 5), idx(7, 4)), o(3, 4, 5), false},
		sample{"index_put", "", in(x(7, 5), x(3, 5), idx(7, 3)), o(7, 5), true},
		sample{"index_put", "{accumulate=true, dims=[0, 2]}", in(x(3, 7, 5), x(6, 7), idx(3, 6), idx(5, 6)), o(3, 7, 5), true},
		sample{"index_add", "{dim=1}", in(x(3, 7, 5), idx(7, 9), x(3, 9, 5)), o(3, 7, 5), true},
		sample{"gather", "{dim=1}", in(x(3, 7, 5), idx(7, 3, 4, 2)), o(3, 4, 2), false},
		sample{"scatter", "{dim=1}", in(x(3, 7, 5), idx(7, 3, 4, 2), x(3, 4, 5)), o(3, 7, 5), true},
		sample{"scatter", `{dim=1, reduce="add"}`, in(x(3, 7, 5), idx(7, 3, 14, 2), x(3, 14, 5)), o(3, 7, 5), true},
		sample{"embedding", "", in(x(7, 5), idx(7, 2, 3)), o(2, 3, 5), false},
		sample{"topk", "{dim=1}", in(x(3, 700, 2)), []Tensor{mk(d, shape{3, 9, 2}), mk(dtype.I64, shape{3, 9, 2})}, false},
	)
}

func idxBool(rng *rand.Rand, s ...int64) Tensor { return random(rng, dtype.Bool, 2, s) }

func attentionOuts(d dtype.DType, b, h, s, dv int64) []Tensor {
	return []Tensor{mk(d, shape{b, h, s, dv}), mk(dtype.F32, shape{b, h, s, 1}), i64(shape{}), i64(shape{})}
}

// outsFor allocates fresh dense results.
func (s *sample) outsFor() []Tensor {
	outs := make([]Tensor, len(s.outs))
	for i := range outs {
		outs[i] = like(s.outs[i])
	}
	return outs
}

// TestLayouts: the layout of operands and results does not change one bit.
func TestLayouts(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	for _, d := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16, dtype.F64} {
		for _, s := range samples(rng, d) {
			t.Run(fmt.Sprint(s.op, s.attrs, d), func(t *testing.T) {
				dense := s.outsFor()
				if err := Run(s.op, attrs(t, s.attrs), dense, s.ins); err != nil {
					t.Fatal(err)
				}
				for range 5 {
					var ins, outs []Tensor
					for _, x := range s.ins {
						ins = append(ins, relayout(t, rng, x))
					}
					for _, x := range s.outs {
						outs = append(outs, relayout(t, rng, like(x)))
					}
					if err := Run(s.op, attrs(t, s.attrs), outs, ins); err != nil {
						t.Fatal(err)
					}
					for i := range outs {
						if !bytes.Equal(rawBits(t, outs[i]), dense[i].Data) {
							t.Fatalf("result %d differs with operands %v, result %v", i, ins, outs[i])
						}
					}
				}
			})
		}
	}
}

// TestInPlace: where the result may be operand 0, that changes nothing, in any layout.
func TestInPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 2))
	for _, s := range samples(rng, dtype.BF16) {
		if !s.inPlace {
			continue
		}
		t.Run(s.op+s.attrs, func(t *testing.T) {
			want := s.outsFor()
			if err := Run(s.op, attrs(t, s.attrs), want, s.ins); err != nil {
				t.Fatal(err)
			}
			ins := slices.Clone(s.ins)
			ins[0] = relayout(t, rng, s.ins[0])
			if err := Run(s.op, attrs(t, s.attrs), ins[:1], ins); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(rawBits(t, ins[0]), want[0].Data) {
				t.Error("the result differs in place")
			}
		})
	}
}

// TestSecondOperandInPlace: the second operand of a binary operation may be the
// result too, with the factor alpha and without.
func TestSecondOperandInPlace(t *testing.T) {
	for _, a := range []string{"", "{alpha=2.0}", "{reverse=true}"} {
		x, y, z := f32(shape{3}, 1, 2, 3), f32(shape{3}, 10, 20, 30), f32(shape{3})
		if err := Run("sub", attrs(t, a), []Tensor{z}, []Tensor{x, y}); err != nil {
			t.Fatal(err)
		}
		if err := Run("sub", attrs(t, a), []Tensor{y}, []Tensor{x, y}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(values(t, y), values(t, z)) {
			t.Errorf("sub%s: got %v, want %v", a, values(t, y), values(t, z))
		}
	}
}

// TestPrecision compares every kernel on float32 with itself on float64, on the
// same values: they may differ by float32 rounding only, which for products that
// add hundreds of terms is a few units.
func TestPrecision(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 3))
	for _, s := range samples(rng, dtype.F32) {
		t.Run(s.op+s.attrs, func(t *testing.T) {
			single := s.outsFor()
			if err := Run(s.op, attrs(t, s.attrs), single, s.ins); err != nil {
				t.Fatal(err)
			}
			wide := func(ts []Tensor) []Tensor {
				var l []Tensor
				for _, x := range ts {
					if x.DType != dtype.F32 {
						l = append(l, x)
						continue
					}
					y := mk(dtype.F64, x.Shape)
					if err := Run("convert", nil, []Tensor{y}, []Tensor{x}); err != nil {
						t.Fatal(err)
					}
					l = append(l, y)
				}
				return l
			}
			double := wide(s.outsFor())
			if err := Run(s.op, attrs(t, s.attrs), double, wide(s.ins)); err != nil {
				t.Fatal(err)
			}
			for i := range single {
				a, b := values(t, single[i]), values(t, double[i])
				scale := 0.0
				for _, v := range b {
					scale = max(scale, math.Abs(v))
				}
				for k := range a {
					tolerance := 2e-6 * scale
					if !slices.Contains([]string{"matmul", "addmm", "attention", "attention_backward"}, s.op) {
						tolerance = 3e-7*math.Abs(b[k]) + 3e-7*scale
					}
					if math.Abs(a[k]-b[k]) > tolerance+1e-37 { // below that float32 loses digits
						t.Fatalf("result %d[%d] is %v in float32, %v in float64", i, k, a[k], b[k])
					}
				}
			}
		})
	}
}

// TestMutations breaks one thing of a sound call, or a few, in every way the fields
// allow. Nothing may panic and every error must be of this package's type.
func TestMutations(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	extremes := []int64{0, 1, -1, 2, 3, 1 << 31, 1 << 62, math.MaxInt64, math.MinInt64}
	some := func() int64 { return extremes[rng.IntN(len(extremes))] }
	mutate := func(ts []Tensor) {
		x := &ts[rng.IntN(len(ts))]
		x.Shape, x.Strides, x.Data = slices.Clone(x.Shape), slices.Clone(x.Strides), slices.Clone(x.Data)
		switch rng.IntN(8) {
		case 0:
			x.DType = dtype.DType(rng.IntN(11))
		case 1:
			x.Offset = some()
		case 2:
			x.Data = x.Data[:rng.IntN(len(x.Data)+1)]
		case 3:
			x.Shape, x.Strides = append(x.Shape, 1), append(x.Strides, some())
		case 4:
			if len(x.Shape) > 0 {
				x.Shape, x.Strides = x.Shape[1:], x.Strides[1:]
			}
		case 5:
			if len(x.Data) >= 8 {
				le.PutUint64(x.Data, uint64(some()))
			}
		case 6:
			if n := len(x.Shape); n > 0 {
				x.Strides[rng.IntN(n)] = some()
			}
		case 7:
			if n := len(x.Shape); n > 0 && x.NumElems() > 0 { // smaller, so that only shapes disagree
				x.Shape[rng.IntN(n)] = int64(rng.IntN(3))
			}
		}
	}
	failed := 0
	for range 60 {
		for _, s := range samples(rng, dtype.F32) {
			l := attrs(t, s.attrs)
			if len(l) > 0 && rng.IntN(4) == 0 {
				key := l[rng.IntN(len(l))].Key
				l = l.With(key, []attr.Value{attr.Int(some()), attr.Ints(some(), some()), attr.Ints(some()), attr.Bool(true), attr.Float(nan)}[rng.IntN(5)])
			}
			ins, outs := slices.Clone(s.ins), s.outsFor()
			mutate(ins)
			if rng.IntN(2) == 0 {
				mutate(outs)
			}
			if err := Run(s.op, l, outs, ins); err != nil {
				failed++
				var e *Error
				if !errors.As(err, &e) {
					t.Fatalf("%s%v: %T", s.op, l, err)
				}
			}
		}
	}
	if failed < 1000 {
		t.Errorf("only %d calls failed: the mutations are too tame", failed)
	}
}

// TestAttentionGradient compares attention_backward with difference quotients of
// attention in float64, with causal mask, grouped heads and bias.
func TestAttentionGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 4))
	x := func(s ...int64) Tensor { return random(rng, dtype.F64, 0, s) }
	for _, a := range []string{"", "{causal=true}", "{causal=true, scale=0.3}"} {
		ins := []Tensor{x(2, 4, 5, 3), x(2, 2, 6, 3), x(2, 2, 6, 2), x(4, 1, 6)}
		grad := x(2, 4, 5, 2)
		outs := []Tensor{mk(dtype.F64, shape{2, 4, 5, 2}), mk(dtype.F64, shape{2, 4, 5, 1}), i64(shape{}), i64(shape{})}
		loss := func() float64 {
			if err := Run("attention", attrs(t, a), outs, ins); err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for i, v := range values(t, outs[0]) {
				sum += v * values(t, grad)[i]
			}
			return sum
		}
		loss()
		grads := []Tensor{like(ins[0]), like(ins[1]), like(ins[2])}
		all := slices.Concat([]Tensor{grad}, ins[:3], outs, ins[3:])
		if err := Run("attention_backward", attrs(t, a), grads, all); err != nil {
			t.Fatal(err)
		}
		for i := range grads {
			got := values(t, grads[i])
			for k := range got {
				old := values(t, ins[i])[k]
				set := func(v float64) { store(&ins[i], int64(k), 1, []float64{v}) }
				const h = 1e-5
				set(old + h)
				up := loss()
				set(old - h)
				down := loss()
				set(old)
				if want := (up - down) / (2 * h); math.Abs(got[k]-want) > 1e-7*(1+math.Abs(want)) {
					t.Fatalf("%s: gradient %d[%d] is %v, want %v", a, i, k, got[k], want)
				}
			}
		}
	}
}

// TestMatmulOrder holds the product to its definition: the sum over ascending k in
// float32, each product and each sum rounded.
func TestMatmulOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 5))
	const m, n, k = 131, 130, 517
	a, b := random(rng, dtype.BF16, 0, shape{m, k}), random(rng, dtype.BF16, 0, shape{k, n})
	out := mk(dtype.F32, shape{m, n})
	if err := Run("matmul", nil, []Tensor{out}, []Tensor{a, b}); err != nil {
		t.Fatal(err)
	}
	va, vb, got := values(t, a), values(t, b), values(t, out)
	for i := range m {
		for j := range n {
			var sum float32
			for l := range k {
				sum += float32(float32(va[i*k+l]) * float32(vb[l*n+j]))
			}
			if float64(sum) != got[i*n+j] {
				t.Fatalf("[%d, %d] is %v, want %v", i, j, got[i*n+j], sum)
			}
		}
	}
}

// TestConvertRoundTrip sends every 16-bit pattern through its float type.
func TestConvertRoundTrip(t *testing.T) {
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		x := mk(d, shape{1 << 16})
		for i := range 1 << 16 {
			le.PutUint16(x.Data[2*i:], uint16(i))
		}
		y, z := mk(dtype.F32, shape{1 << 16}), mk(d, shape{1 << 16})
		for _, step := range [][2]Tensor{{y, x}, {z, y}} {
			if err := Run("convert", nil, step[:1], step[1:]); err != nil {
				t.Fatal(err)
			}
		}
		v, back := values(t, y), values(t, z)
		for i := range v {
			if v[i] == v[i] && le.Uint16(z.Data[2*i:]) != uint16(i) || v[i] != v[i] && back[i] == back[i] {
				t.Fatalf("%v pattern %#x (%v) came back as %#x", d, i, v[i], le.Uint16(z.Data[2*i:]))
			}
		}
	}
}

// TestCopyRange copies between layouts with different shapes and counts on a plain
// model of it.
func TestCopyRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 6))
	shapes := []shape{{24}, {2, 3, 4}, {4, 6}, {6, 1, 4}}
	for range 300 {
		src := random(rng, dtype.I32, 1000, shapes[rng.IntN(len(shapes))])
		dst := random(rng, dtype.I32, 1000, shapes[rng.IntN(len(shapes))])
		n := rng.IntN(25)
		from, to := rng.IntN(25-n), rng.IntN(25-n)
		want := values(t, dst)
		copy(want[to:to+n], values(t, src)[from:])
		got := relayout(t, rng, dst)
		if err := CopyRange(got, int64(to), relayout(t, rng, src), int64(from), int64(n)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(values(t, got), want) {
			t.Fatalf("%d elements from %d of %v to %d of %v: got %v, want %v", n, from, src.Shape, to, dst.Shape, values(t, got), want)
		}
	}
}

package hostops

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

// ln2 is log(2) in float32.
var ln2 = float64(float32(math.Ln2))

// e1 is e in float32.
var e1 = float64(float32(math.E))

func r32(x float64) float64 { return float64(float32(x)) }

func TestOps(t *testing.T) {
	seen := map[string]bool{"rand": true} // see TestRand
	for _, tt := range opCases() {
		seen[tt.op] = true
		t.Run(tt.op+tt.attrs, func(t *testing.T) {
			outs := make([]Tensor, len(tt.want))
			for i := range outs {
				outs[i] = like(tt.want[i])
			}
			if err := Run(tt.op, attrs(t, tt.attrs), outs, tt.ins); err != nil {
				t.Fatal(err)
			}
			for i := range outs {
				got, want := values(t, outs[i]), values(t, tt.want[i])
				same := equalValues(got, want)
				if tt.op == "attention_backward" { // the exponential of a rounded logarithm
					same = slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-5 })
				} else if same && !tt.want[i].DType.IsFloat() {
					same = string(outs[i].Data) == string(tt.want[i].Data)
				}
				if !same {
					t.Errorf("result %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("no case for %s", name)
		}
	}
}

// TestTable checks that the table is complete.
func TestTable(t *testing.T) {
	// Every operation that computes; views and collectives have no kernel.
	const ops = `full constant iota neg exp log sqrt rsqrt reciprocal abs sigmoid tanh relu silu gelu sin cos floor
		ceil round trunc sign erf erfc exp2 expm1 log2 log10 log1p tan asin acos atan sinh cosh asinh acosh atanh cbrt
		bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right atan2 fmod remainder floor_divide trunc_divide
		logical_not convert bitcast add sub mul div pow maximum minimum eq ne lt le gt ge logical_and logical_or where fma
		clamp sum mean amax amin prod argmax cumsum softmax log_softmax matmul addmm grouped_matmul convolution reduce_window attention attention_backward
		clone cat index index_put index_add gather scatter slice_scatter embedding topk read_size rand`
	want := strings.Fields(ops)
	slices.Sort(want)
	if !slices.Equal(want, Names()) {
		t.Errorf("got %v\nwant %v", Names(), want)
	}
	for _, name := range want {
		if !Has(name) {
			t.Errorf("Has(%q) is false", name)
		}
	}
	if Has("view") || Has("") {
		t.Error("Has is true for what has no kernel")
	}
}

func TestRand(t *testing.T) {
	draw := func(seed string, d dtype.DType) []float64 {
		x := mk(d, shape{1000})
		if err := Run("rand", attrs(t, "{seed="+seed+"}"), []Tensor{x}, nil); err != nil {
			t.Fatal(err)
		}
		return values(t, x)
	}
	for _, d := range []dtype.DType{dtype.F32, dtype.F64, dtype.BF16, dtype.F16} {
		a := draw("1", d)
		if !slices.Equal(a, draw("1", d)) {
			t.Errorf("%v: one seed gave two sequences", d)
		}
		if slices.Equal(a, draw("2", d)) {
			t.Errorf("%v: two seeds gave one sequence", d)
		}
		mean := 0.0
		for _, v := range a {
			if v < 0 || v >= 1 {
				t.Fatalf("%v: %v is outside [0, 1)", d, v)
			}
			mean += v / 1000
		}
		if math.Abs(mean-0.5) > 0.05 { // five standard deviations
			t.Errorf("%v: mean %v", d, mean)
		}
	}
}

func TestReduce(t *testing.T) {
	v := func(d dtype.DType, vals ...float64) Tensor { return mk(d, shape{int64(len(vals))}, vals...) }
	tests := []struct {
		reduce string
		d      dtype.DType
		ins    [][]float64
		want   []float64
	}{
		{"sum", dtype.F32, [][]float64{{1, 2}, {10, 20}, {100, 200}}, []float64{111, 222}},
		{"avg", dtype.F32, [][]float64{{1, 2}, {2, 4}}, []float64{1.5, 3}},
		{"product", dtype.I32, [][]float64{{2}, {3}, {7}}, []float64{42}},
		{"min", dtype.F32, [][]float64{{1, nan}, {0, 1}}, []float64{0, nan}},
		{"max", dtype.I8, [][]float64{{-1}, {-2}}, []float64{-1}},
		{"sum", dtype.BF16, [][]float64{{256}, {1}, {1}, {1}}, []float64{260}}, // rounded once
		{"avg", dtype.BF16, [][]float64{{256}, {1}}, []float64{128}},           // 257/2 = 128.5 rounds to 128
		{"sum", dtype.F16, [][]float64{{2048}, {1}, {1}}, []float64{2050}},
		{"sum", dtype.F32, [][]float64{{1 << 24}, {1}, {1}}, []float64{1 << 24}}, // in the given order
		{"sum", dtype.F32, [][]float64{{1}, {1}, {1 << 24}}, []float64{1<<24 + 2}},
		{"sum", dtype.Bool, [][]float64{{1, 0}, {1, 0}}, []float64{1, 0}},
		{"avg", dtype.I64, [][]float64{{7}, {-10}}, []float64{-1}},
		{"sum", dtype.F64, [][]float64{{0.1}, {0.2}}, []float64{0.30000000000000004}},
	}
	for _, tt := range tests {
		var ins []Tensor
		for _, x := range tt.ins {
			ins = append(ins, v(tt.d, x...))
		}
		out := mk(tt.d, shape{int64(len(tt.want))})
		if err := Reduce(tt.reduce, out, ins); err != nil {
			t.Fatal(err)
		}
		if got := values(t, out); !slices.EqualFunc(got, tt.want, func(a, b float64) bool { return a == b || a != a && b != b }) {
			t.Errorf("%s %v of %v: got %v, want %v", tt.reduce, tt.d, tt.ins, got, tt.want)
		}
		if err := Reduce(tt.reduce, ins[len(ins)-1], ins); err != nil {
			t.Fatal(err)
		}
		if got := values(t, ins[len(ins)-1]); !equalValues(got, values(t, out)) {
			t.Errorf("%s %v in place: got %v, want %v", tt.reduce, tt.d, got, tt.want)
		}
	}
	out := v(dtype.F32, 9, 9, 9, 9)
	if err := ReduceRange("sum", out, []Tensor{v(dtype.F32, 1, 2, 3, 4), v(dtype.F32, 1, 1, 1, 1)}, 1, 3); err != nil {
		t.Fatal(err)
	}
	if got := values(t, out); !slices.Equal(got, []float64{9, 3, 4, 9}) {
		t.Errorf("a range: got %v", got)
	}
}

package fx_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir/fx"
	rt "github.com/seed-ee968945/concert/runtime"
)

// maskCases are calls whose number of results a mask decides, with what they give for
// operands of these shapes, as flat indices into operand 0, or as numbers.
var maskCases = []struct {
	call string
	want func(in [][]float64) []float64
}{
	{"aten.nonzero.default (x0,) | bool[3,4] -> i64[u,2] | u=0", func(in [][]float64) (out []float64) {
		for _, i := range holds(in[0]) {
			out = append(out, float64(i/4), float64(i%4))
		}
		return out
	}},
	{"aten.nonzero.default (x0,) | f32[5] -> i64[u,1] | u=0", func(in [][]float64) (out []float64) {
		for _, i := range holds(in[0]) {
			out = append(out, float64(i))
		}
		return out
	}},
	{"aten.index.Tensor (x0, [x1]) | f32[3,4,2] bool[3,4] -> f32[u,2] | u=0", func(in [][]float64) (out []float64) {
		for _, i := range holds(in[1]) {
			out = append(out, in[0][2*i], in[0][2*i+1])
		}
		return out
	}},
	{"aten.index.Tensor (x0, [None, x1]) | f32[3,4] bool[4] -> f32[3,u] | u=0", columns},
	{"aten.index.Tensor (x0, [x1, None, x2]) | f32[3,2,4] bool[3] i64<4>[1] -> f32[u,2] | u=0", func(in [][]float64) (out []float64) {
		for _, i := range holds(in[1]) {
			out = append(out, in[0][8*i+int(in[2][0])], in[0][8*i+4+int(in[2][0])])
		}
		return out
	}},
	{"aten.masked_select.default (x0, x1) | f32[3,4] bool[4] -> f32[u] | u=0", columns},
	{"aten.index_put.default (x0, [x1], x2, True) | f32[3,4,2] bool[3,4] f32[u,2] -> f32[3,4,2] | u=0", func(in [][]float64) []float64 {
		out := slices.Clone(in[0])
		for k, i := range holds(in[1]) {
			out[2*i] += in[2][2*k]
			out[2*i+1] += in[2][2*k+1]
		}
		return out
	}},
	{"aten.nonzero.default (x0,) | bool[s,t+1] -> i64[u,2] | s=3,t=4,u=0 s=1,t=1,u=0", func(in [][]float64) (out []float64) {
		for _, i := range holds(in[0]) {
			across := len(in[0]) / 3
			if len(in[0]) == 2 {
				across = 2
			}
			out = append(out, float64(i/across), float64(i%across))
		}
		return out
	}},
	{"aten.index.Tensor (x0, [x1]) | f32[s,2] bool[s] -> f32[u,2] | s=5,u=0 s=1,u=0", pairs},
	{"aten.index.Tensor (x0, [x1]) | f32[s,3,2] bool[s,3] -> f32[u,2] | s=5,u=0 s=1,u=0", pairs},
	{"aten.masked_select.default (x0, x1) | f32[s] bool[s] -> f32[u] | s=5,u=0 s=7,u=0", func(in [][]float64) (out []float64) {
		for _, i := range holds(in[1]) {
			out = append(out, in[0][i])
		}
		return out
	}},
	{"aten.index_put.default (x0, [x1], x2) | f32[s,2] bool[s] f32[u,2] -> f32[s,2] | s=5,u=0 s=2,u=0", func(in [][]float64) []float64 {
		out := slices.Clone(in[0])
		for k, i := range holds(in[1]) {
			out[2*i], out[2*i+1] = in[2][2*k], in[2][2*k+1]
		}
		return out
	}},
	{"aten.add.Tensor (0.25, x0) {'alpha': 0.5} | bool[6] -> f32[6] | u=0", func(in [][]float64) (out []float64) {
		for _, x := range in[0] {
			out = append(out, 0.25+0.5*x)
		}
		return out
	}},
}

// pairs are the rows of two of operand 0 where operand 1 holds.
func pairs(in [][]float64) (out []float64) {
	for _, i := range holds(in[1]) {
		out = append(out, in[0][2*i], in[0][2*i+1])
	}
	return out
}

// columns are those of operand 0, of 3 rows and 4 columns, where operand 1 holds.
func columns(in [][]float64) (out []float64) {
	for r := range 3 {
		for _, i := range holds(in[1]) {
			out = append(out, in[0][4*r+i])
		}
	}
	return out
}

func holds(mask []float64) (out []int) {
	for i, x := range mask {
		if x != 0 {
			out = append(out, i)
		}
	}
	return out
}

// TestMasks runs calls whose sizes are decided by masks of which all, nothing, and any part holds.
func TestMasks(t *testing.T) {
	host := hostrun.Goroutines(rt.Config{})
	for n, c := range maskCases {
		call, kwargs := parseSized(t, c.call)
		f, err := fx.Read("call.json", strings.NewReader(call.document(kwargs, nil)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.Import()
		if err != nil || len(res.Warnings) > 0 {
			t.Errorf("%s: %v %v", c.call, err, res)
			continue
		}
		for seed := range uint64(8) {
			rng := rand.New(rand.NewPCG(uint64(n), seed))
			at := maps.Clone(call.values[int(seed)%len(call.values)])
			var in []interp.Tensor
			var numbers [][]float64
			for k, x := range call.in {
				y := x.fill(t, rng, at)
				if y.DType == dtype.Bool && seed < 2 {
					for i := range y.Data {
						y.Data[i] = byte(seed)
					}
				}
				xs := y.Float64s()
				if decides := y.DType == dtype.Bool || k == 0 && len(call.in) == 1; decides {
					at["u"] = int64(len(holds(xs)))
				}
				in, numbers = append(in, y), append(numbers, xs)
			}
			want := c.want(numbers)
			got, err := interp.Run(t.Context(), res.Func, [][]interp.Tensor{in}, interp.Options{})
			if err != nil || !slices.Equal(got[0][0].Float64s(), want) {
				t.Errorf("%s, seed %d: the interpreter gives %v, %v, want %v", c.call, seed, got, err, want)
			}
			got, err = host(t.Context(), res.Func, [][]interp.Tensor{in})
			if err != nil || !slices.Equal(got[0][0].Float64s(), want) {
				t.Errorf("%s, seed %d: the host gives %v, %v, want %v", c.call, seed, got, err, want)
			}
		}
	}
}

// TestMaskCounts runs calls for whose masks the trace has sizes that it knows from elsewhere: a mask
// of another count is an error.
func TestMaskCounts(t *testing.T) {
	host := hostrun.Goroutines(rt.Config{})
	for _, c := range []struct {
		call string
		mask int
	}{
		{"aten.index_put.default (x0, [x1], x2, True) | f32[4,2] bool[4] f32[u,2] -> f32[4,2] | u=2", 1},
		{"aten.index_put.default (x0, [x1], x2, False) | f32[4] bool[4] f32[u-1] -> f32[4] | u=3", 1},
		{"aten.masked_select.default (x0, x1) | f32[4] bool[4] -> f32[2] | u=0", 1},
		{"aten.nonzero.default (x0,) | bool[2,2] -> i64[2,2] | u=0", 0},
	} {
		call, kwargs := parseSized(t, c.call)
		f, err := fx.Read("call.json", strings.NewReader(call.document(kwargs, nil)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.Import()
		if err != nil || len(res.Warnings) > 0 {
			t.Errorf("%s: %v %v", c.call, err, res)
			continue
		}
		for most := range 5 {
			rng := rand.New(rand.NewPCG(1, 2))
			var in []interp.Tensor
			for k, x := range call.in {
				in = append(in, x.fill(t, rng, call.values[0]))
				if k == c.mask {
					for i := range in[k].Data {
						in[k].Data[i] = 0
						if i < most {
							in[k].Data[i] = 1
						}
					}
				}
			}
			_, err := interp.Run(t.Context(), res.Func, [][]interp.Tensor{in}, interp.Options{})
			_, hostErr := host(t.Context(), res.Func, [][]interp.Tensor{in})
			for _, err := range []error{err, hostErr} {
				if (err == nil) != (most == 2) || err != nil && !strings.Contains(err.Error(), "_count") {
					t.Errorf("%s: %d of 4 hold: %v", c.call, most, err)
				}
			}
		}
	}
}

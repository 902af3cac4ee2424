package fx_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir/fx"
	rt "github.com/seed-ee968945/concert/runtime"
)

// How many different elements there are the program finds out when it runs. Each that is no number is one of its own.
func TestUnique(t *testing.T) {
	const graph = `{"name":"g","world":1,"groups":{},"symbols":{"u0":{"hint":3,"max":6}},"nodes":[
 {"name":"x","kind":"input","target":"x","inputs":[],"args":"()","kwargs":"","out":[{"shape":[2,3],"stride":[3,1],"dtype":"float32"}],"ms":0},
 {"name":"y","kind":"memory","target":"aten.%s.default","inputs":["x"],"args":"(x, %s)","kwargs":"","out":[
  {"shape":["u0"],"stride":[1],"dtype":"float32"},{"shape":%s,"stride":%s,"dtype":"int64"},{"shape":[%s],"stride":[1],"dtype":"int64"}],"ms":0},
 {"name":"a","kind":"view","target":"<built-in function getitem>","inputs":["y"],"args":"(y, 0)","kwargs":"","out":[{"shape":["u0"],"stride":[1],"dtype":"float32"}],"ms":0},
 {"name":"b","kind":"view","target":"<built-in function getitem>","inputs":["y"],"args":"(y, 1)","kwargs":"","out":[{"shape":%[3]s,"stride":%[4]s,"dtype":"int64"}],"ms":0},
 {"name":"c","kind":"view","target":"<built-in function getitem>","inputs":["y"],"args":"(y, 2)","kwargs":"","out":[{"shape":[%[5]s],"stride":[1],"dtype":"int64"}],"ms":0},
 {"name":"output","kind":"output","target":"output","inputs":["a","b","c"],"args":"((a, b, c),)","kwargs":"","out":[]}]}`
	nan := math.NaN()
	host := hostrun.Goroutines(rt.Config{})
	for _, c := range []struct {
		op, args string
		in       []float64
		want     [3][]float64
	}{
		{"_unique2", "True, True, True", []float64{3, 1, 3, 2, 1, 3}, [3][]float64{{1, 2, 3}, {2, 0, 2, 1, 0, 2}, {2, 1, 3}}},
		{"_unique2", "True, True, True", []float64{7, 7, 7, 7, 7, 7}, [3][]float64{{7}, {0, 0, 0, 0, 0, 0}, {6}}},
		{"_unique2", "False, True, True", []float64{6, 5, 4, 3, 2, 1}, [3][]float64{{1, 2, 3, 4, 5, 6}, {5, 4, 3, 2, 1, 0}, {1, 1, 1, 1, 1, 1}}},
		{"_unique2", "True, False, False", []float64{nan, 1, nan, 1, 1, 1}, [3][]float64{{1, nan, nan}, {}, {}}},
		{"unique_consecutive", "True, True", []float64{1, 1, 2, 2, 1, 1}, [3][]float64{{1, 2, 1}, {0, 0, 1, 1, 2, 2}, {2, 2, 2}}},
		{"unique_consecutive", "", []float64{1, 1, 2, 3, 3, 3}, [3][]float64{{1, 2, 3}, {}, {}}},
	} {
		shape, stride, counts := "[2,3]", "[3,1]", `"u0"`
		if len(c.want[1]) == 0 {
			shape, stride, counts = "[0]", "[1]", "0"
		}
		f, err := fx.Read("g.json", strings.NewReader(fmt.Sprintf(graph, c.op, c.args, shape, stride, counts)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.Import()
		if err != nil || len(res.Warnings) > 0 {
			t.Errorf("%s(%s): %v %v", c.op, c.args, err, res)
			continue
		}
		x, err := interp.FromSlice(float32s(c.in), 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		byInterp, err := interp.Run(t.Context(), res.Func, [][]interp.Tensor{{x}}, interp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		byHost, err := host(t.Context(), res.Func, [][]interp.Tensor{{x}})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range [][]interp.Tensor{byInterp[0], byHost[0]} {
			for k, want := range c.want {
				same := func(a, b float64) bool { return a == b || a != a && b != b }
				if v := got[k].Float64s(); !slices.EqualFunc(v, want, same) {
					t.Errorf("%s(%s) of %v, result %d: %v, want %v", c.op, c.args, c.in, k, v, want)
				}
			}
		}
	}
}

func float32s(v []float64) (out []float32) {
	for _, x := range v {
		out = append(out, float32(x))
	}
	return out
}

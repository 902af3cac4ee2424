package decompose_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// largestAt is a fold of pairs (number, place): the larger number, of equals the lower place.
func largestAt(e decompose.Emitter, a []*ir.Value) ([]*ir.Value, error) {
	op := func(op ir.Op, args ...*ir.Value) *ir.Value { return e.Op(op, nil, nil, args)[0] }
	pick := op(ir.OpLogicalOr, op(ir.OpGt, a[0], a[2]), op(ir.OpLogicalAnd, op(ir.OpEq, a[0], a[2]), op(ir.OpLt, a[1], a[3])))
	return []*ir.Value{op(ir.OpWhere, pick, a[0], a[2]), op(ir.OpWhere, pick, a[1], a[3])}, nil
}

// affine composes functions x -> a*x + b: a fold whose order matters.
func affine(e decompose.Emitter, p []*ir.Value) ([]*ir.Value, error) {
	op := func(op ir.Op, args ...*ir.Value) *ir.Value { return e.Op(op, nil, nil, args)[0] }
	return []*ir.Value{op(ir.OpMul, p[0], p[2]), op(ir.OpAdd, op(ir.OpMul, p[1], p[2]), p[3])}, nil
}

// fold is a computation of two operands, with what it means and where it begins.
type fold struct {
	body   decompose.Body
	join   func(a, b [2]float64) [2]float64
	inits  [2]float64
	shapes ir.DType
}

func folds() []fold {
	each := func(op ir.Op, f func(a, b float64) float64, init float64) fold {
		return fold{func(e decompose.Emitter, p []*ir.Value) ([]*ir.Value, error) {
			return []*ir.Value{e.Op(op, nil, nil, []*ir.Value{p[0], p[2]})[0], e.Op(ir.OpMinimum, nil, nil, []*ir.Value{p[1], p[3]})[0]}, nil
		}, func(a, b [2]float64) [2]float64 { return [2]float64{f(a[0], b[0]), min(a[1], b[1])} }, [2]float64{init, 3}, ir.I64}
	}
	return []fold{
		each(ir.OpAdd, func(a, b float64) float64 { return a + b }, 0),
		each(ir.OpAdd, func(a, b float64) float64 { return a + b }, 5),
		each(ir.OpMul, func(a, b float64) float64 { return a * b }, 1),
		each(ir.OpMaximum, func(a, b float64) float64 { return max(a, b) }, -3),
		each(ir.OpBitwiseXor, func(a, b float64) float64 { return float64(int64(a) ^ int64(b)) }, 6),
		{largestAt, func(a, b [2]float64) [2]float64 {
			if a[0] > b[0] || a[0] == b[0] && a[1] < b[1] {
				return a
			}
			return b
		}, [2]float64{math.MinInt32, 0}, ir.I64},
		{affine, func(a, b [2]float64) [2]float64 { return [2]float64{a[0] * b[0], a[1]*b[0] + b[1]} }, [2]float64{2, 1}, ir.F64},
	}
}

func TestReduce(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 70 {
		fd := folds()[i%7]
		var shape, dims, left []int64
		for d := range 1 + r.Int64N(3) {
			n := r.Int64N(6)
			shape = append(shape, n)
			if r.IntN(2) == 0 {
				dims = append(dims, d)
			} else {
				left = append(left, n)
			}
		}
		if slices.Contains(left, 0) {
			continue
		}
		x, y := random(t, r, fd.shapes, -2, 3, shape...), random(t, r, fd.shapes, 0, 4, shape...)
		in := []interp.Tensor{x, y, floats(t, fd.shapes, fd.inits[:1]), floats(t, fd.shapes, fd.inits[1:])}
		for _, known := range []bool{true, false} { // initial values in the graph, or unknown
			got := run(t, in, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
				inits := in[2:]
				if known {
					inits = []*ir.Value{f.Full(in[2].Type(), fd.inits[0]), f.Full(in[3].Type(), fd.inits[1])}
				}
				return decompose.Reduce(f, in[:2], inits, dims, fd.body)
			})
			want := make([][2]float64, intmath.Product(left))
			for i := range want {
				want[i] = fd.inits
			}
			a, b := x.Float64s(), y.Float64s()
			each(shape, func(at []int64) {
				var to []int64
				for d, v := range at {
					if !slices.Contains(dims, int64(d)) {
						to = append(to, v)
					}
				}
				k := flat(to, left)
				want[k] = fd.join(want[k], [2]float64{a[flat(at, shape)], b[flat(at, shape)]})
			})
			for i, w := range want {
				if g := [2]float64{got[0].Float64s()[i], got[1].Float64s()[i]}; g != w {
					t.Fatalf("fold %d of %v, %v over %v: element %d is %v, want %v", i%7, x, y, dims, i, g, w)
				}
			}
		}
	}
}

func TestReduceWindow(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 70 {
		fd := folds()[i%7]
		var w decompose.Window
		var shape, spread, out []int64
		dims := 1 + r.IntN(2)
		if i%3 == 0 {
			dims = 1
		}
		for range dims {
			n, width, stride, base, dilation := 1+r.Int64N(6), 1+r.Int64N(5), 1+r.Int64N(2), 1+r.Int64N(2), 1+r.Int64N(2)
			if i%3 == 0 { // more than are folded one after the other
				n, width = 70+r.Int64N(20), 65+r.Int64N(6)
			}
			low, high := r.Int64N(3), r.Int64N(3)
			shape = append(shape, n)
			w.Dimensions, w.Strides, w.BaseDilations, w.WindowDilations = append(w.Dimensions, width), append(w.Strides, stride), append(w.BaseDilations, base), append(w.WindowDilations, dilation)
			w.Padding = append(w.Padding, [2]int64{low, high})
			all := (n-1)*base + 1 + low + high
			spread = append(spread, all)
			reach := (width-1)*dilation + 1
			out = append(out, max(0, (all-reach+stride)/stride))
		}
		most := int64(3)
		if i%3 == 0 {
			most = 1 // products stay exact
		}
		x, y := random(t, r, fd.shapes, -1, most, shape...), random(t, r, fd.shapes, 0, 4, shape...)
		got := run(t, []interp.Tensor{x, y, floats(t, fd.shapes, fd.inits[:1]), floats(t, fd.shapes, fd.inits[1:])}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			return decompose.ReduceWindow(f, in[:2], in[2:], w, fd.body)
		})
		if !slices.Equal(got[0].Shape, out) || !slices.Equal(got[1].Shape, out) {
			t.Fatalf("%v in %+v: %v and %v, want %v", shape, w, got[0].Shape, got[1].Shape, out)
		}
		a, b := x.Float64s(), y.Float64s()
		each(out, func(at []int64) {
			want := fd.inits
			each(w.Dimensions, func(in []int64) {
				from, is := make([]int64, len(at)), true
				for d := range at {
					p := at[d]*w.Strides[d] + in[d]*w.WindowDilations[d] - w.Padding[d][0]
					is = is && p >= 0 && p%w.BaseDilations[d] == 0 && p/w.BaseDilations[d] < shape[d]
					from[d] = p / w.BaseDilations[d]
				}
				next := fd.inits
				if is {
					next = [2]float64{a[flat(from, shape)], b[flat(from, shape)]}
				}
				want = fd.join(want, next)
			})
			k := flat(at, out)
			if g := [2]float64{got[0].Float64s()[k], got[1].Float64s()[k]}; g != want {
				t.Fatalf("fold %d of %v, %v in %+v (%v): %v is %v, want %v", i%7, x, y, w, spread, at, g, want)
			}
		})
	}
}

// Windows that see all before a place, or behind it, are running sums where they add.
func TestRunningSums(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	shape := []int64{3, 9}
	x := random(t, r, ir.I32, -9, 9, shape...)
	for _, c := range []struct {
		op                        ir.Op
		init, window, low, stride int64
		running                   bool
	}{{ir.OpAdd, 0, 9, 8, 1, true}, {ir.OpAdd, 0, 9, 0, 1, true}, {ir.OpAdd, 1, 9, 8, 1, false}, {ir.OpMaximum, 0, 9, 8, 1, false}, {ir.OpAdd, 0, 9, 4, 1, false}, {ir.OpAdd, 0, 9, 8, 2, false}, {ir.OpAdd, 0, 8, 8, 1, false}} {
		w := decompose.Window{Dimensions: []int64{1, c.window}, Strides: []int64{1, c.stride}, Padding: [][2]int64{{}, {c.low, 8 - c.low}}}
		running := false
		got := run(t, []interp.Tensor{x}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			init := f.Op(ir.OpFull, nil, ir.A("value", c.init), nil, ir.Tensor(ir.I32))
			out, err := decompose.ReduceWindow(f, in, init, w, func(e decompose.Emitter, p []*ir.Value) ([]*ir.Value, error) {
				return e.Op(c.op, nil, nil, p), nil
			})
			running = slices.ContainsFunc(f.Func().Order(), func(n *ir.Node) bool { return n.Op() == ir.OpCumsum })
			return out, err
		})
		if running != c.running {
			t.Errorf("%+v: a running sum: %v", c, running)
		}
		out := got[0].Shape
		each(out, func(at []int64) {
			want := float64(c.init)
			for k := range c.window {
				if p := at[1]*c.stride + k - c.low; p >= 0 && p < shape[1] {
					if v := x.Float64s()[at[0]*shape[1]+p]; c.op == ir.OpAdd {
						want += v
					} else {
						want = max(want, v)
					}
				} else if c.op == ir.OpAdd {
					want += float64(c.init)
				}
			}
			if g := got[0].Float64s()[flat(at, out)]; g != want {
				t.Fatalf("%+v: %v is %v, want %v", c, at, g, want)
			}
		})
	}
}

// orders are comparators of pairs of x, y and z, with what they mean. The first one has keys
// that are found, the other a float that may be equal to another.
func orders() []struct {
	before  decompose.Body
	compare func(a, b [3]float64) float64
} {
	or := func(e decompose.Emitter, first, equal, second *ir.Value) []*ir.Value {
		and := e.Op(ir.OpLogicalAnd, nil, nil, []*ir.Value{equal, second})
		return e.Op(ir.OpLogicalOr, nil, nil, []*ir.Value{first, and[0]})
	}
	return []struct {
		before  decompose.Body
		compare func(a, b [3]float64) float64
	}{
		{func(e decompose.Emitter, p []*ir.Value) ([]*ir.Value, error) {
			op := func(op ir.Op, a, b *ir.Value) *ir.Value { return e.Op(op, nil, nil, []*ir.Value{a, b})[0] }
			return or(e, op(ir.OpGt, p[2], p[3]), op(ir.OpEq, p[2], p[3]), op(ir.OpLt, decompose.TotalKey(e, p[0]), decompose.TotalKey(e, p[1]))), nil
		}, func(a, b [3]float64) float64 {
			if c := b[1] - a[1]; c != 0 {
				return c
			}
			return a[0] - b[0]
		}},
		{func(e decompose.Emitter, p []*ir.Value) ([]*ir.Value, error) {
			op := func(op ir.Op, a, b *ir.Value) *ir.Value { return e.Op(op, nil, nil, []*ir.Value{a, b})[0] }
			return or(e, op(ir.OpLt, p[0], p[1]), op(ir.OpEq, p[0], p[1]), op(ir.OpGt, p[2], p[3])), nil
		}, func(a, b [3]float64) float64 {
			if c := a[0] - b[0]; c != 0 {
				return c
			}
			return b[1] - a[1]
		}},
	}
}

// Two of three operands order all of them; the third shows that equal ones stay in order.
func TestSort(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for i, shape := range [][]int64{{1}, {2}, {3}, {8}, {2, 5, 3}, {2, 3, 5}, {37}, {31}, {3, 16}, {16, 3}, {0, 4}} {
		order := orders()[i%2]
		for dim := range shape {
			x, y, z := random(t, r, ir.F32, 0, 2, shape...), random(t, r, ir.I8, 0, 2, shape...), random(t, r, ir.I64, -99, 99, shape...)
			got := run(t, []interp.Tensor{x, y, z}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
				return decompose.Sort(f, in, int64(dim), order.before)
			})
			all := [3][]float64{x.Float64s(), y.Float64s(), z.Float64s()}
			want := [3][]float64{slices.Clone(all[0]), slices.Clone(all[1]), slices.Clone(all[2])}
			each(shape, func(at []int64) {
				if at[dim] != 0 {
					return
				}
				var line []int64
				for k := range shape[dim] {
					to := slices.Clone(at)
					to[dim] = k
					line = append(line, flat(to, shape))
				}
				sorted := slices.Clone(line)
				slices.SortStableFunc(sorted, func(i, j int64) int {
					return int(order.compare([3]float64{all[0][i], all[1][i], all[2][i]}, [3]float64{all[0][j], all[1][j], all[2][j]}))
				})
				for k, i := range sorted {
					for j := range want {
						want[j][line[k]] = all[j][i]
					}
				}
			})
			for j := range want {
				if !slices.Equal(got[j].Float64s(), want[j]) {
					t.Errorf("%v along %d: operand %d\n got %v\nwant %v", shape, dim, j, got[j].Float64s(), want[j])
				}
			}
		}
	}
}

// argmax and argmin as JAX writes them become operations of the table; with other places than
// those of the elements they do not.
func TestExtreme(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	body := func(better ir.Op, nans bool) decompose.Body {
		return func(e decompose.Emitter, p []*ir.Value) ([]*ir.Value, error) {
			op := func(op ir.Op, args ...*ir.Value) *ir.Value { return e.Op(op, nil, nil, args)[0] }
			pick := op(better, p[0], p[2])
			if nans {
				pick = op(ir.OpLogicalOr, pick, op(ir.OpNe, p[0], p[0]))
			}
			place := op(ir.OpLogicalOr, pick, op(ir.OpLogicalAnd, op(ir.OpEq, p[0], p[2]), op(ir.OpLt, p[1], p[3])))
			return []*ir.Value{op(ir.OpWhere, pick, p[0], p[2]), op(ir.OpWhere, place, p[1], p[3])}, nil
		}
	}
	for _, c := range []struct {
		name      string
		dt        ir.DType
		better    ir.Op
		nans, own bool
		init      float64
		x         []float64
		values    []float64
		places    []int64
		op        bool
	}{
		{"largest", ir.F32, ir.OpGt, true, true, -inf, []float64{1, 3, 3, -inf, -inf, -inf, nan, inf, nan, -1, -2, -3}, []float64{3, -inf, nan, -1}, []int64{1, 0, 0, 0}, true},
		{"smallest", ir.F64, ir.OpLt, true, true, inf, []float64{1, 0, math.Copysign(0, -1), 2, nan, nan, inf, inf, inf, -1, -2, -3}, []float64{0, nan, inf, -3}, []int64{1, 1, 0, 2}, true},
		{"smallest", ir.U8, ir.OpLt, false, true, 255, []float64{7, 0, 0, 255, 255, 255, 1, 2, 3, 9, 8, 7}, []float64{0, 255, 1, 7}, []int64{1, 0, 0, 2}, true},
		{"largest", ir.I64, ir.OpGt, true, true, -9, []float64{-7, 0, 0, -5, -6, -5, 1, 2, 3, 9, 8, 7}, []float64{0, -5, 3, 9}, []int64{1, 0, 2, 0}, true},
		{"largest", ir.Bool, ir.OpGt, false, true, 0, []float64{0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 1}, []float64{1, 0, 1, 1}, []int64{1, 0, 0, 0}, true},
		{"numbers with NaN", ir.F32, ir.OpGt, false, true, -inf, []float64{1, 3, 3, 4, 5, 6, 1, 2, 2, -1, -2, -3}, []float64{3, 6, 2, -1}, []int64{1, 2, 1, 0}, false},
		{"other places", ir.F32, ir.OpGt, true, false, -inf, []float64{1, 3, 3, 4, 5, 6, 1, 2, 2, -1, -2, -3}, []float64{3, 6, 2, -1}, []int64{5, 5, 5, 5}, false},
	} {
		found := false
		got := run(t, []interp.Tensor{floats(t, c.dt, c.x, 4, 3)}, func(f *ir.FuncBuilder, in []*ir.Value) ([]*ir.Value, error) {
			places := f.Full(ir.Tensor(ir.I32, 4, 3), 5)
			if c.own {
				places = f.Op(ir.OpExpand, nil, nil, []*ir.Value{f.Iota(ir.Tensor(ir.I32, 3), 0, 1)}, ir.Tensor(ir.I32, 4, 3))[0]
			}
			out, err := decompose.Reduce(f, []*ir.Value{in[0], places}, []*ir.Value{f.Full(ir.Tensor(c.dt), c.init), f.Full(ir.Tensor(ir.I32), 9)}, []int64{1}, body(c.better, c.nans))
			for _, n := range f.Func().Order() {
				found = found || n.Op() == ir.OpArgmax
			}
			return out, err
		})
		same := slices.EqualFunc(got[0].Float64s(), c.values, func(a, b float64) bool { return a == b || a != a && b != b })
		if !same || !slices.Equal(got[1].Int64s(), c.places) || found != c.op {
			t.Errorf("%s of %v: %v at %v, by argmax %v; want %v at %v", c.name, c.dt, got[0], got[1], found, c.values, c.places)
		}
	}
}

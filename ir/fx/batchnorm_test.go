package fx_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// standard normalises the elements of each set by their mean and variance, and takes the
// gradient dy of weight*y back through the derivative of every element by every other.
func standard(x, dy []float64, weight []float64, sets [][]int, eps float64) (y, dx, mean, variance []float64) {
	y, dx = make([]float64, len(x)), make([]float64, len(x))
	for _, set := range sets {
		m, v, n := 0.0, 0.0, float64(len(set))
		for _, i := range set {
			m += x[i] / n
		}
		for _, i := range set {
			v += (x[i] - m) * (x[i] - m) / n
		}
		r := 1 / math.Sqrt(v+eps)
		for _, i := range set {
			y[i] = (x[i] - m) * r
		}
		for _, i := range set {
			for _, j := range set {
				d := -1/n - y[i]*y[j]/n
				if i == j {
					d++
				}
				dx[j] += dy[i] * weight[i] * r * d
			}
		}
		mean, variance = append(mean, m), append(variance, v)
	}
	return y, dx, mean, variance
}

func wide(a array) []float64 {
	out := make([]float64, len(a.v))
	for i, v := range a.v {
		out[i] = float64(v)
	}
	return out
}

func narrow(v []float64, shape ...int64) array {
	a := zeros(shape...)
	for i := range a.v {
		a.v[i] = float32(v[i])
	}
	return a
}

// doubles are records of single precision in double precision.
func doubles(in []recordedTensor) []recordedTensor {
	for k := range in {
		in[k].DType = "float64"
		for i, raw := range in[k].Data {
			bits, _ := strconv.ParseUint(strings.Trim(string(raw), `"`), 16, 32)
			in[k].Data[i] = json.RawMessage(fmt.Sprintf(`"%016x"`, math.Float64bits(float64(math.Float32frombits(uint32(bits))))))
		}
	}
	return in
}

// double is a record in double precision.
func double(v []float64, shape ...int64) recordedTensor {
	r := zeros(shape...).recorded()
	r.DType = "float64"
	for i := range r.Data {
		r.Data[i] = json.RawMessage(fmt.Sprintf(`"%016x"`, math.Float64bits(v[i])))
	}
	return r
}

// TestBatchNorms holds norms of channels and of groups, and their gradients, against the
// derivatives of the definition.
func TestBatchNorms(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	const eps, rate = 0.125, 0.25
	for trial := range 20 {
		batch, groups, each, inner := 2+rng.Int64N(2), 1+rng.Int64N(2), 1+rng.Int64N(2), 2+rng.Int64N(4)
		n := groups * each
		x, dy, w, b := small(rng, batch, n, inner), small(rng, batch, n, inner), small(rng, n), small(rng, n)
		rm, rv := small(rng, n), small(rng, n)
		for i := range rv.v {
			rv.v[i] += 5
		}
		channels, parts := make([][]int, n), make([][]int, batch*groups)
		weight, bias, dw, db := make([]float64, len(x.v)), make([]float64, len(x.v)), make([]float64, n), make([]float64, n)
		for i := range x.v {
			c, s := int64(i)/inner%n, int64(i)/(inner*n)
			channels[c], parts[s*groups+c/each] = append(channels[c], i), append(parts[s*groups+c/each], i)
			weight[i], bias[i] = float64(w.v[c]), float64(b.v[c])
			db[c] += float64(dy.v[i])
		}
		affine := func(y []float64) array {
			out := make([]float64, len(y))
			for i := range y {
				out[i] = y[i]*weight[i] + bias[i]
			}
			return narrow(out, x.shape...)
		}
		invert := func(v []float64) []float64 {
			out := make([]float64, len(v))
			for i := range v {
				out[i] = 1 / math.Sqrt(v[i]+eps)
			}
			return out
		}
		products := func(y []float64) array {
			clear(dw)
			for i := range y {
				dw[int64(i)/inner%n] += y[i] * float64(dy.v[i])
			}
			return narrow(dw, n)
		}
		y, dx, mean, variance := standard(wide(x), wide(dy), weight, channels, eps)
		newMean, newVar, count := zeros(n), zeros(n), float64(batch*inner)
		still, back := make([]float64, len(y)), make([]float64, len(y))
		for c, set := range channels {
			newMean.v[c] = float32(rate*mean[c] + (1-rate)*float64(rm.v[c]))
			newVar.v[c] = float32(rate*variance[c]*count/(count-1) + (1-rate)*float64(rv.v[c]))
			r := 1 / math.Sqrt(float64(rv.v[c])+eps)
			for _, i := range set {
				still[i], back[i] = (float64(x.v[i])-float64(rm.v[c]))*r, float64(dy.v[i])*weight[i]*r
			}
		}
		in := func(a ...array) (out []recordedTensor) {
			for _, x := range a {
				out = append(out, x.recorded())
			}
			return out
		}
		// Operands are wide and results narrow, so that no sum of unlike signs shows a rounding.
		none, m, r := zeros(0), narrow(mean, n), narrow(invert(variance), n)
		gy, gdx, gmean, gvar := standard(wide(x), wide(dy), weight, parts, eps)
		gm, gr := narrow(gmean, batch, groups), narrow(invert(gvar), batch, groups)
		sizes := fmt.Sprintf("%d, %d, %d, %d", batch, n, inner, groups)
		for _, c := range []recorded{
			{Target: "aten._native_batch_norm_legit_no_training.default", Args: "(x0, x1, x2, x3, x4, 0.25, 0.125)", In: doubles(in(x, w, b, rm, rv)), Out: in(affine(still), none, none)},
			{Target: "aten._native_batch_norm_legit.default", Args: "(x0, x1, x2, x3, x4, False, 0.25, 0.125)", In: doubles(in(x, w, b, rm, rv)), Out: in(affine(still), none, none)},
			{Target: "aten._native_batch_norm_legit.no_stats", Args: "(x0, x1, x2, True, 0.25, 0.125)", In: doubles(in(x, w, b)), Out: in(affine(y), m, r)},
			{Target: "aten._native_batch_norm_legit_functional.default", Args: "(x0, x1, x2, x3, x4, True, 0.25, 0.125)", In: doubles(in(x, w, b, rm, rv)), Out: in(affine(y), m, r, newMean, newVar)},
			{Target: "aten.native_batch_norm_backward.default", Args: "(x0, x1, x2, None, None, x3, x4, True, 0.125, [True, True, True])", In: append(doubles(in(dy, x, w)), double(mean, n), double(invert(variance), n)), Out: in(narrow(dx, x.shape...), products(y), narrow(db, n))},
			{Target: "aten.native_batch_norm_backward.default", Args: "(x0, x1, x2, x3, x4, None, None, False, 0.125, [True, False, True])", In: doubles(in(dy, x, w, rm, rv)), Out: in(narrow(back, x.shape...), narrow(db, n)), Items: []int{0, 2}},
			{Target: "aten.native_group_norm.default", Args: "(x0, x1, x2, " + sizes + ", 0.125)", In: doubles(in(x, w, b)), Out: in(affine(gy), gm, gr)},
			{Target: "aten.native_group_norm_backward.default", Args: "(x0, x1, x2, x3, x4, " + sizes + ", [True, True, True])", In: append(append(doubles(in(dy, x)), double(gmean, batch, groups), double(invert(gvar), batch, groups)), doubles(in(w))...), Out: in(narrow(gdx, x.shape...), products(gy), narrow(db, n))},
		} {
			if msg := c.differs(t); msg != "" {
				t.Fatalf("trial %d: %s%s of %v: %s", trial, c.Target, c.Args, c.types(), msg)
			}
		}
	}
}

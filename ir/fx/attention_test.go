package fx_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/interp"
)

const attentionBackward = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"

// gradient is an element's value, and the sum of its terms' sizes. The terms cancel: scores of
// 30 are taken from a log-sum-exp of 30 to give a weight, and where one weight is nearly 1 the
// gradient of a score is the difference of two numbers that are nearly the same. Rounding errors
// are units of the terms, whatever is left of them.
type gradient struct{ value, terms float64 }

func (g *gradient) add(value, terms float64) { g.value, g.terms = g.value+value, g.terms+terms }

func dot(x, y []float64) (g gradient) {
	for i := range x {
		g.add(x[i]*y[i], math.Abs(x[i]*y[i]))
	}
	return g
}

// gradients are those of queries, keys and values in double precision, from the call's own
// output and log-sum-exp.
func (r recorded) gradients(t *testing.T) [3][]gradient {
	args := strings.Split(strings.Trim(r.Args, "()"), ", ")
	operand := func(i int) ([]float64, []int64) {
		k, err := strconv.Atoi(strings.TrimPrefix(args[i], "x"))
		if err != nil {
			t.Fatal(err)
		}
		return r.In[k].tensor(t).Float64s(), r.In[k].Shape
	}
	dy, _ := operand(0)
	q, shape := operand(1)
	k, long := operand(2)
	v, _ := operand(3)
	y, _ := operand(4)
	lse, _ := operand(5)
	heads, queries, keys, d := int(shape[0]*shape[1]), int(shape[2]), int(long[2]), int(shape[3])
	scale, mask := 1/math.Sqrt(float64(d)), make([]float64, heads*queries*keys)
	if at := 0; r.Kwargs != "" {
		if _, err := fmt.Sscanf(r.Kwargs, "{'attn_mask': x%d}", &at); err == nil {
			mask = r.In[at].tensor(t).Float64s()
		} else if _, err := fmt.Sscanf(r.Kwargs, "{'scale': %g}", &scale); err != nil {
			t.Fatal(r.Kwargs)
		}
	}
	dq, dk, dv := make([]gradient, len(q)), make([]gradient, len(k)), make([]gradient, len(v))
	for row := range heads * queries {
		rows := func(x []float64, at int) []float64 { return x[at*d:][:d] }
		head, grad, query := row/queries, rows(dy, row), rows(q, row)
		total := dot(grad, rows(y, row))
		for j := range keys {
			if args[7] == "True" && j > row%queries {
				break
			}
			at, bias := head*keys+j, mask[row*keys+j]
			score := dot(query, rows(k, at))
			p := math.Exp(scale*score.value + bias - lse[row])
			pTerms := p * (1 + scale*score.terms + math.Abs(bias) + math.Abs(lse[row]))
			weight := dot(grad, rows(v, at))
			ds := scale * p * (weight.value - total.value)
			dsTerms := scale * (p*(weight.terms+total.terms) + pTerms*math.Abs(weight.value-total.value))
			for e := range d {
				dq[row*d+e].add(ds*rows(k, at)[e], dsTerms*math.Abs(rows(k, at)[e]))
				dk[at*d+e].add(ds*query[e], dsTerms*math.Abs(query[e]))
				dv[at*d+e].add(p*grad[e], pTerms*math.Abs(grad[e]))
			}
		}
	}
	return [3][]gradient{dq, dk, dv}
}

// gradientsDiffer holds both concert's numbers and PyTorch's against the reference: either is off
// by a unit of the last place of its terms at most.
func (r recorded) gradientsDiffer(t *testing.T, got []interp.Tensor) string {
	for k, reference := range r.gradients(t) {
		want := r.Out[k].tensor(t)
		unit := map[dtype.DType]float64{dtype.F64: 0x1p-52, dtype.F32: 0x1p-23}[want.DType]
		for who, x := range map[string]interp.Tensor{"concert": got[k], "PyTorch": want} {
			for i, v := range x.Float64s() {
				if g := reference[i]; !(math.Abs(v-g.value) <= unit*g.terms) {
					return fmt.Sprintf("result %d, element %d: %s has %v, the reference %v of terms of %v", k, i, who, v, g.value, g.terms)
				}
			}
		}
	}
	return ""
}

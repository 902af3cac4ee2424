package simplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// Rules that let rows travel instead of tables keep every bit where ranks stand in
// groups in any order, positions have several dimensions or are of 32 bits, and
// tables are vectors or have rows of several dimensions.
func TestRowsTravelInAllForms(t *testing.T) {
	fired := 0
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		size := 2 + r.IntN(3)
		world := size * (1 + r.IntN(2))
		order := r.Perm(world)
		var ranks [][]int
		for len(order) > 0 {
			ranks, order = append(ranks, order[:size]), order[size:]
		}
		places := []int64{1 + r.Int64N(6)}
		count := places[0]
		if r.IntN(2) == 0 {
			places = append(places, 1+r.Int64N(3))
			count *= places[1]
		}
		tail := [][]int64{{}, {3}, {2, 5}, {1}}[r.IntN(4)]
		ids := []ir.DType{ir.I64, ir.I32}[r.IntN(2)]
		run := []int64{40 * count, 30, 300}[r.IntN(3)]
		if len(tail) > 0 && r.IntN(2) == 0 {
			tail[len(tail)-1], run = 700, 3*count
		}
		table := []ir.DType{ir.BF16, ir.F32}[r.IntN(2)]
		b := ir.NewBuilder(world)
		g := b.Group("g", ranks)
		f := b.Func("f")
		v := f.Input("v", ir.Tensor(table, append(append([]int64{}, places...), tail...)...))
		i := f.Input("i", ir.Tensor(ids, places...))
		whole := ir.Tensor(table, append([]int64{run * int64(size)}, tail...)...)
		zero := f.Op(ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Float(0)}), nil, whole)[0]
		l := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}, attr.Attr{Key: "accumulate", Val: attr.Bool(true)})
		x := f.Op(ir.OpIndexPut, nil, l, []*ir.Value{zero, v, i})[0]
		if r.IntN(2) == 0 {
			x = f.Convert(x, ir.BF16)
		}
		f.Return(f.Wait(f.ReduceScatter([]ir.Reduction{ir.Sum, ir.Avg}[r.IntN(2)], g, 0, x))[0])
		before, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		after, uses := simplifiedEitherWay(t, before, r)
		if uses == 0 {
			continue
		}
		fired++
		rows := run * int64(size)
		low, high := -rows, rows
		few := high
		if r.IntN(2) == 0 {
			few = low + 1 + r.Int64N(min(high-low, 2*count))
		}
		numbers := []float64{math.Copysign(0, -1), 0, -1e-45, 1e-45, 3, -3, 1.0078125, 1e-3, -1e30, 1e30, math.Inf(1)}
		inputs := make([][]interp.Tensor, world)
		for rank := range inputs {
			elems, _ := v.Type().Shape().NumElems().Const()
			vals, at := make([]float64, elems), make([]float64, count)
			for k := range vals {
				vals[k] = numbers[r.IntN(len(numbers))]
			}
			for k := range at {
				if at[k] = float64(low + r.Int64N(few-low)); k > 0 && r.IntN(3) == 0 {
					at[k] = at[r.IntN(k)]
				}
			}
			x, err := interp.FromFloats(table, vals, append(append([]int64{}, places...), tail...)...)
			if err != nil {
				t.Fatal(err)
			}
			y, err := interp.FromFloats(ids, at, places...)
			if err != nil {
				t.Fatal(err)
			}
			inputs[rank] = []interp.Tensor{x, y}
		}
		sameSums(t, fmt.Sprintf("seed %d", seed), before, after, inputs)
	}
	if fired < 50 {
		t.Errorf("the rule was used %d times only", fired)
	}
	t.Log(fired, "uses")
}

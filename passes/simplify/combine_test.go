package simplify_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/passestest"
	"github.com/seed-ee968945/concert/passes/standard"
)

// tableGradient is a sum over the ranks of groups of tables of zeros to which rows are
// added, rounded to another type before it is summed if that is another one.
type tableGradient struct {
	world, size        int // ranks, and ranks of a group
	count, run, column int64
	table, sum         ir.DType
	reduce             ir.Reduction
}

func (c tableGradient) module(t *testing.T) *ir.Module {
	t.Helper()
	b := ir.NewBuilder(c.world)
	var ranks [][]int
	for r := range c.world {
		if g := r % (c.world / c.size); len(ranks) <= g {
			ranks = append(ranks, []int{r})
		} else {
			ranks[g] = append(ranks[g], r)
		}
	}
	g := b.Group("g", ranks)
	f := b.Func("f")
	v, i := f.Input("v", ir.Tensor(c.table, c.count, c.column)), f.Input("i", ir.Tensor(ir.I64, c.count))
	whole := ir.Tensor(c.table, c.run*int64(c.size), c.column)
	zero := f.Op(ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Float(0)}), nil, whole)[0]
	l := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}, attr.Attr{Key: "accumulate", Val: attr.Bool(true)})
	x := f.Op(ir.OpIndexPut, nil, l, []*ir.Value{zero, v, i})[0]
	if c.sum != c.table {
		x = f.Convert(x, c.sum)
	}
	f.Return(f.Wait(f.ReduceScatter(c.reduce, g, 0, x))[0])
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// inputs are rows of zeros of both signs, numbers that round to them, numbers that
// cancel, infinities and what is no number, at few positions, some of them counted
// from the end, so that ranks share rows and have some of them more than once.
func (c tableGradient) inputs(t *testing.T, r *rand.Rand) [][]interp.Tensor {
	t.Helper()
	numbers := []float64{0, math.Copysign(0, -1), 1e-45, -1e-45, -1e-42, 6e-39, -1e-8, 1e-8, -3e-8, 1, -1, 1.0078125, -1e-3, 3.5e4, math.Pi, -math.E, 1e30, -1e30}
	if r.IntN(4) == 0 {
		numbers = append(numbers, math.Inf(1), math.Inf(-1), math.NaN())
	}
	some := numbers[:1+r.IntN(len(numbers))]
	if r.IntN(3) == 0 {
		some = []float64{math.Copysign(0, -1), -1e-45, -1e-9}
	}
	rows := c.run * int64(c.size)
	few := 1 + r.Int64N(rows)
	out := make([][]interp.Tensor, c.world)
	for rank := range out {
		vals, at := make([]float64, c.count*c.column), make([]int64, c.count)
		for k := range vals {
			vals[k] = some[r.IntN(len(some))]
		}
		for k := range at {
			if at[k] = r.Int64N(few); r.IntN(3) == 0 {
				at[k] -= rows
			}
		}
		v, err := interp.FromFloats(c.table, vals, c.count, c.column)
		if err != nil {
			t.Fatal(err)
		}
		i, err := interp.FromSlice(at, c.count)
		if err != nil {
			t.Fatal(err)
		}
		out[rank] = []interp.Tensor{v, i}
	}
	return out
}

// simplifiedEitherWay is m with its collectives simplified, in either form of rule
// combine-before-reduce, and how often that was used.
func simplifiedEitherWay(t *testing.T, m *ir.Module, r *rand.Rand) (*ir.Module, float64) {
	t.Helper()
	after := m.Clone()
	p, err := standard.Table().Parse([]string{"simplify-collectives", "simplify-collectives{gather-sums=true}"}[r.IntN(2)])
	if err != nil {
		t.Fatal(err)
	}
	rep, err := (&passes.Manager{Validate: passes.ValidateAlways, Costs: passestest.Bandwidth{}}).Run(after, p)
	if err != nil {
		t.Fatal(err)
	}
	return after, rep.Steps[0].Stat("combine-before-reduce")
}

// sameSums runs both modules on all ranks and fails unless the first outputs are the same
// bit for bit, but for which of several NaN a sum is. It returns how many numbers are -0.
func sameSums(t *testing.T, what string, before, after *ir.Module, inputs [][]interp.Tensor) (negative int) {
	t.Helper()
	run := func(m *ir.Module) [][]interp.Tensor {
		out, err := interp.Run(context.Background(), m.Funcs()[0], inputs, interp.Options{Poison: true})
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, m)
		}
		return out
	}
	want, got := run(before), run(after)
	for rank := range want {
		have := got[rank][0].Float64s()
		for i, x := range want[rank][0].Float64s() {
			if y := have[i]; math.Float64bits(x) != math.Float64bits(y) && !(math.IsNaN(x) && math.IsNaN(y)) {
				t.Fatalf("%s: rank %d: element %d is %v instead of %v\n%s", what, rank, i, y, x, after)
			}
			if x == 0 && math.Signbit(x) {
				negative++
			}
		}
	}
	return negative
}

// What travels as rows that every rank has added up and rounded gives every bit of
// what the reduction of tables gives, on all ranks, the signs of zeros included.
func TestCombineBeforeReduceIsExact(t *testing.T) {
	floats := []ir.DType{ir.BF16, ir.F16, ir.F32, ir.F64}
	cases, negative := 600, 0
	if testing.Short() {
		cases = 150
	}
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		c := tableGradient{count: 1 + r.Int64N(9), column: 1 + r.Int64N(5), reduce: []ir.Reduction{ir.Sum, ir.Avg}[r.IntN(2)],
			table: floats[r.IntN(len(floats))], sum: floats[r.IntN(len(floats))], size: 2 + r.IntN(3)}
		c.world = c.size * (1 + r.IntN(2))
		c.run = 40 * c.count
		if r.IntN(2) == 0 {
			c.run, c.column = 3*c.count, 1000 // fewer rows than all ranks have positions
		}
		before := c.module(t)
		after, uses := simplifiedEitherWay(t, before, r)
		if uses != 1 {
			t.Fatalf("seed %d: %+v stays as it is", seed, c)
		}
		negative += sameSums(t, fmt.Sprintf("seed %d: %+v", seed, c), before, after, c.inputs(t, r))
	}
	if negative == 0 {
		t.Error("no result is -0")
	}
	t.Log(negative, "results are -0")
}

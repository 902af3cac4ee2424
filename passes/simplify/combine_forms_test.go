package simplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// rowsCase is rows that are put into a table, which is reduced and scattered.
type rowsCase struct {
	ranks  [][]int
	places []int64 // the shape of positions
	count  int64   // how many there are
	tail   []int64 // the shape of a row
	rows   int64   // of the table
	ids    ir.DType
	table  ir.DType
}

func randomRows(r *rand.Rand) *rowsCase {
	c := &rowsCase{}
	size := 2 + r.IntN(3)
	order := r.Perm(size * (1 + r.IntN(2)))
	for len(order) > 0 {
		c.ranks, order = append(c.ranks, order[:size]), order[size:]
	}
	c.places = []int64{1 + r.Int64N(6)}
	c.count = c.places[0]
	if r.IntN(2) == 0 {
		c.places = append(c.places, 1+r.Int64N(3))
		c.count *= c.places[1]
	}
	c.tail = [][]int64{{}, {3}, {2, 5}, {1}}[r.IntN(4)]
	c.ids = []ir.DType{ir.I64, ir.I32}[r.IntN(2)]
	run := []int64{40 * c.count, 30, 300}[r.IntN(3)]
	if len(c.tail) > 0 && r.IntN(2) == 0 {
		c.tail[len(c.tail)-1], run = 700, 3*c.count
	}
	c.rows = run * int64(size)
	c.table = []ir.DType{ir.BF16, ir.F32}[r.IntN(2)]
	return c
}

func (c *rowsCase) world() int { return len(c.ranks) * len(c.ranks[0]) }

func (c *rowsCase) values() []int64 { return slices.Concat(c.places, c.tail) }

func (c *rowsCase) module(r *rand.Rand) (*ir.Module, error) {
	b := ir.NewBuilder(c.world())
	g := b.Group("g", c.ranks)
	f := b.Func("f")
	v := f.Input("v", ir.Tensor(c.table, c.values()...))
	i := f.Input("i", ir.Tensor(c.ids, c.places...))
	whole := ir.Tensor(c.table, slices.Concat([]int64{c.rows}, c.tail)...)
	zero := f.Op(ir.OpFull, nil, attr.Make(attr.Attr{Key: "value", Val: attr.Float(0)}), nil, whole)[0]
	l := attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(0)}, attr.Attr{Key: "accumulate", Val: attr.Bool(true)})
	x := f.Op(ir.OpIndexPut, nil, l, []*ir.Value{zero, v, i})[0]
	if r.IntN(2) == 0 {
		x = f.Convert(x, ir.BF16)
	}
	f.Return(f.Wait(f.ReduceScatter([]ir.Reduction{ir.Sum, ir.Avg}[r.IntN(2)], g, 0, x))[0])
	return b.Finish()
}

// inputs are values that show the order of a sum, and positions, many of them equal, of few rows
// or of all.
func (c *rowsCase) inputs(t *testing.T, r *rand.Rand) [][]interp.Tensor {
	t.Helper()
	low, high := -c.rows, c.rows
	few := high
	if r.IntN(2) == 0 {
		few = low + 1 + r.Int64N(min(high-low, 2*c.count))
	}
	numbers := []float64{math.Copysign(0, -1), 0, -1e-45, 1e-45, 3, -3, 1.0078125, 1e-3, -1e30, 1e30, math.Inf(1)}
	inputs := make([][]interp.Tensor, c.world())
	for rank := range inputs {
		elems := int64(1)
		for _, d := range c.values() {
			elems *= d
		}
		vals, at := make([]float64, elems), make([]float64, c.count)
		for k := range vals {
			vals[k] = numbers[r.IntN(len(numbers))]
		}
		for k := range at {
			if at[k] = float64(low + r.Int64N(few-low)); k > 0 && r.IntN(3) == 0 {
				at[k] = at[r.IntN(k)]
			}
		}
		x, err := interp.FromFloats(c.table, vals, c.values()...)
		if err != nil {
			t.Fatal(err)
		}
		y, err := interp.FromFloats(c.ids, at, c.places...)
		if err != nil {
			t.Fatal(err)
		}
		inputs[rank] = []interp.Tensor{x, y}
	}
	return inputs
}

// Rules that let rows travel instead of tables keep every bit where ranks stand in
// groups in any order, positions have several dimensions or are of 32 bits, and
// tables are vectors or have rows of several dimensions.
func TestRowsTravelInAllForms(t *testing.T) {
	fired := 0
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		c := randomRows(r)
		before, err := c.module(r)
		if err != nil {
			t.Fatal(err)
		}
		after, uses := simplifiedEitherWay(t, before, r)
		if uses == 0 {
			continue
		}
		fired++
		sameSums(t, fmt.Sprintf("seed %d", seed), before, after, c.inputs(t, r))
	}
	if fired < 50 {
		t.Errorf("the rule was used %d times only", fired)
	}
	t.Log(fired, "uses")
}

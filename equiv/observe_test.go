package equiv_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/passtest"
)

// observation is what running a program shows, on several sets of inputs.
type observation struct {
	inputs [][][]interp.Tensor
	shown  []shown
	sides  map[string]int // of what passes made of it: collectives by the calls that communicate before them
	seed   uint64
}

// shown is one run.
type shown struct {
	results [][]interp.Tensor // and what is left in inputs
	calls   []string          // those that communicate, with what they are given
	sides   map[string]int
}

// observe runs before on numbers as models have them, and on large and special ones.
func observe(before, after *ir.Module, seed uint64) *observation {
	o := &observation{seed: seed}
	for k := range uint64(4) {
		in, err := interp.RandomInputs(before.Funcs()[0], seed+100*k, interp.RandomOptions{})
		if err != nil {
			panic(err)
		}
		if k > 1 {
			widen(in, rand.New(rand.NewPCG(seed, k)))
		}
		s, err := show(before, in, seed)
		if err != nil && k > 1 {
			continue // numbers that are positions
		}
		if err != nil {
			panic(err)
		}
		o.inputs, o.shown = append(o.inputs, in), append(o.shown, s)
	}
	s, err := show(after, o.inputs[0], seed)
	if err != nil {
		panic(err)
	}
	o.sides = s.sides
	return o
}

// widen puts large and special numbers among inputs.
func widen(in [][]interp.Tensor, r *rand.Rand) {
	odd := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, 6e4, -300, 5, 17}
	for _, list := range in {
		for k, x := range list {
			if x.DType == ir.I64 || x.DType == ir.Bool {
				continue
			}
			vals := x.Float64s()
			for i := range vals {
				switch {
				case !x.DType.IsFloat():
					vals[i] = float64(r.IntN(100))
				case r.IntN(8) == 0:
					vals[i] = odd[r.IntN(len(odd))]
				default:
					vals[i] *= 20
				}
			}
			var err error
			if list[k], err = interp.FromFloats(x.DType, vals, x.Shape...); err != nil {
				panic(err)
			}
		}
	}
}

// show runs a program that also returns what is left in inputs that are written.
func show(m *ir.Module, in [][]interp.Tensor, seed uint64) (s shown, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the run panicked: %v", p)
		}
	}()
	m = m.Clone()
	f := m.Funcs()[0]
	args := slices.Clone(f.Return().DeclaredArgs())
	for _, n := range f.Inputs() {
		if !n.Result(0).Type().IsAsync() {
			args = append(args, n.Result(0))
		}
	}
	f.SetArgs(f.Return(), args...)
	f.ReadNewest(f.Return())
	fences := 0
	s.sides = map[string]int{}
	calls := passtest.Calls()
	for name, call := range calls {
		calls[name] = func(ctx context.Context, c *interp.Call) error {
			if c.Node.Communicates() {
				s.calls = append(s.calls, fmt.Sprint(name, c.Node.Attrs(), c.Args))
			}
			return call(ctx, c)
		}
	}
	trace := func(e interp.Event) error {
		switch n := e.Node; {
		case n.Op().IsCollective():
			for _, t := range n.Result(0).Type().Tensors() {
				s.sides[fmt.Sprint(fences, n.Op(), n.Group().Ranks, n.Reduction(), t)]++
			}
		case n.Communicates():
			fences++
		}
		return nil
	}
	s.results, err = interp.Run(context.Background(), f, in, interp.Options{Poison: true, Calls: calls, Seed: int64(seed), Trace: trace})
	return s, err
}

// differs says what running m shows that running the program did not.
func (o *observation) differs(m *ir.Module) error {
	for k, in := range o.inputs {
		now, err := show(m, in, o.seed)
		if err != nil {
			return err
		}
		for r, want := range o.shown[k].results {
			for i, x := range want {
				if len(now.results[r]) != len(want) || !sameBits(x, now.results[r][i]) {
					return fmt.Errorf("output %d on rank %d", i, r)
				}
			}
		}
		if !slices.Equal(now.calls, o.shown[k].calls) {
			return fmt.Errorf("calls that communicate: %q became %q", o.shown[k].calls, now.calls)
		}
		if k == 0 && !maps.Equal(now.sides, o.sides) && maps.Equal(anySide(now.sides), anySide(o.sides)) {
			return fmt.Errorf("collectives and calls that communicate: %v became %v", o.sides, now.sides)
		}
	}
	return nil
}

// anySide is how many there are of each collective on all sides.
func anySide(sides map[string]int) map[string]int {
	out := map[string]int{}
	for k, n := range sides {
		for k[0] >= '0' && k[0] <= '9' {
			k = k[1:]
		}
		out[k] += n
	}
	return out
}

func sameBits(x, y interp.Tensor) bool {
	if !x.DType.IsFloat() {
		return bytes.Equal(x.Data, y.Data)
	}
	return slices.EqualFunc(x.Float64s(), y.Float64s(), func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
	})
}

package passtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
)

// SameResults runs every function of both modules by the reference interpreter
// on inputs drawn from seed, on all ranks and with results in flight poisoned,
// and compares all outputs: bitwise if tolerance is zero, else by their relative
// error in the 2-norm. Opaque calls mean what [Calls] says.
func SameResults(before, after *ir.Module, seed uint64, tolerance float64) error {
	return sameResults(before, after, seed, tolerance, Calls())
}

func sameResults(before, after *ir.Module, seed uint64, tolerance float64, calls map[string]interp.CallFunc) error {
	for _, s := range before.Stages() {
		if err := sameStages(before, after, s, seed, tolerance, calls); err != nil {
			return err
		}
	}
	entries := before.Entries()
	for _, f := range before.Funcs() {
		if s, _ := before.StagesOf(f); s != nil {
			continue // it ran beside the others
		}
		g, fw, bw := after.Func(f.Name), after.Func(f.Name+".fw"), after.Func(f.Name+".bw")
		if g == nil && !slices.Contains(entries, f) {
			continue // nodes ran it, which are compared where they stand
		}
		if g == nil && (fw == nil || bw == nil) {
			return fmt.Errorf("function @%s is gone", f.Name)
		}
		inputs, err := interp.RandomInputs(f, seed, interp.RandomOptions{})
		if err != nil {
			return fmt.Errorf("inputs of @%s: %w", f.Name, err)
		}
		opts := interp.Options{Poison: true, Seed: int64(seed), Calls: calls}
		want, err := interp.Run(context.Background(), f, inputs, opts)
		if err != nil {
			return fmt.Errorf("running @%s before the passes: %w", f.Name, err)
		}
		var got [][]interp.Tensor
		if g != nil {
			got, err = interp.Run(context.Background(), g, inputs, opts)
		} else {
			got, err = joint.Run(context.Background(), step.Interpret(opts), f, fw, bw, inputs)
		}
		if err != nil {
			return fmt.Errorf("running @%s after the passes: %w", f.Name, err)
		}
		if err := sameOutputs(f, got, want, tolerance); err != nil {
			return err
		}
	}
	return nil
}

// sameStages is sameResults of stages, which run side by side.
func sameStages(before, after *ir.Module, s *ir.Stages, seed uint64, tolerance float64, calls map[string]interp.CallFunc) error {
	inputs := make([][]interp.Tensor, before.World)
	for i, name := range s.Funcs {
		all, err := interp.RandomInputs(before.Func(name), seed+uint64(i), interp.RandomOptions{})
		if err != nil {
			return fmt.Errorf("inputs of @%s: %w", name, err)
		}
		for _, r := range s.Ranks(i) {
			inputs[r] = all[r]
		}
	}
	opts := interp.Options{Poison: true, Seed: int64(seed), Calls: calls}
	want, err := interp.RunStages(context.Background(), before, s, inputs, opts)
	if err != nil {
		return fmt.Errorf("running stages @%s before the passes: %w", s.Name, err)
	}
	k := slices.IndexFunc(after.Stages(), func(o *ir.Stages) bool { return o.Name == s.Name })
	if k < 0 {
		return fmt.Errorf("stages @%s are gone", s.Name)
	}
	got, err := interp.RunStages(context.Background(), after, after.Stages()[k], inputs, opts)
	if err != nil {
		return fmt.Errorf("running stages @%s after the passes: %w", s.Name, err)
	}
	return sameOutputs(before.Func(s.Funcs[0]), got, want, tolerance)
}

func sameOutputs(f *ir.Func, got, want [][]interp.Tensor, tolerance float64) error {
	for r := range want {
		if len(got[r]) != len(want[r]) {
			return fmt.Errorf("@%s gives %d outputs, before the passes %d", f.Name, len(got[r]), len(want[r]))
		}
		for k := range want[r] {
			d, err := interp.Compare(got[r][k], want[r][k])
			if err != nil {
				return fmt.Errorf("output %d of @%s: %w", k, f.Name, err)
			}
			if !d.Bitwise && !(tolerance > 0 && d.Rel <= tolerance) {
				return fmt.Errorf("output %d of @%s on rank %d is not what it was before the passes: %s", k, f.Name, r, d)
			}
		}
	}
	return nil
}

// Calls returns the opaque calls that test programs may use:
//
//	twice    gives two times each operand; no effects
//	inc      adds one to operand 0 in place; declares writes
//	flip     changes the sign of operand 0 in place; declares writes
//	barrier  does nothing; declares communicates
func Calls() map[string]interp.CallFunc {
	affine := func(dst, src interp.Tensor, factor, add float64) error {
		vals := src.Float64s()
		for i := range vals {
			vals[i] = factor*vals[i] + add
		}
		t, err := interp.FromFloats(src.DType, vals, src.Shape...)
		if err == nil {
			copy(dst.Data, t.Data)
		}
		return err
	}
	return map[string]interp.CallFunc{
		"twice": interp.PerRank(func(_ context.Context, _ *ir.Node, _ int, args, results []interp.Tensor) error {
			for i := range results {
				if err := affine(results[i], args[i], 2, 0); err != nil {
					return err
				}
			}
			return nil
		}),
		"inc": interp.PerRank(func(_ context.Context, _ *ir.Node, _ int, args, _ []interp.Tensor) error {
			return affine(args[0], args[0], 1, 1)
		}),
		"flip": interp.PerRank(func(_ context.Context, _ *ir.Node, _ int, args, _ []interp.Tensor) error {
			return affine(args[0], args[0], -1, 0)
		}),
		"barrier": func(context.Context, *interp.Call) error { return nil },
	}
}

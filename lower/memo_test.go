package lower_test

import (
	"context"
	"testing"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// A program that runs again, with other sizes, other random numbers and without its
// collectives, does what it would have done the first time: what the runtime keeps of
// its instructions depends on none of these.
func TestRunsAgain(t *testing.T) {
	m, err := ir.Parse("again.ir", `world 1
group @g = [[0]]
sym s hint 4 max 8

func @f(%x: f32[s], %y: f32[4]) -> (f32[s], f32[4], f32[4]) {
  %a = neg %x : f32[s]
  %r = rand {seed=3} : f32[4]
  %k = neg %y : f32[4] !{fusion=0}
  %k2 = relu %k : f32[4] !{fusion=0}
  %z = all_reduce.sum %k2 on @g : async f32[4]
  %w = wait_tensor %z : f32[4]
  return %a, %r, %w
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	p, err := lower.FuncWith(f, lower.Options{Kernels: true})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := rt.ModuleOf(p)
	if err != nil {
		t.Fatal(err)
	}
	err = host.Local(t.Context(), 1, rt.Config{}, host.Options{}, []*rt.Module{mod}, func(ctx context.Context, r *rt.Rank) error {
		for i, size := range []int64{4, 6, 6, 4, 1} {
			in, err := interp.RandomInputs(f, uint64(i), interp.RandomOptions{Symbols: []map[string]int64{{"s": size}}})
			if err != nil {
				return err
			}
			opts := interp.Options{Symbols: []map[string]int64{{"s": size}}, Step: int64(i)}
			want, err := interp.Run(ctx, f, in, opts)
			if err != nil {
				return err
			}
			var vs []rt.Value
			for _, x := range in[0] {
				vs = append(vs, rt.Value{DType: x.DType, Shape: x.Shape, Data: x.Data})
			}
			if i == 2 {
				if _, err := rt.Run(ctx, r, p, vs, rt.Options{Step: 7, SkipCollectives: true}); err != nil {
					return err
				}
			}
			outs, err := rt.Run(ctx, r, p, vs, rt.Options{Step: int64(i)})
			if err != nil {
				return err
			}
			for k, o := range outs {
				if got := (interp.Tensor{DType: o.DType, Shape: o.Shape, Data: o.Data}); !interp.Equal(got, want[0][k]) {
					t.Errorf("run %d: output %d is %v, the interpreter's %v", i, k, got, want[0][k])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSkipCollectives leaves out a gather of floats and does one of integers, which
// another instruction may take for positions.
func TestSkipCollectives(t *testing.T) {
	m, err := ir.Parse("skip.ir", `world 2
group @g = [[0, 1]]

func @f(%i: i64[2], %x: f32[2]) -> (i64[4], f32[4]) {
  %a = all_gather %i on @g {dim=0} : async i64[4]
  %b = all_gather %x on @g {dim=0} : async f32[4]
  %c = wait_tensor %a : i64[4]
  %d = wait_tensor %b : f32[4]
  return %c, %d
}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	p, err := lower.FuncWith(f, lower.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := rt.ModuleOf(p)
	if err != nil {
		t.Fatal(err)
	}
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := interp.Run(t.Context(), f, in, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = host.Local(t.Context(), 2, rt.Config{}, host.Options{}, []*rt.Module{mod}, func(ctx context.Context, r *rt.Rank) error {
		rank := r.Info().Rank
		var vs []rt.Value
		for _, x := range in[rank] {
			vs = append(vs, rt.Value{DType: x.DType, Shape: x.Shape, Data: x.Data})
		}
		for range 2 { // made, and made again
			outs, err := rt.Run(ctx, r, p, vs, rt.Options{SkipCollectives: true})
			if err != nil {
				return err
			}
			same := func(k int) bool {
				return interp.Equal(interp.Tensor{DType: outs[k].DType, Shape: outs[k].Shape, Data: outs[k].Data}, want[rank][k])
			}
			if !same(0) || same(1) {
				t.Errorf("rank %d: integers gathered: %v, floats gathered: %v", rank, same(0), same(1))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

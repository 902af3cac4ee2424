package runtime_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

const sizedText = `program @f world 1
sym s hint 2 max 4
stream @compute
events 0
arena 1024
buffer %a at 0 size 512
buffer %c at 512 size 512
input a = %a: f32[s,2]
output c = %c: f32[s,2]
kernel k0 {sizes=1}
step neg (p0: f32[n0,2]) -> (t0: f32[n0,2]) from %n
step mul (t0: f32[n0,2], p0: f32[n0,2]) -> (p1: f32[n0,2]) from %m
body
@compute launch fused (%a: f32[s,2]) -> (%c: f32[s,2]) {kernel="k0", sizes=["s"]} from %m
`

// A kernel that takes sizes runs on as many elements as there are in each run, of a
// program or of emitted code.
func TestFusedSizes(t *testing.T) {
	p, m := parse(t, sizedText)
	call := func(x *rt.Exec) {
		s := x.Sym("s")
		x.Fused("compute", "k0", rt.Ts{rt.C(512, rt.F32, s, 2)}, rt.Ts{rt.C(0, rt.F32, s, 2)}, s)
	}
	err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		for _, s := range []int64{2, 0, 4, 1, 4} {
			var data, want []float32
			for i := range 2 * s {
				data, want = append(data, float32(i)), append(want, -float32(i*i))
			}
			in := []rt.Value{f32(rt.Dims{s, 2}, data...)}
			for _, run := range []func() ([]rt.Value, error){
				func() ([]rt.Value, error) { return rt.Run(ctx, r, p, in, rt.Options{}) },
				func() ([]rt.Value, error) { return rt.RunModule(ctx, r, m, call, in, rt.Options{}) },
			} {
				outs, err := run()
				if err != nil {
					return err
				}
				if got := numbers(outs[0].Data); !slices.Equal(got, want) {
					t.Errorf("for %d rows %v, want %v", s, got, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Sizes that do not fit the kernel or its operands are refused before the device sees
// them.
func TestFusedSizesMisuse(t *testing.T) {
	for _, c := range []struct {
		sizes []int64
		want  string
	}{
		{nil, "kernel k0 takes 1 sizes, not 0"},
		{[]int64{2, 2}, "kernel k0 takes 1 sizes, not 2"},
		{[]int64{3}, "parameter 0 is f32[2 2]"},
		{[]int64{-1}, "size parameter 0 of 1"},
	} {
		_, m := parse(t, sizedText)
		err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			_, err := rt.RunModule(ctx, r, m, func(x *rt.Exec) {
				x.Fused("compute", "k0", rt.Ts{rt.C(512, rt.F32, 2, 2)}, rt.Ts{rt.C(0, rt.F32, 2, 2)}, c.sizes...)
			}, []rt.Value{f32(rt.Dims{2, 2}, 1, 2, 3, 4)}, rt.Options{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.sizes, err, c.want)
		}
	}
}

const neededText = `program @f world 1
sym s hint 4 max 8
stream @compute
events 0
arena 1024
buffer %x at 0 size 64
buffer %y at 512 size 16
input x = %x: f32[s,2]
output y = %y: f32[2,2]
need s-4 from %head
body
@compute launch neg (%x+16: f32[2,2]) -> (%y: f32[2,2]) from %n
`

// Values of symbols that are out of their bounds, or leave a node without the rows that
// it takes, are typed errors, and the world goes on.
func TestSymbolErrors(t *testing.T) {
	p, m := parse(t, neededText)
	rows := func(n int64) []rt.Value { return []rt.Value{f32(rt.Dims{n, 2}, make([]float32, 2*n)...)} }
	err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		_, err := rt.Run(ctx, r, p, rows(9), rt.Options{})
		var sym *rt.SymbolError
		if !errors.As(err, &sym) || !errors.Is(err, rt.ErrSymbol) || *sym != (rt.SymbolError{Module: "f", Symbol: "s", Value: 9, Max: 8, Input: "x"}) {
			t.Errorf("got %v, %+v", err, sym)
		}
		_, err = rt.Run(ctx, r, p, rows(2), rt.Options{Symbols: map[string]int64{"s": -1}})
		if !errors.As(err, &sym) || sym.Value != -1 || sym.Input != "" {
			t.Errorf("got %v, %+v", err, sym)
		}
		_, err = rt.Run(ctx, r, p, rows(3), rt.Options{})
		var size *rt.SizeError
		if !errors.As(err, &size) || !errors.Is(err, rt.ErrSymbol) || size.Node != "head" || size.Value != -1 || size.Symbols["s"] != 3 {
			t.Errorf("got %v, %+v", err, size)
		}
		_, err = rt.Run(ctx, r, p, rows(4), rt.Options{})
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A program that does not fit for some values of its symbols is not one.
func TestUnfitSizes(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"%x: f32[s,2]\noutput", "%x: f32[2*s,2]\noutput", "reaches 128 bytes"},
		{"%x: f32[s,2]\noutput", "%x: f32[s-1,2]\noutput", "reaches 0 bytes"},
		{"need s-4", "need s-9", "%head needs s-9 not to be negative"},
		{"hint 4 max 8", "hint 4 max 3", "symbol s has hint 4 outside 0..3"},
	} {
		if _, err := program.Parse("p", strings.Replace(neededText, c.old, c.new, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.new, err, c.want)
		}
	}
	p, m := parse(t, neededText)
	if again := p.String(); !strings.Contains(again, "need s-4 from %head\n") {
		t.Error(again)
	}
	m.Inputs[0].Dims[0][0] = "2*s"
	err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(context.Context, *rt.Rank) error { return nil })
	if err != nil {
		t.Error(err) // 2*s rows of 8 bytes still fit the arena
	}
	m.Inputs[0].Dims[0][0] = "32*s"
	err = local(t, 1, rt.Config{}, []*rt.Module{m}, func(context.Context, *rt.Rank) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "outside of the arena") {
		t.Error(err)
	}
}

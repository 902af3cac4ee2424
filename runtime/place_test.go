package runtime_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

const doubled = `program @%s world 2
group @g = [[0, 1]]
stream @compute
stream @comm.g on @g
events 2
arena 2048
buffer %%x at 0 size 24
buffer %%s at 512 size 24
buffer %%y at 1024 size 24
input x {data} = %%x: f32[2,3]
output y = %%y: f32[3,2:1,3]
output x = %%x: f32[2,3]
body
@comm.g all_reduce on @g (%%x: f32[2,3]) -> (%%s: f32[2,3]) {reduce="sum"} from %%s
@comm.g record 0
@compute wait 0
@compute launch add (%%s: f32[2,3], %%s: f32[2,3]) -> (%%y: f32[2,3]) from %%y
`

// Results of one module are the operands of another where they are: the device
// copies them, into another layout if need be.
func TestInputByPlace(t *testing.T) {
	pa, a := parse(t, fmt.Sprintf(doubled, "a"))
	b2 := strings.Replace(fmt.Sprintf(doubled, "b"), "input x {data} = %x: f32[2,3]", "input x {data} = %x: f32[3,2]", 1)
	b2 = strings.Replace(b2, "output x = %x: f32[2,3]", "output x = %x: f32[3,2]", 1)
	pb, b := parse(t, b2)
	err := local(t, 2, rt.Config{}, []*rt.Module{a, b}, func(ctx context.Context, r *rt.Rank) error {
		k := float32(r.Info().Rank)
		for range 3 {
			outs, err := rt.Run(ctx, r, pa, []rt.Value{f32(rt.Dims{2, 3}, 1+k, 2, 3, 4, 5, 6)}, rt.Options{KeepOutputs: true})
			if err != nil {
				return err
			}
			if outs[0].Data != nil {
				return fmt.Errorf("a kept output was downloaded")
			}
			// a's y is 6 8 12 / 16 20 24 in memory; as [3,2] with strides 1,3 it reads by columns.
			got, err := rt.Run(ctx, r, pb, []rt.Value{outs[0]}, rt.Options{})
			if err != nil {
				return err
			}
			if x := numbers(got[1].Data); !slices.Equal(x, []float32{6, 16, 8, 20, 12, 24}) {
				return fmt.Errorf("rank %v got %v", k, x)
			}
			if y := numbers(got[0].Data); !slices.Equal(y, []float32{24, 80, 64, 48, 32, 96}) {
				return fmt.Errorf("rank %v: y is %v", k, y)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestInputByPlaceMisuse(t *testing.T) {
	pa, a := parse(t, fmt.Sprintf(doubled, "a"))
	err := local(t, 2, rt.Config{}, []*rt.Module{a}, func(ctx context.Context, r *rt.Rank) error {
		for _, c := range []struct {
			place rt.Tensor
			want  string
		}{
			{rt.C(1024, rt.F32, 3, 2), "expected f32[2 3]"},
			{rt.C(1<<20, rt.F32, 2, 3), "outside of the rank's arena"},
			{rt.C(16, rt.F32, 2, 3), "where input x goes"},
		} {
			_, err := rt.Run(ctx, r, pa, []rt.Value{{Place: c.place}}, rt.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%v: %v", c.place, err)
			}
		}
		// A place that is the input's own needs no copy.
		_, err := rt.Run(ctx, r, pa, []rt.Value{{Place: rt.C(0, rt.F32, 2, 3)}}, rt.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An input whose layout holds one element for several indices takes numbers, and places,
// that agree about it.
func TestInputsThatRepeat(t *testing.T) {
	const text = `program @%s world 1
stream @compute
events 0
arena 2048
buffer %%x at 0 size 24
buffer %%y at 512 size 24
input x {data} = %%x: f32[2,3:%s]
output y = %%y: f32[2,3]
body
@compute copy (%%x: f32[2,3:%s]) -> (%%y: f32[2,3]) from %%y
`
	pr, repeated := parse(t, fmt.Sprintf(text, "repeated", "0,1", "0,1"))
	po, overlapping := parse(t, fmt.Sprintf(text, "overlapping", "1,1", "1,1"))
	err := local(t, 1, rt.Config{}, []*rt.Module{repeated, overlapping}, func(ctx context.Context, r *rt.Rank) error {
		for _, c := range []struct {
			prog *program.Program
			in   rt.Value
			want string // what goes wrong, or the numbers that come out
		}{
			{pr, f32(rt.Dims{2, 3}, 1, 2, 3, 1, 2, 3), "[1 2 3 1 2 3]"},
			{pr, rt.Value{Place: rt.S(1024, rt.F32, rt.Dims{2, 3}, rt.Dims{0, 1})}, "[1 2 3 1 2 3]"},
			{pr, f32(rt.Dims{2, 3}, 1, 2, 3, 1, 2, 4), "whose numbers differ"},
			{pr, rt.Value{Place: rt.C(1024, rt.F32, 2, 3)}, "whose numbers differ"},
			{po, f32(rt.Dims{2, 3}, 1, 2, 3, 2, 3, 4), "[1 2 3 2 3 4]"},
			{po, rt.Value{Place: rt.S(1024, rt.F32, rt.Dims{2, 3}, rt.Dims{1, 1})}, "[1 2 3 2 3 4]"},
			{po, f32(rt.Dims{2, 3}, 1, 2, 3, 2, 4, 4), "whose numbers differ"},
			{po, rt.Value{Place: rt.S(1024, rt.F32, rt.Dims{2, 3}, rt.Dims{0, 1})}, "whose numbers differ"},
		} {
			if err := r.Upload(rt.C(1024, rt.F32, 4), f32(rt.Dims{4}, 1, 2, 3, 4).Data); err != nil {
				return err
			}
			out, err := rt.Run(ctx, r, c.prog, []rt.Value{c.in}, rt.Options{})
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(numbers(out[0].Data))
			}
			if !strings.Contains(got, c.want) {
				return fmt.Errorf("%v: %s, want %s", c.in, got, c.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

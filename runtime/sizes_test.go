package runtime_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// countedText sends rows by numbers that each rank tells the others.
const countedText = `program @route world 2
group @ep = [[0, 1]]
sym a hint 1 max 4
sym b hint 1 max 4
sym c hint 1 max 4
sym d hint 1 max 4
stream @compute
stream @comm.ep on @ep
events 4
arena 3072
buffer %x at 0 size 32
buffer %n at 512 size 16
buffer %m at 1024 size 16
buffer %sent at 1536 size 16
buffer %got at 2048 size 16
buffer %y at 2560 size 64
input x = %x: f32[4,2]
input n = %n: i64[2]
output y = %y: f32[c+d,2]
need a+b-4 from %y
need -a-b+4 from %y
body
@compute record 0
@comm.ep wait 0
@comm.ep all_to_all on @ep (%n: i64[2]) -> (%m: i64[2]) from %m
@comm.ep record 1
@compute launch read_size (%n: i64[2]) -> (%sent: i64[2]) {symbols=["a", "b"]} from %sent
@compute wait 1
@compute launch read_size (%m: i64[2]) -> (%got: i64[2]) {symbols=["c", "d"]} from %got
@compute record 2
@comm.ep wait 2
@comm.ep all_to_all on @ep (%x: f32[4,2]) -> (%y: f32[c+d,2]) {in_splits=["a, b"], out_splits=["c, d"]} from %y
@comm.ep record 3
@compute wait 3
`

// countedEmitted is what countedText is as code.
func countedEmitted(x *rt.Exec) {
	x.Record("compute", 0)
	x.Wait("comm.ep", 0)
	x.At("m").AllToAll("comm.ep", "ep", nil, nil, rt.Ts{rt.C(1024, rt.I64, 2)}, rt.Ts{rt.C(512, rt.I64, 2)})
	x.Record("comm.ep", 1)
	x.At("sent").Launch("compute", "read_size", rt.A("symbols", []string{"a", "b"}), rt.Ts{rt.C(1536, rt.I64, 2)}, rt.Ts{rt.C(512, rt.I64, 2)})
	x.Wait("compute", 1)
	x.At("got").Launch("compute", "read_size", rt.A("symbols", []string{"c", "d"}), rt.Ts{rt.C(2048, rt.I64, 2)}, rt.Ts{rt.C(1024, rt.I64, 2)})
	x.Record("compute", 2)
	x.Wait("comm.ep", 2)
	x.At("y").AllToAll("comm.ep", "ep", [][]int64{{x.Sym("a"), x.Sym("b")}}, [][]int64{{x.Sym("c"), x.Sym("d")}},
		rt.Ts{rt.C(2560, rt.F32, x.Sym("c")+x.Sym("d"), 2)}, rt.Ts{rt.C(0, rt.F32, 4, 2)})
	x.Record("comm.ep", 3)
	x.Wait("compute", 3)
}

func i64s(v ...int64) rt.Value {
	var b []byte
	for _, n := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return rt.Value{DType: rt.I64, Shape: rt.Dims{int64(len(v))}, Data: b}
}

// One program runs with other sizes every time, which only tensors hold.
func TestSizesRead(t *testing.T) {
	p, m := parse(t, countedText)
	if err := program.Check(p); err != nil {
		t.Fatal(err)
	}
	err := local(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		me := r.Info().Rank
		for _, send := range [][2]int64{{1, 3}, {4, 0}, {0, 4}, {2, 2}, {1, 0}} { // rows of each rank to rank 0
			own := send[me]
			x := f32(rt.Dims{4, 2}, 0, 1, 2, 3, 4, 5, 6, 7)
			var want []float32
			for from := range int64(2) {
				first, rows := int64(0), send[from]
				if me == 1 {
					first, rows = send[from], 4-send[from]
				}
				for i := 2 * first; i < 2*(first+rows); i++ {
					want = append(want, float32(i))
				}
			}
			for _, step := range []func(*rt.Exec){func(x *rt.Exec) { rt.Interpret(x, p) }, countedEmitted} {
				out, err := rt.RunModule(ctx, r, m, step, []rt.Value{x, i64s(own, 4-own)}, rt.Options{})
				if err != nil {
					return err
				}
				if got := numbers(out[0].Data); !slices.Equal(got, want) || out[0].Shape[0] != int64(len(want)/2) {
					return fmt.Errorf("rank %d: %v is %v, want %v", me, out[0].Shape, got, want)
				}
			}
		}
		x := f32(rt.Dims{4, 2}, 0, 1, 2, 3, 4, 5, 6, 7)
		if _, err := rt.Run(ctx, r, p, []rt.Value{x, i64s(4, 0)}, rt.Options{Symbols: map[string]int64{"a": 4}}); err == nil || !strings.Contains(err.Error(), "reads it from a tensor") {
			return fmt.Errorf("a value for a symbol that a tensor holds: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A size beyond its bound on one rank is an error on all of them, and so are pieces that do
// not make up what is sent.
func TestSizesBeyond(t *testing.T) {
	for _, c := range []struct {
		counts []int64
		want   string
		as     func(error) bool
	}{
		{[]int64{5, 0}, "symbol a is 5, expected 0 to 4 (read by %sent)", func(err error) bool {
			var e *rt.SymbolError
			return errors.As(err, &e) && e.Node == "sent"
		}},
		{[]int64{2, 1}, "needs a+b-4 not to be negative, which is -1", func(err error) bool {
			var e *rt.SizeError
			return errors.As(err, &e) && e.Node == "y"
		}},
	} {
		p, m := parse(t, countedText)
		var errs [2]error
		local(t, 2, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			me := r.Info().Rank
			n := i64s(c.counts...)
			if me == 1 {
				n = i64s(1, 3)
			}
			_, errs[me] = rt.Run(ctx, r, p, []rt.Value{f32(rt.Dims{4, 2}, make([]float32, 8)...), n}, rt.Options{})
			return errs[me]
		})
		if !c.as(errs[0]) || !errors.Is(errs[0], rt.ErrSymbol) || !strings.Contains(errs[0].Error(), c.want) {
			t.Errorf("rank 0: %v", errs[0])
		}
		var other *rt.CanceledError
		if !errors.As(errs[1], &other) || other.Origin != 0 || !strings.Contains(errs[1].Error(), c.want) {
			t.Errorf("rank 1: %v", errs[1])
		}
	}
}

package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

const fusedText = `program @f world 1
stream @compute
events 0
arena 2048
buffer %a at 0 size 512
buffer %b at 512 size 512
buffer %c at 1024 size 512
buffer %d at 1536 size 512
input a = %a: f32[2,3]
input b = %b: f32[3]
output c = %c: f32[3,2]
output d = %d: f32[2,3]
kernel k0
step add (p0: f32[2,3], p1: f32[2,3:0,1]) -> (t0+12: f32[2,3:1,2]) from %add
step mul (t0+12: f32[2,3:1,2], p0: f32[2,3]) -> (p3: f32[2,3]) from %mul
step clone (t0+12: f32[3,2:2,1]) -> (p2: f32[3,2]) from %clone
body
@compute launch fused (%a: f32[2,3], %b: f32[3]) -> (%c: f32[3,2], %d: f32[2,3]) {kernel="k0"} from %clone
`

// A program's own kernel runs on the host by its body, with operands, results and
// temporaries of any layout, interpreted or called as emitted code does.
func TestFused(t *testing.T) {
	p, m := parse(t, fusedText)
	in := []rt.Value{f32(rt.Dims{2, 3}, 1, 2, 3, 4, 5, 6), f32(rt.Dims{3}, 10, 20, 30)}
	check := func(outs []rt.Value, err error) error {
		if err != nil {
			return err
		}
		if got, want := numbers(outs[0].Data), []float32{11, 14, 22, 25, 33, 36}; !slices.Equal(got, want) {
			t.Errorf("c is %v, want %v", got, want)
		}
		if got, want := numbers(outs[1].Data), []float32{11, 44, 99, 56, 125, 216}; !slices.Equal(got, want) {
			t.Errorf("d is %v, want %v", got, want)
		}
		return nil
	}
	call := func(x *rt.Exec) {
		x.Fused("compute", "k0", rt.Ts{rt.C(1024, rt.F32, 3, 2), rt.C(1536, rt.F32, 2, 3)}, rt.Ts{rt.C(0, rt.F32, 2, 3), rt.C(512, rt.F32, 3)})
	}
	if err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		if err := check(rt.Run(ctx, r, p, in, rt.Options{})); err != nil {
			return err
		}
		return check(rt.RunModule(ctx, r, m, call, in, rt.Options{}))
	}); err != nil {
		t.Error(err)
	}
}

// Calls that do not fit the kernel are refused before the device sees them.
func TestFusedMisuse(t *testing.T) {
	a, b, c, d := rt.C(0, rt.F32, 2, 3), rt.C(512, rt.F32, 3), rt.C(1024, rt.F32, 3, 2), rt.C(1536, rt.F32, 2, 3)
	for _, u := range []struct {
		name      string
		outs, ins rt.Ts
		want      string
	}{
		{"k9", rt.Ts{c, d}, rt.Ts{a, b}, `module f has no kernel "k9"`},
		{"k0", rt.Ts{c}, rt.Ts{a, b}, "parameter 3 of 3"},
		{"k0", rt.Ts{c, d}, rt.Ts{b, b}, "parameter 0 is f32[3] at 512, the kernel works on f32[2 3]"},
		{"k0", rt.Ts{c, d}, rt.Ts{rt.C(0, rt.F16, 2, 3), b}, "parameter 0 is f16[2 3]"},
		{"k0", rt.Ts{d}, rt.Ts{a, b, c}, "writes operand 2"},
	} {
		_, m := parse(t, fusedText)
		err := local(t, 1, rt.Config{}, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			_, err := rt.RunModule(ctx, r, m, func(x *rt.Exec) { x.Fused("compute", u.name, u.outs, u.ins) },
				[]rt.Value{f32(rt.Dims{2, 3}, 1, 2, 3, 4, 5, 6), f32(rt.Dims{3}, 10, 20, 30)}, rt.Options{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), u.want) {
			t.Errorf("%s%v%v: got %v, want %q", u.name, u.outs, u.ins, err, u.want)
		}
	}
}

// compiling is a device that has kernels compiled, and fails then.
type compiling struct {
	rt.Device
	got []rt.Unit
}

func (c *compiling) Compile(n int, u rt.Unit) error {
	if n != len(c.got) {
		return fmt.Errorf("unit %d behind %d", n, len(c.got))
	}
	if c.got = append(c.got, u); n == 1 {
		return context.Canceled
	}
	return nil
}

// A device gets the kernels of all modules, in their order, before their memory; malformed
// ones do not get that far.
func TestUnits(t *testing.T) {
	_, m := parse(t, fusedText)
	m.Source, m.Flags = "source", []string{"--flag"}
	none := &rt.Module{Name: "none", Streams: []string{"compute"}}
	var dev *compiling
	open := func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
		d, err := host.Opener(host.Options{Local: true})(ctx, spec)
		dev = &compiling{Device: d}
		return dev, err
	}
	_, err := rt.Join(t.Context(), open, rt.Config{Env: &rt.Env{World: 1}, Job: rendezvous.NewLocal()}, none, m)
	got := dev.got
	if !errors.Is(err, context.Canceled) || len(got) != 2 || got[0].Name != "none" || len(got[0].Kernels) > 0 || got[1].Source != "source" || got[1].Flags[0] != "--flag" || got[1].Kernels[0].Name != "k0" {
		t.Errorf("error %v, units %+v", err, got)
	}
	for _, c := range []struct {
		spoil func(*rt.Code)
		want  string
	}{
		{func(c *rt.Code) { c.Name = "" }, "a kernel has a name of its own"},
		{func(c *rt.Code) { c.Body[0].Attrs = rt.A("odd") }, "malformed attributes"},
		{func(c *rt.Code) { c.Body[0].Outs[0].Offset = -4 }, "lies before its start"},
		{func(c *rt.Code) { c.Body[0].Ins[0].Param = -2 }, "parameter -2"},
	} {
		_, m := parse(t, fusedText)
		c.spoil(&m.Kernels[0])
		_, err := rt.Join(t.Context(), open, rt.Config{Env: &rt.Env{World: 1}, Job: rendezvous.NewLocal()}, m)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

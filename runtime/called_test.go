package runtime_test

import (
	"context"
	"fmt"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// spying keeps what it is given instead of doing it.
type spying struct {
	rt.Device
	got []given
}

// given is what a device was given.
type given struct {
	stream rt.Stream
	kernel *rt.Kernel
	coll   *rt.Collective
}

func (g given) String() string {
	if g.coll != nil {
		return fmt.Sprintf("%d: %+v", g.stream, *g.coll)
	}
	k := *g.kernel
	k.Code = nil // which is at another address for each size
	return fmt.Sprintf("%d: %+v", g.stream, k)
}

func (d *spying) Launch(s rt.Stream, k *rt.Kernel) error {
	d.got = append(d.got, given{stream: s, kernel: k})
	return nil
}

func (d *spying) Collective(s rt.Stream, c *rt.Collective) error {
	d.got = append(d.got, given{stream: s, coll: c})
	return nil
}

// spied joins a world of one with a device that spies.
func spied(t *testing.T, m *rt.Module) (*rt.Rank, *spying) {
	t.Helper()
	d := &spying{}
	open := host.Opener(host.Options{})
	cfg := rt.Config{Env: &rt.Env{World: 1, LocalWorld: 1, Source: "a test"}}
	r, err := rt.Join(t.Context(), func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
		h, err := open(ctx, spec)
		d.Device = h
		return d, err
	}, cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, d
}

// differing has calls of which each differs from every other in what a device is given.
func differing() []func(x *rt.Exec) {
	a, b := rt.C(0, rt.F32, 4, 2), rt.C(256, rt.F32, 4, 2)
	two := rt.Ts{b, rt.C(512, rt.F32, 4, 2)}
	return []func(x *rt.Exec){
		func(x *rt.Exec) { x.Launch("compute", "neg", nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Launch("comm", "neg", nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Launch("compute", "exp", nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.At("n").Launch("compute", "neg", nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Launch("compute", "neg", rt.A("dim", 1), rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Launch("compute", "neg", rt.A("dim", 2), rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Launch("compute", "neg", nil, rt.Ts{b}, rt.Ts{a}) },
		func(x *rt.Exec) { x.Launch("compute", "neg", nil, rt.Ts{a}, two) },
		func(x *rt.Exec) { x.Launch("compute", "neg", nil, rt.Ts{rt.C(0, rt.I32, 4, 2)}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Launch("compute", "neg", nil, rt.Ts{rt.C(0, rt.F32, 2, 4)}, rt.Ts{b}) },
		func(x *rt.Exec) {
			x.Launch("compute", "neg", nil, rt.Ts{rt.S(0, rt.F32, rt.Dims{4, 2}, rt.Dims{1, 4})}, rt.Ts{b})
		},
		func(x *rt.Exec) { x.Fused("compute", "k", rt.Ts{a}, rt.Ts{b}, 3) },
		func(x *rt.Exec) { x.Fused("compute", "k", rt.Ts{a}, rt.Ts{b}, 4) },
		func(x *rt.Exec) { x.Fused("compute", "l", rt.Ts{a}, rt.Ts{b}, 3) },
		func(x *rt.Exec) { x.Call("compute", "f", "g", nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Call("compute", "g", "g", nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Call("compute", "f", "h", nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllReduce("comm", "g", "sum", rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllReduce("comm", "h", "sum", rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllReduce("comm", "g", "max", rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.At("n").AllReduce("comm", "g", "sum", rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllGather("comm", "g", 0, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllGather("comm", "g", 1, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.ReduceScatter("comm", "g", "sum", 1, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllToAll("comm", "g", nil, nil, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllToAll("comm", "g", [][]int64{{4}}, [][]int64{{4}}, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllToAll("comm", "g", [][]int64{{3}}, [][]int64{{4}}, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.AllToAll("comm", "g", [][]int64{{4}}, [][]int64{{3}}, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Broadcast("comm", "g", 0, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Broadcast("comm", "g", 1, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Permute("comm", "g", []int64{0, 0}, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Permute("comm", "g", []int64{0, 1}, rt.Ts{a}, rt.Ts{b}) },
		func(x *rt.Exec) { x.Barrier("comm", "g") },
		func(x *rt.Exec) {
			x.Collective("comm", &rt.Collective{Op: rt.Barrier, Group: "g", Label: "mine"})
		},
	}
}

func rememberedModule() *rt.Module {
	return &rt.Module{Name: "m", World: 1, Arena: 4096, Streams: []string{"compute", "comm"}, Groups: []rt.Group{{Name: "g", Ranks: [][]int{{0}}}, {Name: "h", Ranks: [][]int{{0}}}},
		Kernels: []rt.Code{{Name: "k", Sizes: 1}, {Name: "l", Sizes: 1}}}
}

// A call that is the same as at its place of the step before gives the device the same
// again; one that differs in anything does not.
func TestCallsAreRemembered(t *testing.T) {
	m, calls := rememberedModule(), differing()
	r, d := spied(t, m)
	once := func(i int) given {
		t.Helper()
		d.got = nil
		if _, err := rt.RunModule(t.Context(), r, m, calls[i], nil, rt.Options{}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if len(d.got) != 1 {
			t.Fatalf("call %d: the device was given %v", i, d.got)
		}
		return d.got[0]
	}
	text := make([]string, len(calls))
	for i := range calls {
		got := once(i)
		text[i] = got.String()
		if again := once(i); again != got {
			t.Errorf("call %d: %v is made anew", i, got)
		}
		for k := range i {
			if text[k] == text[i] {
				t.Errorf("calls %d and %d are the same: %s", k, i, text[i])
			}
		}
	}
	for i := range calls {
		for k := range calls {
			once(i)
			if got := once(k).String(); got != text[k] {
				t.Fatalf("call %d after call %d: %s, want %s", k, i, got, text[k])
			}
		}
	}
}

// Random numbers depend on the run.
func TestDrawsAreNotRemembered(t *testing.T) {
	m := rememberedModule()
	r, d := spied(t, m)
	seed := func(step int64) string {
		d.got = nil
		_, err := rt.RunModule(t.Context(), r, m, func(x *rt.Exec) { x.At("r").Launch("compute", "rand", nil, rt.Ts{rt.C(0, rt.F32, 4, 2)}, nil) }, nil, rt.Options{Step: step})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(d.got[0].kernel.Attrs)
	}
	if one, two := seed(1), seed(2); one == two {
		t.Errorf("two runs draw from %s", one)
	}
}

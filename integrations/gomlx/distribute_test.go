package gomlx

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/seed-ee968945/concert/internal/leak"
)

// harness builds and runs computations; what fails ends the test.
type harness struct {
	t testing.TB
	b *Backend
}

func newHarness(t testing.TB, config string) harness {
	t.Helper()
	b, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Finalize)
	return harness{t, b.(*Backend)}
}

func (h harness) must(v compute.Value, err error) compute.Value {
	h.t.Helper()
	h.check(err)
	return v
}

func (h harness) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h harness) compile(n compute.Builder) compute.Executable {
	h.t.Helper()
	x, err := n.Compile()
	h.check(err)
	return x
}

func (h harness) buffer(d int, flat []float32, dims ...int) compute.Buffer {
	h.t.Helper()
	u, err := h.b.BufferFromFlatData(compute.DeviceNum(d), flat, shapes.Make(dtypes.Float32, dims...))
	h.check(err)
	return u
}

func (h harness) run(x compute.Executable, donate []bool, in ...compute.Buffer) []compute.Buffer {
	h.t.Helper()
	outs, err := x.Execute(in, donate, 0)
	h.check(err)
	return outs
}

// want compares a buffer's elements.
func (h harness) want(what string, u compute.Buffer, want ...float32) {
	h.t.Helper()
	got := make([]float32, len(want))
	h.check(u.ToFlatData(got))
	if !slices.Equal(got, want) {
		h.t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Replicas reduce what each has, over all of them and over groups.
func TestAllReduce(t *testing.T) {
	for _, device := range devices {
		if device == "cuda" {
			continue // one GPU
		}
		h := newHarness(t, "devices=4,device="+device)
		n := h.b.Builder("replicas")
		h.check(n.DistributedSPMD(4))
		h.check(n.DeviceAssignment(3, 2, 1, 0))
		f := n.Main()
		x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2), nil))
		sum, err := f.AllReduce([]compute.Value{x}, compute.ReduceOpSum, [][]int{{0, 1, 2, 3}})
		h.check(err)
		most, err := f.AllReduce([]compute.Value{x, sum[0]}, compute.ReduceOpMax, [][]int{{0, 2}, {1, 3}})
		h.check(err)
		h.check(f.Return([]compute.Value{sum[0], most[0]}, nil))
		e := h.compile(n)
		outs := h.run(e, nil, h.buffer(3, []float32{1, 2}, 2), h.buffer(2, []float32{3, 4}, 2), h.buffer(1, []float32{50, 6}, 2), h.buffer(0, []float32{7, 80}, 2))
		for i := range 4 {
			h.want(fmt.Sprint("sum ", i), outs[2*i], 61, 92)
			h.want(fmt.Sprint("maximum ", i), outs[2*i+1], [][]float32{{50, 6}, {7, 80}}[i%2]...)
			if d, _ := outs[2*i].DeviceNum(); d != compute.DeviceNum(3-i) {
				t.Errorf("result %d lies on device %d", i, d)
			}
		}
	}
}

// step is w - x^T (x w) / 4 with rows of x cut along "data" and columns of w along "model".
func (h harness) step(mesh compute.Mesh, over bool) compute.Executable {
	h.t.Helper()
	n := h.b.Builder("step")
	var rows, columns *compute.ShardingSpec
	if over {
		h.check(n.DistributedAutoSharding(mesh))
		rows = &compute.ShardingSpec{Mesh: mesh.Name, Axes: [][]string{{"data"}}}
		columns = &compute.ShardingSpec{Mesh: mesh.Name, Axes: [][]string{nil, {"model"}}}
	}
	f := n.Main()
	w := h.must(f.Parameter("/w", shapes.Make(dtypes.Float32, 2, 4), columns))
	x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 4, 2), rows))
	y := h.must(f.DotGeneral(x, []int{1}, nil, w, []int{0}, nil, compute.DotGeneralConfig{}))
	g := h.must(f.DotGeneral(x, []int{0}, nil, y, []int{0}, nil, compute.DotGeneralConfig{}))
	quarter := h.must(f.Constant([]float32{0.25}))
	each := h.must(f.BroadcastInDim(quarter, shapes.Make(dtypes.Float32, 2, 4), nil))
	next := h.must(f.Sub(w, h.must(f.Mul(g, each))))
	sum := h.must(f.ReduceSum(y))
	h.check(f.Return([]compute.Value{next, sum}, []*compute.ShardingSpec{columns, nil}))
	return h.compile(n)
}

// A partitioned step gives the numbers of one device, also on a mesh in another order, and
// what it updates stays where it is.
func TestAutoSharding(t *testing.T) {
	w, x := []float32{1, 2, 3, 4, 5, 6, 7, 8}, []float32{1, 0, 2, 1, 0, 1, 1, 1}
	one := newHarness(t, "")
	e := one.step(compute.Mesh{}, false)
	state := one.buffer(0, w, 2, 4)
	var sums [3][]float32
	for i := range sums {
		outs := one.run(e, []bool{true, false}, state, one.buffer(0, x, 4, 2))
		state, sums[i] = outs[0], make([]float32, 1)
		one.check(outs[1].ToFlatData(sums[i]))
	}
	want := make([]float32, 8)
	one.check(state.ToFlatData(want))

	for _, c := range []struct {
		device string
		order  []int
	}{{"host", nil}, {"host", []int{2, 0, 3, 1}}, {"fake", nil}} {
		h := newHarness(t, "devices=4,device="+c.device)
		order := c.order
		if order == nil {
			order = []int{0, 1, 2, 3}
		}
		e := h.step(compute.Mesh{Name: "mesh", AxesSizes: []int{2, 2}, AxesNames: []string{"data", "model"}, LogicalDeviceAssignment: c.order}, true)
		states := make([]compute.Buffer, 4)
		for i, d := range order { // place i of the mesh
			m := i % 2
			states[d] = h.buffer(d, []float32{w[2*m], w[2*m+1], w[4+2*m], w[4+2*m+1]}, 2, 2)
		}
		var at [4]place
		for step := range sums {
			in := make([]compute.Buffer, 8)
			for i, d := range order {
				in[2*d], in[2*d+1] = states[d], h.buffer(d, x[i/2*4:i/2*4+4], 2, 2)
			}
			outs := h.run(e, []bool{true, false, true, false, true, false, true, false}, in...)
			for d := range 4 {
				h.want("sum", outs[2*d+1], sums[step]...)
				states[d] = outs[2*d]
				p := *states[d].(*Buffer).at
				if step > 0 && p.t.String() != at[d].t.String() {
					t.Errorf("on device %d the state moves from %v to %v", d, at[d].t, p.t)
				}
				at[d] = p
			}
			if _, err := in[0].Data(); err == nil {
				t.Error("a donated buffer has data")
			}
		}
		for i, d := range order {
			m := i % 2
			h.want("the state", states[d], want[2*m], want[2*m+1], want[4+2*m], want[4+2*m+1])
		}
	}
}

// Whoever keeps a result has it after the next run, which is in its place, and after the end
// of the program.
func TestResultsLive(t *testing.T) {
	for _, device := range devices {
		h := newHarness(t, "device="+device)
		n := h.b.Builder("double")
		f := n.Main()
		x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2), nil))
		y := h.must(f.Parameter("y", shapes.Make(dtypes.Float32, 2), nil))
		// The second result is an input, and each takes the other's place in the next run.
		h.check(f.Return([]compute.Value{h.must(f.Add(x, y)), x, x}, nil))
		e := h.compile(n)
		first := h.run(e, nil, h.buffer(0, []float32{1, 2}, 2), h.buffer(0, []float32{10, 20}, 2))
		second := h.run(e, nil, first[1], first[0])                                  // 1, 2 and 11, 22
		third := h.run(e, []bool{true, true}, second[0], second[1])                  // 12, 24 and 1, 2
		fourth := h.run(e, []bool{false, false}, third[0], third[0])                 // 13, 26 twice
		h.run(e, []bool{true, false}, h.buffer(0, make([]float32, 2), 2), fourth[2]) // overwrites all
		e.Finalize()
		h.want("first sum", first[0], 11, 22)
		h.want("first input", first[1], 1, 2)
		h.want("third sum", third[0], 13, 26)
		h.want("fourth sum", fourth[0], 26, 52)
		h.want("fourth input", fourth[1], 13, 26)
		for i, u := range second[:2] {
			if _, err := u.Data(); err == nil {
				t.Errorf("device=%s: donated buffer %d has data", device, i)
			}
		}
		if _, err := e.Execute([]compute.Buffer{first[0], first[1]}, nil, 0); err == nil {
			t.Error("a finalized computation runs")
		}
	}
}

// Programs of one device run on each, from several goroutines and backends at once, and
// nothing is left of them.
func TestManyAtOnce(t *testing.T) {
	leak.Check(t)
	for range 2 {
		h := newHarness(t, "devices=2")
		defer h.b.Finalize()
		n := h.b.Builder("square")
		f := n.Main()
		x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 1), nil))
		h.check(f.Return([]compute.Value{h.must(f.Mul(x, x))}, nil))
		e := h.compile(n)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for i := range 20 {
					v := float32(g*20 + i)
					u, err := h.b.BufferFromFlatData(compute.DeviceNum(g%2), []float32{v}, shapes.Make(dtypes.Float32, 1))
					if err != nil {
						t.Error(err)
						return
					}
					outs, err := e.Execute([]compute.Buffer{u}, nil, compute.DeviceNum(g%2))
					if err != nil {
						t.Error(err)
						return
					}
					got := make([]float32, 1)
					if err := outs[0].ToFlatData(got); err != nil || got[0] != v*v {
						t.Errorf("the square of %v is %v (%v)", v, got, err)
					}
				}
			})
		}
		wg.Wait()
		h.b.Finalize()
		if _, err := e.Execute(nil, nil, 0); err == nil {
			t.Error("a finalized backend computes")
		}
	}
}

// What cannot be is said, and names what it is about.
func TestBadDistribution(t *testing.T) {
	h := newHarness(t, "devices=4")
	mesh := compute.Mesh{Name: "mesh", AxesSizes: []int{2, 2}, AxesNames: []string{"data", "model"}}
	fresh := func() compute.Builder {
		n := h.b.Builder("bad")
		h.check(n.DistributedAutoSharding(mesh))
		return n
	}
	along := func(axes ...[]string) *compute.ShardingSpec { return &compute.ShardingSpec{Mesh: "mesh", Axes: axes} }
	parameter := func(s *compute.ShardingSpec) error {
		_, err := fresh().Main().Parameter("weight", shapes.Make(dtypes.Float32, 6, 3), s)
		return err
	}
	result := func() error { // is no new value of a variable
		n := fresh()
		x := h.must(n.Main().Parameter("x", shapes.Make(dtypes.Float32, 3), nil))
		h.check(n.Main().Return([]compute.Value{h.must(n.Main().Neg(x))}, []*compute.ShardingSpec{along([]string{"model"})}))
		_, err := n.Compile()
		return err
	}
	reduced := func() error {
		f := fresh().Main()
		x := h.must(f.Parameter("x", shapes.Make(dtypes.Float32, 2), nil))
		_, err := f.AllReduce([]compute.Value{x}, compute.ReduceOpSum, [][]int{{0, 1, 2, 3}})
		return err
	}
	config := func(text string) error { _, err := New(text); return err }
	over := func(names []string, sizes []int, devices ...int) error {
		return h.b.Builder("bad").DistributedAutoSharding(compute.Mesh{Name: "mesh", AxesNames: names, AxesSizes: sizes, LogicalDeviceAssignment: devices})
	}
	for want, err := range map[string]error{
		"on 8 devices, there are 4":         h.b.Builder("bad").DistributedSPMD(8),
		"distributed twice":                 fresh().DistributedSPMD(2),
		"want different ones of 4":          fresh().DeviceAssignment(0, 1, 2, 2),
		"2 devices for computation \"bad\"": fresh().DeviceAssignment(0, 1),
		"\"weight\" is (Float32)[6, 3], whose dimension 1 is not divided by 2": parameter(along(nil, []string{"model"})),
		"result 0 is (Float32)[3], whose dimension 0 is not divided by 2":      result(),
		"along \"pipe\"":                  parameter(along([]string{"pipe"})),
		"over mesh \"other\"":             parameter(&compute.ShardingSpec{Mesh: "other"}),
		"has 3 dimensions":                parameter(along(nil, nil, nil)),
		"which is partitioned":            reduced(),
		"assigns [0 0]":                   over([]string{"data"}, []int{2}, 0, 0),
		"assigns [0 2]":                   over([]string{"data"}, []int{2}, 0, 2),
		"assigns [0]":                     over([]string{"data"}, []int{2}, 0),
		"an axis \"data\" of 2":           over([]string{"data", "data"}, []int{2, 2}),
		"an axis \"model\" of -2":         over([]string{"data", "model"}, []int{2, -2}),
		"want a number of devices":        config("devices=many"),
		"there are asked, sharded":        config("variables=here"),
		"no pass or pipeline \"nothing\"": config("passes=nothing"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	n := fresh()
	state := h.must(n.Main().Parameter("/state", shapes.Make(dtypes.Float32, 3), nil))
	h.check(n.Main().Return([]compute.Value{h.must(n.Main().Neg(state))}, []*compute.ShardingSpec{along([]string{"model"})}))
	if got := h.compile(n).Outputs()[0]; got.Dim(0) != 3 {
		t.Errorf("the new value of a variable that cannot be cut is %s", got)
	}
	two := compute.Mesh{Name: "two", AxesSizes: []int{2}, AxesNames: []string{"data"}}
	if err := h.b.Builder("bad").DistributedAutoSharding(mesh, two); !errors.Is(err, compute.ErrNotImplemented) {
		t.Errorf("meshes of two sizes: %v", err)
	}
}

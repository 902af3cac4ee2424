package gomlx

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// Programs that share two variables run in a random order, with variables donated or not, read, written in
// place, exchanged and brought by the host in between: each gives the bits of the same program
// whose parameters are no variables, of which nothing is carried.
func TestCarriedBetweenPrograms(t *testing.T) {
	for _, device := range []string{"host", "fake"} {
		t.Run(device, func(t *testing.T) { carriedBetween(t, newHarness(t, "device="+device)) })
	}
}

// shared is the shape of variables that are carried and whose products are small.
var shared = shapes.Make(dtypes.Float32, carriedSize/256, 16, 16)

// sharers are programs of two variables of shape shared, and how many copies each carries.
func (h harness) sharers() (carrying, plain []compute.Executable) {
	ws := shared
	for kind, copies := range []int{2, 2, 2, 2, 1} {
		for _, prefix := range []string{"/", ""} {
			n := h.b.Builder("step")
			f := n.Main()
			half := func(v compute.Value) compute.Value { return h.must(f.ConvertDType(v, dtypes.BFloat16)) }
			scaled := func(v compute.Value, by float32) compute.Value {
				return h.must(f.Mul(v, h.must(f.BroadcastInDim(h.must(f.Constant([]float32{by}, 1)), ws, []int{0}))))
			}
			a, b := h.must(f.Parameter(prefix+"a", ws, nil)), h.must(f.Parameter(prefix+"b", ws, nil))
			copied := half(a)
			z := h.must(f.DotGeneral(copied, []int{2}, []int{0}, half(b), []int{1}, []int{0}, compute.DotGeneralConfig{}))
			y := h.must(f.ConvertDType(z, dtypes.Float32))
			moved := h.must(f.Add(a, scaled(y, 0.01)))
			h.check(f.Return([][]compute.Value{
				{y, moved, h.must(f.Sub(b, scaled(y, 0.02)))},
				{y, b, a},
				{y, moved, moved},
				{y, a, scaled(b, 1.1)},
				{y, moved, scaled(b, 1.1), copied},
			}[kind], nil))
			x := h.compile(n)
			if prefix == "" {
				copies = 0
			}
			if got := x.(*executable).prog.copies; len(got) != copies {
				h.t.Fatalf("program %d of variables with prefix %q carries %v", kind, prefix, got)
			}
			if prefix == "" {
				plain = append(plain, x)
			} else {
				carrying = append(carrying, x)
			}
		}
	}
	return carrying, plain
}

func carriedBetween(t *testing.T, h harness) {
	carrying, plain := h.sharers()
	var now [2][]float32 // what the variables hold
	for v := range now {
		for i := range shared.Size() {
			now[v] = append(now[v], float32(math.Sin(float64(3+4*v)*0.1*float64(i+1)))/16)
		}
	}
	put := func(v int) compute.Buffer { return h.buffer(0, now[v], shared.Dimensions...) }
	at := []compute.Buffer{put(0), put(1)}
	r, kind := rand.New(rand.NewPCG(1, 2)), 0
	one := func(n int) bool { return r.IntN(n) == 0 }
	for step := range 60 {
		if one(3) {
			kind = r.IntN(len(plain))
		}
		want := h.run(plain[kind], nil, put(0), put(1))
		if one(10) {
			at[1] = put(1)
		}
		if one(6) {
			h.run(carrying[kind], nil, at...)
		}
		donate := []bool{one(2), one(2)}
		got := h.run(carrying[kind], donate, at...)
		for v, u := range at {
			if !donate[v] && one(2) && !slices.Equal(h.bytes(u), dtypes.UnsafeByteSliceFromAny(now[v])) {
				t.Fatalf("step %d of program %d changes variable %d", step, kind, v)
			}
		}
		for i, w := range want {
			if i != 1 && i != 2 || one(4) { // who reads a variable brings it to the host
				if !slices.Equal(h.bytes(got[i]), h.bytes(w)) {
					t.Fatalf("step %d, program %d: result %d differs", step, kind, i)
				}
			}
		}
		for v := range now {
			data, err := want[1+v].Data()
			h.check(err)
			now[v], at[v] = slices.Clone(data.([]float32)), got[1+v]
		}
		if one(8) {
			data, err := at[0].Data()
			h.check(err)
			data.([]float32)[5]++
			now[0][5]++
		}
		if one(10) {
			slices.Reverse(at)
			slices.Reverse(now[:])
		}
	}
}

func (h harness) bytes(u compute.Buffer) []byte {
	data, err := u.(*Buffer).fetch()
	h.check(err)
	return dtypes.UnsafeByteSliceFromAny(data)
}

// A variable that another program has left brings its copy along, and not by the host.
func TestCarriedFromAnotherProgram(t *testing.T) {
	h := newHarness(t, "device=fake")
	carrying, _ := h.sharers()
	data := make([]float32, shared.Size())
	out := h.run(carrying[0], nil, h.buffer(0, data, shared.Dimensions...), h.buffer(0, data, shared.Dimensions...))
	l, err := carrying[3].(*executable).load(0, nil)
	h.check(err)
	for v, c := range l.c.copies {
		args := slices.Clone(l.c.constants)
		h.check(l.bindCopy(args, out[1+v].(*Buffer), 0, v))
		if got := args[c.input]; got.Data != nil || !got.Place.DType.Valid() {
			t.Errorf("the copy of variable %d comes as %+v", v, got)
		}
	}
}

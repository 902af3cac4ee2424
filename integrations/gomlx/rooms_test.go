package gomlx

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	rt "github.com/seed-ee968945/concert/runtime"
)

// updates adds one to each of n variables.
func (h harness) updates(name string, n int, dims ...int) compute.Executable {
	h.t.Helper()
	b := h.b.Builder(name)
	f := b.Main()
	one := h.must(f.BroadcastInDim(h.must(f.Constant([]float32{1})), shapes.Make(dtypes.Float32, dims...), nil))
	var outs []compute.Value
	for i := range n {
		w := h.must(f.Parameter("/"+string(rune('a'+i)), shapes.Make(dtypes.Float32, dims...), nil))
		outs = append(outs, h.must(f.Add(w, one)))
	}
	h.check(f.Return(outs, nil))
	return h.compile(b)
}

// read are a buffer's elements, some of them.
func (h harness) read(u compute.Buffer) []float32 {
	h.t.Helper()
	shape, err := u.Shape()
	h.check(err)
	flat := make([]float32, shape.Size())
	h.check(u.ToFlatData(flat))
	return flat[:1000]
}

// parts are the pieces of a value, or itself.
func parts(u compute.Buffer) []*Buffer {
	if b := u.(*Buffer); b.pieces == nil {
		return []*Buffer{b}
	}
	return u.(*Buffer).pieces
}

// places is where the pieces of a value are.
func places(u compute.Buffer) (at []string) {
	for _, p := range parts(u) {
		if p.at == nil {
			return nil
		}
		at = append(at, p.at.t.String())
	}
	return at
}

// First values stay where they are made when a step trains them, and nothing else of what made them
// is there then. Who keeps one reads what it was.
func TestFirstValuesStay(t *testing.T) {
	for _, config := range []string{"", "mesh=fsdp:2", "device=fake,mesh=fsdp:2"} {
		h := newHarness(t, config)
		state, err := h.b.BufferFromFlatData(0, []uint64{42, 43, 44}, compute.RNGStateShape)
		h.check(err)
		first, step := h.initial(initialization, []int{1024, 512}, []int{3, 4}), h.updates("step", 3, 1024, 512)
		begin := func() []compute.Buffer { return h.run(first, nil, state) } // state, random, small, zeros twice
		made := begin()
		w := parts(made[1])[0].at.l.w
		if l := parts(made[1])[0].at.l; l.users != 0 || parts(made[2])[0].at != nil || len(w.free) != 3 && len(w.free) != 2 {
			t.Errorf("%q: %d users, %d buffers, and %v small values on the device", config, l.users, len(w.free), places(made[2]))
		}
		again := begin()
		want, at := h.read(again[1]), [][]string{places(made[1]), places(made[3])}
		for _, u := range again { // or its memory waits for the garbage collector
			h.check(u.Finalize())
		}
		outs := h.run(step, []bool{true, true, true}, made[1], made[3], made[4])
		for i, u := range []compute.Buffer{outs[0], outs[1]} {
			if now := places(u); now == nil || !slices.Equal(now, at[i]) {
				t.Errorf("%q: variable %d moves from %v to %v", config, i, at[i], now)
			}
		}
		for i, x := range want {
			want[i] = x + 1
		}
		ones := slices.Repeat([]float32{1}, len(want))
		for i, u := range outs {
			before := places(u)
			if !slices.Equal(h.read(u), [][]float32{want, ones, ones}[i]) {
				t.Errorf("%q: variable %d is off", config, i)
			}
			if now := places(u); now == nil || !slices.Equal(now, before) {
				t.Errorf("%q: reading brings variable %d from %v to %v", config, i, before, now)
			}
		}

		// Another step takes what nobody has taken, also of what is kept.
		made = begin()
		other := h.updates("other", 2, 1024, 512)
		outs = h.run(other, []bool{true, false}, made[1], made[3])
		if zeros := make([]float32, len(want)); !slices.Equal(h.read(made[3]), zeros) || !slices.Equal(h.read(outs[1]), ones) || !slices.Equal(h.read(outs[0]), want) {
			t.Errorf("%q: a variable that is kept, or its new value, is off", config)
		}

		other.Finalize()
		step.Finalize()
		for _, u := range made {
			h.check(u.Finalize())
		}
		h.given(w, begin)
	}
}

// given expects that the memory of first values that nobody has is given back.
func (h harness) given(w *world, begin func() []compute.Buffer) {
	h.t.Helper()
	for _, u := range begin() {
		h.check(u.Finalize())
	}
	h.run(h.updates("last", 1, 4, 4), nil, h.buffer(0, make([]float32, 16), 4, 4))
	if len(w.free) != 0 {
		h.t.Errorf("%d buffers are left", len(w.free))
	}
	h.check(w.each(func(_ int, r *rt.Rank) error {
		b, err := r.NewBuffer(h.t.Context(), "probe", roomSize)
		if err != nil {
			return err
		}
		view, err := b.View(0, rt.U8, 1)
		if err == nil && view.Off >= 16<<20 {
			h.t.Errorf("what is given out begins at %d", view.Off)
		}
		return err
	}))
}

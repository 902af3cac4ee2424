package gomlx

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/seed-ee968945/concert/program"
)

// A program of one device on a mesh has the numbers of one device, variables are cut and stay
// where they are, and whoever reads a value has all of it.
func TestMesh(t *testing.T) {
	w, x := []float32{1, 2, 3, 4, 5, 6, 7, 8}, []float32{1, 0, 2, 1, 0, 1, 1, 1}
	for _, c := range []struct {
		config string
		piece  []int // of the state
	}{
		{"", nil}, {"mesh=data:1", nil}, {"mesh=data:4", []int{2, 4}}, {"mesh=model:4", []int{2, 1}}, {"mesh=fsdp:2/model:2", []int{1, 2}},
		{"device=fake,mesh=fsdp:2", []int{1, 4}}, {"mesh=fsdp:4", []int{2, 1}}, {"mesh=fsdp:3", nil},
	} {
		h := newHarness(t, c.config)
		e := h.step(compute.Mesh{}, false)
		n := h.b.Builder("twice") // has no variable: of one device
		p := h.must(n.Main().Parameter("x", shapes.Make(dtypes.Float32, 2, 4), nil))
		h.check(n.Main().Return([]compute.Value{h.must(n.Main().Add(p, p))}, nil))
		twice := h.compile(n)
		state := h.buffer(0, w, 2, 4)
		var at []string
		for _, sum := range []float32{118, -101, 106.375} {
			outs := h.run(e, []bool{true, false}, state, h.buffer(0, x, 4, 2))
			if _, err := state.Data(); err == nil {
				t.Errorf("%s: a donated tensor has data", c.config)
			}
			state = outs[0]
			h.want(c.config+": the sum", outs[1], sum)
			var now []string
			for _, u := range state.(*Buffer).pieces {
				now = append(now, u.at.t.String())
				if !slices.Equal(u.shape.Dimensions, c.piece) {
					t.Errorf("%s: the state lies in pieces of %v, want %v", c.config, u.shape.Dimensions, c.piece)
				}
			}
			if at != nil && !slices.Equal(at, now) {
				t.Errorf("%s: the state moves from %v to %v", c.config, at, now)
			}
			at = now
		}
		if len(at) == 0 != (c.piece == nil) {
			t.Errorf("%s: %d pieces", c.config, len(at))
		}
		h.want(c.config+": twice the state", h.run(twice, nil, state)[0], -6.71875, -8.9375, -11.15625, -13.375, -0.96875, -2.0625, -3.15625, -4.25)
		flat, err := state.Data()
		h.check(err)
		flat.([]float32)[3]++ // is what the next run reads
		h.want(c.config+": the sum", h.run(e, nil, state, h.buffer(0, x, 4, 2))[1], -92.03125)
	}
}

// initial is a computation of first values of variables, as GoMLX builds it: random numbers of some shapes, and zeros.
func (h harness) initial(name string, dims ...[]int) compute.Executable {
	h.t.Helper()
	n := h.b.Builder(name)
	f := n.Main()
	state := h.must(f.Parameter("/#rngState", compute.RNGStateShape, nil))
	var outs []compute.Value
	for _, d := range dims {
		next, bits, err := f.RNGBitGenerator(state, shapes.Make(dtypes.Uint32, d...))
		h.check(err)
		state, outs = next, append(outs, h.must(f.ConvertDType(bits, dtypes.Float32)))
	}
	zeros := h.must(f.BroadcastInDim(h.must(f.Constant([]float32{0})), shapes.Make(dtypes.Float32, dims[0]...), nil))
	h.check(f.Return(append([]compute.Value{state}, append(outs, zeros, zeros)...), nil))
	return h.compile(n)
}

// Each device makes its pieces of variables' first values, which are those of one device, and asks
// no other for more than a few numbers.
func TestInitialOnMesh(t *testing.T) {
	dims := [][]int{{16, 24}, {8, 8200}, {8200, 8}, {4, 8, 6}, {7}, {3, 5}}
	var want [][]byte
	for _, c := range []struct {
		config string
		pieces [][]int
	}{
		{"", nil},
		{"mesh=fsdp:2", [][]int{{3}, {8, 24}, {4, 8200}, {4100, 8}, {2, 8, 6}, {7}, {3, 5}, {8, 24}, {8, 24}}},
		{"mesh=fsdp:2,device=fake", [][]int{{3}, {8, 24}, {4, 8200}, {4100, 8}, {2, 8, 6}, {7}, {3, 5}, {8, 24}, {8, 24}}},
		{"mesh=fsdp:2/model:2", [][]int{{3}, {8, 12}, {4, 4100}, {4100, 4}, {2, 4, 6}, {7}, {3, 5}, {8, 12}, {8, 12}}},
		{"mesh=model:4", [][]int{{3}, {16, 6}, {8, 2050}, {2050, 8}, {4, 2, 6}, {7}, {3, 5}, {16, 6}, {16, 6}}},
	} {
		h := newHarness(t, c.config)
		state, err := h.b.BufferFromFlatData(0, []uint64{42, 43, 44}, compute.RNGStateShape)
		h.check(err)
		e := h.initial(initialization, dims...)
		outs := h.run(e, nil, state)
		if s, ok := e.(*spread); ok {
			for _, in := range s.prog.prog.Instrs {
				for _, x := range in.Ins {
					n := int64(1)
					for _, d := range x.Shape {
						k, _ := d.Const()
						n *= k
					}
					if in.Kind == program.Collective && n > 16 { // of what is not cut, and of tables
						t.Errorf("%s: there is %s of %d elements", c.config, in.Op, n)
					}
				}
			}
		}
		var pieces [][]int
		for i, o := range outs {
			u := o.(*Buffer)
			if c.pieces != nil {
				pieces = append(pieces, u.tiles.piece.Dimensions)
			}
			flat := dtypes.MakeAnySlice(u.shape.DType, u.shape.Size())
			h.check(u.ToFlatData(flat))
			data := dtypes.UnsafeByteSliceFromAny(flat)
			if c.pieces == nil {
				want = append(want, data)
			} else if !slices.Equal(data, want[i]) {
				t.Errorf("%s: result %d differs", c.config, i)
			}
		}
		if !slices.EqualFunc(pieces, c.pieces, slices.Equal) {
			t.Errorf("%s: pieces of %v, want %v", c.config, pieces, c.pieces)
		}
	}
	h := newHarness(t, "mesh=fsdp:2")
	if _, ok := h.initial("other", dims...).(*spread); ok {
		t.Error("results of any computation are cut like variables")
	}
}

// What a configuration cannot be is said.
func TestBadConfig(t *testing.T) {
	for config, want := range map[string]string{
		"mesh=data":                "no axis",
		"mesh=data:2/data:2":       "no axis",
		"mesh=pipe:2":              "no axis",
		"mesh=data:0":              "no axis",
		"devices=3,mesh=data:2":    "a mesh of 2 devices, and there are 3",
		"memory=much":              "want a number of bytes",
		"memory=9223372036854TiB":  "want a number of bytes",
		"memory=1GiB,device=other": "there are host",
		"cache=":                   "concert: cache=: ",
		"dump=/dev/null/folder":    "concert: dump=/dev/null/folder: ",
		"launch=mpi":               "there are env",
		"variables=whole":          "there are asked, sharded",
		"passes=none":              "concert: passes=none: ",
		"gpus=4":                   `no option "gpus=4"`,
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// What needs more memory than it may is an error when it is compiled.
func TestMemory(t *testing.T) {
	for config, fits := range map[string]bool{"memory=1MiB": true, "memory=1KiB": false, "memory=1KiB,device=fake": false, "memory=1GiB,mesh=fsdp:2": true} {
		h := newHarness(t, config)
		n := h.b.Builder("large")
		p := h.must(n.Main().Parameter("/x", shapes.Make(dtypes.Float32, 64, 64), nil))
		h.check(n.Main().Return([]compute.Value{h.must(n.Main().Tanh(p))}, nil))
		if _, err := n.Compile(); err == nil != fits || err != nil && !strings.Contains(err.Error(), `computation "large"`) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

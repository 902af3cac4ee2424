package attention

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/machine/machinetest"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// The kernels run here on the machine of package machinetest: every warp's matrix
// instruction is done as the device defines it.

func TestMain(m *testing.M) { machinetest.Main(m) }

// memory is the device's, as tensors are placed in it.
type memory struct {
	bytes []byte
	rng   *rand.Rand
}

// layout is how a tensor [b, h, n, d] is in memory.
type layout int

const (
	dense   layout = iota
	swapped        // b, n, h, d
	spread         // rows with 8 elements between them
	strange        // columns two elements apart
)

// place adds a tensor of normal numbers, or of garbage if amount is 0.
func (m *memory) place(typ dtype.DType, l layout, amount float64, shape ...int64) library.Tensor {
	t := library.Tensor{At: driver.Ptr(machinetest.Base + len(m.bytes)), DType: typ, Shape: shape, Strides: make([]int64, len(shape))}
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		t.Strides[i] = n
		n *= shape[i]
	}
	if len(shape) == 4 {
		h, s, d := shape[1], shape[2], shape[3]
		switch l {
		case swapped:
			t.Strides = []int64{s * h * d, d, h * d, 1}
		case spread:
			t.Strides = []int64{h * s * (d + 8), s * (d + 8), d + 8, 1}
			n = shape[0] * t.Strides[0]
		case strange:
			t.Strides = []int64{h * s * d * 2, s * d * 2, d * 2, 2}
			n *= 2
		}
	}
	data := make([]byte, (n*int64(typ.Size())+255)&^255)
	if amount == 0 || !typ.IsFloat() {
		for i := range data {
			data[i] = 0x7e
		}
	} else {
		for i := range n {
			dtype.StoreFloat(typ, data[i*int64(typ.Size()):], amount*m.rng.NormFloat64())
		}
	}
	m.bytes = append(m.bytes, data...)
	return t
}

// host views a tensor for the host's kernels.
func (m *memory) host(t library.Tensor) hostops.Tensor {
	return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.Strides, Offset: 0, Data: m.bytes[t.At-machinetest.Base:]}
}

// run runs the kernels of a call on the machine of the tests.
func (m *memory) run(t *testing.T, ks []launch) {
	t.Helper()
	for len(ks) > 0 {
		u := ks[0].unit
		n, ls := 0, []machinetest.Launch(nil)
		for ; n < len(ks) && ks[n].unit == u; n++ {
			ls = append(ls, machinetest.Launch{Kernel: ks[n].name, Grid: ks[n].grid, Block: ks[n].block, Params: ks[n].params})
		}
		if err := machinetest.Run(t, u.name, u.on, m.bytes, ls); err != nil {
			t.Fatal(err)
		}
		ks = ks[n:]
	}
}

// trial is one call.
type trial struct {
	b, h, hk, s, t, d, dv int64
	causal                bool
	scale                 float64 // 0 is the default
	bias                  string  // "", "same", "f32", "none": rows that see nothing; "least": of the least number only
	lay                   layout
	typ                   dtype.DType
	want                  string // the kernels that must do it
}

func (c trial) String() string {
	s := fmt.Sprintf("%v/%dx%d:%dx%dx%dx%d,%d", c.typ, c.b, c.h, c.hk, c.s, c.t, c.d, c.dv)
	if c.causal {
		s += "/causal"
	}
	if c.bias != "" {
		s += "/bias=" + c.bias
	}
	return s
}

func (c trial) attrs() attr.List {
	l := attr.List{}.With("causal", attr.Bool(c.causal))
	if c.scale != 0 {
		l = l.With("scale", attr.Float(c.scale))
	}
	return l
}

// forward is the call on operands and results that it places.
func (c trial) forward(m *memory) *library.Call {
	call := &library.Call{Op: Forward, Attrs: c.attrs(), Ins: []library.Tensor{
		m.place(c.typ, c.lay, 1, c.b, c.h, c.s, c.d), m.place(c.typ, c.lay, 1, c.b, c.hk, c.t, c.d), m.place(c.typ, c.lay, 1, c.b, c.hk, c.t, c.dv)}}
	if c.bias != "" {
		call.Ins = append(call.Ins, c.biasOf(m))
	}
	lse := dtype.F32
	if c.typ == dtype.F64 {
		lse = dtype.F64
	}
	call.Outs = []library.Tensor{m.place(c.typ, c.lay, 0, c.b, c.h, c.s, c.dv), m.place(lse, dense, 0, c.b, c.h, c.s, 1),
		m.place(dtype.I64, dense, 0), m.place(dtype.I64, dense, 0)}
	return call
}

func (c trial) biasOf(m *memory) library.Tensor {
	typ := c.typ
	if c.bias == "f32" || c.bias == "least" {
		typ = dtype.F32
	}
	x := m.place(typ, dense, 1, c.h, c.s, c.t)
	if c.bias == "none" || c.bias == "least" {
		least := map[string]float64{"none": math.Inf(-1), "least": -math.MaxFloat32}[c.bias]
		data := m.bytes[x.At-machinetest.Base:]
		for i := range c.h * c.s * c.t {
			if i/c.t%3 == 1 || i%5 == 2 {
				dtype.StoreFloat(typ, data[i*int64(typ.Size()):], least)
			}
		}
	}
	return x
}

// distance is |x - want| / |want| in the 2-norm; equal infinities are no distance.
func distance(x, want hostops.Tensor) float64 {
	var diff, size float64
	n := int64(1)
	for _, d := range want.Shape {
		n *= d
	}
	for i := range n {
		at := func(t hostops.Tensor) float64 {
			off, r := t.Offset, i
			for k := len(t.Shape) - 1; k >= 0; k-- {
				off += r % t.Shape[k] * t.Strides[k]
				r /= t.Shape[k]
			}
			return dtype.LoadFloat(t.DType, t.Data[off*int64(t.DType.Size()):])
		}
		a, w := at(x), at(want)
		if math.IsInf(w, 0) && a == w {
			continue
		}
		diff += (a - w) * (a - w)
		size += w * w
	}
	if size == 0 {
		return math.Sqrt(diff)
	}
	return math.Sqrt(diff / size)
}

// check runs a call here and by the host's kernels and compares the float results.
func check(t *testing.T, m *memory, call *library.Call, want string) {
	t.Helper()
	p, err := ProblemOf(call)
	if err != nil {
		t.Fatal(err)
	}
	p.Workspace, p.Bytes = m.place(dtype.F32, dense, 0, 1<<14).At, 1<<16
	ks, err := plan(p)
	if halves, ok := map[string]int64{"attention_forward/1": 1, "attention_forward/2": 2}[want]; ok {
		want = "attention_forward" // whose own sizes take too long here
		ks, err = p.tiledBy(halves)
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range ks {
		names = append(names, k.name)
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("done by %q, want %q", got, want)
	}
	ref := &memory{bytes: slices.Clone(m.bytes)}
	m.run(t, ks)
	views := func(m *memory, ts []library.Tensor) (out []hostops.Tensor) {
		for _, x := range ts {
			out = append(out, m.host(x))
		}
		return out
	}
	outs, wants := views(m, call.Outs), views(ref, call.Outs)
	if err := hostops.Run(call.Op, call.Attrs, wants, views(ref, call.Ins)); err != nil {
		t.Fatal(err)
	}
	limit := map[dtype.DType]float64{dtype.BF16: 8e-3, dtype.F16: 1e-3, dtype.F32: 1e-5, dtype.F64: 1e-12}
	for i := range outs {
		if !outs[i].DType.IsFloat() {
			if !bytes.Equal(outs[i].Data[:8], make([]byte, 8)) {
				t.Errorf("result %d is %x", i, outs[i].Data[:8])
			}
			continue
		}
		e := distance(outs[i], wants[i])
		if !(e < limit[outs[i].DType]) {
			t.Errorf("result %d: relative error %.2e", i, e)
		} else {
			t.Logf("result %d: relative error %.2e", i, e)
		}
	}
}

func TestForwardOnHost(t *testing.T) {
	bf, hf := dtype.BF16, dtype.F16
	for _, c := range []trial{
		{1, 2, 2, 16, 16, 128, 128, false, 0, "", dense, bf, "attention_short"},
		{1, 2, 2, 16, 16, 128, 128, true, 0, "", swapped, bf, "attention_short"},
		{2, 4, 2, 40, 77, 40, 64, false, 0.3, "", spread, hf, "attention_short"},
		{1, 2, 1, 33, 33, 128, 72, true, 0, "same", swapped, bf, "attention_short"},
		{1, 2, 2, 1, 300, 128, 128, false, 0, "none", dense, bf, "attention_short"},
		{1, 2, 2, 5, 300, 128, 128, false, 0, "least", dense, bf, "attention_short"},
		{1, 2, 2, 16, 16, 64, 64, false, 0, "least", dense, hf, "attention_short"},
		{1, 1, 1, 200, 200, 128, 128, true, 0, "", swapped, bf, "attention_short"},
		{1, 2, 1, 30, 400, 64, 64, false, 0, "", dense, hf, "attention_short"},
		{1, 1, 1, 200, 200, 128, 128, true, 0, "", dense, bf, "attention_forward/2"},
		{1, 1, 1, 200, 200, 128, 128, true, 0, "", dense, bf, "attention_forward/1"},
		{2, 2, 1, 140, 150, 64, 48, false, 0, "", swapped, hf, "attention_forward/2"},
		{2, 2, 1, 140, 150, 64, 48, false, 0, "", swapped, hf, "attention_forward/1"},
		{1, 2, 2, 70, 201, 40, 40, false, -0.2, "", spread, bf, "attention_forward/2"},
		{1, 2, 2, 70, 201, 40, 40, false, -0.2, "", spread, bf, "attention_forward/1"},
		{1, 2, 2, 100, 130, 64, 64, true, 0, "f32", dense, bf, "attention_forward/2"},
		{1, 2, 2, 100, 130, 64, 64, true, 0, "f32", dense, bf, "attention_forward/1"},
		{1, 2, 2, 100, 130, 64, 64, false, 0, "none", dense, bf, "attention_forward/2"},
		{1, 2, 2, 100, 130, 64, 64, false, 0, "none", dense, bf, "attention_forward/1"},
		{1, 2, 2, 100, 130, 64, 64, true, 0, "least", dense, bf, "attention_forward/2"},
		{1, 2, 2, 100, 130, 64, 64, false, 0, "least", dense, bf, "attention_forward/1"},
		{1, 2, 1, 9, 70, 20, 150, true, 0, "", strange, bf, "attention_simple"},
		{1, 2, 2, 16, 16, 128, 128, true, 0, "same", swapped, dtype.F32, "attention_simple"},
		{1, 1, 1, 40, 35, 24, 24, false, 0, "none", dense, dtype.F64, "attention_simple"},
	} {
		t.Run(c.String()+"/"+c.want, func(t *testing.T) {
			m := &memory{rng: rand.New(rand.NewPCG(1, 2))}
			check(t, m, c.forward(m), c.want)
		})
	}
}

// backward places a backward call whose operands come from the host's forward pass.
func (c trial) backward(t *testing.T, m *memory) *library.Call {
	fw := c.forward(m)
	views := func(ts []library.Tensor) (out []hostops.Tensor) {
		for _, x := range ts {
			out = append(out, m.host(x))
		}
		return out
	}
	if err := hostops.Run(fw.Op, fw.Attrs, views(fw.Outs), views(fw.Ins)); err != nil {
		t.Fatal(err)
	}
	grad := m.place(c.typ, c.lay, 1, c.b, c.h, c.s, c.dv)
	bw := &library.Call{Op: Backward, Attrs: fw.Attrs, Ins: slices.Concat([]library.Tensor{grad}, fw.Ins[:3], fw.Outs, fw.Ins[3:])}
	for _, x := range fw.Ins[:3] {
		bw.Outs = append(bw.Outs, m.place(c.typ, c.lay, 0, x.Shape...))
	}
	return bw
}

func TestBackwardOnHost(t *testing.T) {
	bf, hf := dtype.BF16, dtype.F16
	const two = "attention_backward_queries attention_backward_keys"
	for _, c := range []trial{
		{1, 2, 2, 16, 16, 128, 128, false, 0, "", dense, bf, "attention_backward_both"},
		{1, 4, 2, 16, 16, 128, 128, true, 0, "", swapped, bf, "attention_backward_both"},
		{2, 4, 2, 20, 32, 40, 64, true, 0.3, "", spread, hf, "attention_backward_both"},
		{1, 2, 1, 64, 50, 128, 72, false, 0, "same", swapped, bf, "attention_backward_both"},
		{1, 2, 1, 150, 130, 128, 128, true, 0, "none", dense, bf, "attention_backward_both"},
		{1, 2, 1, 330, 270, 64, 64, true, 0, "", swapped, bf, two},
		{1, 1, 1, 270, 300, 128, 120, false, -0.1, "f32", dense, hf, two},
		{1, 1, 1, 128, 320, 64, 64, true, 0, "none", spread, bf, two},
		{1, 4, 2, 9, 70, 20, 150, true, 0, "", strange, bf, "attention_simple_backward"},
		{2, 2, 2, 37, 16, 128, 128, true, 0, "same", swapped, dtype.F32, "attention_simple_backward"},
		{1, 1, 1, 40, 35, 24, 24, false, 0, "none", dense, dtype.F64, "attention_simple_backward"},
	} {
		t.Run(c.String(), func(t *testing.T) {
			m := &memory{rng: rand.New(rand.NewPCG(1, 2))}
			check(t, m, c.backward(t, m), c.want)
		})
	}
}

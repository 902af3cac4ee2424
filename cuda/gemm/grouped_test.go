package gemm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/machine/machinetest"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
)

func TestMain(m *testing.M) { machinetest.Main(m) }

// groups is a call of grouped_matmul: m, k and n are the sizes of the product, of which one is
// divided.
type groups struct {
	form    string // "rows", "columns", "inner"
	m, k, n int64
	a, b, o layout
	typ     dtype.DType
	ends    []int64
	wide    string // which of a, b and the result are to move 16 bytes at a time, as the kernel has them
}

// layout is how a matrix is in memory.
type layout int

const (
	dense   layout = iota
	flipped        // columns contiguous
	gaps           // 8 elements between rows
	odd            // one element behind an aligned address
	spread         // elements two apart
)

func (l layout) place(m *memory, typ dtype.DType, batch, rows, cols int64) library.Tensor {
	t := library.Tensor{DType: typ, Shape: []int64{batch, rows, cols}, Strides: []int64{rows * cols, cols, 1}}
	n := batch * rows * cols
	switch l {
	case flipped:
		t.Strides = []int64{rows * cols, 1, rows}
	case gaps:
		t.Strides = []int64{rows * (cols + 8), cols + 8, 1}
		n = batch * rows * (cols + 8)
	case spread:
		t.Strides = []int64{rows * cols * 2, cols * 2, 2}
		n *= 2
	}
	m.bytes = append(m.bytes, make([]byte, (64-len(m.bytes)%64)%64)...)
	if l == odd {
		m.bytes = append(m.bytes, 0, 0)
	}
	t.At = memoryAt + driver.Ptr(len(m.bytes))
	data := make([]byte, 2*n)
	for i := range n {
		dtype.StoreFloat(typ, data[2*i:], m.rng.NormFloat64())
	}
	m.bytes = append(m.bytes, data...)
	return t
}

func (g *groups) matrix(m *memory, l layout, grouped bool, rows, cols int64) library.Tensor {
	if grouped {
		return l.place(m, g.typ, int64(len(g.ends)), rows, cols)
	}
	t := l.place(m, g.typ, 1, rows, cols)
	t.Shape, t.Strides = t.Shape[1:], t.Strides[1:]
	return t
}

// call places the call. What lies after the last group, and counts for nothing, is NaN.
func (g *groups) call(m *memory, endsOf dtype.DType) *library.Call {
	a, b := g.matrix(m, g.a, g.form == "columns", g.m, g.k), g.matrix(m, g.b, g.form == "rows", g.k, g.n)
	o := g.matrix(m, g.o, g.form == "inner", g.m, g.n)
	for i, t := range []library.Tensor{a, b} {
		d := map[string][2]int{"rows": {0, -1}, "columns": {-1, 1}, "inner": {1, 0}}[g.form][i]
		if d < 0 || len(g.ends) == 0 {
			continue
		}
		for x := g.ends[len(g.ends)-1]; x < t.Shape[d]; x++ {
			for y := range t.Shape[1-d] {
				at := int64(t.At-memoryAt) + 2*(x*t.Strides[d]+y*t.Strides[1-d])
				dtype.StoreFloat(g.typ, m.bytes[at:], math.NaN())
			}
		}
	}
	ends := library.Tensor{At: memoryAt + driver.Ptr(len(m.bytes)), DType: endsOf, Shape: []int64{int64(len(g.ends))}, Strides: []int64{3}}
	for _, e := range g.ends {
		for _, x := range []int64{e, -1, -1} {
			if endsOf == dtype.I32 {
				m.bytes = binary.LittleEndian.AppendUint32(m.bytes, uint32(x))
			} else {
				m.bytes = binary.LittleEndian.AppendUint64(m.bytes, uint64(x))
			}
		}
	}
	return &library.Call{Op: "grouped_matmul", Ins: []library.Tensor{a, b, ends}, Outs: []library.Tensor{o}}
}

// run runs a call by the kernel, on the machine of package machinetest.
func (g *groups) run(t *testing.T, m *memory, c *library.Call) error {
	t.Helper()
	p, err := groupedOf(c)
	if err != nil {
		t.Fatal(err)
	}
	wide := ""
	for i, s := range []strided{p.a, p.b, p.out} {
		if s.wide && (i < 2 || s.inside && p.cols%8 == 0) {
			wide += "abo"[i : i+1]
		}
	}
	if wide != g.wide {
		t.Errorf("16 bytes at a time: %q, want %q", wide, g.wide)
	}
	blocks, across, tiles := p.blocks()
	if blocks == 0 {
		return nil
	}
	return machinetest.Run(t, "grouped", p.on, m.bytes, []machinetest.Launch{{Kernel: "grouped", Grid: int(blocks), Block: groupedBlock, Params: p.params(across, tiles)}})
}

// The kernel gives the host's numbers, and writes nothing but the result.
func TestGrouped(t *testing.T) {
	bf, hf := dtype.BF16, dtype.F16
	for i, g := range []groups{
		// As models have them: experts as they are and transposed, the gradient of weights.
		{"rows", 300, 72, 136, dense, dense, dense, bf, []int64{40, 40, 200, 290}, "abo"},
		{"rows", 300, 72, 136, dense, flipped, dense, bf, []int64{0, 128, 129, 300}, "abo"},
		{"inner", 136, 300, 72, flipped, dense, dense, bf, []int64{33, 33, 100, 290}, "abo"},
		{"inner", 136, 300, 72, gaps, dense, dense, bf, []int64{0, 70, 299, 299}, "bo"},
		// Groups of all kinds.
		{"rows", 130, 40, 8, dense, dense, dense, hf, []int64{130}, "abo"},
		{"rows", 130, 40, 8, gaps, dense, gaps, hf, []int64{0, 0, 130, 130}, "abo"},
		{"rows", 130, 40, 8, dense, dense, dense, bf, []int64{0, 0}, "abo"},
		{"rows", 70, 8, 8, dense, dense, dense, bf, slices.Repeat([]int64{1, 1, 5, 6, 6}, 1), "abo"},
		{"rows", 40, 8, 8, dense, dense, dense, bf, rising(70), "abo"},
		{"rows", 9, 0, 8, dense, dense, dense, bf, []int64{4, 9}, "abo"},
		{"inner", 8, 200, 8, flipped, dense, dense, hf, []int64{200}, "abo"},
		{"inner", 8, 40, 8, flipped, dense, dense, hf, []int64{0, 0, 0}, "abo"},
		// Other layouts.
		{"rows", 144, 50, 30, flipped, dense, dense, bf, []int64{3, 100, 144}, "a"},
		{"rows", 264, 48, 40, flipped, gaps, flipped, bf, []int64{5, 133, 134, 264}, "ab"},
		{"rows", 40, 33, 15, odd, spread, odd, hf, []int64{13, 40}, ""},
		{"rows", 40, 24, 16, spread, odd, spread, bf, []int64{13, 40}, ""},
		{"columns", 72, 40, 304, dense, dense, dense, bf, []int64{7, 140, 140, 300}, "ab"},
		{"columns", 72, 40, 304, flipped, flipped, flipped, hf, []int64{7, 140, 140, 300}, "abo"},
		{"columns", 9, 17, 33, odd, spread, dense, hf, []int64{2, 30}, ""},
		{"inner", 40, 200, 24, dense, flipped, flipped, bf, []int64{3, 50, 51, 120, 199}, "ab"},
		{"inner", 40, 100, 24, spread, odd, spread, hf, []int64{3, 50, 100}, ""},
	} {
		ends := []dtype.DType{dtype.I32, dtype.I64}[i%2]
		t.Run(fmt.Sprintf("%d/%s/%dx%dx%d/%v", i, g.form, g.m, g.k, g.n, g.typ), func(t *testing.T) {
			m := &memory{rng: rand.New(rand.NewPCG(1, uint64(i)))}
			c := g.call(m, ends)
			want := &memory{bytes: slices.Clone(m.bytes)}
			if err := g.run(t, m, c); err != nil {
				t.Fatal(err)
			}
			if err := hostops.Run(c.Op, c.Attrs, []hostops.Tensor{want.host(c.Outs[0])}, []hostops.Tensor{want.host(c.Ins[0]), want.host(c.Ins[1]), want.host(c.Ins[2])}); err != nil {
				t.Fatal(err)
			}
			compare(t, c.Outs[0], m, want)
		})
	}
}

// rising are n ends, of groups with no row or one.
func rising(n int64) (out []int64) {
	for i := range n {
		out = append(out, (i+1)/2)
	}
	return out
}

// compare checks elements within a rounding of the type and of sums, and that memory beside
// them is the same.
func compare(t *testing.T, o library.Tensor, m, want *memory) {
	t.Helper()
	n := int64(1)
	for _, d := range o.Shape {
		n *= d
	}
	for e := range n {
		at := int64(0)
		for d := len(o.Shape) - 1; d >= 0; d-- {
			at, e = at+e%o.Shape[d]*o.Strides[d], e/o.Shape[d]
		}
		lo := int64(o.At-memoryAt) + 2*at
		g, w := dtype.LoadFloat(o.DType, m.bytes[lo:]), dtype.LoadFloat(o.DType, want.bytes[lo:])
		if !(math.Abs(g-w) <= math.Abs(w)/128+1e-4) {
			t.Fatalf("element at %d is %g, want %g", at, g, w)
		}
		copy(m.bytes[lo:lo+2], want.bytes[lo:])
	}
	if !bytes.Equal(m.bytes, want.bytes) {
		t.Error("memory beside the result differs")
	}
}

// Ends that are out of range or descend stop the kernel.
func TestGroupedBadEnds(t *testing.T) {
	for _, g := range []groups{
		{"rows", 40, 8, 8, dense, dense, dense, dtype.BF16, []int64{13, 41}, "abo"},
		{"rows", 40, 8, 8, dense, dense, dense, dtype.BF16, []int64{13, -1}, "abo"},
		{"rows", 40, 8, 8, dense, dense, dense, dtype.BF16, []int64{13, 12}, "abo"},
		{"inner", 8, 40, 8, flipped, dense, dense, dtype.BF16, []int64{13, 41}, "abo"},
		{"inner", 8, 40, 8, flipped, dense, dense, dtype.BF16, []int64{13, 12}, "abo"},
	} {
		m := &memory{rng: rand.New(rand.NewPCG(1, 2))}
		clear := g
		clear.ends = slices.Clone(g.ends)
		clear.ends[1] = 13 // places NaN for no element
		c := clear.call(m, dtype.I32)
		binary.LittleEndian.PutUint32(m.bytes[c.Ins[2].At-memoryAt+12:], uint32(g.ends[1]))
		if err := g.run(t, m, c); err == nil || !strings.Contains(err.Error(), "traps") {
			t.Errorf("%s, ends %v: %v", g.form, g.ends, err)
		}
	}
}

// What the kernel does not do is left to others, and what is wrong is told.
func TestGroupedRefusals(t *testing.T) {
	mat := func(dt dtype.DType, shape ...int64) library.Tensor {
		t := library.Tensor{DType: dt, Shape: shape, Strides: make([]int64, len(shape))}
		n := int64(1)
		for i := len(shape) - 1; i >= 0; i-- {
			t.Strides[i], n = n, n*shape[i]
		}
		return t
	}
	bf, f32, i32 := dtype.BF16, dtype.F32, dtype.I32
	for _, c := range []struct {
		what   string
		ins    []library.Tensor
		out    library.Tensor
		served bool // but wrong
	}{
		{"float32", []library.Tensor{mat(f32, 4, 8), mat(f32, 2, 8, 3), mat(i32, 2)}, mat(f32, 4, 3), false},
		{"a wider result", []library.Tensor{mat(bf, 4, 8), mat(bf, 2, 8, 3), mat(i32, 2)}, mat(f32, 4, 3), false},
		{"two types", []library.Tensor{mat(bf, 4, 8), mat(dtype.F16, 2, 8, 3), mat(i32, 2)}, mat(bf, 4, 3), false},
		{"ends of bytes", []library.Tensor{mat(bf, 4, 8), mat(bf, 2, 8, 3), mat(dtype.U8, 2)}, mat(bf, 4, 3), false},
		{"many rows", []library.Tensor{mat(bf, 1<<31, 8), mat(bf, 2, 8, 3), mat(i32, 2)}, mat(bf, 1<<31, 3), false},
		{"many rows of many groups", []library.Tensor{mat(bf, 1<<31-2048, 8), mat(bf, 64, 8, 3), mat(i32, 64)}, mat(bf, 1<<31-2048, 3), false},
		{"more groups than ends", []library.Tensor{mat(bf, 4, 8), mat(bf, 3, 8, 3), mat(i32, 2)}, mat(bf, 4, 3), true},
		{"other inner indices", []library.Tensor{mat(bf, 4, 8), mat(bf, 2, 9, 3), mat(i32, 2)}, mat(bf, 4, 3), true},
		{"two batches", []library.Tensor{mat(bf, 2, 4, 8), mat(bf, 2, 8, 3), mat(i32, 2)}, mat(bf, 2, 4, 3), true},
		{"no ends", []library.Tensor{mat(bf, 4, 8), mat(bf, 2, 8, 3)}, mat(bf, 4, 3), true},
	} {
		_, err := groupedOf(&library.Call{Op: "grouped_matmul", Ins: c.ins, Outs: []library.Tensor{c.out}})
		var wrong *CallError
		if errors.As(err, &wrong) != c.served || errors.Is(err, library.ErrNotServed) == c.served {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

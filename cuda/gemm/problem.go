package gemm

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/prelude"
)

// maxBatch is how many batch dimensions the kernel counts.
const maxBatch = 6

// problem is a checked call: out = alpha a b + beta c.
type problem struct {
	a, b, c, out library.Tensor // c is the result, and not read, if there is none
	alpha, beta  number
	domain       string // what is computed in
}

// number is a factor, which makes integers floats if it is one.
type number struct {
	i     int64
	f     float64
	float bool
}

// CallError says what is wrong with a call.
type CallError struct {
	Op     string
	Reason string
}

// Error names the op and the reason.
func (e *CallError) Error() string { return e.Op + ": " + e.Reason }

// problemOf reads a call of "matmul" or "addmm", whose operands, results and attributes are
// those of the IR's op table. Another op wraps library.ErrNotServed; what contradicts the
// table is a *CallError.
func problemOf(c *library.Call) (*problem, error) {
	bad := func(format string, args ...any) error {
		return &CallError{Op: c.Op, Reason: fmt.Sprintf(format, args...)}
	}
	p := &problem{alpha: number{i: 1, f: 1}}
	want := 2
	switch c.Op {
	case "matmul":
	case "addmm":
		want = 3
		p.alpha, p.beta = factor(c.Attrs, "alpha"), factor(c.Attrs, "beta")
	default:
		return nil, library.ErrOtherOp
	}
	if len(c.Ins) != want || len(c.Outs) != 1 {
		return nil, bad("%d operands and %d results", len(c.Ins), len(c.Outs))
	}
	p.a, p.b, p.out, p.c = c.Ins[want-2], c.Ins[want-1], c.Outs[0], c.Outs[0]
	for i, t := range slices.Concat(c.Ins, c.Outs) {
		if len(t.Shape) != len(t.Strides) {
			return nil, bad("tensor %d has %d sizes and %d strides", i, len(t.Shape), len(t.Strides))
		}
	}
	r := len(p.a.Shape)
	if r < 2 || len(p.b.Shape) != r || len(p.out.Shape) != r || !slices.Equal(p.a.Shape[:r-2], p.b.Shape[:r-2]) || !slices.Equal(p.a.Shape[:r-2], p.out.Shape[:r-2]) ||
		p.a.Shape[r-1] != p.b.Shape[r-2] || p.out.Shape[r-2] != p.a.Shape[r-2] || p.out.Shape[r-1] != p.b.Shape[r-1] {
		return nil, bad("%v x %v -> %v", p.a.Shape, p.b.Shape, p.out.Shape)
	}
	if r-2 > maxBatch {
		return nil, fmt.Errorf("%w: %s of %d batch dimensions", library.ErrNotServed, c.Op, r-2)
	}
	types := []dtype.DType{p.a.DType, p.b.DType, p.out.DType}
	if want == 3 {
		p.c = c.Ins[0]
		types = append(types, p.c.DType)
		var ok bool
		if p.c.Strides, ok = broadcast(p.c, p.out.Shape); !ok {
			return nil, bad("%v does not broadcast to the result's %v", p.c.Shape, p.out.Shape)
		}
	}
	p.domain = prelude.Held(types...)
	if (p.alpha.float || p.beta.float) && (p.domain == "i64" || p.domain == "u64") {
		p.domain = "f32"
	}
	return p, nil
}

// factor reads a factor, 1 if it is absent.
func factor(l attr.List, key string) number {
	v, ok := l.Get(key)
	if !ok {
		return number{i: 1, f: 1}
	}
	if i, ok := v.AsInt(); ok {
		return number{i: i, f: float64(i)}
	}
	f, _ := v.AsFloat()
	return number{f: f, float: true}
}

// broadcast gives t's strides at a larger shape.
func broadcast(t library.Tensor, shape []int64) ([]int64, bool) {
	out := make([]int64, len(shape))
	lead := len(shape) - len(t.Shape)
	if lead < 0 {
		return nil, false
	}
	for i, n := range t.Shape {
		switch {
		case n == shape[lead+i]:
			out[lead+i] = t.Strides[i]
		case n != 1:
			return nil, false
		}
	}
	return out, true
}

// unit is the kernel of the problem's types.
func (p *problem) unit() *library.Unit {
	a, b, c, to := prelude.Type(p.a.DType), prelude.Type(p.b.DType), prelude.Type(p.c.DType), prelude.Type(p.out.DType)
	round := "to_" + to
	if to == p.domain {
		round = "same_of"
	}
	return &library.Unit{Name: "gemm_" + to, Options: prelude.Options(),
		Source: fmt.Sprintf("%s\n#define A %s\n#define B %s\n#define C %s\n#define TO %s\n#define DOMAIN %s\n#define ROUND %s\n%s", prelude.Source, a, b, c, to, p.domain, round, source)}
}

const side = 64 // of a block's tile

// blocks is how many there are, and how many tiles are adjacent; ok is false where
// they are more than can be launched.
func (p *problem) blocks() (blocks, across, tiles int64, ok bool) {
	r := len(p.out.Shape)
	count := func(n int64) int64 { return (n + side - 1) / side }
	across = count(p.out.Shape[r-1])
	tiles = across * count(p.out.Shape[r-2])
	blocks = tiles
	for _, n := range p.out.Shape[:r-2] {
		if n > 0 && blocks > math.MaxInt32/n {
			return 0, 0, 0, false
		}
		blocks *= n
	}
	return blocks, across, tiles, blocks <= math.MaxInt32
}

// params is struct args of gemm.cu.
func (p *problem) params(across, tiles int64) []byte {
	var b []byte
	num := func(ns ...int64) {
		for _, n := range ns {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	r := len(p.out.Shape)
	for _, at := range []driver.Ptr{p.a.At, p.b.At, p.c.At, p.out.At} {
		num(int64(at))
	}
	num(p.out.Shape[r-2], p.out.Shape[r-1], p.a.Shape[r-1], across, tiles)
	ones := slices.Repeat([]int64{1}, maxBatch-(r-2))
	num(ones...)
	num(p.out.Shape[:r-2]...)
	for _, t := range []library.Tensor{p.a, p.b, p.c, p.out} {
		num(t.Strides[r-2], t.Strides[r-1])
		num(make([]int64, maxBatch-(r-2))...)
		num(t.Strides[:r-2]...)
	}
	for _, n := range []number{p.alpha, p.beta} {
		switch p.domain {
		case "f32":
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(n.f)))
		case "f64":
			num(int64(math.Float64bits(n.f)))
		default:
			num(n.i)
		}
	}
	return b
}

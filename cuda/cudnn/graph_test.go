package cudnn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/cuda/attention"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/intmath"
)

// shape4 is a case of the host tests.
type shape4 struct {
	b, h, hk, s, t, d, dv int64
	causal, bias          bool
	scale                 float64
}

var hostCases = []shape4{
	{1, 4, 4, 32, 32, 16, 16, true, false, 0},
	{2, 3, 3, 7, 5, 8, 16, false, false, 0.25},
	{2, 4, 2, 9, 9, 8, 8, true, false, 0},
	{1, 6, 1, 4, 12, 16, 8, false, true, 0},
}

func filled(rng *rand.Rand, typ dtype.DType, dims ...int64) hostops.Tensor {
	t, err := hostops.New(typ, dims...)
	if err != nil {
		panic(err)
	}
	for i := range intmath.Product(dims) {
		v := float32(rng.NormFloat64())
		if typ == dtype.BF16 {
			u := dtype.BF16FromF32(v)
			t.Data[2*i], t.Data[2*i+1] = byte(u), byte(u>>8)
		} else {
			u := math.Float32bits(v)
			t.Data[4*i], t.Data[4*i+1], t.Data[4*i+2], t.Data[4*i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
		}
	}
	return t
}

func hostAt(t hostops.Tensor, i int64) float64 {
	if t.DType == dtype.BF16 {
		return float64(dtype.BF16ToF32(uint16(t.Data[2*i]) | uint16(t.Data[2*i+1])<<8))
	}
	return float64(math.Float32frombits(uint32(t.Data[4*i]) | uint32(t.Data[4*i+1])<<8 | uint32(t.Data[4*i+2])<<16 | uint32(t.Data[4*i+3])<<24))
}

func described(ts ...hostops.Tensor) (out []library.Tensor) {
	for i, t := range ts {
		out = append(out, library.Tensor{At: 4096, DType: t.DType, Shape: slices.Clone(ts[i].Shape), Strides: slices.Clone(t.Strides)})
	}
	return out
}

// calls makes the forward and the backward call of a case with data.
func (c shape4) calls(t *testing.T) (fw, bw *library.Call, fwIns, fwOuts, bwIns, bwOuts []hostops.Tensor) {
	rng := rand.New(rand.NewPCG(7, uint64(c.s)))
	bf, f32 := dtype.BF16, dtype.F32
	zeros := func(typ dtype.DType, dims ...int64) hostops.Tensor {
		x, err := hostops.New(typ, dims...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	q, k, v := filled(rng, bf, c.b, c.h, c.s, c.d), filled(rng, bf, c.b, c.hk, c.t, c.d), filled(rng, bf, c.b, c.hk, c.t, c.dv)
	fwIns = []hostops.Tensor{q, k, v}
	var bias []hostops.Tensor
	if c.bias {
		bias = []hostops.Tensor{filled(rng, bf, 1, c.h, 1, c.t)}
	}
	fwIns = append(fwIns, bias...)
	out, lse := zeros(bf, c.b, c.h, c.s, c.dv), zeros(f32, c.b, c.h, c.s, 1)
	fwOuts = []hostops.Tensor{out, lse, zeros(dtype.I64), zeros(dtype.I64)}
	attrs := attr.List{}.With("causal", attr.Bool(c.causal))
	if c.scale != 0 {
		attrs = attrs.With("scale", attr.Float(c.scale))
	}
	fw = &library.Call{Op: attention.Forward, Attrs: attrs, Ins: described(fwIns...), Outs: described(fwOuts...)}
	if err := hostops.Run(fw.Op, attrs, fwOuts, fwIns); err != nil {
		t.Fatal(err)
	}
	bwIns = append([]hostops.Tensor{filled(rng, bf, c.b, c.h, c.s, c.dv), q, k, v, out, lse, fwOuts[2], fwOuts[3]}, bias...)
	bwOuts = []hostops.Tensor{zeros(bf, q.Shape...), zeros(bf, k.Shape...), zeros(bf, v.Shape...)}
	bw = &library.Call{Op: attention.Backward, Attrs: attrs, Ins: described(bwIns...), Outs: described(bwOuts...)}
	if err := hostops.Run(bw.Op, attrs, bwOuts, bwIns); err != nil {
		t.Fatal(err)
	}
	return fw, bw, fwIns, fwOuts, bwIns, bwOuts
}

// value is a tensor of a graph under evaluation, packed.
type value struct {
	dims []int64
	at   []float64
}

// get reads with broadcasting of sizes of 1 and, between heads, of groups.
func (v *value) get(idx ...int64) float64 {
	off := int64(0)
	for i, d := range v.dims {
		j := idx[i]
		if d == 1 {
			j = 0
		}
		off = off*d + j
	}
	return v.at[off]
}

func newValue(dims []int64) *value { return &value{dims, make([]float64, intmath.Product(dims))} }

// each calls f with every index of dims.
func each(dims []int64, f func(flat int64, idx []int64)) {
	idx := make([]int64, len(dims))
	for i := range intmath.Product(dims) {
		r := i
		for k := len(dims) - 1; k >= 0; k-- {
			idx[k] = r % dims[k]
			r /= dims[k]
		}
		f(i, idx)
	}
}

// evaluate computes a graph on the host: what cuDNN documents for each operation.
func evaluate(t *testing.T, g *graph, ports map[port]hostops.Tensor) map[port]*value {
	vals, results := map[*tensor]*value{}, map[port]*value{}
	for _, n := range g.nodes {
		for _, x := range n.ins {
			if vals[x] != nil {
				continue
			}
			v := newValue(x.dims)
			switch x.role {
			case scalar:
				v.at[0] = float64(x.value)
			case external, moved:
				src, ok := ports[x.port]
				if !ok {
					t.Fatalf("%v reads %v, which is no operand", n, x)
				}
				each(x.dims, func(i int64, idx []int64) {
					off := int64(0)
					for k := range idx {
						off += idx[k] * x.strides[k]
					}
					v.at[i] = hostAt(src, off)
				})
			default:
				t.Fatalf("%v reads %v before it is written", n, x)
			}
			vals[x] = v
		}
		v := n.evaluate(t, vals)
		if n.out.typ == typeBF16 {
			for i, x := range v.at {
				v.at[i] = float64(dtype.BF16ToF32(dtype.BF16FromF32(float32(x))))
			}
		}
		vals[n.out] = v
		if n.out.role == external || n.out.role == moved {
			results[n.out.port] = v
		}
	}
	return results
}

func (n *node) evaluate(t *testing.T, vals map[*tensor]*value) *value {
	out := newValue(n.out.dims)
	in := func(i int) *value { return vals[n.ins[i]] }
	switch n.kind {
	case matmul:
		a, b := in(0), in(1)
		if a.dims[3] != b.dims[2] || a.dims[1]%b.dims[1] != 0 {
			t.Fatalf("%v multiplies %v by %v", n, a.dims, b.dims)
		}
		group := a.dims[1] / b.dims[1]
		each(out.dims, func(i int64, x []int64) {
			for k := range a.dims[3] {
				out.at[i] += a.get(x[0], x[1], x[2], k) * b.get(x[0], x[1]/group, k, x[3])
			}
		})
	case reduction:
		a := in(0)
		first := make([]bool, len(out.at))
		each(a.dims, func(i int64, x []int64) {
			o := int64(0)
			for k, d := range out.dims {
				o = o*d + x[k]*d/a.dims[k]
			}
			if n.mode == reduceAdd {
				out.at[o] += a.at[i]
			} else if !first[o] || a.at[i] > out.at[o] {
				out.at[o] = a.at[i]
			}
			first[o] = true
		})
	case reshape:
		// A view: strides of packed memory say which element is meant.
		a, from := in(0), n.ins[0]
		at := map[int64]float64{}
		offset := func(x *tensor, idx []int64) (off int64) {
			for k := range idx {
				off += idx[k] * x.strides[k]
			}
			return off
		}
		each(a.dims, func(i int64, x []int64) { at[offset(from, x)] = a.at[i] })
		each(out.dims, func(i int64, x []int64) {
			v, ok := at[offset(n.out, x)]
			if !ok {
				t.Fatalf("%v looks outside its operand", n)
			}
			out.at[i] = v
		})
	case pointwise:
		each(out.dims, func(i int64, x []int64) { out.at[i] = n.point(t, vals, x) })
	case convForward, convData, convFilter:
		n.slide(vals, out)
	}
	return out
}

func (n *node) point(t *testing.T, vals map[*tensor]*value, x []int64) float64 {
	in := func(i int) float64 { return vals[n.ins[i]].get(x...) }
	switch pointMode(n.mode) {
	case modeAdd:
		return in(0) + in(1)
	case modeSub:
		return in(0) - in(1)
	case modeMul:
		return in(0) * in(1)
	case modeDiv:
		return in(0) / in(1)
	case modeExp:
		return math.Exp(in(0))
	case modeLog:
		return math.Log(in(0))
	case modeIdentity:
		return in(0)
	case modeIndex:
		return float64(x[n.axis])
	case modeGE:
		if in(0) >= in(1) {
			return 1
		}
		return 0
	case modeSelect:
		if in(2) != 0 {
			return in(0)
		}
		return in(1)
	}
	t.Fatalf("%v: mode %d", n, n.mode)
	return 0
}

func compare(t *testing.T, name string, got *value, want hostops.Tensor, tolerance float64) {
	t.Helper()
	if got == nil {
		t.Fatalf("the graph does not write %s", name)
	}
	var diff, size float64
	for i, x := range got.at {
		w := hostAt(want, int64(i))
		diff += (x - w) * (x - w)
		size += w * w
	}
	if e := math.Sqrt(diff / size); !(e < tolerance) {
		t.Errorf("%s: relative error %.2e", name, e)
	}
}

// TestGraphs evaluates the operation graphs and compares them with the host kernels.
func TestGraphs(t *testing.T) {
	for i, c := range hostCases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			fw, bw, ins, outs, bwIns, bwOuts := c.calls(t)
			p, err := attention.ProblemOf(fw)
			if err != nil {
				t.Fatal(err)
			}
			ports := map[port]hostops.Tensor{portQ: ins[0], portK: ins[1], portV: ins[2]}
			if c.bias {
				ports[portBias] = ins[3]
			}
			got := evaluate(t, forwardGraph(p), ports)
			compare(t, "out", got[portOut], outs[0], 8e-3)
			compare(t, "lse", got[portLSE], outs[1], 1e-5)
			if p, err = attention.ProblemOf(bw); err != nil {
				t.Fatal(err)
			}
			ports[portGrad], ports[portOut], ports[portLSE] = bwIns[0], bwIns[4], bwIns[5]
			for _, exact := range []bool{true, false} {
				got = evaluate(t, backwardGraph(p, exact), ports)
				compare(t, "dq", got[portDQ], bwOuts[0], 1e-2)
				compare(t, "dk", got[portDK], bwOuts[1], 1e-2)
				compare(t, "dv", got[portDV], bwOuts[2], 1e-2)
			}
		})
	}
}

// TestGraphOrder holds what cuDNN asks of every graph: unique ids, tensors written
// once and before they are read.
func TestGraphOrder(t *testing.T) {
	for _, c := range hostCases {
		fw, bw, _, _, _, _ := c.calls(t)
		for _, call := range []*library.Call{fw, bw} {
			p, err := attention.ProblemOf(call)
			if err != nil {
				t.Fatal(err)
			}
			graphs := []*graph{}
			if p.Op == attention.Forward {
				graphs = append(graphs, forwardGraph(p))
			} else {
				graphs = append(graphs, backwardGraph(p, true), backwardGraph(p, false))
			}
			for _, g := range graphs {
				written, ids := map[*tensor]bool{}, map[int64]bool{}
				for _, x := range g.tensors {
					if ids[x.uid] {
						t.Errorf("two tensors with id %d", x.uid)
					}
					ids[x.uid] = true
					if len(x.dims) != 4 || len(x.strides) != 4 {
						t.Errorf("%v has strides %v", x, x.strides)
					}
				}
				for _, n := range g.nodes {
					for _, x := range n.ins {
						if (x.role == virtual || x.role == scratch) && !written[x] {
							t.Errorf("%v reads %v too early", n, x)
						}
					}
					if written[n.out] {
						t.Errorf("%v writes %v again", n, n.out)
					}
					written[n.out] = true
				}
			}
		}
	}
}

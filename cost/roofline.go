package cost

import (
	"math"

	"github.com/seed-ee968945/concert/ir"
)

// NodeMs estimates a launch by a roofline: the larger of its arithmetic over the
// machine's rate and its bytes over the memory's, but at least the launch. Views,
// inputs and waits cost nothing; collectives, opaque calls and what runs bodies are not known here.
// Symbolic sizes count at their hints.
func (m *Machine) NodeMs(n *ir.Node) (float64, bool) {
	switch n.Op().Class() {
	case ir.ClassInput, ir.ClassOutput, ir.ClassView, ir.ClassWait:
		return 0, true
	case ir.ClassCollective:
		return 0, false
	}
	if n.Op() == ir.OpCall || n.Op().Info().Bodies != nil {
		return 0, false
	}
	mod := n.Func().Module()
	moved := 0.0
	for _, a := range n.DeclaredArgs() {
		moved += float64(mod.Hint(storedBytes(a.Type())))
	}
	for _, r := range n.DeclaredResults() {
		moved += float64(mod.Hint(r.Type().Bytes()))
	}
	if touched, ok := sparseTraffic(n); ok { // reads only what it selects
		moved = touched
	}
	ms := moved / (m.MemoryGBps * 1e6)
	flops, tflops := m.arithmetic(n)
	return max(ms, flops/(tflops*1e9), m.LaunchUs/1e3), true
}

// storedBytes is what reading a tensor moves: broadcast dimensions, of stride
// zero, are read once.
func storedBytes(t ir.Type) ir.Dim {
	return t.Distinct().Mul(ir.D(int64(t.DType().Size())))
}

// sparseTraffic is the traffic of ops that touch a part of operand 0 only.
func sparseTraffic(n *ir.Node) (float64, bool) {
	switch n.Op() {
	case ir.OpEmbedding, ir.OpIndex, ir.OpGather:
		mod := n.Func().Module()
		out := float64(mod.Hint(n.Result(0).Type().Bytes()))
		return 2*out + float64(mod.Hint(n.Arg(1).Type().Bytes())), true
	}
	return 0, false
}

// arithmetic is a node's floating-point operations and the rate, in TFLOPS, of
// the unit that does them.
func (m *Machine) arithmetic(n *ir.Node) (flops, tflops float64) {
	mod := n.Func().Module()
	size := func(v *ir.Value, i int) float64 { return float64(mod.Hint(v.Type().Shape()[i])) }
	elems := 0.0
	for _, r := range n.DeclaredResults() {
		elems += float64(mod.Hint(r.Type().Shape().NumElems()))
	}
	switch n.Op() {
	case ir.OpGroupedMatmul:
		a, b := n.Arg(0), n.Arg(1)
		ra := a.Type().Rank()
		return 2 * size(a, ra-2) * size(a, ra-1) * size(b, b.Type().Rank()-1), m.matmulRate(a.Type().DType())
	case ir.OpMatmul, ir.OpAddmm:
		a := n.Arg(len(n.Args()) - 2)
		k := size(a, a.Type().Rank()-1)
		out := n.Result(0)
		r := out.Type().Rank()
		return 2 * elems * k * m.waves(elems, size(out, r-2), size(out, r-1)), m.libraryRate(a.Type().DType())
	case ir.OpConvolution:
		x, w, out := n.Arg(0), n.Arg(1), n.Result(0)
		r := out.Type().Rank()
		taps := 1.0 // of a window that meet elements: what is dilated is not multiplied
		for d := 1; d < r; d++ {
			taps *= size(w, d)
		}
		for _, b := range n.Attrs().Ints("base_dilation") {
			taps /= float64(b)
		}
		groups := float64(n.Attrs().Int("groups", 1) * n.Attrs().Int("batch_groups", 1))
		rows := size(out, 1) / groups
		if rows < 16 { // too few for the units of matmuls
			return 2 * elems * max(taps, 1), m.VectorTFLOPS
		}
		return 2 * elems * max(taps, 1) * m.waves(elems, elems/max(size(out, 1), 1), rows), m.libraryRate(x.Type().DType())
	case ir.OpAttention, ir.OpAttentionBackward:
		q, k := n.Arg(0), n.Arg(1)
		products := 2.0
		if n.Op() == ir.OpAttentionBackward {
			q, k = n.Arg(1), n.Arg(2)
			products = 5
		}
		f := 2 * products * size(q, 0) * size(q, 1) * size(q, 2) * size(k, 2) * size(q, 3)
		if n.Attrs().Bool("causal", false) {
			f /= 2
		}
		return f / attentionEfficiency, m.matmulRate(q.Type().DType())
	}
	for _, a := range n.DeclaredArgs() {
		elems = max(elems, float64(mod.Hint(a.Type().Shape().NumElems())))
	}
	return elems, m.VectorTFLOPS
}

// attentionEfficiency is what fused attention reaches of a plain matmul's rate.
const attentionEfficiency = 0.65

// tile is the output tile of one multiprocessor in a large matmul.
const tile = 128 * 128

// waves is the factor by which the last, partly filled wave of tiles slows a matmul down.
func (m *Machine) waves(elems, rows, cols float64) float64 {
	tiles := math.Ceil(rows/128) * math.Ceil(cols/128) * max(elems/(rows*cols), 1)
	full := elems / tile
	if full <= 0 || m.Units < 1 {
		return 1
	}
	units := float64(m.Units)
	return math.Ceil(tiles/units) * units / full
}

// libraryRate is the rate of matmuls and convolutions, which libraries compute. What our own
// kernels compute, groups and attention, never rounds f32.
func (m *Machine) libraryRate(dt ir.DType) float64 {
	if r := m.MatmulTFLOPS["tf32"]; m.TF32 && dt == ir.F32 && r > 0 {
		return r
	}
	return m.matmulRate(dt)
}

func (m *Machine) matmulRate(dt ir.DType) float64 {
	if r := m.MatmulTFLOPS[dt.String()]; r > 0 {
		return r
	}
	return m.VectorTFLOPS
}

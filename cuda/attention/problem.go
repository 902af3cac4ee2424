package attention

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Operators of a Problem.
const (
	Forward  = "attention"
	Backward = "attention_backward"
)

// Problem is one call of attention: its geometry and its tensors, checked. All
// tensors have four dimensions, [batch, heads, length, width]; LSE has width 1.
type Problem struct {
	Op        string
	Batch     int64
	Heads     int64 // of queries
	KeyHeads  int64 // divides Heads
	Queries   int64
	Keys      int64
	Dim       int64 // of queries and keys
	DimV      int64 // of values
	DType     dtype.DType
	Causal    bool // query i sees keys 0..i
	Scale     float64
	Q, K, V   library.Tensor
	Bias      *library.Tensor  // broadcasts to [Batch, Heads, Queries, Keys]
	Out, LSE  library.Tensor   // results of Forward, operands of Backward
	Grad      library.Tensor   // of the output, Backward only
	DQ, DK    library.Tensor   // Backward only
	DV        library.Tensor   // Backward only
	Zero      []library.Tensor // results that are 0: seed and offset of no dropout
	Workspace driver.Ptr       // of the call
	Bytes     uint64           // of the workspace
	SMs       int              // as in the call
}

// CallError says what is wrong with a call.
type CallError struct {
	Op     string
	Reason string
}

// Error names the op and the reason.
func (e *CallError) Error() string { return e.Op + ": " + e.Reason }

// ProblemOf reads a call of "attention" or "attention_backward", whose operands,
// results and attributes are those of the IR's op table. An op that is neither, and
// dropout, which no library here draws as the IR says, wrap library.ErrNotServed;
// what contradicts the op table is a *CallError.
func ProblemOf(c *library.Call) (*Problem, error) {
	if c.Op != Forward && c.Op != Backward {
		return nil, library.ErrOtherOp
	}
	p := &Problem{Op: c.Op, SMs: c.SMs, Workspace: c.Workspace, Bytes: c.WorkspaceBytes}
	if err := p.tensors(c); err != nil {
		return nil, err
	}
	if err := p.geometry(); err != nil {
		return nil, err
	}
	if p.number(c.Attrs, "dropout", 0) != 0 {
		return nil, fmt.Errorf("%w: attention with dropout", library.ErrNotServed)
	}
	p.Causal = c.Attrs.Bool("causal", false)
	p.Scale = p.number(c.Attrs, "scale", 1/math.Sqrt(float64(p.Dim)))
	if math.IsNaN(p.Scale) || math.IsInf(p.Scale, 0) {
		return nil, p.bad("scale %v", p.Scale)
	}
	return p, nil
}

func (p *Problem) bad(format string, args ...any) error {
	return &CallError{Op: p.Op, Reason: fmt.Sprintf(format, args...)}
}

// number reads an attribute that is an integer or a float.
func (p *Problem) number(l attr.List, key string, def float64) float64 {
	v, ok := l.Get(key)
	if !ok {
		return def
	}
	if v.Kind() == attr.KindInt {
		return float64(l.Int(key, 0))
	}
	return l.Float(key, def)
}

// tensors puts operands and results in their places.
func (p *Problem) tensors(c *library.Call) error {
	ins, outs, least := 4, 4, 3
	if p.Op == Backward {
		ins, outs, least = 9, 3, 8
	}
	if len(c.Ins) < least || len(c.Ins) > ins || len(c.Outs) != outs {
		return p.bad("%d operands and %d results", len(c.Ins), len(c.Outs))
	}
	for i, t := range slices.Concat(c.Ins, c.Outs) {
		if len(t.Shape) != len(t.Strides) {
			return p.bad("tensor %d has %d sizes and %d strides", i, len(t.Shape), len(t.Strides))
		}
	}
	if p.Op == Forward {
		p.Q, p.K, p.V, p.Out, p.LSE = c.Ins[0], c.Ins[1], c.Ins[2], c.Outs[0], c.Outs[1]
		p.Zero = c.Outs[2:]
	} else {
		p.Grad, p.Q, p.K, p.V, p.Out, p.LSE = c.Ins[0], c.Ins[1], c.Ins[2], c.Ins[3], c.Ins[4], c.Ins[5]
		p.DQ, p.DK, p.DV = c.Outs[0], c.Outs[1], c.Outs[2]
	}
	if len(c.Ins) == ins {
		b := c.Ins[ins-1]
		p.Bias = &b
	}
	return nil
}

// geometry reads the sizes off q, k and v and checks every tensor against them.
func (p *Problem) geometry() error {
	for _, t := range []*library.Tensor{&p.Q, &p.K, &p.V} {
		if len(t.Shape) != 4 {
			return p.bad("an operand of shape %v, want [batch, heads, length, width]", t.Shape)
		}
		if t.DType != p.Q.DType || !t.DType.IsFloat() {
			return p.bad("operands of types %v, %v and %v", p.Q.DType, p.K.DType, p.V.DType)
		}
	}
	q, k, v := p.Q.Shape, p.K.Shape, p.V.Shape
	p.Batch, p.Heads, p.Queries, p.Dim = q[0], q[1], q[2], q[3]
	p.KeyHeads, p.Keys, p.DimV, p.DType = k[1], k[2], v[3], p.Q.DType
	if k[0] != p.Batch || k[3] != p.Dim || p.KeyHeads < 1 || p.Heads%p.KeyHeads != 0 || !slices.Equal(v[:3], k[:3]) {
		return p.bad("q %v, k %v and v %v do not fit together", q, k, v)
	}
	if len(p.LSE.Shape) == 3 {
		p.LSE.Shape = append(slices.Clone(p.LSE.Shape), 1)
		p.LSE.Strides = append(slices.Clone(p.LSE.Strides), 1)
	}
	wide, lse := []int64{p.Batch, p.Heads, p.Queries, p.DimV}, []int64{p.Batch, p.Heads, p.Queries, 1}
	if !slices.Equal(p.Out.Shape, wide) || !slices.Equal(p.LSE.Shape, lse) {
		return p.bad("output %v and log-sum-exp %v, want %v and %v", p.Out.Shape, p.LSE.Shape, wide, lse)
	}
	if p.Op == Backward {
		if !slices.Equal(p.Grad.Shape, wide) {
			return p.bad("gradient %v of an output %v", p.Grad.Shape, wide)
		}
		if !slices.Equal(p.DQ.Shape, q) || !slices.Equal(p.DK.Shape, k) || !slices.Equal(p.DV.Shape, v) {
			return p.bad("gradients %v, %v and %v of %v, %v and %v", p.DQ.Shape, p.DK.Shape, p.DV.Shape, q, k, v)
		}
	}
	return p.broadcastBias()
}

// broadcastBias gives the bias four dimensions of full size, with stride 0 where it
// repeats.
func (p *Problem) broadcastBias() error {
	if p.Bias == nil {
		return nil
	}
	full := []int64{p.Batch, p.Heads, p.Queries, p.Keys}
	b, strides := p.Bias, make([]int64, 4)
	lead := 4 - len(b.Shape)
	if lead < 0 {
		return p.bad("a bias of shape %v", b.Shape)
	}
	for i, n := range b.Shape {
		switch n {
		case full[lead+i]:
			strides[lead+i] = b.Strides[i]
		case 1:
		default:
			return p.bad("a bias of shape %v does not broadcast to %v", b.Shape, full)
		}
	}
	b.Shape, b.Strides = full, strides
	return nil
}

// Empty says that the problem has no results or that its results are all of no keys:
// no kernel of a library computes it.
func (p *Problem) Empty() bool {
	return p.Batch*p.Heads*p.Queries*p.DimV == 0 || p.Keys == 0 || p.Dim == 0
}

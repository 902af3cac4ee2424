package step

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// Precise is a copy of the step that takes, computes and gives float64 where the step has narrower
// floating-point types. What is about bits or has code of its own keeps its type, and is converted:
// constants, random numbers, bitcasts, calls.
func (p *Pair) Precise() (*Pair, error) {
	out := &Pair{Name: p.Name}
	var err, bwErr error
	out.Forward, err = precise(p.Forward)
	if p.Backward != nil {
		out.Backward, bwErr = precise(p.Backward)
	}
	return out, errors.Join(err, bwErr)
}

func precise(f *ir.Func) (*ir.Func, error) {
	main := f.Clone()
	for _, g := range main.Module().Funcs() {
		was := f
		if g != main {
			was = f.Module().Func(g.Name)
		}
		for _, n := range slices.Clone(g.Order()) {
			if ownType(n) {
				convertArgs(g, n, was)
				convertResults(g, n)
				continue
			}
			for _, v := range n.Results() {
				g.SetType(v, wide(v.Type()))
			}
		}
	}
	if err := main.Module().Verify(); err != nil {
		return nil, fmt.Errorf("step: in float64: %w", err)
	}
	return main, nil
}

// ownType reports whether n, whose operands are wide by now, is about the bits of its type, or
// does not have such a type.
func ownType(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpConstant, ir.OpRand, ir.OpBitcast, ir.OpCall, ir.OpAsyncCall:
		return true
	case ir.OpInput, ir.OpReturn, ir.OpWhile, ir.OpCase:
		return false
	}
	var args, results []ir.Type
	for _, v := range n.Args() {
		args = append(args, v.Type())
	}
	for _, v := range n.Results() {
		results = append(results, wide(v.Type()))
	}
	got, err := ir.Infer(n.Op(), n.Group(), n.Attrs(), args, results...)
	return err != nil || !slices.EqualFunc(got, results, ir.Type.Equal)
}

func isNarrow(t ir.Type) bool { return !t.IsAsync() && t.DType().IsFloat() && t.DType() != ir.F64 }

func wide(t ir.Type) ir.Type {
	switch {
	case t.IsAsync():
		var elems []ir.Type
		for _, e := range t.Elems() {
			elems = append(elems, wide(e))
		}
		return ir.Async(elems...)
	case isNarrow(t):
		return t.WithDType(ir.F64)
	}
	return t
}

// convertArgs gives n, which is in f, the types that it had in was.
func convertArgs(f *ir.Func, n *ir.Node, was *ir.Func) {
	for i, v := range was.NodeByID(n.ID()).Args() {
		x, t := n.Arg(i), v.Type()
		if x.Type().Equal(t) {
			continue
		}
		if !t.NonOverlapping() {
			t = ir.TensorOf(t.DType(), t.Shape())
		}
		f.SetArg(n, i, f.InsertBefore(n, ir.NodeSpec{Op: ir.OpConvert, Args: []*ir.Value{x}, Results: []ir.Type{t}}).Result(0))
	}
}

// convertResults gives those who use n's results float64.
func convertResults(f *ir.Func, n *ir.Node) {
	for _, v := range n.Results() {
		if isNarrow(v.Type()) {
			c := f.InsertAfter(n, ir.NodeSpec{Op: ir.OpConvert, Args: []*ir.Value{v}, Results: []ir.Type{wide(v.Type())}})
			f.ReplaceUses(v, c.Result(0))
			f.SetArg(c, 0, v)
		}
	}
}

// Noise is how far rounding alone takes the step's results, by the reference interpreter on all
// ranks: the 2-norm of the difference between each output tensor and the same computed in
// float64, and the 2-norm of the latter, by rank and output of a half.
type Noise struct {
	Forward, Backward [][]Rounded
	exact             [2][][]interp.Tensor // in float64, of both halves
}

// Rounded is an output's norm, and that of what rounding changes of it.
type Rounded struct{ Norm, Error float64 }

// MeasureNoise runs the step twice. It fails where the interpreter does, or the step cannot be
// computed in float64.
func (p *Pair) MeasureNoise(ctx context.Context, o interp.Options, in [][]interp.Tensor) (*Noise, error) {
	q, err := p.Precise()
	if err != nil {
		return nil, err
	}
	fw, bw, err := p.Run(ctx, Interpret(o), in)
	if err != nil {
		return nil, err
	}
	precise, err := doubles(in)
	if err != nil {
		return nil, err
	}
	exact, exactBW, err := q.Run(ctx, Interpret(o), precise)
	if err != nil {
		return nil, err
	}
	return &Noise{rounded(fw, exact), rounded(bw, exactBW), [2][][]interp.Tensor{exact, exactBW}}, nil
}

// doubles are the tensors, in float64 where they are of floats.
func doubles(in [][]interp.Tensor) ([][]interp.Tensor, error) {
	out := make([][]interp.Tensor, len(in))
	for r := range in {
		for _, t := range in[r] {
			var err error
			if t.DType.IsFloat() {
				t, err = interp.FromSlice(t.Float64s(), t.Shape...)
			}
			if err != nil {
				return nil, err
			}
			out[r] = append(out[r], t)
		}
	}
	return out, nil
}

func rounded(got, exact [][]interp.Tensor) [][]Rounded {
	out := make([][]Rounded, len(got))
	for r := range got {
		for k := range got[r] {
			out[r] = append(out[r], roundingOf(got[r][k], exact[r][k]))
		}
	}
	return out
}

func roundingOf(got, exact interp.Tensor) Rounded {
	var x Rounded
	g, e := got.Float64s(), exact.Float64s()
	for i := range e {
		x.Norm, x.Error = x.Norm+e[i]*e[i], x.Error+(g[i]-e[i])*(g[i]-e[i])
	}
	return Rounded{math.Sqrt(x.Norm), math.Sqrt(x.Error)}
}

const (
	digit  = 0.1 // of a result's norm: with errors beyond that it has no digit
	unlike = 32  // how many times as far as its own errors such a result may be from somebody else's
	// alike is how many times as far from float64 as the interpreter a run may be: the factor by
	// which PyTorch judges compiled models (torch._dynamo.utils.same).
	alike = 2
)

// Allow widens the bounds of outputs that no run could keep to.
//
//   - Rounding alone leaves no digit of what float64 gives. Such is a gradient that is zero but
//     for rounding: that of a bias in front of a normalisation, or of the keys of an attention.
//   - Rounding takes the results of the run, got[rank][half][output], no further from what float64
//     gives than it takes the interpreter, and what is recorded neither. A program that is misread
//     is so in float64, too, and what is recorded is then far from that.
func (n *Noise) Allow(rs []Result, got [][][]interp.Tensor) {
	for i, r := range rs {
		half, of := 0, n.Forward
		if r.Backward {
			half, of = 1, n.Backward
		}
		x, exact := of[r.Rank][r.Output], n.exact[half][r.Rank][r.Output]
		near := func(t *interp.Tensor) bool { return t == nil || roundingOf(*t, exact).Error <= alike*x.Error }
		switch d := r.Diff; {
		case r.OK() || r.Bound.Bits || math.IsInf(x.Error, 0) || math.IsNaN(x.Error):
		case x.Error > digit*x.Norm && d.Error <= unlike*x.Error:
			rs[i].Bound = Bound{Rel: d.Rel, Noise: true}
		case near(&got[r.Rank][half][r.Output]) && near(r.recorded):
			rs[i].Bound = Bound{Rel: d.Rel, Exact: true}
		}
	}
}

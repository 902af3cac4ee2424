package step

import (
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// Rounding says which roundings of a run need not be those of the reference
// interpreter.
type Rounding uint8

// The kinds of runs.
const (
	SameRoundings  Rounding = iota // the host device and the interpreter itself, under exact rules
	Reassociated                   // they under rules that take sums over ranks in another order
	OtherRoundings                 // devices with arithmetic of their own
	FewerRoundings                 // and values that are not rounded to their type: the limits of runs that are do not hold
)

// Bound is how far an output may be from the reference interpreter's. Where nothing
// that a run may round otherwise lies on the way to the output, which holds for
// integers and for what is only moved, every bit must be the same; NaN may be
// another NaN. Else roundings are taken for independent: the squares of their
// largest relative errors add along the way that has most of them, and the relative
// error in the 2-norm may be twice the root. That is a bound of numerical practice
// and no proof: what cancels magnifies errors.
type Bound struct {
	Bits  bool
	Rel   float64 // largest relative error in the 2-norm, 0 with Bits
	Steps int     // operations that round on the way; 0 with Bits, and where the bound comes from elsewhere
	Noise bool    // the result is rounding errors, see Noise.Allow
	Exact bool    // float64 gives a result that is about as far from the other as from this one
}

// String is what the bound allows: "bits", "rounding", "float64", or the relative error and the number
// of operations that round.
func (b Bound) String() string {
	switch {
	case b.Bits:
		return "bits"
	case b.Noise:
		return "rounding"
	case b.Exact:
		return "float64"
	case b.Steps == 0:
		return fmt.Sprintf("%.3g", b.Rel)
	}
	return fmt.Sprintf("%.3g (%d roundings)", b.Rel, b.Steps)
}

// path is the way to a value on which most is lost.
type path struct {
	squares float64 // of relative errors
	steps   int
	open    bool // something on some way rounds as it likes
}

func (p path) join(q path) path {
	out := path{p.squares, p.steps, p.open || q.open}
	if q.squares > p.squares {
		out.squares, out.steps = q.squares, q.steps
	}
	return out
}

// Bounds lists, for each output tensor of the halves of the step, how far a run may
// be from the reference interpreter. O(nodes and operands).
func (p *Pair) Bounds(kind Rounding) (fw, bw []Bound, err error) {
	paths := pathsTo(p.Forward, nil, kind, nil)
	fw = boundsOf(paths, kind.most(LossTolerance))
	if p.Backward == nil {
		return fw, nil, nil
	}
	ws, err := p.wires()
	if err != nil {
		return nil, nil, err
	}
	in := make([]path, len(ws))
	for i, w := range ws {
		if w.src != tangent {
			in[i] = paths[w.src]
		}
	}
	return fw, boundsOf(pathsTo(p.Backward, in, kind, nil), kind.most(GradientTolerance)), nil
}

// FuncBounds is Bounds of a step that is one function: its first result is the loss, the others are
// gradients.
func FuncBounds(f *ir.Func, kind Rounding) []Bound {
	out := boundsOf(pathsTo(f, nil, kind, nil), kind.most(GradientTolerance))
	for i := range out[:min(1, len(out))] {
		out[i].Rel = min(out[i].Rel, kind.most(LossTolerance))
	}
	return out
}

// StageBounds is Bounds of the functions of stages of a module, by stage: what a stage receives has
// come the way to the operand that was sent. O(nodes and operands) for each time that something goes
// through all stages.
func StageBounds(m *ir.Module, s *ir.Stages, kind Rounding) [][]Bound {
	type operand struct {
		g    *ir.Group
		call int // of the group, on each stage
		k    int // operand
	}
	out := make([][]Bound, len(s.Funcs))
	for at, moved := map[operand]path{}, true; moved; { // at is looked up only
		moved = false
		for stage, name := range s.Funcs {
			calls := map[*ir.Node]int{}
			next := map[*ir.Group]int{}
			out[stage] = boundsOf(pathsTo(m.Func(name), nil, kind, func(n *ir.Node, k int, p path) path {
				if peers, err := s.Peers(stage, n.Group()); err != nil || len(peers) < 2 {
					return p
				}
				if _, ok := calls[n]; !ok {
					calls[n] = next[n.Group()]
					next[n.Group()]++
				}
				c := operand{n.Group(), calls[n], k}
				if was := at[c]; was.join(p) != was {
					at[c], moved = was.join(p), true
				}
				return at[c]
			}), kind.most(GradientTolerance))
		}
	}
	return out
}

// most is the largest bound of a kind of runs.
func (k Rounding) most(tolerance float64) float64 {
	if k == FewerRoundings {
		return 1
	}
	return tolerance
}

// boundsOf turns paths into bounds of at most so much.
func boundsOf(paths []path, most float64) []Bound {
	out := make([]Bound, len(paths))
	for i, p := range paths {
		if out[i].Bits = !p.open; p.open {
			out[i].Rel, out[i].Steps = min(2*math.Sqrt(p.squares), most), p.steps
		}
	}
	return out
}

// pathsTo finds the paths to each output tensor from those to the input tensors, nil
// for none. across is the path to an operand of a collective on any rank, given that on this one; nil
// where they are the same.
func pathsTo(f *ir.Func, in []path, kind Rounding, across func(n *ir.Node, k int, p path) path) []path {
	at := make([][]path, f.NumValueIDs()) // by value and tensor
	inputs := 0
	for _, n := range f.Order() {
		if n.Op() == ir.OpReturn {
			break
		}
		var all path
		for _, a := range n.Args() {
			for _, p := range at[a.ID()] {
				all = all.join(p)
			}
		}
		for i, r := range n.Results() {
			at[r.ID()] = make([]path, len(r.Type().Tensors()))
			for k, t := range r.Type().Tensors() {
				p := all
				switch {
				case n.Op() == ir.OpInput && inputs < len(in):
					p = in[inputs]
					inputs++
				case n.Op().IsCollective(): // a bucket is its members
					if p = at[n.Arg(k).ID()][0]; across != nil {
						p = across(n, k, p)
					}
				case n.Op() == ir.OpWaitTensor && !r.IsVersion():
					p = at[n.Arg(0).ID()][i]
				}
				if s := squares(f.Module(), n, t); s > 0 {
					p.squares, p.steps = p.squares+s, p.steps+1
					p.open = p.open || kind >= OtherRoundings || kind == Reassociated && addsRanks(n)
				}
				at[r.ID()][k] = p
			}
		}
	}
	var out []path
	for _, s := range interp.OutputSlots(f) {
		out = append(out, at[s.Value.ID()][s.Index])
	}
	return out
}

// addsRanks reports whether n adds or multiplies numbers of several ranks.
func addsRanks(n *ir.Node) bool {
	r := n.Reduction()
	return n.Op().Info().Reduces && r != ir.Min && r != ir.Max
}

// unit is the largest relative error of one rounding.
func unit(dt ir.DType) float64 {
	if !dt.IsFloat() {
		return 0
	}
	return math.Ldexp(1, -1-dt.Mantissa())
}

// squares is what n adds to the squares of relative errors of a result of type t: 0 for
// what gives integers, moves, compares, selects or changes a sign.
func squares(m *ir.Module, n *ir.Node, t ir.Type) float64 {
	u := unit(t.DType())
	sum := func(terms int64) float64 { // in f32, or f64, and rounded once
		acc := min(u, 0x1p-24)
		return float64(max(terms, 1))*acc*acc + u*u
	}
	size := func(k int, dims ...int) int64 {
		return m.Hint(pick(n.Arg(k).Type().Shape(), dims).NumElems())
	}
	switch op := n.Op(); op {
	case ir.OpAmax, ir.OpAmin, ir.OpRand, ir.OpFull, ir.OpConstant, ir.OpIota, ir.OpInput:
		return 0
	case ir.OpConvert:
		if n.Arg(0).Type().DType().Size() < t.DType().Size() {
			return 0
		}
		return u * u
	case ir.OpSum, ir.OpMean, ir.OpProd, ir.OpCumsum, ir.OpSoftmax, ir.OpLogSoftmax:
		return sum(size(0))
	case ir.OpGroupedMatmul:
		return sum(size(0, n.Arg(0).Type().Rank()-1))
	case ir.OpMatmul, ir.OpAddmm:
		return sum(size(len(n.Args())-2, n.Arg(len(n.Args())-2).Type().Rank()-1))
	case ir.OpReduceWindow:
		if how := n.Attrs().Str("reduce", ""); how != "sum" && how != "product" {
			return 0
		}
		taps := int64(1)
		for _, k := range n.Attrs().Ints("window") {
			taps *= k
		}
		return sum(taps)
	case ir.OpConvolution:
		return sum(m.Hint(n.Arg(1).Type().Shape()[1:].NumElems()))
	case ir.OpAttention, ir.OpAttentionBackward:
		return sum(size(1, 2, 3)) + 4*u*u
	case ir.OpIndexPut, ir.OpIndexAdd, ir.OpScatter:
		if op == ir.OpIndexPut && !n.Attrs().Bool("accumulate", false) || op == ir.OpScatter && !n.Attrs().Has("reduce") {
			return 0
		}
		return sum(size(1))
	case ir.OpCall, ir.OpWhile, ir.OpCase:
		return u * u
	default:
		switch info := op.Info(); {
		case info.Reduces && addsRanks(n):
			return sum(int64(n.Group().Size()))
		case info.Exact:
			return convertsTo(n, t.DType(), u)
		case info.Elementwise:
			return 4 * u * u // functions are a few units off
		}
	}
	return 0
}

// convertsTo is what an operation that only selects or moves adds: a rounding where an operand is not of
// the result's type dt, nor of a narrower one, or a number among the attributes is none of that type.
func convertsTo(n *ir.Node, dt ir.DType, u float64) float64 {
	for _, a := range n.Attrs() {
		if c, ok := a.Val.AsFloat(); ok && dt.IsFloat() && dt.Size() < ir.F32.Size() && c == c && dt.Rounded(c) != c {
			return u * u
		}
	}
	for _, a := range n.Args() {
		for _, t := range a.Type().Tensors() {
			if from := t.DType(); from != dt && from != ir.Bool && from.Size() >= dt.Size() {
				return u * u
			}
		}
	}
	return 0
}

// pick returns the dimensions of a shape at the places in dims, all if there are none.
func pick(s ir.Shape, dims []int) ir.Shape {
	if dims == nil {
		return s
	}
	var out ir.Shape
	for _, d := range dims {
		out = append(out, s[d])
	}
	return out
}

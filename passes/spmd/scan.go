package spmd

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file has what accumulates along a dimension of which each rank has some: running sums, and
// windows over all that is in front of a place, or behind it. Each rank does that for its piece,
// the ranks tell each other what comes out in the end, and each adds what those in front have.

// scan is what accumulates along a dimension.
type scan struct {
	how  ir.Reduction
	back bool // from the end on
}

// scanned says what accumulates along dimension d, if anything does.
func scanned(n *ir.Node, d int) (scan, bool) {
	if n.Op() == ir.OpCumsum {
		return scan{how: ir.Sum}, d == int(n.Attrs().Int("dim", 0))
	}
	if n.Op() != ir.OpReduceWindow || !folds(n) {
		return scan{}, false
	}
	w, ok := slid(n, d)
	all := shapeOf(n.Arg(0))[d]
	if !ok || all < 2 || w.Size != all || w.Stride != 1 || w.Base != 1 || w.Dilation != 1 || w.Low+w.High != all-1 || w.Low*w.High != 0 {
		return scan{}, false
	}
	return scan{folding(n), w.High > 0}, true
}

// folding is the reduction that a window folds what it sees by.
func folding(n *ir.Node) ir.Reduction {
	return map[string]ir.Reduction{"sum": ir.Sum, "product": ir.Product, "max": ir.Max, "min": ir.Min}[n.Attrs().Str("reduce", "")]
}

// numbers is the factor of the dimension that an attribute names, of what is no boolean.
func numbers(n *ir.Node, r *sharding.Rule, f int) bool {
	return attrDim(n, r, f) && n.Result(0).Type().DType() != ir.Bool
}

// passing is what it costs that ranks tell each other what comes out in the end of their pieces.
func passing(p *partitioner, c *choice) int64 {
	cost := int64(0)
	y, l := p.vals[c.n.Arg(0).ID()], c.args[0]
	for d := range l.dims {
		if _, ok := scanned(c.n, d); !ok || len(l.dims[d]) == 0 || p.how.near {
			continue
		}
		ends := tensor{slices.Clone(y.shape), y.bytes}
		ends.shape[d] = p.g.size(l.dims[d])
		at := p.g.with(l, d, ends.shape[d], l.dims[d])
		cost += p.g.gather(ends, at, d, len(l.dims[d])).cost + 3*launch + 2*p.g.bytes(y.tensor, l)/perMemory
	}
	return cost
}

// laidOver is what windows cost along dimensions that are cut.
func laidOver(p *partitioner, c *choice) int64 {
	return min(exchanged(windowsOf)(p, c)+passing(p, c), impossible)
}

// summedUp is a running sum along a dimension that may be cut.
func summedUp(p *partitioner, c *choice, args []*ir.Value, types []ir.Type) []*ir.Value {
	v := p.op(c.n.Op(), nil, c.n.Attrs(), args, types...)[0]
	d := int(c.n.Attrs().Int("dim", 0))
	if len(c.args[0].dims[d]) == 0 {
		return []*ir.Value{v}
	}
	s, _ := scanned(c.n, d)
	return []*ir.Value{p.passed(v, c.outs[0], d, s)}
}

// part is the window of a scan that is laid over a rank's piece alone: its size and padding.
func (s scan) part(size int64) window.Dim {
	if s.back {
		return window.Dim{Size: size, High: size - 1}
	}
	return window.Dim{Size: size, Low: size - 1}
}

// passed adds to what accumulates in a rank's piece what it does in those in front of it.
func (p *partitioner) passed(v *ir.Value, l layout, d int, s scan) *ir.Value {
	if p.err != nil {
		return nil
	}
	dt, dim, k := v.Type().DType(), int64(d), p.g.size(l.dims[d])
	rows := func(v *ir.Value, from, to int64) *ir.Value {
		return p.one(ir.OpSlice, ir.A("dim", dim, "start", from, "end", to), []*ir.Value{v})
	}
	end, kept := shapeOf(v)[d]-1, int64(0) // where the piece ends, and the ends that others need
	if s.back {
		end, kept = 0, 1
	}
	ends := p.waited(ir.OpAllGather, p.group(p.g, l.dims[d]), ir.A("dim", dim), p.contiguous(rows(v, end, end+1)))
	if p.err != nil {
		return nil
	}
	shape := slices.Clone(shapeOf(ends))
	shape[d] = 1
	joined := []*ir.Value{p.full(dt, neutral(string(s.how), dt), shape...), rows(ends, kept, kept+k-1)}
	if s.back {
		slices.Reverse(joined)
	}
	ends = p.one(ir.OpCat, ir.A("dim", dim), joined)
	if s.how == ir.Sum && !s.back {
		ends = p.one(ir.OpCumsum, ir.A("dim", dim), []*ir.Value{ends})
	} else {
		sizes, padding := slices.Repeat([]int64{1}, len(shape)), make([]int64, 2*len(shape))
		w := s.part(k)
		sizes[d], padding[2*d], padding[2*d+1] = w.Size, w.Low, w.High
		name := map[ir.Reduction]string{ir.Sum: "sum", ir.Product: "product", ir.Max: "max", ir.Min: "min"}[s.how]
		ends = p.one(ir.OpReduceWindow, ir.A("window", sizes, window.PaddingKey, padding, "reduce", name), []*ir.Value{ends})
	}
	if p.err != nil {
		return nil
	}
	mine := p.op(ir.OpShard, p.group(p.g, l.dims[d]), ir.A("dim", dim), []*ir.Value{ends})[0]
	both := map[ir.Reduction]ir.Op{ir.Sum: ir.OpAdd, ir.Product: ir.OpMul, ir.Max: ir.OpMaximum, ir.Min: ir.OpMinimum}[s.how]
	return p.one(both, nil, []*ir.Value{v, mine})
}

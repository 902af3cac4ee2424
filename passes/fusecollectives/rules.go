package fusecollectives

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// track says along which dimension of a tensor the rows of a region lie, and in how many
// runs: a chunk has a piece of each run. One rank's rows are one run; what all_gather gives
// has one for each rank. Where a view joins the dimension with those behind it, a row is
// several places of it.
type track struct {
	dim  int // -1: the tensor has no rows of the region and is read whole
	runs int64
	each int64 // places of a row
}

var none = track{dim: -1}

// piece is the type of a tensor with so many rows of each run.
func (t track) piece(of ir.Type, rows int64) ir.Type {
	shape := slices.Clone(of.Shape())
	shape[t.dim] = ir.D(t.runs * rows * t.each)
	return ir.TensorOf(of.DType(), shape)
}

// flow is where rows go through a node.
type flow struct{ args, outs []track }

// rule says how rows go through operations that have a column of the op table in common. Of
// the rules the first that is of an operation counts.
type rule struct {
	name  string
	doc   string
	legal string
	of    func(n *ir.Node) bool

	// flow completes what is known of the rows of operands (down) or of results: false if
	// chunks of them cannot be computed from each other.
	flow func(n *ir.Node, known []track, down bool) (flow, bool)
}

// rules is the table.
func rules() []rule {
	return []rule{
		{"gather", "all_gather along the rows", "equal pieces; a chunk has a part of every rank's piece", isOp(ir.OpAllGather), ranked(func(r, n int64) (int64, bool) { return r * n, true })},
		{"scatter", "reduce_scatter along the rows, or this rank's piece of them", "the runs are those of ranks", isOp(ir.OpReduceScatter, ir.OpShard), ranked(func(r, n int64) (int64, bool) { return r / n, r%n == 0 })},
		{"exchange", "all_to_all of equal pieces along the rows", "the runs are those of ranks, and no sizes are given", isOp(ir.OpAllToAll), ranked(func(r, n int64) (int64, bool) { return r, r%n == 0 })},
		{"transport", "what reduces or moves every element alike", "always", isOp(ir.OpAllReduce, ir.OpBroadcast, ir.OpCollectivePermute, ir.OpWaitTensor), kept},
		{"reshape", "views under another shape", "what is behind the rows stays behind them", isOp(ir.OpView, ir.OpSqueeze, ir.OpUnsqueeze), reshaped},
		{"row-wise", "operations whose rule of factors passes the rows through: elementwise operations, rows of matmuls, reductions, scans, slices and concatenations along other dimensions, look-ups of rows, views", "each row of a result is made of one row of each operand that has rows, and of all of the others; the attributes are the same for fewer rows", byRows, factored},
	}
}

func isOp(ops ...ir.Op) func(*ir.Node) bool {
	return func(n *ir.Node) bool { return slices.Contains(ops, n.Op()) }
}

// byRows reports whether package equiv sees through chunks of an operation.
func byRows(n *ir.Node) bool {
	switch n.Op() {
	case ir.OpMatmul, ir.OpAddmm, ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd, ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum,
		ir.OpClone, ir.OpCat, ir.OpEmbedding:
		return true
	}
	return n.Op().IsView() || n.Op().Info().Elementwise
}

// flowOf applies the first rule of n.
func flowOf(table []rule, n *ir.Node, known []track, down bool) (flow, bool) {
	for _, r := range table {
		if r.of(n) {
			return r.flow(n, known, down)
		}
	}
	return flow{}, false
}

// only is the one track there is of several, false if there is none, or another.
func only(known []track) (one track, ok bool) {
	for _, t := range known {
		switch {
		case t.dim < 0:
		case ok:
			return none, false
		default:
			one, ok = t, true
		}
	}
	return one, ok
}

// ranked is the flow of a collective along whose dimension the runs change.
func ranked(down func(runs, ranks int64) (int64, bool)) func(*ir.Node, []track, bool) (flow, bool) {
	return func(n *ir.Node, known []track, forward bool) (flow, bool) {
		t, ok := only(known)
		if !ok || n.Attrs().Has("in_splits") {
			return flow{}, false
		}
		if t.dim != int(n.Attrs().Int("dim", 0)) {
			return flow{[]track{t}, []track{t}}, true
		}
		ranks := int64(n.Group().Size())
		// Of what the two sides have, the runs of the one follow from the other.
		for _, in := range []int64{t.runs, t.runs * ranks, t.runs / ranks} {
			out, ok := down(in, ranks)
			if ok && in > 0 && (forward && in == t.runs || !forward && out == t.runs) {
				return flow{[]track{{t.dim, in, t.each}}, []track{{t.dim, out, t.each}}}, true
			}
		}
		return flow{}, false
	}
}

func kept(_ *ir.Node, known []track, _ bool) (flow, bool) {
	t, ok := only(known)
	return flow{[]track{t}, []track{t}}, ok
}

// reshaped finds the dimension that has a row, or a part of it, behind each place: what is before
// it are runs.
func reshaped(n *ir.Node, known []track, down bool) (flow, bool) {
	t, ok := only(known)
	from, to := n.Arg(0).Type(), n.Result(0).Type()
	if !down {
		from, to = to, from
	}
	a, okA := from.Shape().Static()
	b, okB := to.Shape().Static()
	if !ok || !okA || !okB || len(n.Args()) != 1 || len(n.Results()) != 1 {
		return flow{}, false
	}
	runs, row := t.runs*intmath.Product(a[:t.dim]), t.each*intmath.Product(a[t.dim+1:])
	for d := range b {
		before, behind := intmath.Product(b[:d]), intmath.Product(b[d+1:])
		if b[d] == 1 || before == 0 || behind == 0 || runs == 0 || row == 0 || runs%before != 0 || row%behind != 0 || b[d]%(runs/before*(row/behind)) != 0 {
			continue
		}
		u := track{d, runs / before, row / behind}
		if down {
			return flow{[]track{t}, []track{u}}, true
		}
		return flow{[]track{u}, []track{t}}, true
	}
	return flow{}, false
}

// factored follows the factor of the rows through the rule of an operation.
func factored(n *ir.Node, known []track, down bool) (flow, bool) {
	r, err := sharding.Of(n)
	if err != nil || len(r.Operands) != len(n.Args()) || len(r.Results) != len(n.Results()) {
		return flow{}, false
	}
	sides := [2][]sharding.Tensor{r.Operands, r.Results}
	from := sides[0]
	if !down {
		from = sides[1]
	}
	factor, of := -1, none
	for i, t := range known {
		if t.dim < 0 {
			continue
		}
		fs := from[i][t.dim]
		if len(fs) != 1 || factor >= 0 && (fs[0] != factor || t.runs != of.runs || t.each != of.each) {
			return flow{}, false
		}
		factor, of = fs[0], t
	}
	if factor < 0 || r.Factors[factor].Kind != sharding.PassThrough {
		return flow{}, false
	}
	if multiplies(n) && !slices.ContainsFunc(r.Operands[len(n.Args())-2], func(fs []int) bool { return slices.Contains(fs, factor) }) {
		return flow{}, false // columns: each chunk would read all rows
	}
	var out [2][]track
	for k, side := range sides {
		for _, dims := range side {
			t := none
			for d, fs := range dims {
				if !slices.Contains(fs, factor) {
					continue
				}
				if len(fs) != 1 || t.dim >= 0 {
					return flow{}, false
				}
				t = track{d, of.runs, of.each}
			}
			if k == 1 && t.dim < 0 {
				return flow{}, false
			}
			out[k] = append(out[k], t)
		}
	}
	for i, t := range known {
		if t.dim >= 0 && down && out[0][i] != t {
			return flow{}, false
		}
	}
	fl := flow{out[0], out[1]}
	return fl, alike(n, fl)
}

// alike reports whether an operation computes fewer rows with the attributes that it has for all.
func alike(n *ir.Node, fl flow) bool {
	args, ok := fewer(n.Args(), fl.args)
	results, too := fewer(n.Results(), fl.outs)
	if !ok || !too {
		return false
	}
	got, err := ir.Infer(n.Op(), n.Group(), n.Attrs(), args, results...)
	return err == nil && slices.EqualFunc(got, results, func(a, b ir.Type) bool { return a.Shape().Equal(b.Shape()) })
}

// fewer are the types of values with one row of each run.
func fewer(values []*ir.Value, tracks []track) ([]ir.Type, bool) {
	var out []ir.Type
	for i, v := range values {
		t := v.Type()
		if tr := tracks[i]; tr.dim >= len(t.Shape()) {
			return nil, false
		} else if tr.dim >= 0 {
			t = tr.piece(t, 1)
		}
		out = append(out, t)
	}
	return out, true
}

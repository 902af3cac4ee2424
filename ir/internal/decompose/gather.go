package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// GatherDims are the dimension numbers of a gather, by StableHLO's names.
type GatherDims struct {
	OffsetDims, CollapsedSliceDims, OperandBatchingDims, StartIndicesBatchingDims, StartIndexMap []int64
	IndexVectorDim                                                                               int64
	SliceSizes                                                                                   []int64
}

// windows says where slices of a tensor lie: for each dimension that they do not fill, or
// that is looked up, how many of its elements they have and where they begin.
type windows struct {
	e       emit
	clamp   bool        // slices are moved to lie within the tensor
	entire  bool        // slices that reach over its edge are left out, not only what is beyond it
	shape   []int64     // of the tensor
	batch   []int64     // sizes of the dimensions that number the slices
	starts  []*ir.Value // of each dimension, over batch; nil for 0
	slices  []int64     // size of the slices in each dimension
	dropped []bool      // dimensions of size 1 that slices do not have
	batched []int       // of each dimension: that of the batch which goes with it, or -1
	looked  []int       // dimensions that are looked up, ascending
	others  []int       // the rest
	inner   []int       // looked-up dimensions that slices have
}

// numbering is the dimension numbers that gather and scatter share.
type numbering struct {
	vector            int64   // dimension of the indices along which each vector of them lies
	to                []int64 // dimension of the tensor that each element of a vector is a position in
	batching, batched []int64 // dimensions of the tensor, and those of the indices that go with them
	slices            []int64 // sizes
	dropped           []int64 // dimensions that slices do not have
	clamp             bool    // slices are moved to lie within the tensor
	entire            bool    // slices that reach over its edge are left out
}

// newWindows reads the index vectors.
func newWindows(e emit, what string, shape []int64, indices *ir.Value, n numbering) (*windows, error) {
	rank := sizes(indices)
	switch dt := indices.Type().DType(); {
	case !dt.IsInt():
		return nil, fmt.Errorf("%s: indices are %s, want integers", what, indices.Type())
	case n.vector < 0 || n.vector > int64(len(rank)):
		return nil, fmt.Errorf("%s: index_vector_dim=%d is outside the %d dimensions of the indices", what, n.vector, len(rank))
	case n.vector == int64(len(rank)):
		indices = e.view(indices, append(slices.Clone(rank), 1))
		rank = sizes(indices)
	}
	if int64(len(n.to)) != rank[n.vector] {
		return nil, fmt.Errorf("%s: index vectors have %d elements for %d dimensions", what, rank[n.vector], len(n.to))
	}
	if len(n.batching) != len(n.batched) {
		return nil, fmt.Errorf("%s: %d batching dimensions of the operand, %d of the indices", what, len(n.batching), len(n.batched))
	}
	for _, l := range [][]int64{n.to, n.dropped, n.batching, slices.Concat(n.dropped, n.batching), slices.Concat(n.to, n.batching)} {
		if err := distinct(what, len(shape), l); err != nil {
			return nil, err
		}
	}
	if err := distinct(what, len(rank), append(slices.Clone(n.batched), n.vector)); err != nil {
		return nil, err
	}
	w := &windows{e: e, clamp: n.clamp, entire: n.entire, shape: shape, slices: n.slices, dropped: make([]bool, len(shape)), starts: make([]*ir.Value, len(shape)), batched: make([]int, len(shape))}
	for d := range w.batched {
		w.batched[d] = -1
	}
	w.batch = slices.Delete(slices.Clone(rank), int(n.vector), int(n.vector)+1)
	for d, size := range shape {
		if n.slices[d] < 0 || n.slices[d] > size {
			return nil, fmt.Errorf("%s: slices of %d elements in dimension %d of %d", what, n.slices[d], d, size)
		}
	}
	for _, d := range slices.Concat(n.dropped, n.batching) {
		if n.slices[d] > 1 {
			return nil, fmt.Errorf("%s: slices have %d elements in dimension %d, which they do not have", what, n.slices[d], d)
		}
		w.dropped[d] = true
	}
	for k, d := range n.to {
		if n.clamp && n.slices[d] == shape[d] {
			continue // at 0
		}
		at := e.one(ir.OpSelect, ir.A("dim", n.vector, "index", k), []*ir.Value{indices})
		if at.Type().DType() == ir.U64 { // beyond every tensor stays beyond it
			at = e.one(ir.OpClamp, ir.A("max", int64(1)<<62), []*ir.Value{at})
		}
		w.starts[d] = e.convert(at, ir.I64)
	}
	for i, d := range n.batching {
		at := int(n.batched[i])
		if rank[at] != shape[d] {
			return nil, fmt.Errorf("%s: batching dimension %d has size %d, that of the indices %d", what, d, shape[d], rank[at])
		}
		if at > int(n.vector) {
			at--
		}
		w.starts[d], w.batched[d] = e.count(shape[d], len(w.batch), at), at
	}
	for d := range shape {
		if w.starts[d] == nil && n.slices[d] == shape[d] && !w.dropped[d] {
			w.others = append(w.others, d)
			continue
		}
		w.looked = append(w.looked, d)
		if !w.dropped[d] {
			w.inner = append(w.inner, d)
		}
	}
	return w, nil
}

// positions are those of every looked-up element in dimension d, over the batch and the
// sizes of the slices in the inner dimensions, or what broadcasts to that.
func (w *windows) positions(d int) *ir.Value {
	rank := len(w.batch) + len(w.inner)
	at := w.starts[d]
	if at != nil {
		if w.clamp {
			at = w.e.one(ir.OpClamp, ir.A("min", 0, "max", w.shape[d]-w.slices[d]), []*ir.Value{at})
		}
		at = w.e.view(at, append(slices.Clone(sizes(at)), ones(len(w.inner))...))
	}
	i := slices.Index(w.inner, d)
	if i < 0 || w.slices[d] == 1 && at != nil {
		if at == nil {
			at = w.e.integer(ir.I64, 0, ones(rank)...)
		}
		return at
	}
	along := w.e.count(w.slices[d], rank, len(w.batch)+i)
	if at == nil {
		return along
	}
	return w.e.binary(ir.OpAdd, at, along)
}

// rows are the looked-up dimensions as one: how many rows there are, and the place in them of
// every looked-up element, over the batch and the inner dimensions. What lies outside, if any
// may, is at any of them.
func (w *windows) rows() (n int64, at, outside *ir.Value) {
	n = 1
	for _, d := range w.looked {
		p := w.positions(d)
		if !w.clamp && w.starts[d] != nil {
			out := w.outside(d, p)
			if outside != nil {
				out = w.e.binary(ir.OpLogicalOr, outside, out)
			}
			outside = out
		}
		if at != nil {
			p = w.e.binary(ir.OpAdd, w.e.with(ir.OpMul, at, w.shape[d]), p)
		}
		at = p
		n *= w.shape[d]
	}
	if at == nil {
		at = w.e.integer(ir.I64, 0, ones(len(w.batch))...)
	}
	full := w.arranged()[:len(w.batch)+len(w.inner)]
	flat := func(x *ir.Value) *ir.Value { return w.e.view(w.e.expand(x, full), []int64{intmath.Product(full)}) }
	if outside != nil {
		at, outside = w.e.where(outside, w.e.integer(ir.I64, 0), at), flat(outside)
	}
	return n, flat(at), outside
}

// outside is where positions p in dimension d are none, or are of a slice that is left out.
func (w *windows) outside(d int, p *ir.Value) *ir.Value {
	if !w.entire {
		return w.e.outside(p, w.shape[d])
	}
	at := w.starts[d]
	return w.e.outside(w.e.view(at, append(slices.Clone(sizes(at)), ones(len(w.inner))...)), w.shape[d]-w.slices[d]+1)
}

// outside is where positions are none of n elements.
func (e emit) outside(p *ir.Value, n int64) *ir.Value {
	return e.binary(ir.OpLogicalOr, e.with(ir.OpLt, p, 0), e.with(ir.OpGe, p, n))
}

// order has the looked-up dimensions first.
func (w *windows) order() []int { return slices.Concat(w.looked, w.others) }

// table is a tensor with the looked-up dimensions as its first.
func (w *windows) table(x *ir.Value, rows int64) *ir.Value {
	to := []int64{rows}
	for _, d := range w.others {
		to = append(to, w.shape[d])
	}
	return w.e.view(w.e.permute(x, w.order()), to)
}

// rest is the shape of slices behind the looked-up dimensions.
func (w *windows) rest() []int64 {
	var l []int64
	for _, d := range w.others {
		l = append(l, w.shape[d])
	}
	return l
}

// arrangement says for each dimension of a tensor of slices, whose dimensions windowDims are
// those of the slices and whose others are the batch, which dimension of (batch, inner,
// others) it is.
func (w *windows) arrangement(what string, rank int, windowDims []int64) ([]int, error) {
	if err := distinct(what, rank, windowDims); err != nil {
		return nil, err
	}
	var kept []int
	for d := range w.shape {
		if !w.dropped[d] {
			kept = append(kept, d)
		}
	}
	if len(windowDims) != len(kept) || rank != len(w.batch)+len(kept) {
		return nil, fmt.Errorf("%s: %d dimensions of which %d are those of slices, want %d of which %d", what, rank, len(windowDims), len(w.batch)+len(kept), len(kept))
	}
	var from []int
	batch := 0
	for r := range rank {
		i := slices.Index(windowDims, int64(r))
		if i < 0 {
			from = append(from, batch)
			batch++
			continue
		}
		if at := slices.Index(w.inner, kept[i]); at >= 0 {
			from = append(from, len(w.batch)+at)
		} else {
			from = append(from, len(w.batch)+len(w.inner)+slices.Index(w.others, kept[i]))
		}
	}
	return from, nil
}

// arranged is the shape (batch, inner, others).
func (w *windows) arranged() []int64 {
	l := slices.Clone(w.batch)
	for _, d := range w.inner {
		l = append(l, w.slices[d])
	}
	return append(l, w.rest()...)
}

// Gather returns slices of x at the positions that the index vectors in starts give, each
// moved to lie within x.
func Gather(to Emitter, x, starts *ir.Value, d GatherDims) (*ir.Value, error) {
	if err := check("gather", x, starts); err != nil {
		return nil, err
	}
	if len(d.SliceSizes) != x.Type().Rank() {
		return nil, fmt.Errorf("gather: %d slice sizes for %s", len(d.SliceSizes), x.Type())
	}
	e := emit{to}
	w, err := newWindows(e, "gather", sizes(x), starts, numbering{d.IndexVectorDim, d.StartIndexMap, d.OperandBatchingDims, d.StartIndicesBatchingDims, d.SliceSizes, d.CollapsedSliceDims, true, false})
	if err != nil {
		return nil, err
	}
	from, err := w.arrangement("gather: offset_dims", len(w.batch)+len(d.OffsetDims), d.OffsetDims)
	if err != nil {
		return nil, err
	}
	if n := slices.Concat(w.batch, d.SliceSizes); slices.Contains(n, 0) { // nothing is read
		shape := w.arranged()
		out := make([]int64, len(from))
		for i, f := range from {
			out[i] = shape[f]
		}
		return e.full(x.Type().DType(), 0, out...), nil
	}
	if l := w.lines(); l != nil {
		return l.gather(x, from), nil
	}
	rows, at, _ := w.rows()
	got := e.one(ir.OpIndex, ir.A("dims", []int64{0}), []*ir.Value{w.table(x, rows), at})
	return e.permute(e.view(got, w.arranged()), from), nil
}

// back is a table as the tensor whose dimensions stand in it in that order.
func (w *windows) back(table *ir.Value, order []int) *ir.Value {
	inverse, ordered := make([]int, len(order)), make([]int64, len(order))
	for i, k := range order {
		inverse[k], ordered[i] = i, w.shape[k]
	}
	return w.e.permute(w.e.view(table, ordered), inverse)
}

package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// GatherDims are the dimension numbers of a gather, by StableHLO's names.
type GatherDims struct {
	OffsetDims, CollapsedSliceDims, OperandBatchingDims, StartIndicesBatchingDims, StartIndexMap []int64
	IndexVectorDim                                                                               int64
	SliceSizes                                                                                   []int64
}

// ScatterDims are the dimension numbers of a scatter, by StableHLO's names.
type ScatterDims struct {
	UpdateWindowDims, InsertedWindowDims, InputBatchingDims, ScatterIndicesBatchingDims, ScatterDimsToOperandDims []int64
	IndexVectorDim                                                                                                int64
	UniqueIndices                                                                                                 bool
}

// windows says where slices of a tensor lie: for each dimension that they do not fill, or
// that is looked up, how many of its elements they have and where they begin.
type windows struct {
	e       emit
	clamp   bool        // slices are moved to lie within the tensor
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

// newWindows reads the index vectors. batching names dimensions of the tensor that go with
// dimensions of the indices. With clamp set, slices are moved to lie within the tensor.
func newWindows(e emit, what string, shape []int64, indices *ir.Value, vector int64, toDims, batching, indexBatching, slice, dropped []int64, clamp bool) (*windows, error) {
	rank := sizes(indices)
	switch dt := indices.Type().DType(); {
	case !dt.IsInt():
		return nil, fmt.Errorf("%s: indices are %s, want integers", what, indices.Type())
	case vector < 0 || vector > int64(len(rank)):
		return nil, fmt.Errorf("%s: index_vector_dim=%d is outside the %d dimensions of the indices", what, vector, len(rank))
	case vector == int64(len(rank)):
		indices = e.view(indices, append(slices.Clone(rank), 1))
		rank = sizes(indices)
	}
	if int64(len(toDims)) != rank[vector] {
		return nil, fmt.Errorf("%s: index vectors have %d elements for %d dimensions", what, rank[vector], len(toDims))
	}
	if len(batching) != len(indexBatching) {
		return nil, fmt.Errorf("%s: %d batching dimensions of the operand, %d of the indices", what, len(batching), len(indexBatching))
	}
	for _, l := range [][]int64{toDims, dropped, batching, slices.Concat(dropped, batching), slices.Concat(toDims, batching)} {
		if err := distinct(what, len(shape), l); err != nil {
			return nil, err
		}
	}
	if err := distinct(what, len(rank), append(slices.Clone(indexBatching), vector)); err != nil {
		return nil, err
	}
	w := &windows{e: e, clamp: clamp, shape: shape, slices: slice, dropped: make([]bool, len(shape)), starts: make([]*ir.Value, len(shape)), batched: make([]int, len(shape))}
	for d := range w.batched {
		w.batched[d] = -1
	}
	w.batch = slices.Delete(slices.Clone(rank), int(vector), int(vector)+1)
	for d, n := range shape {
		if slice[d] < 0 || slice[d] > n {
			return nil, fmt.Errorf("%s: slices of %d elements in dimension %d of %d", what, slice[d], d, n)
		}
	}
	for _, d := range slices.Concat(dropped, batching) {
		if slice[d] > 1 {
			return nil, fmt.Errorf("%s: slices have %d elements in dimension %d, which they do not have", what, slice[d], d)
		}
		w.dropped[d] = true
	}
	for k, d := range toDims {
		if clamp && slice[d] == shape[d] {
			continue // at 0
		}
		at := e.one(ir.OpSelect, ir.A("dim", vector, "index", k), []*ir.Value{indices})
		if at.Type().DType() == ir.U64 { // beyond every tensor stays beyond it
			at = e.one(ir.OpClamp, ir.A("max", int64(1)<<62), []*ir.Value{at})
		}
		w.starts[d] = e.convert(at, ir.I64)
	}
	for i, d := range batching {
		at := int(indexBatching[i])
		if rank[at] != shape[d] {
			return nil, fmt.Errorf("%s: batching dimension %d has size %d, that of the indices %d", what, d, shape[d], rank[at])
		}
		if at > int(vector) {
			at--
		}
		w.starts[d], w.batched[d] = e.count(ir.I64, shape[d], len(w.batch), at), at
	}
	for d := range shape {
		if w.starts[d] == nil && slice[d] == shape[d] && !w.dropped[d] {
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
	along := w.e.count(ir.I64, w.slices[d], rank, len(w.batch)+i)
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
			out := w.e.outside(p, w.shape[d])
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
	flat := func(x *ir.Value) *ir.Value { return w.e.view(w.e.expand(x, full), []int64{product(full)}) }
	if outside != nil {
		at, outside = w.e.where(outside, w.e.integer(ir.I64, 0), at), flat(outside)
	}
	return n, flat(at), outside
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
	w, err := newWindows(e, "gather", sizes(x), starts, d.IndexVectorDim, d.StartIndexMap, d.OperandBatchingDims, d.StartIndicesBatchingDims, d.SliceSizes, d.CollapsedSliceDims, true)
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

// Scatter returns xs with updates joined at the positions that the index vectors in indices
// give, by a body of two parameters for each tensor: what is there, and the update. Elements
// that lie outside are left out. Updates join in row-major order.
func Scatter(to Emitter, xs []*ir.Value, indices *ir.Value, updates []*ir.Value, d ScatterDims, body Body) ([]*ir.Value, error) {
	if err := check("scatter", slices.Concat(xs, updates, []*ir.Value{indices})...); err != nil {
		return nil, err
	}
	if len(xs) == 0 || len(xs) != len(updates) {
		return nil, fmt.Errorf("scatter: %d tensors and %d updates", len(xs), len(updates))
	}
	e := emit{to}
	shape, given := sizes(xs[0]), sizes(updates[0])
	for i := range xs {
		if !slices.Equal(sizes(xs[i]), shape) || !slices.Equal(sizes(updates[i]), given) {
			return nil, fmt.Errorf("scatter: tensor %d is %s and its update %s, those of tensor 0 are %s and %s", i, xs[i].Type(), updates[i].Type(), xs[0].Type(), updates[0].Type())
		}
	}
	if err := distinct("scatter: update_window_dims", len(given), d.UpdateWindowDims); err != nil {
		return nil, err
	}
	slice, next := ones(len(shape)), 0
	for k := range shape {
		if slices.Contains(d.InsertedWindowDims, int64(k)) || slices.Contains(d.InputBatchingDims, int64(k)) {
			continue
		}
		if next >= len(d.UpdateWindowDims) {
			return nil, fmt.Errorf("scatter: %d update_window_dims for %s", len(d.UpdateWindowDims), xs[0].Type())
		}
		slice[k] = given[d.UpdateWindowDims[next]]
		next++
	}
	w, err := newWindows(e, "scatter", shape, indices, d.IndexVectorDim, d.ScatterDimsToOperandDims, d.InputBatchingDims, d.ScatterIndicesBatchingDims, slice, d.InsertedWindowDims, false)
	if err != nil {
		return nil, err
	}
	from, err := w.arrangement("scatter: updates", len(given), d.UpdateWindowDims)
	if err != nil {
		return nil, err
	}
	for r, f := range from {
		if given[r] != w.arranged()[f] {
			return nil, fmt.Errorf("scatter: updates %s have %d elements in dimension %d, the indices give %d", updates[0].Type(), given[r], r, w.arranged()[f])
		}
	}
	if slices.Contains(given, 0) || slices.Contains(shape, 0) {
		return xs, nil
	}
	p, err := probe(body, xs, updates)
	if err != nil {
		return nil, fmt.Errorf("scatter: %v", err)
	}
	if l := w.lines(); l != nil && l.joins(p) {
		return l.scatter(p, xs, updates, from), nil
	}
	s := &scattering{w: w, p: p, unique: d.UniqueIndices}
	s.n, s.at, s.outside = w.rows()
	tables, values := make([]*ir.Value, len(xs)), make([]*ir.Value, len(xs))
	number := len(w.batch) + len(w.inner) // of dimensions that number rows; they stay in the order of the updates
	var order, back []int
	for r, f := range from {
		if f < number {
			order, back = append(order, f), append(back, r)
		}
	}
	for f := number; f < len(from); f++ {
		back = append(back, slices.Index(from, f))
	}
	ordered := func(x *ir.Value) *ir.Value {
		return e.view(e.permute(e.view(x, w.arranged()[:number]), order), sizes(x))
	}
	if s.at = ordered(s.at); s.outside != nil {
		s.outside = ordered(s.outside)
	}
	for i := range xs {
		tables[i] = w.table(xs[i], s.n)
		values[i] = e.view(e.permute(updates[i], back), append(sizes(s.at), w.rest()...))
	}
	out, err := s.join(tables, values, body)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		out[i] = w.back(v, w.order())
	}
	return out, nil
}

// back is a table as the tensor whose dimensions stand in it in that order.
func (w *windows) back(table *ir.Value, order []int) *ir.Value {
	inverse, ordered := make([]int, len(order)), make([]int64, len(order))
	for i, k := range order {
		inverse[k], ordered[i] = i, w.shape[k]
	}
	return w.e.permute(w.e.view(table, ordered), inverse)
}

// scattering is a scatter of rows.
type scattering struct {
	w       *windows
	p       *probed
	n       int64     // rows
	at      *ir.Value // place of each row of the updates
	outside *ir.Value // where there is none; nil if all have one
	unique  bool
}

// maxTurns is how many rows of updates are joined one after the other at most, where nothing
// else is known of the computation.
const maxTurns = 1024

func (s *scattering) join(tables, values []*ir.Value, body Body) ([]*ir.Value, error) {
	out := slices.Clone(tables)
	known := true
	for i := range tables {
		known = known && s.p.known(i)
	}
	if known {
		for i := range tables {
			out[i] = s.joinKnown(s.p.kind(i), tables[i], values[i])
		}
		return out, nil
	}
	turns := sizes(s.at)[0]
	if !s.unique && turns > maxTurns {
		return nil, fmt.Errorf("scatter: %d updates, which may meet, by a computation that is none of replace, add, multiply, minimum and maximum; at most %d are done in turn", turns, maxTurns)
	}
	each := int64(1)
	if s.unique {
		each = turns
	}
	e := s.w.e
	for i := range out {
		out[i] = s.longer(out[i])
	}
	places := s.beyond()
	for k := int64(0); k < turns; k += each {
		at := e.slice(places, 0, k, k+each, 1)
		old, update := make([]*ir.Value, len(out)), make([]*ir.Value, len(out))
		for i, t := range out {
			old[i] = e.one(ir.OpIndex, ir.A("dims", []int64{0}), []*ir.Value{t, at})
			update[i] = e.slice(values[i], 0, k, k+each, 1)
		}
		got, err := apply(e, body, old, update)
		if err != nil {
			return nil, fmt.Errorf("scatter: %v", err)
		}
		for i, t := range out {
			out[i] = e.one(ir.OpIndexPut, ir.A("dims", []int64{0}), []*ir.Value{t, got[i], at})
		}
	}
	for i := range out {
		out[i] = e.slice(out[i], 0, 0, s.n, 1)
	}
	return out, nil
}

// longer is a table with a row behind the last, for what lies outside.
func (s *scattering) longer(table *ir.Value) *ir.Value {
	if s.outside == nil {
		return table
	}
	return s.w.e.cat(0, table, s.w.e.full(table.Type().DType(), 0, append([]int64{1}, sizes(table)[1:]...)...))
}

// beyond are the places, with that of the row behind the last where there is none.
func (s *scattering) beyond() *ir.Value {
	if s.outside == nil {
		return s.at
	}
	return s.w.e.where(s.outside, s.w.e.integer(ir.I64, s.n), s.at)
}

// joinKnown is a scatter by an operation of the table.
func (s *scattering) joinKnown(k kind, x, values *ir.Value) *ir.Value {
	e := s.w.e
	switch k {
	case kindFirst:
		return x
	case kindSecond:
		put := e.one(ir.OpIndexPut, ir.A("dims", []int64{0}), []*ir.Value{s.longer(x), values, s.beyond()})
		return e.slice(put, 0, 0, s.n, 1)
	}
	shape := ones(len(sizes(values)))
	shape[0] = sizes(s.at)[0]
	if s.outside != nil {
		values = e.where(e.view(s.outside, shape), e.nothing(k, values.Type().DType()), values)
	}
	if k == kindAdd {
		return e.one(ir.OpIndexPut, ir.A("dims", []int64{0}, "accumulate", true), []*ir.Value{x, values, s.at})
	}
	at := e.expand(e.view(s.at, shape), sizes(values))
	return e.one(ir.OpScatter, ir.A("dim", 0, "reduce", scatterNames[k]), []*ir.Value{x, at, values})
}

var scatterNames = map[kind]string{kindAdd: "add", kindMul: "multiply", kindMax: "amax", kindMin: "amin"}

package decompose

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// ScatterDims are the dimension numbers of a scatter, by StableHLO's names.
type ScatterDims struct {
	UpdateWindowDims, InsertedWindowDims, InputBatchingDims, ScatterIndicesBatchingDims, ScatterDimsToOperandDims []int64
	IndexVectorDim                                                                                                int64
	UniqueIndices                                                                                                 bool
	Entire                                                                                                        bool // an update that reaches over the edge is left out as a whole, as in HLO
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
	slice, err := d.sizes(shape, given)
	if err != nil {
		return nil, err
	}
	w, err := newWindows(e, "scatter", shape, indices, numbering{d.IndexVectorDim, d.ScatterDimsToOperandDims, d.InputBatchingDims, d.ScatterIndicesBatchingDims, slice, d.InsertedWindowDims, false, d.Entire})
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
		return nil, fmt.Errorf("scatter: %w", err)
	}
	if err := p.gives("scatter", xs); err != nil {
		return nil, err
	}
	if p, updates, err = separated(e, p, updates, body); err != nil {
		return nil, fmt.Errorf("scatter: %w", err)
	}
	if l := w.lines(); l != nil && l.joins(p) {
		return l.scatter(p, xs, updates, from), nil
	}
	s := &scattering{w: w, p: p, unique: d.UniqueIndices}
	tables, values := s.rows(xs, updates, from)
	out, err := s.join(tables, values, body)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		out[i] = w.back(v, w.order())
	}
	return out, nil
}

// sizes are those of the slices that are updated.
func (d ScatterDims) sizes(shape, updates []int64) ([]int64, error) {
	if err := distinct("scatter: update_window_dims", len(updates), d.UpdateWindowDims); err != nil {
		return nil, err
	}
	slice, next := ones(len(shape)), 0
	for k := range shape {
		if slices.Contains(d.InsertedWindowDims, int64(k)) || slices.Contains(d.InputBatchingDims, int64(k)) {
			continue
		}
		if next >= len(d.UpdateWindowDims) {
			return nil, fmt.Errorf("scatter: %d update_window_dims for a tensor %v", len(d.UpdateWindowDims), shape)
		}
		slice[k] = updates[d.UpdateWindowDims[next]]
		next++
	}
	return slice, nil
}

// rows are tensors and their updates as rows, the latter in the order of the updates.
func (s *scattering) rows(xs, updates []*ir.Value, from []int) (tables, values []*ir.Value) {
	w, e := s.w, s.w.e
	s.n, s.at, s.outside = w.rows()
	number := len(w.batch) + len(w.inner) // of dimensions that number rows
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
	for i, x := range xs {
		tables = append(tables, w.table(x, s.n))
		values = append(values, e.view(e.permute(updates[i], back), append(sizes(s.at), w.rest()...)))
	}
	return tables, values
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
		return nil, fmt.Errorf("scatter: %d updates, which may overlap, by a computation that is none of replace, add, multiply, minimum and maximum; at most %d are done in turn", turns, maxTurns)
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
			return nil, fmt.Errorf("scatter: %w", err)
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

// longer is a table with a row after the last, for what lies outside.
func (s *scattering) longer(table *ir.Value) *ir.Value {
	if s.outside == nil {
		return table
	}
	return s.w.e.cat(0, table, s.w.e.full(table.Type().DType(), 0, append([]int64{1}, sizes(table)[1:]...)...))
}

// beyond are the places, with that of the row after the last where there is none.
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

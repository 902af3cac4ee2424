package cudagen

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// form is the shape of a kernel: what its threads walk over.
type form struct {
	rows  bool  // the region reduces
	count int64 // elements of the results, or rows
	big   bool  // 32-bit indices do not suffice

	// Of a form with rows.
	shape    []int64 // what is reduced
	gone     []bool  // by dimension: it is reduced
	length   int64   // columns: elements of a row
	lanes    int     // threads that share a row
	together int     // rows of one block
	columns  bool    // neighbouring threads have neighbouring rows
	serial   bool    // columns have to be walked in order, by one thread
}

// reduces reports whether n folds dimensions, and which.
func reduces(n *ir.Node) (gone []bool, ok bool) {
	rank := 0
	if len(n.Args()) > 0 {
		rank = n.Arg(0).Type().Rank()
	}
	gone = make([]bool, rank)
	set := func(d int64) {
		if d < 0 {
			d += int64(rank)
		}
		if d >= 0 && d < int64(rank) {
			gone[d] = true
		}
	}
	all := func() {
		for d := range gone {
			gone[d] = true
		}
	}
	switch n.Op() {
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		dims := n.Attrs().Ints("dims")
		for _, d := range dims {
			set(d)
		}
		if len(dims) == 0 {
			all()
		}
	case ir.OpArgmax:
		if n.Attrs().Has("dim") {
			set(n.Attrs().Int("dim", 0))
		} else {
			all()
		}
	case ir.OpSoftmax, ir.OpLogSoftmax:
		set(n.Attrs().Int("dim", -1))
	case ir.OpCumsum:
		set(n.Attrs().Int("dim", 0))
	default:
		return nil, false
	}
	return gone, true
}

// newForm finds the one shape that all nodes and results of a region fit.
func newForm(r *region) (*form, error) {
	f := &form{}
	for _, n := range r.nodes {
		gone, ok := reduces(n)
		if !ok {
			continue
		}
		shape := sizes(n.Arg(0))
		switch {
		case !f.rows:
			f.rows, f.shape, f.gone = true, shape, gone
		case !slices.Equal(f.shape, shape) || !slices.Equal(f.gone, gone):
			return nil, unsupported(n, "it folds other dimensions than a reduction before it")
		}
		f.serial = f.serial || n.Op() == ir.OpCumsum
	}
	largest := int64(0)
	for _, n := range r.nodes {
		for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
			span := numel(sizes(v))
			if span == 0 {
				return nil, unsupported(n, "%s is empty", v)
			}
			last := int64(0)
			for d, s := range v.Type().Strides() {
				last += (sizes(v)[d] - 1) * abs(s)
			}
			largest = max(largest, span, last+1)
		}
	}
	f.big = largest > 1<<30
	f.count = numel(sizes(r.outs[0]))
	if f.rows {
		f.count, f.length = numel(f.kept()), numel(f.reduced())
		f.threads()
	}
	for _, v := range r.outs {
		if n := numel(sizes(v)); n != f.count && !f.full(v) {
			return nil, unsupported(v.Def(), "%d elements beside %d", n, f.count)
		}
	}
	return f, nil
}

// full reports whether v has an element for each row and column. With one column
// every result counts as such, with rows of it.
func (f *form) full(v *ir.Value) bool {
	return f.rows && numel(sizes(v)) == f.count*f.length
}

func (f *form) kept() []int64    { return f.dims(false) }
func (f *form) reduced() []int64 { return f.dims(true) }

func (f *form) dims(gone bool) []int64 {
	var out []int64
	for d, n := range f.shape {
		if f.gone[d] == gone {
			out = append(out, n)
		}
	}
	return out
}

// trailing reports whether the reduced dimensions are the inner ones.
func (f *form) trailing() bool {
	seen := false
	for d, n := range f.shape {
		if n == 1 {
			continue
		}
		if seen && !f.gone[d] {
			return false
		}
		seen = seen || f.gone[d]
	}
	return true
}

// threads divides the work: a warp or a block for each row, or, where rows lie
// beside each other in memory, a warp's width of rows for each block.
func (f *form) threads() {
	switch {
	case f.serial:
		f.lanes, f.together, f.columns = 1, 128, true
	case !f.trailing():
		f.lanes, f.together, f.columns = 16, 32, true
	case f.length <= 1024:
		f.lanes, f.together = 32, 4
	case f.length <= 8192:
		f.lanes, f.together = 256, 1
	default:
		f.lanes, f.together = 512, 1
	}
}

// width is how many consecutive elements a thread can handle at once: 16 bytes of
// the narrowest type that is read or written, where rows divide into as many.
func (f *form) width(r *region) int64 {
	along := f.count
	if f.rows {
		along = f.length
		if f.serial || f.columns {
			return 1
		}
	}
	narrow := 8
	for _, n := range r.nodes {
		for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
			narrow = min(narrow, v.Type().DType().Size())
		}
	}
	w := min(int64(16/narrow), 8)
	// A row must hold whole runs, or a run would cross rows.
	for _, v := range r.outs {
		if s := sizes(v); !f.rows && len(s) > 0 {
			along = gcd(along, last(s))
		}
	}
	for w > 1 && along%w != 0 {
		w /= 2
	}
	return w
}

// last is the innermost size that is not 1.
func last(s []int64) int64 {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 1 {
			return s[i]
		}
	}
	return 1
}

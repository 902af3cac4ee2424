package cudagen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// ErrUnsupported is what every error is that says that a region cannot become one
// kernel; its nodes can then be launched one by one.
var ErrUnsupported = errors.New("not expressible as one kernel")

// UnsupportedError says which operation keeps a region from becoming one kernel, and
// why. It is [ErrUnsupported].
type UnsupportedError struct {
	Node, Op string // of the IR
	Reason   string
}

// Error names the operation and the reason.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("cudagen: %%%s = %s: %s: %v", e.Node, e.Op, e.Reason, ErrUnsupported)
}

// Is matches ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

func unsupported(n *ir.Node, format string, args ...any) error {
	return &UnsupportedError{Node: n.Name(), Op: n.Op().Name(), Reason: fmt.Sprintf(format, args...)}
}

// refused is a rule's refusal as an error of this package.
func refused(no *fusion.Refusal) error { return unsupported(no.Node, "%s", no.Reason) }

// region is a set of nodes and what they read and write.
type region struct {
	fusion.Region
	nodes []*ir.Node
	st    *ir.Storages
	outs  []*ir.Value             // tensors that someone outside reads, in order of definition
	equal map[*ir.Value]*ir.Value // of values that are computed twice, the first; look-up only, see same
	sizes []ir.Dim                // known at run time only

	shared []*ir.Value // operands and results that are on each other
}

// newRegion checks the nodes, which stand in program order, and finds the results.
func newRegion(st *ir.Storages, nodes []*ir.Node) (*region, error) {
	r := &region{Region: fusion.Of(nodes), nodes: nodes, st: st}
	for _, n := range nodes {
		if no := fusion.Check(n, len(nodes)); no != nil {
			return nil, refused(no)
		}
		for _, v := range slices.Concat(n.Args(), n.Results()) {
			r.shape(v)
			r.strides(v)
		}
	}
	if err := r.findOuts(); err != nil {
		return nil, err
	}
	r.findEqual()
	return r, nil
}

// findOuts lists what the region writes.
func (r *region) findOuts() error {
	for _, n := range r.nodes {
		for _, v := range n.Results() {
			if n.Op().IsView() || !r.Escapes(v) {
				continue
			}
			r.outs = append(r.outs, v)
		}
	}
	if len(r.outs) == 0 {
		return unsupported(r.nodes[0], "nobody reads what it and the %d nodes with it compute", len(r.nodes)-1)
	}
	return nil
}

// aligned reports whether the first element of v, which is in memory, is known
// to stand at a multiple of bytes. Storages begin at multiples of 256 bytes and more.
func (r *region) aligned(v *ir.Value, bytes int64) bool {
	p := r.st.Of(v)
	return len(p) == 1 && p[0].Offset*int64(v.Type().DType().Size())%bytes == 0
}

// extent is a size as the kernel has it. Those that are known at run time only are its
// parameters, in order of appearance.
func (r *region) extent(d ir.Dim) index.Extent {
	if n, ok := d.Const(); ok {
		return index.Extent{N: n}
	}
	i := slices.IndexFunc(r.sizes, d.Equal)
	if i < 0 {
		i = len(r.sizes)
		r.sizes = append(r.sizes, d)
	}
	return index.Extent{N: bound(r.nodes[0], d), Name: fmt.Sprintf("m%d", i)}
}

// shape is the sizes of v as the kernel has them.
func (r *region) shape(v *ir.Value) []index.Extent { return r.extents(v.Type().Shape()) }

func (r *region) extents(s ir.Shape) []index.Extent {
	out := make([]index.Extent, len(s))
	for i, d := range s {
		out[i] = r.extent(d)
	}
	return out
}

// named is the number of elements of a shape over the kernel's parameters.
func (r *region) named(s ir.Shape) ir.Dim {
	n := ir.D(1)
	for _, d := range s {
		if _, ok := d.Const(); !ok {
			d = ir.Sym(sizeName(slices.IndexFunc(r.sizes, d.Equal)))
		}
		n = n.Mul(d)
	}
	return n
}

// strides are those of v as the kernel has them, nil of what is row-major.
func (r *region) strides(v *ir.Value) []index.Extent {
	if v.Type().Contiguous() {
		return nil
	}
	return r.extents(v.Type().SymbolicStrides())
}

// offset is the place of an element of v.
func (g *generator) offset(v *ir.Value, at []index.Expr) index.Expr {
	if st := v.Type().Strides(); st != nil {
		return index.Dot(at, st)
	}
	if v.Type().Contiguous() {
		return g.x.Ravel(at, g.r.shape(v))
	}
	e := index.Expr{}
	for d, s := range g.r.strides(v) {
		e = e.Add(1, g.x.Times(at[d], s))
	}
	return e
}

// stride is the distance of neighbours in dimension d of v.
func (g *generator) stride(v *ir.Value, d int) index.Expr {
	if v.Type().Contiguous() {
		return g.x.Count(g.r.shape(v)[d+1:])
	}
	return g.x.Size(g.r.strides(v)[d])
}

// bound is the largest value that a size of a node's function can have.
func bound(n *ir.Node, d ir.Dim) int64 { return max(n.Func().Module().Bound(d), 1) }

// sizes are those of v, or upper bounds of them.
func sizes(v *ir.Value) []int64 {
	s, ok := v.Type().Shape().Static()
	if !ok {
		for _, d := range v.Type().Shape() {
			s = append(s, bound(v.Def(), d))
		}
	}
	return s
}

// elements is how many v has.
func elements(v *ir.Value) ir.Dim { return v.Type().Shape().NumElems() }

package cudagen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
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

// region is a set of nodes and what they read and write.
type region struct {
	nodes  []*ir.Node
	member map[*ir.Node]bool // look-up only
	st     *ir.Storages
	outs   []*ir.Value             // tensors that someone outside reads, in order of definition
	equal  map[*ir.Value]*ir.Value // of values that are computed twice, the first; look-up only, see same
}

// newRegion checks the nodes, which stand in program order, and finds the results.
func newRegion(st *ir.Storages, nodes []*ir.Node) (*region, error) {
	r := &region{nodes: nodes, member: map[*ir.Node]bool{}, st: st}
	for _, n := range nodes {
		r.member[n] = true
	}
	for _, n := range nodes {
		if err := r.check(n, func(t ir.Type) bool { return t.Strides() != nil }); err != nil {
			return nil, err
		}
	}
	if err := r.findOuts(); err != nil {
		return nil, err
	}
	r.findEqual()
	return r, nil
}

// check refuses what no kernel computes, and operands and results that do not fit.
func (r *region) check(n *ir.Node, fits func(ir.Type) bool) error {
	if c := n.Op().Class(); c != ir.ClassView && c != ir.ClassMemory || !n.Pure() {
		return unsupported(n, "a %s operation, or one with effects", c)
	}
	for _, v := range append(slices.Clone(n.Args()), n.Results()...) {
		if v.Type().IsAsync() || !fits(v.Type()) {
			return unsupported(n, "%s is %s; sizes have to be known", v, v.Type())
		}
	}
	return nil
}

// findOuts lists what the region writes.
func (r *region) findOuts() error {
	for _, n := range r.nodes {
		for _, v := range n.Results() {
			if n.Op().IsView() || !r.escapes(v) {
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

// escapes reports whether v or a view of it that belongs to the region is read by
// who does not.
func (r *region) escapes(v *ir.Value) bool {
	for _, u := range v.Uses() {
		if !r.member[u.Node] {
			return true
		}
		if u.Node.Op().IsView() {
			for _, w := range u.Node.Results() {
				if r.escapes(w) {
					return true
				}
			}
		}
	}
	return false
}

// given reports whether v lies in memory before the region runs: nobody in the
// region computes it, and it is no view of what the region computes.
func (r *region) given(v *ir.Value) bool {
	for {
		n := v.Def()
		switch {
		case !r.member[n]:
			return true
		case !n.Op().IsView():
			return false
		}
		v = n.Arg(0)
	}
}

// aligned reports whether the first element of v, which lies in memory, is known
// to stand at a multiple of bytes. Storages begin at multiples of 256 bytes and more.
func (r *region) aligned(v *ir.Value, bytes int64) bool {
	p := r.st.Of(v)
	return len(p) == 1 && p[0].Offset*int64(v.Type().DType().Size())%bytes == 0
}

func sizes(v *ir.Value) []int64 {
	s, _ := v.Type().Shape().Static() // newRegion has checked
	return s
}

func numel(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

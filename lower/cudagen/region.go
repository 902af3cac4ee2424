package cudagen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/fusion"
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

// refused is a rule's refusal as an error of this package.
func refused(no *fusion.Refusal) error { return unsupported(no.Node, "%s", no.Reason) }

// region is a set of nodes and what they read and write.
type region struct {
	fusion.Region
	nodes []*ir.Node
	st    *ir.Storages
	outs  []*ir.Value             // tensors that someone outside reads, in order of definition
	equal map[*ir.Value]*ir.Value // of values that are computed twice, the first; look-up only, see same
}

// newRegion checks the nodes, which stand in program order, and finds the results.
func newRegion(st *ir.Storages, nodes []*ir.Node) (*region, error) {
	r := &region{Region: fusion.Of(nodes), nodes: nodes, st: st}
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
	if no := fusion.Check(n); no != nil {
		return refused(no)
	}
	for _, v := range slices.Concat(n.Args(), n.Results()) {
		if !fits(v.Type()) {
			return unsupported(n, "%s is %s; sizes have to be known", v, v.Type())
		}
	}
	return nil
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

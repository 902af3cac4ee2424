package fx

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/aten"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// partOf gives the element type of the parts of complex numbers.
var partOf = map[string]string{"complex32": "float16", "complex64": "float32", "complex128": "float64"}

// pairComplex makes tensors of complex numbers ones of their real and imaginary parts, with a last
// dimension of two, which is how they lie in memory; it notes the nodes that have such results.
func (im *importer) pairComplex() {
	for i := range im.file.Nodes {
		n := &im.file.Nodes[i]
		if !slices.ContainsFunc(n.Out, func(t Tensor) bool { return partOf[t.DType] != "" }) {
			continue
		}
		if im.pairs == nil {
			f := *im.file // the caller's stays as it is
			f.Nodes = slices.Clone(f.Nodes)
			im.file, im.pairs = &f, map[string]bool{}
			n = &f.Nodes[i]
		}
		im.pairs[n.Name] = true
		n.Out = slices.Clone(n.Out)
		for k := range n.Out {
			n.Out[k].pair()
		}
	}
}

// pair is what pairComplex does with one tensor.
func (t *Tensor) pair() {
	part := partOf[t.DType]
	if part == "" || slices.ContainsFunc(t.Stride, func(n int64) bool { return n > traced.MaxElems || n < 0 }) {
		return
	}
	t.DType = part
	if t.Dims != nil {
		t.Dims = append(slices.Clone(t.Dims), ir.D(2))
	} else {
		t.Shape = append(slices.Clone(t.Shape), 2)
	}
	if t.Steps != nil {
		t.Steps = slices.Clone(t.Steps)
		for d := range t.Steps {
			t.Steps[d] = t.Steps[d].Mul(ir.D(2))
		}
		t.Steps = append(t.Steps, ir.D(1))
		return
	}
	t.Stride = slices.Clone(t.Stride)
	for d := range t.Stride {
		t.Stride[d] *= 2
	}
	t.Stride = append(t.Stride, 1)
}

// isComplex reports whether the node is an operator that reads or makes complex numbers.
func (c *node) isComplex() bool {
	pairs := c.im.pairs
	return pairs != nil && (strings.HasPrefix(c.Operator, "aten.") || strings.HasPrefix(c.Operator, "prims.")) &&
		(pairs[c.Name] || slices.ContainsFunc(c.n.Inputs, func(name string) bool { return pairs[name] }))
}

// operators are those that the node may be, which differ where numbers are complex.
func (c *node) operators() map[string]aten.Operator {
	if !c.isComplex() {
		return aten.Operators
	}
	c.Complex = func(name string) bool { return c.im.pairs[name] }
	return aten.Complex
}

package cudagen

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/prelude"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// Prelude is the source that every kernel comes after.
func Prelude() string { return prelude.Source }

// Kernel is the CUDA source of one region and how to launch it. Its parameters
// are a pointer to element (0, 0, ...) of each operand, then of each result, then
// the dynamic sizes, as 64-bit integers.
type Kernel struct {
	Name  string      // of the function, with C linkage
	Body  string      // the function, without the prelude
	Ins   []*ir.Value // operands, in order of parameters
	Outs  []*ir.Value // results, in order of parameters
	Sizes []ir.Dim    // sizes known at run time only, in order of parameters; all of the region's
	Grid  int64       // blocks; with sizes known at run time only, as many as their bounds need
	// Blocks is how many of them find something to do, over n0, n1 and so on: the
	// others need not be launched. A number stands for Grid.
	Blocks ir.Dim
	Block  int // threads of each
	Lanes  int // threads that share a row; 1 where no threads work together
}

// Source is the whole translation unit.
func (k *Kernel) Source() string { return prelude.Source + "\n" + k.Body }

// Options are the compiler options that a kernel's numbers rely on. The caller
// adds those that choose the device.
func Options() []string { return prelude.Options() }

// Key is the SHA-256 of the source and of all options in hexadecimal: compiled
// images of equal keys are interchangeable.
func (k *Kernel) Key(options []string) string {
	h := sha256.New()
	for _, s := range append([]string{k.Source()}, options...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Generate writes the kernel of a region: nodes of one function in program order,
// pure and none of them compute-bound, whose storages are st. Equal regions give
// equal text up to the names of nodes. An error that wraps [ErrUnsupported] says
// that the region cannot be one kernel. The time is linear in the size of the text.
//
// Of shared, operands and results, some are on each other, element on element. A thread
// loads its elements of them before it stores any, and the compiler has to keep that.
func Generate(name string, st *ir.Storages, nodes []*ir.Node, shared ...*ir.Value) (*Kernel, error) {
	r, err := newRegion(st, nodes)
	if err != nil {
		return nil, err
	}
	r.shared = shared
	if slices.ContainsFunc(nodes, fusion.UsesDynamicSize) {
		return generateSized(name, r)
	}
	return generateRegion(name, r, nil)
}

// generateRegion is Generate of a region of known sizes, which with limits are bounds.
func generateRegion(name string, r *region, lim *limits) (*Kernel, error) {
	if lim == nil {
		if k, err := unfusable(name, r); k != nil || err != nil {
			return k, err
		}
	}
	f, err := newForm(r, lim)
	if err != nil {
		return nil, err
	}
	if err := f.arrange(r); err != nil {
		return nil, err
	}
	if lim != nil && lim.single {
		f.planScalar(r)
	}
	g := newGenerator(r, f)
	body, err := g.kernel()
	if err != nil && !errors.Is(err, errWide) {
		return nil, err
	}
	if err != nil || f.width > 1 && g.vectors == 0 { // nothing is read or written along rows
		f.planScalar(r)
		g = newGenerator(r, f)
		if body, err = g.kernel(); err != nil {
			return nil, err
		}
	}
	if g.pairs = onlinePairs(r, f); g.pairs != nil {
		fast := newGenerator(r, f)
		fast.pairs = g.pairs
		text, err := fast.kernel()
		if err != nil {
			return nil, err
		}
		if slices.Equal(fast.ins, g.ins) {
			body = "#ifdef EXACT_MATH\n" + body + "#else\n" + text + "#endif\n"
		}
	}
	return g.finished(name, body), nil
}

// finished is the kernel of a body. Variables of the sizes that it names come before it.
func (g *generator) finished(name, body string) *Kernel {
	sizes := g.r.sizes
	for i := len(sizes) - 1; i >= 0; i-- {
		if regexp.MustCompile(fmt.Sprintf(`\bm%d\b`, i)).MatchString(body) {
			body = fmt.Sprintf("  const %s m%d = (%s)%s;\n", g.intType(), i, g.intType(), sizeName(i)) + body
		}
	}
	if g.f.limits != nil {
		sizes = g.f.limits.sizes
	}
	return &Kernel{Name: name, Body: headOf(name, g.r, g.ins, sizes, g.f.attributes()) + body + "}\n", Ins: g.ins, Outs: g.r.outs, Sizes: sizes,
		Grid: g.grid, Blocks: g.need, Block: g.f.block, Lanes: max(1, g.f.lanes)}
}

// text is what the kernel's own scope holds.
func (g *generator) text() string { return strings.Join(index.Indent(g.top.Lines), "\n") + "\n" }

// attributes of the kernel's function.
func (f *form) attributes() string {
	a, blocks := fmt.Sprintf("__launch_bounds__(%d)", f.block), int64(f.cluster)
	if f.shares() {
		blocks = f.sorted.parts
	}
	if blocks > 1 {
		a += fmt.Sprintf(" CLUSTER(%d)", blocks)
	}
	return a
}

// headOf is the function's first lines.
func headOf(name string, r *region, ins []*ir.Value, sizes []ir.Dim, attributes string) string {
	var b strings.Builder
	for _, n := range r.nodes {
		fmt.Fprintf(&b, "// %s\n", statement(n))
	}
	fmt.Fprintf(&b, "extern \"C\" __global__ void %s %s(", attributes, name)
	var params []string
	pointer := func(v *ir.Value) string {
		if slices.Contains(r.shared, v) {
			return ctype(v.Type().DType()) + "*"
		}
		return ctype(v.Type().DType()) + "* RESTRICT"
	}
	for i, v := range ins {
		params = append(params, fmt.Sprintf("const %s in%d /* %s */", pointer(v), i, v))
	}
	for i, v := range r.outs {
		params = append(params, fmt.Sprintf("%s out%d /* %s */", pointer(v), i, v))
	}
	for i, d := range sizes {
		params = append(params, fmt.Sprintf("i64 %s /* %s */", sizeName(i), d))
	}
	fmt.Fprintf(&b, "\n    %s) {\n  next_may_begin();\n", strings.Join(params, ",\n    "))
	for i := range sizes {
		fmt.Fprintf(&b, "  %[1]s = size_of(%[1]s);\n", sizeName(i))
	}
	return b.String()
}

// statement is the text of a node for a comment.
func statement(n *ir.Node) string {
	var b strings.Builder
	var args, types []string
	for _, a := range n.Args() {
		args = append(args, a.String())
	}
	for _, v := range n.Results() {
		types = append(types, v.Type().String())
	}
	fmt.Fprintf(&b, "%%%s = %s %s", n.Name(), n.Op().Name(), strings.Join(args, ", "))
	if len(n.Attrs()) > 0 && n.Op() != ir.OpConstant { // whose data stands above the kernel
		b.WriteString(" " + n.Attrs().String())
	}
	b.WriteString(" : " + strings.Join(types, ", "))
	return strings.TrimSpace(strings.NewReplacer("\n", " ", "\\", "/").Replace(b.String()))
}

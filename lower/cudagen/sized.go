package cudagen

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// Sizes that are known at run time only are parameters of the kernel. Its grid is that
// of their bounds, and Kernel.Blocks says how many of the blocks find something to do.
// Row-major strides are products of sizes there, others that depend on sizes are parameters, too. A region
// whose rows, of a number known at run time only, follow from rows of the operands each
// by itself is a kernel for the bounds that stops at the last row; so is one of
// elementwise operations on tensors of one shape, as vectors. Of the others each has a
// kernel by itself, but for an update of rows at positions, which takes in elementwise
// operations.

// generateSized is Generate of a region with dynamic sizes.
func generateSized(name string, r *region) (*Kernel, error) {
	k, err := rowwise(name, r)
	if errors.Is(err, ErrUnsupported) {
		other := error(nil)
		if k, other = flatElementwise(name, r); !errors.Is(other, ErrUnsupported) {
			err = other
		}
	}
	if !errors.Is(err, ErrUnsupported) {
		return k, err
	}
	root := r.nodes[0]
	if len(r.nodes) > 1 {
		var no *fusion.Refusal
		if root, no = fusion.SoleUpdate(r.nodes); no != nil {
			return nil, err
		}
	}
	if _, ok := fusion.UpdatesSizedRows(root); ok {
		return updateRows(name, r, root)
	}
	return generateRegion(name, r, nil)
}

// sizeName is the parameter that has a size.
func sizeName(i int) string { return "n" + strconv.Itoa(i) }

// divUp is how many pieces of a size a number of elements makes.
func divUp(n ir.Dim, size int64) ir.Dim { return n.Add(ir.D(size - 1)).Div(size) }

// updateRows is the kernel of an update of rows of the first dimension. A block has some
// rows: it lists the indices that name them, some thousands at once, and adds their
// values in order. One list serves all of a block's rows if all indices fit.
func updateRows(name string, r *region, n *ir.Node) (*Kernel, error) {
	const capacity = 8192 // entries of a list, 32 KiB of shared memory
	x, v := n.Arg(0), n.Result(0)
	shape := r.shape(x)
	rowsPerBlock := int64(8)
	for rowsPerBlock > 1 && shape[0].N/rowsPerBlock < 2*manyBlocks {
		rowsPerBlock /= 2
	}
	f := &form{block: 256, width: 1, lanes: 1, dynamic: true}
	for _, n := range r.nodes {
		f.big = f.big || far(slices.Concat(n.Args(), n.Results())...)
	}
	if len(shape) > 1 {
		f.width = 16 / int64(v.Type().DType().Size())
		for _, a := range n.Args() {
			f.width = min(f.width, 16/int64(a.Type().DType().Size()))
		}
		f.width = commonPowerOfTwo(f.width, innermostSize(x.Type().Shape()[1:]))
	}
	g := newGenerator(r, f)
	positions, _ := fusion.UpdatesRows(n)
	g.ins, g.inIndex[positions] = []*ir.Value{positions}, 0
	t, rows, indices := g.intType(), g.x.Size(shape[0]).String(), g.x.Count(r.shape(positions)).String()
	wrap := n.Op() != ir.OpIndexAdd
	list := func(s *index.Scope, first, some string) {
		s.Emit("sync_block();")
		s.Emit("listed = list_rows<256>(list, in0 + %s, %s, %s, %v, row0, %d);", first, some, rows, wrap, rowsPerBlock)
	}
	g.grid, g.need = (shape[0].N+rowsPerBlock-1)/rowsPerBlock, divUp(r.named(x.Type().Shape()[:1]), rowsPerBlock)
	g.top.Emit("__shared__ int list[%d];", capacity)
	g.top.Emit("const %s columns = %s, indices = %s, row0 = (%s)blockIdx.x * %d;", t, g.x.Count(shape[1:]), indices, t, rowsPerBlock)
	g.top.Emit("const bool fits = indices <= %d;", capacity)
	g.top.Emit("const %s end = row0 + %d < %s ? row0 + %d : %s;", t, rowsPerBlock, rows, rowsPerBlock, rows)
	g.top.Emit("int listed = 0;")
	g.top.Emit("if (fits) {")
	first := index.NewScope(g.top)
	list(first, "0", "(int)indices")
	g.top.Braced(first.Lines)
	each := index.NewScope(g.top)
	s := index.NewScope(each)
	s.Emit("const bool mine = c0 + threadIdx.x * %d < columns;", f.width)
	s.Emit("const %s c = mine ? c0 + threadIdx.x * %d : columns - %d; // all threads help to list", t, f.width, f.width)
	g.row = g.x.NewAtom("row", shape[0].N-1, 1, each)
	g.col = g.x.NewAtom("c", intmath.Product(sizes(x))/shape[0].N-f.width, f.width, s)
	if f.width > 1 {
		g.elem = g.x.NewAtom("v", f.width-1, 1, s)
	}
	done, err := g.perElement(s, func() error {
		at := append([]index.Expr{g.row.Expr()}, g.x.Unravel(g.position(), shape[1:])...)
		return g.updateRow(v, at, func(s *index.Scope, p *puts, put func(s *index.Scope, k index.Expr) error) error {
			s.Emit("if (!fits) {")
			again := index.NewScope(s)
			list(again, "first", fmt.Sprintf("indices - first < %d ? (int)(indices - first) : %d", capacity, capacity))
			s.Braced(again.Lines)
			return g.nested(p.at, "for (int e = 0; e < listed; ++e)", func(s *index.Scope) error {
				at := "list[e]"
				if rowsPerBlock > 1 {
					s.Emit("if (list[e] %% %d != row - row0) continue;", rowsPerBlock)
					at = fmt.Sprintf("list[e] / %d", rowsPerBlock)
				}
				s.Emit("const %s k = first + %s;", t, at)
				return put(s, g.x.NewAtom("k", p.count()-1, 1, s).Expr())
			})
		}, fmt.Sprintf("for (%s first = 0; first < indices; first += %d)", t, capacity))
	})
	if err != nil {
		return nil, err
	}
	each.Emit("for (%s c0 = 0; c0 < columns; c0 += %d) {", t, 256*f.width)
	each.Braced(append(s.Lines, done...))
	g.top.Emit("for (%s row = row0; row < end; ++row) {", t)
	g.top.Braced(each.Lines)
	return g.finished(name, g.text()), nil
}

// updateRow updates the elements at hand of row at, over all lists, and stores what
// follows from them.
func (g *generator) updateRow(v *ir.Value, at []index.Expr, fill func(s *index.Scope, p *puts, put func(s *index.Scope, k index.Expr) error) error, head string) error {
	p, put, err := g.startPuts(v, at)
	if err != nil {
		return err
	}
	if err := g.nested(p.at, head, func(s *index.Scope) error { return fill(s, p, put) }); err != nil {
		return err
	}
	return g.nested(p.at, "if (mine)", func(*index.Scope) error {
		g.body.Memo[valueKey(v, at)] = g.define(v, rounded(p.sum, p.dom, v.Type().DType()))
		for k, v := range g.r.outs {
			if err := g.put(k, v, at); err != nil {
				return err
			}
		}
		return nil
	})
}

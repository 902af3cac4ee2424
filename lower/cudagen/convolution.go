package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// convolution adds the products of a window in the order of the host's kernel. Where the
// rows of operand 1 are many, a block has a tile of rows and windows, of which it brings some
// positions after the other to shared memory; else each thread has one window of one row.
func (g *generator) convolution(n *ir.Node) error {
	c, err := g.newConvolution(n)
	if err != nil {
		return err
	}
	if c.rows >= 16 && c.dilated == 0 && c.tiles {
		c.tiled(g)
		return nil
	}
	c.direct(g)
	return nil
}

// convolution is what the kernels of one share.
type convolution struct {
	x, w, out       *ir.Value
	dims            []window.Dim
	groups, batches int64
	rows, batch     int64  // of each group
	windows         string // how many there are
	dilated         int    // dimensions with dilation
	tiles           bool   // all sizes but a batch are numbers
	dom             domain
}

func (g *generator) newConvolution(n *ir.Node) (*convolution, error) {
	c := &convolution{x: n.Arg(0), w: n.Arg(1), out: n.Result(0)}
	var err error
	if c.dims, err = window.Parse(n.Attrs().Ints, sizes(c.w)[2:]); err != nil {
		return nil, unsupported(n, "%v", err)
	}
	g.f.big = far(c.x, c.w, c.out) || farPlaces(c.dims, sizes(c.out)[2:])
	c.groups, c.batches = n.Attrs().Int("groups", 1), n.Attrs().Int("batch_groups", 1)
	c.rows, c.batch = sizes(c.w)[0]/(c.groups*c.batches), sizes(c.out)[0]
	if fusion.UsesDynamicSize(n) && c.batches > 1 {
		return nil, unsupported(n, "groups of a batch, of sizes known at run time only")
	}
	c.tiles = !slices.ContainsFunc([]*ir.Value{c.x, c.w, c.out}, func(v *ir.Value) bool {
		_, numbers := v.Type().Shape()[1:].Static()
		return !numbers || v.Type().Strides() == nil
	}) && !fusion.HasDynamicSize(c.w)
	shape := g.r.shape(c.out)
	c.windows = g.x.Times(g.x.Count(shape[2:]), shape[0]).String()
	for _, d := range c.dims {
		if d.Base > 1 {
			c.dilated++
		}
	}
	c.dom = domainOf(c.x.Type().DType(), c.w.Type().DType(), c.out.Type().DType())
	g.ins = []*ir.Value{c.x, c.w}
	return c, nil
}

// place is the place under number tap of the window at o, counted from the operand's first
// element.
func place(d window.Dim, o, tap string) string {
	if d.Reverse {
		tap = fmt.Sprintf("(%d - %s)", d.Size-1, tap)
	}
	var s []string
	add := func(v string, k int64) {
		if k == 1 {
			s = append(s, v)
		} else {
			s = append(s, fmt.Sprintf("%s * %d", v, k))
		}
	}
	add(o, d.Stride)
	add(tap, d.Dilation)
	text := strings.Join(s, " + ")
	switch {
	case d.Low > 0:
		text += fmt.Sprintf(" - %d", d.Low)
	case d.Low < 0:
		text += fmt.Sprintf(" + %d", -d.Low)
	}
	return text
}

// product is the statement that adds a product to sum, as the domain does.
func product(sum, a, b string) string {
	return fmt.Sprintf("%s = add_product(%s, %s, %s);", sum, a, b, sum)
}

// times is a multiple of a variable, to be added to an index.
func times(v string, k index.Expr) string {
	if k.Equal(index.Expr{}) {
		return ""
	}
	return fmt.Sprintf(" + %s * %s", v, k.Paren())
}

// direct has a thread for each element of the result.
func (c *convolution) direct(g *generator) {
	shape, ws, xs := g.r.shape(c.out), g.r.shape(c.w), g.r.shape(c.x)
	count, t := intmath.Product(sizes(c.out)), g.intType()
	g.f.block = 256
	g.grid = (count + 255) / 256
	g.top.Emit("const %s i = (%s)blockIdx.x * 256 + threadIdx.x;", t, t)
	g.top.Emit("if (i >= %s) return;", g.x.Count(shape))
	at := g.x.Unravel(g.x.NewAtom("i", count-1, 1, g.top).Expr(), shape)
	for d, e := range at {
		g.top.Emit("const %s o%d = %s;", t, d, e)
	}
	x, w := "0"+times("o0", g.stride(c.x, 0)), "0"+times("o1", g.stride(c.w, 0))
	if c.groups > 1 || c.batches > 1 {
		d, each := 1, ws[1]
		if c.batches > 1 {
			d, each = 0, index.Extent{N: c.batch}
		}
		g.top.Emit("const %s part = o1 / %d;", t, c.rows)
		x += times("part", g.x.Times(g.stride(c.x, d), each))
	}
	g.top.Emit("const %s* x = in0 + (%s);", ctype(c.x.Type().DType()), x)
	g.top.Emit("const %s* w = in1 + (%s);", ctype(c.w.Type().DType()), w)
	g.top.Emit("%s sum = 0;", c.dom)
	g.top.Emit("for (int c = 0; c < %s; ++c) {", g.x.Size(ws[1]))
	in, pad := "", []string{}
	x, w = fmt.Sprintf("c * (%s)%s", t, g.stride(c.x, 1).Paren()), fmt.Sprintf("c * (%s)%s", t, g.stride(c.w, 1).Paren())
	for d, k := range c.dims {
		in += "  "
		g.top.Emit("%sfor (%s k%d = 0; k%d < %d; ++k%d) {", in, t, d, d, k.Size, d)
		g.top.Emit("%s  %s p%d = %s;", in, t, d, place(k, fmt.Sprintf("o%d", 2+d), fmt.Sprintf("k%d", d)))
		if k.Base > 1 {
			g.top.Emit("%s  if (p%d %% %d) continue; // between elements", in, d, k.Base)
			g.top.Emit("%s  p%d /= %d;", in, d, k.Base)
		}
		pad = append(pad, fmt.Sprintf("p%d >= 0 && p%d < %s", d, d, g.x.Size(xs[2+d])))
		x += times(fmt.Sprintf("p%d", d), g.stride(c.x, 2+d))
		w += times(fmt.Sprintf("k%d", d), g.stride(c.w, 2+d))
	}
	load := fmt.Sprintf("(%s)load(x + %s)", c.dom, x)
	if len(pad) > 0 {
		load = fmt.Sprintf("%s ? %s : (%s)0", strings.Join(pad, " && "), load, c.dom)
	}
	g.top.Emit("%s  sum = add_of(sum, mul_of(%s, (%s)load(w + %s))); // each rounded, as on the host", in, load, c.dom, w)
	for range c.dims {
		g.top.Emit("%s}", in)
		in = in[2:]
	}
	g.top.Emit("}")
	g.top.Emit("store(out0 + %s, %s);", g.offset(c.out, at), rounded("sum", c.dom, c.out.Type().DType()))
}

// tiled has a block for a tile of 64 rows and 64 windows, of which each thread has 4 of each.
func (c *convolution) tiled(g *generator) {
	const side, depth = 64, 16
	shape, t := sizes(c.out), g.intType()
	windows := intmath.Product(shape) / shape[1]
	taps := intmath.Product(sizes(c.w)[2:])
	terms := sizes(c.w)[1] * taps
	rowTiles, tiles := (c.rows+side-1)/side, (windows+side-1)/side
	g.f.block, g.f.lanes = 256, 256
	g.grid = c.groups * c.batches * rowTiles * tiles
	sx, sw, so := c.x.Type().Strides(), c.w.Type().Strides(), c.out.Type().Strides()
	e := g.top.Emit
	e("constexpr int lanes = LANES(256), across = lanes == 1 ? 1 : 16, each = %d / across;", side)
	e("__shared__ %s rows[%d][%d], columns[%d][%d];", c.dom, depth, side, depth, side)
	e("const int lane = threadIdx.x %% lanes;")
	e("const %s part = blockIdx.x / %d;", t, rowTiles*tiles)
	e("const int row = blockIdx.x / %d %% %d * %d;", tiles, rowTiles, side)
	e("const %s column = (%s)(blockIdx.x %% %d) * %d, windows = %s;", t, t, tiles, side, c.windows)
	if fusion.HasDynamicSize(c.out) {
		e("if (column >= windows) return;")
	}
	x, first := "0", ""
	switch {
	case c.groups > 1:
		x += times("part", index.Constant(sizes(c.w)[1]*sx[1]))
	case c.batches > 1:
		x += times("part", index.Constant(c.batch*sx[0]))
	}
	e("const %s* x = in0 + (%s);", ctype(c.x.Type().DType()), x)
	e("const %s* w = in1 + (%s)(part * %d + row) * %d;", ctype(c.w.Type().DType()), t, c.rows, sw[0])
	e("%s sum[each][each];", c.dom)
	e("for (int i = 0; i < each; ++i) for (int j = 0; j < each; ++j) sum[i][j] = 0;")
	e("for (int k = 0; k < %d; k += %d) {", terms, depth)
	// Rows: neighbouring threads take neighbouring positions.
	e("  for (int j = lane; j < %d; j += lanes) {", depth*side)
	e("    const int r = j / %d;", depth)
	e("    const %s q = k + j %% %d;", t, depth)
	e("    rows[j %% %d][r] = q < %d && row + r < %d ? (%s)load(w + (r * (%s)%d%s)) : (%s)0;", depth, terms, c.rows, c.dom, t, sw[0], c.tapOffset("q", taps, sw), c.dom)
	e("  }")
	// Windows: neighbouring threads take neighbouring windows.
	e("  for (int j = lane; j < %d; j += lanes) {", depth*side)
	e("    const %s q = k + j / %d, o = column + j %% %d;", t, side, side)
	inside := fmt.Sprintf("q < %d && o < windows", terms)
	offset := fmt.Sprintf("q / %d * (%s)%d", taps, t, sx[1])
	rest, stride := "o", int64(1)
	tap, tapStride := "q", int64(1)
	for d := len(c.dims) - 1; d >= 0; d-- {
		at := quotient(rest, stride, shape[2+d])
		e("    const %s p%d = %s;", t, d, place(c.dims[d], at, quotient(tap, tapStride, c.dims[d].Size)))
		stride, tapStride = stride*shape[2+d], tapStride*c.dims[d].Size
		inside += fmt.Sprintf(" && p%d >= 0 && p%d < %d", d, d, sizes(c.x)[2+d])
		offset += times(fmt.Sprintf("p%d", d), index.Constant(sx[2+d]))
	}
	offset += times(fmt.Sprintf("(o / %d)", stride), index.Constant(sx[0]))
	e("    columns[j / %d][j %% %d] = %s ? (%s)load(x + (%s)) : (%s)0;", side, side, inside, c.dom, offset, c.dom)
	e("  }")
	e("  sync_block();")
	e("  for (int q = 0; q < %d && k + q < %d; ++q)", depth, terms)
	e("    for (int i = 0; i < each; ++i) {")
	e("      const %s a = rows[q][lane / across * each + i];", c.dom)
	e("      for (int j = 0; j < each; ++j) %s", product("sum[i][j]", "columns[q][lane % across + j * across]", "a"))
	e("    }")
	e("  sync_block();")
	e("}")
	e("for (int i = 0; i < each; ++i) {")
	e("  const int r = row + lane / across * each + i;")
	e("  if (r >= %d) break;", c.rows)
	e("  for (int j = 0; j < each; ++j) {")
	e("    const %s o = column + lane %% across + j * across;", t)
	e("    if (o >= windows) break;")
	rest, stride = "o", 1
	for d := len(c.dims) - 1; d >= 0; d-- {
		first += times(quotient(rest, stride, shape[2+d]), index.Constant(so[2+d]))
		stride *= shape[2+d]
	}
	first += times(fmt.Sprintf("(o / %d)", stride), index.Constant(so[0]))
	e("    store(out0 + (part * %d + r) * (%s)%d%s, %s);", c.rows, t, so[1], first, rounded("sum[i][j]", c.dom, c.out.Type().DType()))
	e("  }")
	e("}")
}

// tapOffset is where place q of all channels is in operand 1, to be added to an index.
func (c *convolution) tapOffset(q string, taps int64, sw []int64) string {
	out, stride := "", int64(1)
	for d := len(c.dims) - 1; d >= 0; d-- {
		out += times(quotient(q, stride, c.dims[d].Size), index.Constant(sw[2+d]))
		stride *= c.dims[d].Size
	}
	return fmt.Sprintf(" + %s / %d * %d", q, taps, sw[1]) + out
}

// quotient is v / by % n.
func quotient(v string, by, n int64) string {
	switch {
	case n == 1:
		return "0"
	case by == 1:
		return fmt.Sprintf("(%s %% %d)", v, n)
	}
	return fmt.Sprintf("(%s / %d %% %d)", v, by, n)
}

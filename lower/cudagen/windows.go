package cudagen

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// reduceWindow has a thread for each window, which folds its elements in order.
func (g *generator) reduceWindow(n *ir.Node) error {
	x, out := n.Arg(0), n.Result(0)
	shape, in := sizes(out), sizes(x)
	dims, err := window.Parse(n.Attrs().Ints, n.Attrs().Ints("window"))
	if err != nil || numel(shape) == 0 || numel(in) == 0 {
		return unsupported(n, "%s of %s", out.Type(), x.Type())
	}
	dt := x.Type().DType()
	dom := domainOf(dt, out.Type().DType())
	typ, functor, init := sumType(dom), "Sum", "0"
	switch how := n.Attrs().Str("reduce", ""); how {
	case "product":
		functor, init = "Product", "1"
	case "max":
		typ, functor, init = string(dom), "Largest", ofNone("least_of", dom, dt)
	case "min":
		typ, functor, init = string(dom), "Smallest", ofNone("most_of", dom, dt)
	case "argmax":
		typ = "best<" + string(held(dt)) + ">"
		functor, init = "First", typ+"{0, -1}"
	}
	g.ins = n.Args()
	for _, v := range append([]*ir.Value{out}, g.ins...) {
		g.f.big = g.f.big || extentOf(v) > 1<<30
	}
	count, t := numel(shape), g.intType()
	g.f.block = 256
	g.grid = (count + 255) / 256
	g.top.emit("const %s i = (%s)blockIdx.x * 256 + threadIdx.x;", t, t)
	if count%256 != 0 {
		g.top.emit("if (i >= %d) return;", count)
	}
	at := g.x.unravel(g.x.newAtom("i", count-1, 1, g.top).lin(), fixed(shape))
	g.top.emit("%s found = %s;", typ, init)
	pad, offsets, number := "", make([]string, len(g.ins)), "0"
	for d, w := range dims {
		p := fmt.Sprintf("p%d", d)
		pad = strings.Repeat("  ", d)
		g.top.emit("%sfor (int k%d = 0; k%d < %d; ++k%d) {", pad, d, d, w.Size, d)
		g.top.emit("%s  %s %s = %s;", pad, t, p, place(w, "("+at[d].text()+")", fmt.Sprintf("k%d", d)))
		if w.Base > 1 {
			g.top.emit("%s  if (%s %% %d) continue; // between elements", pad, p, w.Base)
			g.top.emit("%s  %s /= %d;", pad, p, w.Base)
		}
		g.top.emit("%s  if (%s < 0 || %s >= %d) continue;", pad, p, p, in[d])
		number = fmt.Sprintf("(%s) * %d + k%d", number, w.Size, d)
		for i, v := range g.ins {
			offsets[i] += times(p, strides(v)[d])
		}
	}
	if len(g.ins) > 1 {
		g.top.emit("%s  if (load(in1%s) != %s) continue;", pad, offsets[1], number)
	}
	term := fmt.Sprintf("(%s)load(in0%s)", typ, offsets[0])
	result := "found"
	if functor == "First" {
		term, result = fmt.Sprintf("%s{load(in0%s), %s}", typ, offsets[0], number), "(found.at < 0 ? 0 : found.at)"
		dom = domI64
	}
	g.top.emit("%s  found = %s()(found, %s);", pad, functor, term)
	for d := range dims {
		g.top.emit("%s}", strings.Repeat("  ", len(dims)-1-d))
	}
	if typ == "sum32" {
		result = "(f32)" + result
	}
	g.top.emit("store(out0 + %s, %s);", dot(at, strides(out)).text(), rounded(result, dom, out.Type().DType()))
	return nil
}

// extentOf is how many places of memory v reaches over.
func extentOf(v *ir.Value) int64 {
	last := int64(1)
	for d, s := range strides(v) {
		last += (sizes(v)[d] - 1) * abs(s)
	}
	return max(last, numel(sizes(v)))
}

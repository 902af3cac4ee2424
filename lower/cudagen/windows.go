package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// reduceWindow has a thread for each window, which folds its elements in order.
func (g *generator) reduceWindow(n *ir.Node) error {
	x, out := n.Arg(0), n.Result(0)
	shape := sizes(out)
	dims, err := window.Parse(n.Attrs().Ints, n.Attrs().Ints("window"))
	if err != nil {
		return unsupported(n, "%v", err)
	}
	dt := x.Type().DType()
	dom := domainOf(dt, out.Type().DType())
	typ, functor, init := windowFold(n)
	g.ins = n.Args()
	g.f.big = far(append([]*ir.Value{out}, g.ins...)...) || farPlaces(dims, shape)
	count, t := intmath.Product(shape), g.intType()
	g.f.block = 256
	g.grid = (count + 255) / 256
	g.top.Emit("const %s i = (%s)blockIdx.x * 256 + threadIdx.x;", t, t)
	if all := g.x.Count(g.r.shape(out)); fusion.HasDynamicSize(out) || count%256 != 0 {
		g.top.Emit("if (i >= %s) return;", all)
	}
	at := g.x.Unravel(g.x.NewAtom("i", count-1, 1, g.top).Expr(), g.r.shape(out))
	g.top.Emit("%s found = %s;", typ, init)
	pad, offsets, number := "", make([]string, len(g.ins)), "0"
	for d, w := range dims {
		p := fmt.Sprintf("p%d", d)
		pad = strings.Repeat("  ", d)
		begin, next := "0", fmt.Sprintf("++k%d", d)
		if w.Base > 1 && w.Dilation == 1 && !w.Reverse { // of places between elements none is looked at
			o := "(" + at[d].String() + ")"
			begin = fmt.Sprintf("(%d - (%s * %d + %d) %% %d) %% %d", w.Base, o, w.Stride, intmath.Mod(-w.Low, w.Base), w.Base, w.Base)
			next = fmt.Sprintf("k%d += %d", d, w.Base)
		}
		g.top.Emit("%sfor (%s k%d = %s; k%d < %d; %s) {", pad, t, d, begin, d, w.Size, next)
		g.top.Emit("%s  %s %s = %s;", pad, t, p, place(w, "("+at[d].String()+")", fmt.Sprintf("k%d", d)))
		if w.Base > 1 {
			if begin == "0" {
				g.top.Emit("%s  if (%s %% %d) continue; // between elements", pad, p, w.Base)
			}
			g.top.Emit("%s  %s /= %d;", pad, p, w.Base)
		}
		g.top.Emit("%s  if (%s < 0 || %s >= %s) continue;", pad, p, p, g.x.Size(g.r.shape(x)[d]))
		number = fmt.Sprintf("(%s) * %d + k%d", number, w.Size, d)
		for i, v := range g.ins {
			offsets[i] += times(p, g.stride(v, d))
		}
	}
	if len(g.ins) > 1 {
		g.top.Emit("%s  if (load(in1%s) == %s)", pad, offsets[1], number)
	}
	term := fmt.Sprintf("(%s)load(in0%s)", typ, offsets[0])
	result := "found"
	if functor == "FirstOrNoNumber" {
		term, result = fmt.Sprintf("%s{load(in0%s), %s}", typ, offsets[0], number), "(found.at < 0 ? 0 : found.at)"
		dom = domI64
	}
	g.top.Emit("%s  found = %s()(found, %s);", pad, functor, term)
	for d := range dims {
		g.top.Emit("%s}", strings.Repeat("  ", len(dims)-1-d))
	}
	if typ == "sum32" {
		result = "(f32)" + result
	}
	g.top.Emit("store(out0 + %s, %s);", g.offset(out, at), rounded(result, dom, out.Type().DType()))
	return nil
}

// windowFold is what windows are folded in, by what, and what that begins with.
func windowFold(n *ir.Node) (typ, functor, init string) {
	dt := n.Arg(0).Type().DType()
	dom := domainOf(dt, n.Result(0).Type().DType())
	switch n.Attrs().Str("reduce", "") {
	case "product":
		return sumType(dom), "Product", "1"
	case "max":
		return string(dom), "Largest", emptyExtreme("least_of", dom, dt)
	case "min":
		return string(dom), "Smallest", emptyExtreme("most_of", dom, dt)
	case "argmax":
		typ = "best<" + string(storageDomain(dt)) + ">"
		return typ, "FirstOrNoNumber", typ + "{0, -1}"
	}
	return sumType(dom), "Sum", "0"
}

// far says that some of the values span more memory than indices of 32 bits reach, with room for sums.
func far(vs ...*ir.Value) bool {
	return slices.ContainsFunc(vs, func(v *ir.Value) bool { return extentOf(v) > 1<<30 })
}

// farPlaces says the same of the places that windows have along each dimension.
func farPlaces(dims []window.Dim, windows []int64) bool {
	for d, w := range dims {
		if windows[d]*w.Stride+w.Size*w.Dilation+max(w.Low, -w.Low) > 1<<30 {
			return true
		}
	}
	return false
}

// extentOf is how many elements of memory v spans.
func extentOf(v *ir.Value) int64 {
	last := int64(1)
	if !v.Type().Contiguous() {
		for d, s := range v.Type().SymbolicStrides() {
			last += (sizes(v)[d] - 1) * bound(v.Def(), s)
		}
	}
	return max(last, intmath.Product(sizes(v)))
}

package cudagen

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// unfusable writes the kernels of operations that no other can join; nil for others.
func unfusable(name string, r *region) (*Kernel, error) {
	if len(r.nodes) != 1 {
		return nil, nil
	}
	n := r.nodes[0]
	f := &form{block: 256, lanes: 1, width: 1}
	g := newGenerator(r, f)
	g.body = g.top
	declared := "" // before the kernel
	if fillsFromEmpty(n) {
		if err := g.nothing(n); err != nil {
			return nil, err
		}
		return g.finished(name, g.text()), nil
	}
	var err error
	switch n.Op() {
	case ir.OpConvolution:
		err = g.convolution(n)
	case ir.OpReduceWindow:
		err = g.reduceWindow(n)
	case ir.OpTopk:
		err = g.topk(n)
	case ir.OpCumsum:
		if !g.scans(n) {
			return nil, nil
		}
		g.scan(n)
	case ir.OpScatter:
		if len(r.sizes) > 0 || !g.scatters(n) {
			return nil, nil
		}
		err = g.scatterLines(n)
	case ir.OpGroupedMatmul:
		g.groupedMatmul(n)
	case ir.OpConstant:
		declared, err = g.constant(name, n)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k := g.finished(name, g.text())
	k.Body = declared + k.Body
	return k, nil
}

// constant copies data that is declared before the kernel, word by word for its alignment.
func (g *generator) constant(name string, n *ir.Node) (declared string, err error) {
	out := n.Result(0)
	count := intmath.Product(sizes(out))
	data, err := n.Attrs().Bytes("data")
	if err != nil || count == 0 {
		return "", unsupported(n, "%s", out.Type())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "static __device__ const unsigned long long %s_data[] = {", name)
	for i := 0; i < len(data); i += 8 {
		word := uint64(0)
		for j, v := range data[i:min(i+8, len(data))] {
			word |= uint64(v) << (8 * j)
		}
		if i%32 == 0 {
			b.WriteString("\n   ")
		}
		fmt.Fprintf(&b, " 0x%xull,", word)
	}
	b.WriteString("\n};\n\n")
	g.grid = (count + 255) / 256
	i := g.x.NewAtom("i", count-1, 1, g.top)
	g.f.big = far(out)
	g.top.Emit("const %s i = blockIdx.x * 256 + threadIdx.x;", g.intType())
	g.top.Emit("if (i >= %d) return;", count)
	g.top.Emit("store_vec(out0 + %s, load_vec<1>((const %s*)%s_data + i));", g.offset(out, g.x.Unravel(i.Expr(), g.r.shape(out))), ctype(out.Type().DType()), name)
	return b.String(), nil
}

// scatters reports whether n writes lines that one block can hold the positions of,
// and nothing but the last value counts that is written at a position.
func (g *generator) scatters(n *ir.Node) bool {
	x, positions := n.Arg(0), n.Arg(1)
	shape, places := sizes(x), sizes(positions)
	if len(shape) == 0 || len(shape) != len(places) || n.Attrs().Str("reduce", "") != "" || len(n.Args()) == 3 && n.Arg(2).Type().DType() != x.Type().DType() {
		return false
	}
	d := dimOf(n)
	for i := range shape {
		if i != d && places[i] != shape[i] {
			return false
		}
	}
	return places[d] >= 32 && places[d] <= math.MaxInt32 && shape[d] <= 8192 && intmath.Product(shape) <= 1<<30 && storageDomain(x.Type().DType()) == storageDomain(n.Result(0).Type().DType())
}

// scatterLines finds for every position of a line the last place that writes it.
func (g *generator) scatterLines(n *ir.Node) error {
	x, positions, v := n.Arg(0), n.Arg(1), n.Result(0)
	shape := sizes(x)
	d := dimOf(n)
	length, places := shape[d], sizes(positions)[d]
	others := slices.Clone(shape)
	others[d] = 1
	value := n.Attrs().Number("value")
	if len(n.Args()) < 3 && !value.Set {
		return unsupported(n, "neither a value nor a tensor of them")
	}
	f := g.f
	f.block, f.lanes = 512, 512
	f.big = far(slices.Concat(n.Args(), n.Results())...)
	t := g.intType()
	g.grid = intmath.Product(others)
	g.ins = []*ir.Value{x, positions}
	row := g.x.NewAtom("row", g.grid-1, 1, g.top)
	at := func(v *ir.Value, name string, size int64) string {
		to := g.x.Unravel(row.Expr(), index.Fixed(others))
		to[d] = g.x.NewAtom(name, size-1, 1, g.top).Expr()
		return index.Dot(to, v.Type().Strides()).String()
	}
	e := literal(value, storageDomain(v.Type().DType()))
	if len(n.Args()) == 3 {
		g.ins = append(g.ins, n.Arg(2))
		e = "load(in2 + " + at(n.Arg(2), "k", places) + ")"
	}
	g.top.Emit("constexpr int lanes = LANES(512);")
	g.top.Emit("__shared__ int last[%d]; // place that writes a position, -1 for none", length)
	g.top.Emit("const int lane = threadIdx.x;")
	g.top.Emit("const %s row = blockIdx.x;", t)
	g.top.Emit("for (int j = lane; j < %d; j += lanes) last[j] = -1;", length)
	g.top.Emit("sync_block();")
	g.top.Emit("for (%s k = lane; k < %d; k += lanes) atomic_max(last + position(load(in1 + %s), %d, false), k);", t, places, at(positions, "k", places), length)
	g.top.Emit("sync_block();")
	g.top.Emit("for (%s j = lane; j < %d; j += lanes) {", t, length)
	g.top.Emit("  const %s k = last[j];", t)
	g.top.Emit("  const %s y = k >= 0 ? %s : load(in0 + %s);", storageDomain(v.Type().DType()), e, at(x, "j", length))
	g.top.Emit("  store(out0 + %s, %s);", at(v, "j", length), rounded("y", storageDomain(v.Type().DType()), v.Type().DType()))
	g.top.Emit("}")
	return nil
}

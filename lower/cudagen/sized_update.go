package cudagen

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
)

// updating is what index_put and index_add have in common.
type updating struct {
	values *ir.Value
	index  []*ir.Value
	first  int // number of the first index operand
	dims   []int64
	wrap   bool
	add    bool
	alpha  scalarArg
	dom    domain
	among  ir.Shape // what the indices broadcast to
}

func (g *sized) updates() (*updating, error) {
	n := g.n
	u := &updating{values: n.Arg(1), first: 2, dims: n.Attrs().Ints("dims"), wrap: true, add: n.Attrs().Bool("accumulate", false), alpha: scalarArg{set: true, i: 1, f: 1}}
	if n.Op() == ir.OpIndexAdd {
		u.values, u.first, u.dims, u.wrap, u.add = n.Arg(2), 1, []int64{int64(g.dim())}, false, true
		u.index = n.Args()[1:2]
		if a := scalarOf(n.Attrs(), "alpha"); a.set {
			u.alpha = a
		}
	} else {
		u.index = n.Args()[2:]
	}
	if len(u.dims) != len(u.index) || len(u.index) == 0 {
		return nil, unsupported(n, "%d index tensors for dimensions %v", len(u.index), u.dims)
	}
	dt := n.Result(0).Type().DType()
	u.dom = held(dt)
	if u.add {
		u.dom = domainOf(dt, u.values.Type().DType())
	} else if u.values.Type().DType() != dt {
		return nil, unsupported(n, "%s from %s", dt, u.values.Type().DType())
	}
	for _, v := range u.index {
		s := v.Type().Shape()
		if len(s) > len(u.among) {
			u.among = append(slices.Clone(s[:len(s)-len(u.among)]), u.among...)
		}
		for d := range s {
			if at := len(u.among) - len(s) + d; u.among[at].Equal(ir.D(1)) {
				u.among[at] = s[d]
			}
		}
	}
	return u, nil
}

// put is the statement that lets a value join what an element holds so far.
func (u *updating) put(sum string, x operand) string {
	e := x.in(u.dom)
	if u.alpha.f != 1 {
		e = "mul_of(" + u.alpha.literal(u.dom) + ", " + e + ")"
	}
	if u.add {
		e = fmt.Sprintf("add_of(%s, %s)", sum, e)
	}
	return fmt.Sprintf("%s = %s;", sum, e)
}

// valueAt is the index of the value for an element that a place gives.
func (u *updating) valueAt(at, place []coord) []coord {
	var rest []coord
	for d, c := range at {
		if !slices.Contains(u.dims, int64(d)) {
			rest = append(rest, c)
		}
	}
	front := frontOf(u.dims)
	return broadcastTo(slices.Concat(rest[:front], place, rest[front:]), u.values.Type().Shape())
}

// update is index_put and index_add. Every element looks for the indices that point
// at it, in order: no two threads write one element, and equal inputs give equal bits.
func (g *sized) update() error {
	u, err := g.updates()
	if err != nil {
		return err
	}
	if _, ok := fusion.UpdatesSizedRows(g.n); ok {
		return g.listed(u)
	}
	n := g.n
	return g.each(func(at []coord) error {
		s := g.fresh("s")
		old := g.load(n.Arg(0), at)
		g.pre = append(g.pre, fmt.Sprintf("%s %s = %s;", u.dom, s, old.in(u.dom)))
		g.flush()
		k := g.fresh("k")
		err := g.branch(fmt.Sprintf("for (%s %s = 0; %s < %s; ++%s)", g.typ, k, k, g.numel(u.among), k), func() error {
			place := g.unravel(&g.pre, k, u.among, k+"_", false)
			for i, v := range u.index {
				p := g.position(u.first+i, broadcastTo(place, v.Type().Shape()), n.Arg(0).Type().Shape()[u.dims[i]], u.wrap)
				g.flush()
				g.emit("if (%s != %s) continue;", p.text, at[u.dims[i]].text)
			}
			x := g.load(u.values, u.valueAt(at, place))
			g.body = append(g.body, u.put(s, x))
			return nil
		})
		g.store(0, at, rounded(s, u.dom, n.Result(0).Type().DType()))
		return err
	})
}

// listed is an update of rows of the first dimension. A block has some rows at a time: it
// lists the places that point at them, some thousands at once, and adds their values in
// order. One list does for all of a block's rows if it has all places.
func (g *sized) listed(u *updating) error {
	const places = 8192 // 32 KiB of shared memory
	n := g.n
	x, index := n.Arg(0), u.index[0]
	shape := x.Type().Shape()
	row := shape[1:]
	g.block = 256
	if len(row) > 0 {
		g.width = g.widest(n.Result(0))
	}
	near := int64(8)
	for near > 1 && g.bound(shape[:1])/near < 2*manyBlocks {
		near /= 2
	}
	g.blocks(shape[:1], near)
	in := g.param(index)
	width := g.shape(row)
	if g.width > 1 {
		inner, _ := row[len(row)-1].Const()
		width[len(width)-1] = strconv.FormatInt(inner/g.width, 10)
	}
	g.emit("__shared__ int list[%d];", places)
	g.emit("const %s rows = %s, columns = %s, places = %s;", g.typ, g.size(shape[0]), product(width...), g.numel(index.Type().Shape()))
	g.emit("const bool once = places <= %d;", places)
	g.emit("for (%s row0 = (%s)blockIdx.x * %d; row0 < rows; row0 += %d) {", g.typ, g.typ, near, g.grid*near)
	g.depth++
	g.emit("const %s end = row0 + %d < rows ? row0 + %d : rows;", g.typ, near, near)
	g.emit("int listed = 0;")
	list := func(first, some string) {
		g.emit("meet();")
		g.emit("listed = list_rows<256>(list, %s + %s, %s, %s, %v, row0, %d);", in, first, some, g.size(shape[0]), u.wrap, near)
	}
	if err := g.branch("if (once)", func() error { list("0", "(int)places"); return nil }); err != nil {
		return err
	}
	err := g.branch(fmt.Sprintf("for (%s row = row0; row < end; ++row)", g.typ), func() error {
		return g.branch(fmt.Sprintf("for (%s c0 = 0; c0 < columns; c0 += 256)", g.typ), func() error {
			return g.listedRow(u, list, near, places)
		})
	})
	g.depth--
	g.emit("}")
	return err
}

// listedRow updates a run of columns of one row, with the list at hand or one after the
// other.
func (g *sized) listedRow(u *updating, list func(first, some string), near, places int64) error {
	n := g.n
	g.emit("const %s c = c0 + threadIdx.x < columns ? c0 + threadIdx.x : columns - 1; // all threads help to list", g.typ)
	at := append([]coord{{text: "row"}}, g.unravel(&g.pre, "c", n.Arg(0).Type().Shape()[1:], "d", true)...)
	s := g.fresh("s")
	old, err := g.value(n.Arg(0), at)
	if err != nil {
		return err
	}
	sum := s
	if g.width > 1 {
		sum += "[v]"
		g.pre = append(g.pre, fmt.Sprintf("%s %s[%d];", u.dom, s, g.width))
		g.body = append(g.body, fmt.Sprintf("%s = %s;", sum, old.in(u.dom)))
	} else {
		g.body = append(g.body, fmt.Sprintf("%s %s = %s;", u.dom, s, old.in(u.dom)))
	}
	g.flush()
	err = g.branch(fmt.Sprintf("for (%s first = 0; first < places; first += %d)", g.typ, places), func() error {
		err := g.branch("if (!once)", func() error {
			list("first", fmt.Sprintf("places - first < %d ? (int)(places - first) : %d", places, places))
			return nil
		})
		if err != nil {
			return err
		}
		return g.branch("for (int e = 0; e < listed; ++e)", func() error {
			if near > 1 {
				g.emit("if (list[e] %% %d != row - row0) continue;", near)
			}
			g.emit("const %s k = first + list[e]%s;", g.typ, divided(near))
			v, err := g.value(u.values, u.valueAt(at, []coord{{text: "k"}}))
			g.body = append(g.body, u.put(sum, v))
			return err
		})
	})
	if err != nil {
		return err
	}
	return g.branch("if (c0 + threadIdx.x < columns)", func() error {
		g.known[n.Result(0)] = g.define(n.Result(0), rounded(sum, u.dom, n.Result(0).Type().DType()))
		for k, v := range g.r.outs {
			x, err := g.value(v, at)
			if err != nil {
				return err
			}
			g.store(k, at, x.text)
		}
		return nil
	})
}

// define declares what a value of the region is.
func (g *sized) define(v *ir.Value, e string) operand {
	x := operand{g.fresh("x"), held(v.Type().DType())}
	g.body = append(g.body, fmt.Sprintf("const %s %s = %s;  // %s", x.dom, x.text, e, v))
	return x
}

// value is v at an index: read, or computed by elementwise operations of the region. What
// is known of one index does not hold for another; flush forgets it.
func (g *sized) value(v *ir.Value, at []coord) (operand, error) {
	n := v.Def()
	if x, ok := g.known[v]; ok {
		return x, nil
	}
	switch {
	case !g.r.Has(n):
		g.known[v] = g.load(v, at)
	case n.Op() == ir.OpFull:
		e, dom := fullText(n)
		g.known[v] = g.define(v, rounded(e, dom, v.Type().DType()))
	case n.Op().Info().Elementwise:
		var in []operand
		for _, a := range n.Args() {
			x, err := g.value(a, broadcastTo(at, a.Type().Shape()))
			if err != nil {
				return operand{}, err
			}
			in = append(in, x)
		}
		e, dom, err := pointwise(n, in)
		if err != nil {
			return operand{}, err
		}
		g.known[v] = g.define(v, rounded(e, dom, v.Type().DType()))
	default:
		return operand{}, unsupported(n, "no form of it computes single elements")
	}
	return g.known[v], nil
}

// divided spells a division; none by 1.
func divided(n int64) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" / %d", n)
}

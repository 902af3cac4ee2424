package cudagen

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/ir"
)

// each is the form in which threads compute some elements of the result after the
// other; fill says what one has to do for those at an index.
func (g *sized) each(fill func(at []coord) error) error {
	out := g.r.outs[0]
	shape := out.Type().Shape()
	g.block, g.width = 256, 1
	if !g.splits(len(shape) - 1) {
		g.width = g.widest(out)
	}
	sizes := g.shape(shape)
	if g.width > 1 {
		inner, _ := shape[len(shape)-1].Const()
		sizes[len(sizes)-1] = strconv.FormatInt(inner/g.width, 10)
	}
	g.blocks(shape, 256*g.width)
	g.emit("const %s count = %s;", g.typ, product(sizes...))
	g.emit("for (%s i = (%s)blockIdx.x * 256 + threadIdx.x; i < count; i += %d) {", g.typ, g.typ, g.grid*256)
	g.depth++
	at := g.unravel(&g.pre, "i", shape, "d", true)
	if err := fill(at); err != nil {
		return err
	}
	g.flush()
	g.depth--
	g.emit("}")
	return nil
}

// splits reports whether elements next to each other along a dimension may need to be
// computed in different ways.
func (g *sized) splits(dim int) bool {
	switch g.n.Op() {
	case ir.OpCat, ir.OpSliceScatter:
		return g.dim() == dim
	case ir.OpScatter:
		return true
	case ir.OpIndexPut, ir.OpIndexAdd:
		return true
	}
	return false
}

// blocks sets the grid for a block to take so many of the elements of a shape at a time,
// and again until none is left. Those of a grid that find none at first find none later.
func (g *sized) blocks(s ir.Shape, each int64) {
	g.grid = max(1, min((g.bound(s)+each-1)/each, machine))
	g.need = over(named(s, g.sizes), each)
}

// dim is the attribute of that name.
func (g *sized) dim() int {
	d := g.n.Attrs().Int("dim", 0)
	if d < 0 {
		d += int64(g.n.Arg(0).Type().Rank())
	}
	return int(d)
}

// broadcastTo is the index of an operand for an index of the result.
func broadcastTo(at []coord, s ir.Shape) []coord {
	in := make([]coord, len(s))
	pad := len(at) - len(s)
	for d := range s {
		in[d] = origin
		if n, ok := s[d].Const(); !ok || n != 1 {
			in[d] = at[pad+d]
		}
	}
	return in
}

func (g *sized) pointwise(at []coord) error {
	var in []operand
	for _, a := range g.n.Args() {
		in = append(in, g.load(a, broadcastTo(at, a.Type().Shape())))
	}
	e, dom, err := pointwise(g.n, in)
	if err != nil {
		return err
	}
	g.store(0, at, rounded(e, dom, g.n.Result(0).Type().DType()))
	return nil
}

// create is what needs no operand, and copies.
func (g *sized) create(at []coord) error {
	n, dt := g.n, g.n.Result(0).Type().DType()
	switch n.Op() {
	case ir.OpFull:
		e := scalarOf(n.Attrs(), "value")
		dom := domI64
		if e.float {
			dom = domF64
		}
		g.store(0, at, rounded(e.literal(dom), dom, dt))
	case ir.OpIota:
		start, step := scalarOf(n.Attrs(), "start"), scalarOf(n.Attrs(), "step")
		if !step.set {
			step = scalarArg{set: true, i: 1, f: 1}
		}
		g.store(0, at, iotaText(start, step, single(at)[0].text, dt))
	default:
		return g.copy(at, n.Arg(0), at)
	}
	return nil
}

// copy writes an element of a tensor of the result's type.
func (g *sized) copy(to []coord, v *ir.Value, from []coord) error {
	if err := g.sameType(v); err != nil {
		return err
	}
	g.store(0, to, g.load(v, from).text)
	return nil
}

func (g *sized) sameType(v *ir.Value) error {
	if t := g.n.Result(0).Type().DType(); v.Type().DType() != t {
		return unsupported(g.n, "%s from %s", t, v.Type().DType())
	}
	return nil
}

// branch writes statements under a condition.
func (g *sized) branch(head string, fill func() error) error {
	g.emit("%s {", head)
	g.depth++
	err := fill()
	g.flush()
	g.depth--
	g.emit("}")
	return err
}

func (g *sized) cat(at []coord) error {
	d := g.dim()
	g.flush()
	j := g.fresh("j")
	g.emit("%s %s = %s;", g.typ, j, at[d].text)
	var parts []*ir.Value
	for _, a := range g.n.Args() {
		if a.Type().Rank() == len(at) {
			parts = append(parts, a)
		}
	}
	for i, a := range parts {
		size := g.size(a.Type().Shape()[d])
		from := slices.Clone(at)
		from[d] = coord{text: j}
		take := func() error { return g.copy(at, a, from) }
		if i == len(parts)-1 {
			return take()
		}
		err := g.branch(fmt.Sprintf("if (%s < %s)", j, size), func() error {
			err := take()
			g.flush()
			g.emit("continue;")
			return err
		})
		if err != nil {
			return err
		}
		g.emit("%s -= %s;", j, size)
	}
	return nil
}

func (g *sized) sliceScatter(at []coord) error {
	n, d := g.n, g.dim()
	shape := n.Arg(0).Type().Shape()
	step := n.Attrs().Int("step", 1)
	g.flush()
	size := g.size(shape[d])
	j := g.fresh("j")
	g.emit("const %s %s = %s - (%s)inside(%d, %s);", g.typ, j, at[d].text, g.typ, n.Attrs().Int("start", 0), size)
	test, from := fmt.Sprintf("%s >= 0 && %s < %s", j, j, g.size(n.Arg(1).Type().Shape()[d])), slices.Clone(at)
	from[d] = coord{text: j}
	if step != 1 {
		test = fmt.Sprintf("%s >= 0 && %s %% %d == 0 && %s / %d < %s", j, j, step, j, step, g.size(n.Arg(1).Type().Shape()[d]))
		from[d] = coord{text: fmt.Sprintf("(%s / %d)", j, step)}
	}
	if err := g.branch("if ("+test+")", func() error { return g.copy(at, n.Arg(1), from) }); err != nil {
		return err
	}
	return g.branch("else", func() error { return g.copy(at, n.Arg(0), at) })
}

func (g *sized) gather(at []coord) error {
	to := slices.Clone(at)
	d := g.dim()
	to[d] = g.position(1, at, g.n.Arg(0).Type().Shape()[d], false)
	return g.copy(at, g.n.Arg(0), to)
}

// index is index and embedding: index tensors take the place of dimensions, together
// where these are adjacent, in front where they are not.
func (g *sized) index(at []coord) error {
	n, x := g.n, g.n.Arg(0)
	dims, wrap := []int64{0}, false
	if n.Op() == ir.OpIndex {
		dims, wrap = n.Attrs().Ints("dims"), true
	}
	if len(dims) != len(n.Args())-1 || len(dims) == 0 {
		return unsupported(n, "%d index tensors for dimensions %v", len(n.Args())-1, dims)
	}
	rank := 0 // of the indices together
	for _, a := range n.Args()[1:] {
		rank = max(rank, a.Type().Rank())
	}
	front := frontOf(dims)
	idx, rest := at[front:front+rank], slices.Concat(at[:front], at[front+rank:])
	to := make([]coord, x.Type().Rank())
	for d := range to {
		k := slices.Index(dims, int64(d))
		if k < 0 {
			to[d], rest = rest[0], rest[1:]
			continue
		}
		to[d] = g.position(k+1, broadcastTo(idx, n.Arg(k+1).Type().Shape()), x.Type().Shape()[d], wrap)
	}
	return g.copy(at, x, to)
}

// frontOf is how many dimensions stand in front of those of the index tensors.
func frontOf(dims []int64) int {
	if last := len(dims) - 1; dims[last]-dims[0] == int64(last) {
		return int(dims[0])
	}
	return 0
}

// scatter looks through the line of indices that an element is on, in order.
func (g *sized) scatter(at []coord) error {
	n, d := g.n, g.dim()
	x, index := n.Arg(0), n.Arg(1)
	shape, places := x.Type().Shape(), index.Type().Shape()
	dt := n.Result(0).Type().DType()
	dom := held(dt)
	if len(shape) == 0 || len(shape) != len(places) {
		return unsupported(n, "indices of rank %d in a tensor of rank %d", len(places), len(shape))
	}
	function, ok := scatterFunction(n)
	value := scalarOf(n.Attrs(), "value")
	switch {
	case !ok:
		return unsupported(n, "reduce=%s", n.Attrs().Str("reduce", ""))
	case value.set == (len(n.Args()) == 3):
		return unsupported(n, "want either a value or a tensor of them")
	}
	s := g.fresh("s")
	old := g.load(x, at)
	g.pre = append(g.pre, fmt.Sprintf("%s %s = %s;", dom, s, old.text))
	g.flush()
	k := g.fresh("k")
	head := fmt.Sprintf("for (%s %s = 0; %s < %s; ++%s)", g.typ, k, k, g.size(places[d]), k)
	for i := range at {
		if i != d && !places[i].Equal(shape[i]) {
			head = fmt.Sprintf("if (%s < %s) ", at[i].text, g.size(places[i])) + head
		}
	}
	to := slices.Clone(at)
	to[d] = coord{text: k}
	err := g.branch(head, func() error {
		p := g.position(1, to, shape[d], false)
		g.flush()
		g.emit("if (%s != %s) continue;", p.text, at[d].text)
		e := value.literal(dom)
		if len(n.Args()) == 3 {
			e = g.load(n.Arg(2), to).in(dom)
		}
		if function != "" {
			e = fmt.Sprintf("%s(%s, %s)", function, s, e)
		}
		g.body = append(g.body, fmt.Sprintf("%s = %s;", s, e))
		return nil
	})
	if err != nil {
		return err
	}
	g.store(0, at, rounded(s, dom, dt))
	return nil
}

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
	if len(u.dims) == 1 && u.dims[0] == 0 && u.index[0].Type().Rank() == 1 && u.index[0].Type().Contiguous() {
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
	old := g.load(n.Arg(0), at)
	sum := s
	if g.width > 1 {
		sum += "[v]"
		g.pre = append(g.pre, fmt.Sprintf("%s %s[%d];", u.dom, s, g.width))
		g.body = append(g.body, fmt.Sprintf("%s = %s;", sum, old.in(u.dom)))
	} else {
		g.body = append(g.body, fmt.Sprintf("%s %s = %s;", u.dom, s, old.in(u.dom)))
	}
	g.flush()
	err := g.branch(fmt.Sprintf("for (%s first = 0; first < places; first += %d)", g.typ, places), func() error {
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
			v := g.load(u.values, u.valueAt(at, []coord{{text: "k"}}))
			g.body = append(g.body, u.put(sum, v))
			return nil
		})
	})
	if err != nil {
		return err
	}
	return g.branch("if (c0 + threadIdx.x < columns)", func() error {
		g.store(0, at, rounded(sum, u.dom, n.Result(0).Type().DType()))
		return nil
	})
}

// divided spells a division; none by 1.
func divided(n int64) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" / %d", n)
}

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
		e, dom := fullText(n)
		g.store(0, at, rounded(e, dom, dt))
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

// fullText is the value of a constant tensor before it is rounded.
func fullText(n *ir.Node) (string, domain) {
	e := scalarOf(n.Attrs(), "value")
	if e.float {
		return e.literal(domF64), domF64
	}
	return e.literal(domI64), domI64
}

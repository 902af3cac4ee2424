package cudagen

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
)

// folding is the reduction of a row by the threads that share it.
type folding struct {
	kept, gone ir.Shape // the sizes of rows and of columns
	is         []bool   // by dimension of the operand: it is reduced
	columns    bool     // neighbouring threads have neighbouring rows
	together   int      // rows of a block
	length     string
}

// fold is a reduction, a softmax or a running sum: a warp or a block has a row at a
// time, one thread if the columns have to be walked in order.
func (g *sized) fold() error {
	n := g.n
	f := &folding{}
	f.is, _ = fusion.Folds(n)
	shape := n.Arg(0).Type().Shape()
	trailing, seen := true, false
	for d, s := range shape {
		if f.is[d] {
			f.gone = append(f.gone, s)
			seen = true
		} else {
			f.kept = append(f.kept, s)
			trailing = trailing && (!seen || s.Equal(ir.D(1)))
		}
	}
	f.columns = !trailing
	g.foldThreads(f)
	g.emit("const %s count = %s, length = %s;", g.typ, g.numel(f.kept), g.numel(f.gone))
	f.length = "length"
	switch n.Op() {
	case ir.OpAmax, ir.OpAmin, ir.OpArgmax:
		g.emit("if (length == 0 && count > 0) __trap(); // nothing is the largest of none")
	}
	g.emit("constexpr int lanes = LANES(%d), rows = %d;", g.lanes, f.together)
	g.emit("for (%s row0 = (%s)blockIdx.x * rows; row0 < count; row0 += %d) {", g.typ, g.typ, g.grid*int64(f.together))
	g.depth++
	row, lane := "threadIdx.x / lanes", "threadIdx.x % lanes"
	if f.columns {
		row, lane = "threadIdx.x % rows", "threadIdx.x / rows"
	}
	g.emit("const %s at = row0 + %s;", g.typ, row)
	g.emit("const bool live = at < count;")
	g.emit("const %s row = live ? at : count - 1; // threads without a row help to fold", g.typ)
	g.emit("const int lane = %s;", lane)
	kept := g.unravel(&g.pre, "row", f.kept, "r", false)
	g.flush()
	err := g.foldRow(f, kept)
	g.depth--
	g.emit("}")
	return err
}

// foldThreads divides rows among threads by the bounds.
func (g *sized) foldThreads(f *folding) {
	rows, length := g.bound(f.kept), g.bound(f.gone)
	switch {
	case g.n.Op() == ir.OpCumsum:
		g.lanes, f.together, f.columns = 1, 128, false
	case f.columns:
		f.together, g.lanes = 32, 1
		for g.lanes < 32 && int64(g.lanes)*4 < length {
			g.lanes *= 2
		}
	case length <= 1024:
		g.lanes = 1
		for int64(g.lanes) < length && g.lanes < 32 {
			g.lanes *= 2
		}
		f.together = 128 / g.lanes
	default:
		g.lanes, f.together = 256, 1
		if rows < manyBlocks {
			g.lanes = 1024
		}
	}
	g.block = g.lanes * f.together
	g.blocks(f.kept, int64(f.together))
}

// index is the index in the operand of a row and a column.
func (f *folding) index(kept, gone []coord) []coord {
	at := make([]coord, len(f.is))
	k, r := 0, 0
	for d := range at {
		if f.is[d] {
			at[d] = gone[r]
			r++
		} else {
			at[d] = kept[k]
			k++
		}
	}
	return at
}

// walk writes a loop over the columns of the row at hand.
func (g *sized) walk(f *folding, kept []coord, more string, fill func(at []coord, x operand) error) error {
	head := fmt.Sprintf("for (%s c = lane; c < length%s; c += lanes)", g.typ, more)
	return g.branch(head, func() error {
		at := f.index(kept, g.unravel(&g.pre, "c", f.gone, "c", false))
		return fill(at, g.load(g.n.Arg(0), at))
	})
}

// foldRow computes and writes what follows from a row.
func (g *sized) foldRow(f *folding, kept []coord) error {
	n := g.n
	switch n.Op() {
	case ir.OpCumsum:
		return g.cumsum(f, kept)
	case ir.OpSoftmax, ir.OpLogSoftmax:
		return g.softmax(f, kept)
	}
	s, err := g.share(f, kept, reduction{n, 0}, "")
	if err != nil {
		return err
	}
	dt := n.Result(0).Type().DType()
	var e string
	switch n.Op() {
	case ir.OpMean:
		e = rounded(fmt.Sprintf("mean_of(%s, %s)", s.name, f.length), domain(s.typ), dt)
	case ir.OpArgmax:
		e = rounded(s.name+".at", domI64, dt)
	default:
		e = rounded(s.name, domain(s.typ), dt)
	}
	at := kept
	if n.Result(0).Type().Rank() == len(f.is) { // keepdim
		at = f.index(kept, slices.Repeat([]coord{origin}, len(f.gone)))
	}
	return g.branch("if (lane == 0 && live)", func() error {
		g.store(0, at, e)
		return nil
	})
}

// share writes one fold: each thread's share, then all of them.
func (g *sized) share(f *folding, kept []coord, r reduction, top string) (accumulator, error) {
	a, init := accumulatorOf(r)
	a.name = g.fresh("s")
	sum := a.name
	if f.columns {
		sum += "[0]"
		g.emit("%s %s[1] = {%s};", a.typ, a.name, init)
	} else {
		g.emit("%s %s = %s;", a.typ, a.name, init)
	}
	err := g.walk(f, kept, "", func(_ []coord, x operand) error {
		g.body = append(g.body, fmt.Sprintf("%s = %s()(%s, %s);", sum, a.functor, sum, a.term(r, x, "c", top)))
		return nil
	})
	switch {
	case g.lanes == 1:
	case f.columns:
		g.emit("fold_columns<lanes, rows>(%s, %s());", a.name, a.functor)
	default:
		g.emit("%s = fold_lanes<lanes, rows>(%s, %s());", a.name, a.name, a.functor)
	}
	a.name = sum
	return a, err
}

func (g *sized) softmax(f *folding, kept []coord) error {
	n, t := g.n, softType(g.n)
	top, err := g.share(f, kept, reduction{n, 0}, "")
	if err != nil {
		return err
	}
	sum, err := g.share(f, kept, reduction{n, 1}, top.name)
	if err != nil {
		return err
	}
	all := sum.name
	if n.Op() == ir.OpLogSoftmax {
		all = g.fresh("x")
		g.emit("const %s %s = soft_log(%s);", t, all, sum.name)
	}
	return g.walk(f, kept, " && live", func(at []coord, x operand) error {
		e := fmt.Sprintf("div_of(soft_exp(sub_of((%s)%s, %s)), %s)", t, x.text, top.name, all)
		if n.Op() == ir.OpLogSoftmax {
			e = fmt.Sprintf("sub_of(sub_of((%s)%s, %s), %s)", t, x.text, top.name, all)
		}
		g.store(0, at, "to_"+ctype(n.Result(0).Type().DType())+"("+e+")")
		return nil
	})
}

// cumsum walks a row in order.
func (g *sized) cumsum(f *folding, kept []coord) error {
	n := g.n
	dom := domainOf(n.Arg(0).Type().DType(), n.Result(0).Type().DType())
	if dom == domF32 {
		dom = domF64
	}
	s := g.fresh("s")
	g.emit("%s %s = 0;", dom, s)
	return g.walk(f, kept, " && live", func(at []coord, x operand) error {
		g.body = append(g.body, fmt.Sprintf("%s = add_of(%s, %s);", s, s, x.in(dom)))
		g.store(0, at, rounded(s, dom, n.Result(0).Type().DType()))
		return nil
	})
}

// topk finds the k best of each line: an element's place is the number of those that
// come before it. Where lines may be long and k is small, a block looks for the best
// one after the last, k times.
func (g *sized) topk() error {
	n, x, k := g.n, g.n.Arg(0), g.n.Attrs().Int("k", 1)
	shape := x.Type().Shape()
	if len(shape) == 0 {
		return unsupported(n, "%s", x.Type())
	}
	d := g.dim()
	others := slices.Clone(shape)
	others[d] = ir.D(1)
	largest := n.Attrs().Bool("largest", true)
	t := held(x.Type().DType())
	g.param(x)
	g.emit("const %s lines = %s, length = %s;", g.typ, g.numel(others), g.size(shape[d]))
	g.emit("if (length < %d && lines > 0) __trap(); // there are not as many", k)
	best := func(line []coord, place, value, position string) {
		at := slices.Clone(line)
		at[d] = coord{text: place}
		for i, v := range g.r.outs {
			e := value
			if v.Index() == 1 {
				e = "(i64)(" + position + ")"
			}
			g.store(i, at, e)
		}
	}
	element := func(line []coord, j string) string {
		at := slices.Clone(line)
		at[d] = coord{text: j}
		return fmt.Sprintf("best<%s>{load(in0 + %s), %s}", t, g.offset(x, at), j)
	}
	m := n.Func().Module()
	if m.Bound(shape[d]) > 2048 && k <= 64 {
		g.block, g.lanes = 1024, 1024
		g.blocks(others, 1)
		g.emit("constexpr int lanes = LANES(1024);")
		g.emit("const int lane = threadIdx.x;")
		return g.branch(fmt.Sprintf("for (%s row = blockIdx.x; row < lines; row += %d)", g.typ, g.grid), func() error {
			line := g.unravel(&g.pre, "row", others, "r", false)
			g.flush()
			g.emit("best<%s> last = {0, -1};", t)
			return g.branch(fmt.Sprintf("for (int place = 0; place < %d; ++place)", k), func() error {
				g.emit("best<%s> found = {0, -1};", t)
				g.emit("for (%s j = lane; j < length; j += lanes) {", g.typ)
				g.emit("  const best<%s> y = %s;", t, element(line, "j"))
				g.emit("  if (last.at < 0 || ahead<%v>(last, y)) found = Ahead<%v>()(found, y);", largest, largest)
				g.emit("}")
				g.emit("last = fold_lanes<lanes, 1>(found, Ahead<%v>());", largest)
				return g.branch("if (lane == 0)", func() error {
					best(line, "place", "last.value", "last.at")
					return nil
				})
			})
		})
	}
	g.block = 128
	g.blocks(shape, 128)
	return g.branch(fmt.Sprintf("for (%s i = (%s)blockIdx.x * 128 + threadIdx.x; i < lines * length; i += %d)", g.typ, g.typ, g.grid*128), func() error {
		g.emit("const %s row = i / length, j = i %% length;", g.typ)
		line := g.unravel(&g.pre, "row", others, "r", false)
		g.flush()
		g.emit("const best<%s> mine = %s;", t, element(line, "j"))
		g.emit("%s place = 0;", g.typ)
		g.emit("for (%s k = 0; k < length; ++k) place += ahead<%v>(%s, mine);", g.typ, largest, element(line, "k"))
		return g.branch(fmt.Sprintf("if (place < %d)", k), func() error {
			best(line, "place", "mine.value", "j")
			return nil
		})
	})
}

// pack moves tensors to or from one tensor that holds their bytes one after the other.
func (g *sized) pack(tensors []*ir.Value, whole *ir.Value, in bool) error {
	n := g.n
	parts, d := n.Attrs().Int("parts", 1), n.Attrs().Int("dim", 0)
	g.block = 256
	even := true // all elements have one size
	for _, v := range tensors {
		if g.grid*256 < g.bound(v.Type().Shape()) { // as many as the largest wants
			g.blocks(v.Type().Shape(), 256)
		}
		even = even && v.Type().DType().Size() == tensors[0].Type().DType().Size()
	}
	g.grid, g.need = max(g.grid, 1), ir.D(0)
	if !whole.Type().Contiguous() {
		return unsupported(n, "%s is not dense", whole)
	}
	flat := "out0"
	if !in {
		flat = g.param(whole)
	}
	g.emit("i64 offset = 0; // bytes")
	for p := range parts {
		for _, v := range tensors {
			if err := g.piece(v, flat, in, even, p, parts, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// piece copies one piece of a tensor, and moves on behind it.
func (g *sized) piece(v *ir.Value, flat string, in, even bool, p, parts, d int64) error {
	shape := slices.Clone(v.Type().Shape())
	if parts > 1 {
		if d < 0 || d >= int64(len(shape)) {
			return unsupported(g.n, "%s has no pieces along dimension %d", v, d)
		}
		shape[d] = shape[d].Div(parts)
		if _, ok := shape[d].Const(); !ok && !slices.ContainsFunc(g.sizes, shape[d].Equal) {
			g.sizes, g.used = append(g.sizes, shape[d]), append(g.used, false)
		}
	}
	var at string // parameter of the tensor
	if in {
		at = g.param(v)
	} else if k := slices.Index(g.r.outs, v); k >= 0 {
		at = fmt.Sprintf("out%d", k)
	}
	size := int64(v.Type().DType().Size())
	loop := fmt.Sprintf("for (%s i = (%s)blockIdx.x * 256 + threadIdx.x; i < count; i += %d)", g.typ, g.typ, g.grid*256)
	move := func() error {
		index := g.unravel(&g.pre, "i", shape, "d", false)
		if parts > 1 && p > 0 {
			index[d].text = fmt.Sprintf("(%s + %s)", index[d].text, product(fmt.Sprint(p), g.size(shape[d])))
		}
		g.flush()
		one, t := fmt.Sprintf("%s + %s", at, g.offset(v, index)), ctype(v.Type().DType())
		to, from := fmt.Sprintf("(%s*)((char*)%s + offset) + i", t, flat), one
		if !in {
			to, from = one, fmt.Sprintf("(const %s*)((const char*)%s + offset) + i", t, flat)
		}
		if even {
			g.emit("*(%s) = *(%s);", to, from)
		} else {
			g.emit("copy_bytes<%d>(%s, %s);", size, to, from)
		}
		return nil
	}
	return g.branch("", func() error {
		g.emit("const %s count = %s;", g.typ, g.numel(shape))
		if at != "" { // somebody reads it
			if err := g.branch(loop, move); err != nil {
				return err
			}
		}
		g.emit("offset += (i64)count * %d;", size)
		return nil
	})
}

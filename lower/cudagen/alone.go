package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// alone writes the kernels of operations that no other can join; nil for others.
func alone(name string, r *region) (*Kernel, error) {
	if len(r.nodes) != 1 {
		return nil, nil
	}
	n := r.nodes[0]
	f := &form{block: 256, lanes: 1, width: 1}
	g := newGenerator(r, f)
	g.body = g.top
	declared := "" // before the kernel
	var err error
	switch n.Op() {
	case ir.OpConvolution:
		if len(r.sizes) > 0 {
			return nil, unsupported(n, "sizes known at run time only")
		}
		err = g.convolution(n)
	case ir.OpReduceWindow:
		if len(r.sizes) > 0 {
			return nil, unsupported(n, "sizes known at run time only")
		}
		err = g.reduceWindow(n)
	case ir.OpTopk:
		err = g.topk(n)
	case ir.OpScatter:
		if len(r.sizes) > 0 || !g.scatters(n) {
			return nil, nil
		}
		err = g.scatterLines(n)
	case ir.OpGroupedMatmul:
		err = g.groupedMatmul(n)
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
	count := numel(sizes(out))
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
	i := g.x.newAtom("i", count-1, 1, g.top)
	g.top.emit("const int i = blockIdx.x * 256 + threadIdx.x;")
	g.top.emit("if (i >= %d) return;", count)
	g.top.emit("store_vec(out0 + %s, load_vec<1>((const %s*)%s_data + i));", g.offset(out, g.x.unravel(i.lin(), g.r.shape(out))).text(), ctype(out.Type().DType()), name)
	return b.String(), nil
}

// topk finds the k best of each line. The place of an element among them is the
// number of those that come before it; where lines are long and k is small, the
// best after the last one is looked for k times instead.
func (g *generator) topk(n *ir.Node) error {
	x, k := n.Arg(0), n.Attrs().Int("k", 1)
	d := g.dim(n)
	if x.Type().Rank() == 0 || elements(x).Equal(ir.D(0)) {
		return unsupported(n, "%s", x.Type())
	}
	shape := g.r.shape(x)
	length, others := shape[d], slices.Clone(shape)
	others[d] = extent{n: 1}
	size, lines := length.lin(g.x).text(), g.x.count(others)
	_, most := lines.span()
	outer := slices.Clone(x.Type().Shape())
	outer[d] = ir.D(1)
	g.ins = []*ir.Value{x}
	largest := n.Attrs().Bool("largest", true)
	t := held(x.Type().DType())
	f := g.f
	f.big = most*length.n > 1<<30
	index := g.intType()
	counter := g.counter(shape[d : d+1])
	if length.name != "" {
		g.top.emit("if (%s < %d && %s > 0) __trap(); // there are not as many", size, k, lines.text())
	}

	// at is element j of the line at hand in a tensor.
	row := g.x.newAtom("row", most-1, 1, g.top)
	at := func(v *ir.Value, j lin) string {
		to := g.x.unravel(row.lin(), others)
		to[d] = j
		return g.offset(v, to).text()
	}
	best := func(s *scope, place string, value, position string) {
		p := g.x.newAtom(place, k-1, 1, s).lin()
		for i, v := range g.r.outs {
			e := value
			if v.Index() == 1 {
				e = "(i64)(" + position + ")"
			}
			s.emit("store(out%d + %s, %s);", i, at(v, p), e)
		}
	}
	if length.n > 4096 && k <= 64 {
		f.block, f.lanes, g.grid = 1024, 1024, most
		g.need = g.r.named(outer)
		g.top.emit("constexpr int lanes = LANES(1024);")
		g.top.emit("const %s row = blockIdx.x;", index)
		if open(others) {
			g.top.emit("if (row >= %s) return;", lines.text())
		}
		g.top.emit("const int lane = threadIdx.x;")
		g.top.emit("best<%s> last = {0, -1};", t)
		g.top.emit("for (int place = 0; place < %d; ++place) {", k)
		s := newScope(g.top)
		s.emit("best<%s> found = {0, -1};", t)
		s.emit("#pragma unroll 4")
		s.emit("for (%s j = lane; j < %s; j += lanes) {", counter, size)
		s.emit("  const best<%s> y = {load(in0 + %s), j};", t, at(x, g.x.newAtom("j", length.n-1, 1, s).lin()))
		s.emit("  if (last.at < 0 || ahead<%v>(last, y)) found = Ahead<%v>()(found, y);", largest, largest)
		s.emit("}")
		s.emit("last = fold_lanes<lanes, 1>(found, Ahead<%v>());", largest)
		in := newScope(s)
		best(in, "place", "last.value", "last.at")
		s.emit("if (lane == 0) {")
		s.lines = append(append(s.lines, indent(in.lines)...), "}")
		g.top.lines = append(append(g.top.lines, indent(s.lines)...), "}")
		return nil
	}
	if !open(shape) && length.n >= 128 && length.n <= 8192 && t == domF32 {
		g.ranks(at, best, x, most, length.n, k, largest)
		return nil
	}
	f.block = 128
	g.grid, g.need = (most*length.n+127)/128, over(g.r.named(x.Type().Shape()), 128)
	g.top.emit("const %s i = (%s)blockIdx.x * 128 + threadIdx.x;", index, index)
	if all := g.x.times(lines, length); open(shape) || all.c%128 != 0 {
		g.top.emit("if (i >= %s) return;", all.text())
	}
	g.top.emit("const %s row = i / %s;", index, size)
	g.top.emit("const %s j = i %% %s;", counter, size)
	g.top.emit("const best<%s> mine = {load(in0 + %s), j};", t, at(x, g.x.newAtom("j", length.n-1, 1, g.top).lin()))
	g.top.emit("%s place = 0;", counter)
	g.top.emit("#pragma unroll 8")
	g.top.emit("for (%s k = 0; k < %s; ++k) {", counter, size)
	g.top.emit("  place += ahead<%v>(best<%s>{load(in0 + %s), k}, mine);", largest, t, at(x, g.x.newAtom("k", length.n-1, 1, g.top).lin()))
	g.top.emit("}")
	in := newScope(g.top)
	best(in, "place", "mine.value", "j")
	g.top.emit("if (place < %d) {", k)
	g.top.lines = append(append(g.top.lines, indent(in.lines)...), "}")
	return nil
}

// ranks counts for every element of a line those that come before it. A block has
// all of the line in shared memory, as integers in the order that is asked for.
func (g *generator) ranks(at func(*ir.Value, lin) string, best func(s *scope, place, value, position string), x *ir.Value, lines, length, k int64, largest bool) {
	const each = 128 // elements that a block places
	f, t := g.f, g.intType()
	f.block, f.lanes = 512, 4
	blocks := (length + each - 1) / each
	g.grid = lines * blocks
	g.top.emit("constexpr int lanes = LANES(4), team = LANES(512);")
	g.top.emit("__shared__ vec<unsigned, 4> keys[%d];", (length+3)/4)
	g.top.emit("const %s row = blockIdx.x / %d;", t, blocks)
	s := newScope(g.top)
	s.emit("for (int j = threadIdx.x %% team; j < %d; j += team) {", (length+3)/4*4)
	e := at(x, g.x.newAtom("j", length-1, 1, s).lin())
	if length%4 != 0 {
		s.emit("  keys[j / 4].at[j %% 4] = j < %d ? rank_key<%v>(load(in0 + %s)) : 0xffffffffu;", length, largest, e)
	} else {
		s.emit("  keys[j / 4].at[j %% 4] = rank_key<%v>(load(in0 + %s));", largest, e)
	}
	s.emit("}")
	s.emit("meet();")
	s.emit("const int lane = threadIdx.x %% lanes, j = blockIdx.x %% %d * %d + threadIdx.x / lanes;", blocks, each)
	mine := "keys[j / 4].at[j % 4]"
	if length%each != 0 {
		mine = fmt.Sprintf("j < %d ? %s : 0xffffffffu", length, mine)
	}
	s.emit("const unsigned mine = %s;", mine)
	s.emit("i64 place = 0;")
	s.emit("{")
	s.emit("  int sum = 0;")
	s.emit("#pragma unroll 4")
	s.emit("  for (int q = lane; q < %d; q += lanes) {", (length+3)/4)
	s.emit("    const vec<unsigned, 4> y = keys[q];")
	s.emit("    const unsigned bound = mine + (q < j / 4); // equal ones come before it if they have lower positions")
	s.emit("    sum += (y.at[0] < bound) + (y.at[1] < bound) + (y.at[2] < bound) + (y.at[3] < bound);")
	s.emit("  }")
	s.emit("  place = fold_lanes<lanes, 128>((i64)sum, Sum());")
	s.emit("}")
	in := newScope(s)
	in.emit("for (int q = j / 4 * 4; q < j; ++q) place += keys[q / 4].at[q %% 4] == mine;")
	in.emit("if (place < %d) {", k)
	deep := newScope(in)
	best(deep, "place", "load(in0 + "+e+")", "j")
	in.lines = append(append(in.lines, indent(deep.lines)...), "}")
	test := "lane == 0"
	if length%each != 0 {
		test += fmt.Sprintf(" && j < %d", length)
	}
	s.emit("if (%s) {", test)
	s.lines = append(append(s.lines, indent(in.lines)...), "}")
	g.top.lines = append(g.top.lines, s.lines...)
}

// scatters reports whether n writes lines that one block can hold the positions of,
// and nothing but the last value counts that is written at a position.
func (g *generator) scatters(n *ir.Node) bool {
	x, index := n.Arg(0), n.Arg(1)
	shape, places := sizes(x), sizes(index)
	if len(shape) == 0 || len(shape) != len(places) || n.Attrs().Str("reduce", "") != "" || len(n.Args()) == 3 && n.Arg(2).Type().DType() != x.Type().DType() {
		return false
	}
	d := g.dim(n)
	for i := range shape {
		if i != d && places[i] != shape[i] {
			return false
		}
	}
	return places[d] >= 32 && shape[d] <= 8192 && numel(shape) <= 1<<30 && held(x.Type().DType()) == held(n.Result(0).Type().DType())
}

// scatterLines finds for every position of a line the last place that writes it.
func (g *generator) scatterLines(n *ir.Node) error {
	x, index, v := n.Arg(0), n.Arg(1), n.Result(0)
	shape := sizes(x)
	d := g.dim(n)
	length, places := shape[d], sizes(index)[d]
	others := slices.Clone(shape)
	others[d] = 1
	value := scalarOf(n.Attrs(), "value")
	if len(n.Args()) < 3 && !value.set {
		return unsupported(n, "neither a value nor a tensor of them")
	}
	f := g.f
	f.block, f.lanes = 512, 512
	f.big = numel(shape) > 1<<30
	g.grid = numel(others)
	g.ins = []*ir.Value{x, index}
	row := g.x.newAtom("row", g.grid-1, 1, g.top)
	at := func(v *ir.Value, name string, size int64) string {
		to := g.x.unravel(row.lin(), fixed(others))
		to[d] = g.x.newAtom(name, size-1, 1, g.top).lin()
		return dot(to, v.Type().Strides()).text()
	}
	e := value.literal(held(v.Type().DType()))
	if len(n.Args()) == 3 {
		g.ins = append(g.ins, n.Arg(2))
		e = "load(in2 + " + at(n.Arg(2), "k", places) + ")"
	}
	g.top.emit("constexpr int lanes = LANES(512);")
	g.top.emit("__shared__ int last[%d]; // place that writes a position, -1 for none", length)
	g.top.emit("const int row = blockIdx.x, lane = threadIdx.x;")
	g.top.emit("for (int j = lane; j < %d; j += lanes) last[j] = -1;", length)
	g.top.emit("meet();")
	g.top.emit("for (int k = lane; k < %d; k += lanes) latest(last + position(load(in1 + %s), %d, false), k);", places, at(index, "k", places), length)
	g.top.emit("meet();")
	g.top.emit("for (int j = lane; j < %d; j += lanes) {", length)
	g.top.emit("  const int k = last[j];")
	g.top.emit("  const %s y = k >= 0 ? %s : load(in0 + %s);", held(v.Type().DType()), e, at(x, "j", length))
	g.top.emit("  store(out0 + %s, %s);", at(v, "j", length), rounded("y", held(v.Type().DType()), v.Type().DType()))
	g.top.emit("}")
	return nil
}

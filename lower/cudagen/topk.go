package cudagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen/internal/index"
)

// topk is a kernel that finds the k best of each line of x.
type topk struct {
	g             *generator
	x             *ir.Value
	d             int // dimension of x along which lines are
	k             int64
	largest       bool
	shape, others []index.Extent // of x, and with one element a line
	length        index.Extent   // of a line
	size          string         // length, as an expression
	lines         index.Expr     // how many, most at the most
	most          int64
	row           *index.Atom
}

// topk writes one of three kernels. The place of an element among the best is the
// number of those that come before it; where lines are long and k is small, the
// best after the last one is looked for k times instead.
func (g *generator) topk(n *ir.Node) error {
	x := n.Arg(0)
	if x.Type().Rank() == 0 || elements(x).Equal(ir.D(0)) {
		return unsupported(n, "%s", x.Type())
	}
	s := &topk{g: g, x: x, d: dimOf(n), k: n.Attrs().Int("k", 1), largest: n.Attrs().Bool("largest", true), shape: g.r.shape(x)}
	s.length, s.others = s.shape[s.d], slices.Clone(s.shape)
	s.others[s.d] = index.Extent{N: 1}
	s.size, s.lines = g.x.Size(s.length).String(), g.x.Count(s.others)
	_, s.most = s.lines.Bounds()
	g.ins = []*ir.Value{x}
	g.f.big = far(append([]*ir.Value{x}, n.Results()...)...)
	if s.length.Name != "" {
		g.top.Emit("if (%s < %d && %s > 0) __trap(); // there are not as many", s.size, s.k, s.lines)
	}
	s.row = g.x.NewAtom("row", s.most-1, 1, g.top)
	switch {
	case s.length.N > 4096 && s.k <= 64:
		s.selection()
	case !index.HasDynamic(s.shape) && s.length.N >= 128 && s.length.N*s.keys().size <= 32<<10:
		s.ranks()
	default:
		s.counts()
	}
	return nil
}

// at is element j of the line at hand in a tensor.
func (s *topk) at(v *ir.Value, j index.Expr) string {
	to := s.g.x.Unravel(s.row.Expr(), s.others)
	to[s.d] = j
	return s.g.offset(v, to).String()
}

// found stores what takes a place among the best.
func (s *topk) found(to *index.Scope, value, position string) {
	p := s.g.x.NewAtom("place", s.k-1, 1, to).Expr()
	for i, v := range s.g.r.outs {
		e := value
		if v.Index() == 1 {
			e = "(i64)(" + position + ")"
		}
		to.Emit("store(out%d + %s, %s);", i, s.at(v, p), e)
	}
}

// selection gives each line a block, which looks for the best after the last one k times.
func (s *topk) selection() {
	g, f, t := s.g, s.g.f, storageDomain(s.x.Type().DType())
	outer := slices.Clone(s.x.Type().Shape())
	outer[s.d] = ir.D(1)
	f.block, f.lanes, g.grid = 1024, 1024, s.most
	g.need = g.r.named(outer)
	g.top.Emit("constexpr int lanes = LANES(1024);")
	g.top.Emit("const %s row = blockIdx.x;", g.intType())
	if index.HasDynamic(s.others) {
		g.top.Emit("if (row >= %s) return;", s.lines)
	}
	g.top.Emit("const int lane = threadIdx.x;")
	g.top.Emit("best<%s> last = {0, -1};", t)
	g.top.Emit("for (%s place = 0; place < %d; ++place) {", g.intType(), s.k)
	b := index.NewScope(g.top)
	b.Emit("best<%s> found = {0, -1};", t)
	b.Emit("#pragma unroll 4")
	b.Emit("for (%s j = lane; j < %s; j += lanes) {", g.counter(s.shape[s.d:s.d+1]), s.size)
	b.Emit("  const best<%s> y = {load(in0 + %s), j};", t, s.at(s.x, g.x.NewAtom("j", s.length.N-1, 1, b).Expr()))
	b.Emit("  if (last.at < 0 || ahead<%v>(last, y)) found = Ahead<%v>()(found, y);", s.largest, s.largest)
	b.Emit("}")
	b.Emit("last = fold_lanes<lanes, 1>(found, Ahead<%v>());", s.largest)
	in := index.NewScope(b)
	s.found(in, "last.value", "last.at")
	b.Emit("if (lane == 0) {")
	b.Braced(in.Lines)
	g.top.Braced(b.Lines)
}

// counts gives each element a thread, which counts those of its line that come before it.
func (s *topk) counts() {
	g, t, counter := s.g, storageDomain(s.x.Type().DType()), s.g.counter(s.shape[s.d:s.d+1])
	typ := g.intType()
	g.f.block = 128
	g.grid, g.need = (s.most*s.length.N+127)/128, divUp(g.r.named(s.x.Type().Shape()), 128)
	g.top.Emit("const %s i = (%s)blockIdx.x * 128 + threadIdx.x;", typ, typ)
	all := g.x.Times(s.lines, s.length)
	if n, known := all.Const(); !known || n%128 != 0 {
		g.top.Emit("if (i >= %s) return;", all)
	}
	g.top.Emit("const %s row = i / %s;", typ, s.size)
	g.top.Emit("const %s j = i %% %s;", counter, s.size)
	g.top.Emit("const best<%s> mine = {load(in0 + %s), j};", t, s.at(s.x, g.x.NewAtom("j", s.length.N-1, 1, g.top).Expr()))
	g.top.Emit("%s place = 0;", counter)
	g.top.Emit("#pragma unroll 8")
	g.top.Emit("for (%s k = 0; k < %s; ++k) {", counter, s.size)
	g.top.Emit("  place += ahead<%v>(best<%s>{load(in0 + %s), k}, mine);", s.largest, t, s.at(s.x, g.x.NewAtom("k", s.length.N-1, 1, g.top).Expr()))
	g.top.Emit("}")
	in := index.NewScope(g.top)
	s.found(in, "mine.value", "j")
	g.top.Emit("if (place < %d) {", s.k)
	g.top.Braced(in.Lines)
}

// rankKeys are the integers that ranks compares in place of elements, in shared memory.
type rankKeys struct {
	typ, function, none string
	size, each          int64  // bytes of one, and how many are read at once
	before              string // condition that y, of an element before the one at hand or not, is before mine
}

// keys is what stands for the elements, which are wider where they are integers.
func (s *topk) keys() rankKeys {
	switch storageDomain(s.x.Type().DType()) {
	case domF32:
		return rankKeys{"unsigned", fmt.Sprintf("rank_key<%v>", s.largest), "0xffffffffu", 4, 4, "(y.at[%d] < bound)"}
	case domF64:
		return rankKeys{size: 1 << 20}
	}
	return rankKeys{"u64", fmt.Sprintf("rank_key64<%v>", s.largest), "~0ull", 8, 2, "(y.at[%[1]d] < mine || (y.at[%[1]d] == mine && earlier))"}
}

// ranks counts as counts does. A block has all of the line in shared memory, as
// integers in the order that is asked for.
func (s *topk) ranks() {
	g, length, key := s.g, s.length.N, s.keys()
	each, lanes := int64(128), 4 // elements that a block places, and threads of each
	if key.size > 4 && s.most*length < each*multiprocs {
		each, lanes = 32, 16
	}
	g.f.block, g.f.lanes = 512, lanes
	blocks := (length + each - 1) / each
	g.grid = s.most * blocks
	g.top.Emit("constexpr int lanes = LANES(%d), team = LANES(512);", lanes)
	g.top.Emit("__shared__ vec<%s, %d> keys[%d];", key.typ, key.each, (length+key.each-1)/key.each)
	g.top.Emit("const %s row = blockIdx.x / %d;", g.intType(), blocks)
	b := index.NewScope(g.top)
	b.Emit("for (%s j = threadIdx.x %% team; j < %d; j += team) {", g.intType(), (length+key.each-1)/key.each*key.each)
	e := s.at(s.x, g.x.NewAtom("j", length-1, 1, b).Expr())
	value := fmt.Sprintf("%s(load(in0 + %s))", key.function, e)
	if length%key.each != 0 {
		value = fmt.Sprintf("j < %d ? %s : %s", length, value, key.none)
	}
	b.Emit("  keys[j / %d].at[j %% %d] = %s;", key.each, key.each, value)
	b.Emit("}")
	b.Emit("sync_block();")
	b.Emit("const int lane = threadIdx.x %% lanes;")
	b.Emit("const %s j = blockIdx.x %% %d * %d + threadIdx.x / lanes;", g.intType(), blocks, each)
	mine, test := fmt.Sprintf("keys[j / %[1]d].at[j %% %[1]d]", key.each), "lane == 0"
	if length%each != 0 {
		mine, test = fmt.Sprintf("j < %d ? %s : %s", length, mine, key.none), fmt.Sprintf("%s && j < %d", test, length)
	}
	b.Emit("const %s mine = %s;", key.typ, mine)
	b.Emit("i64 place = 0;")
	b.Emit("{")
	b.Emit("  int sum = 0;")
	b.Emit("#pragma unroll 4")
	b.Emit("  for (int q = lane; q < %d; q += lanes) {", (length+key.each-1)/key.each)
	b.Emit("    const vec<%s, %d> y = keys[q];", key.typ, key.each)
	if key.size > 4 {
		b.Emit("    const bool earlier = q < j / %d; // equal ones come before it if they have lower positions", key.each)
	} else {
		b.Emit("    const unsigned bound = mine + (q < j / 4); // equal ones come before it if they have lower positions")
	}
	var terms []string
	for k := range key.each {
		terms = append(terms, fmt.Sprintf(key.before, k))
	}
	b.Emit("    sum += %s;", strings.Join(terms, " + "))
	b.Emit("  }")
	b.Emit("  place = fold_lanes<lanes, %d>((i64)sum, Sum());", each)
	b.Emit("}")
	in := index.NewScope(b)
	in.Emit("for (int q = j / %[1]d * %[1]d; q < j; ++q) place += keys[q / %[1]d].at[q %% %[1]d] == mine;", key.each)
	in.Emit("if (place < %d) {", s.k)
	deep := index.NewScope(in)
	s.found(deep, "load(in0 + "+e+")", "j")
	in.Braced(deep.Lines)
	b.Emit("if (%s) {", test)
	b.Braced(in.Lines)
	g.top.Lines = append(g.top.Lines, b.Lines...)
}

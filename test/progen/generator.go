package progen

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// maxElems bounds the elements of one tensor.
const maxElems = 600

// Case is a program, what to run it on, and the pipeline to take it through.
type Case struct {
	Seed     uint64 // of the inputs' numbers; [New] made the program of it
	Text     string
	Symbols  [][]map[string]int64 // assignments: sizes by rank
	Given    [][]interp.Tensor    // the inputs by rank, with one assignment; nil: drawn from Seed
	Pipeline string
}

// value is a tensor that operations may read.
type value struct {
	ref     string // %name or %name#i
	typ     ir.Type
	store   int  // the storage that it lies in
	varying bool // its sizes differ by rank
	overlap bool // several of its elements lie in one place
	late    bool // it was made from a tangent
}

// group is a partition of the world.
type group struct {
	name  string
	ranks [][]int
}

func (g *group) size() int { return len(g.ranks[0]) }

func (g *group) ir() *ir.Group { return &ir.Group{Name: g.name, Ranks: g.ranks} }

// param is an input that is a tensor: which, and its annotations.
type param struct {
	at   int
	of   *value
	role string
}

// flight is a collective that nobody has awaited.
type flight struct {
	ref     string
	typ     ir.Type
	reads   []int // storages
	varying bool
	late    bool
}

// gen is the state of one program being made.
type gen struct {
	r       *rand.Rand
	world   int
	groups  []*group
	grid    []*group // two of them, the rows and columns of a grid of ranks, or none
	syms    []*symbol
	inputs  []string
	params  []*param // inputs that are tensors
	lines   []string
	pool    []*value
	flights []*flight
	stores  int
	names   int
	assigns int // of symbols
	calls   bool
	joint   bool         // some inputs are tangents
	region  int          // checkpointed region of the operations that come, 0 for none
	dirty   map[int]bool // storages in which something made from a tangent was written; look-up only
	runs    []string     // operations that may stand at an order-only edge
	edges   bool
	spread  bool // most of it is about tensors that are spread over ranks
	kinds   []family
	bodies  []string // functions that nodes run

	prefix       string // of their names
	communicates bool   // whether they may
}

// New makes the program of a seed, and what its symbols stand for. Equal seeds give
// equal programs.
func New(seed uint64) Case {
	g := &gen{r: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), assigns: 1, kinds: families, communicates: true}
	g.world = []int{1, 2, 2, 2, 3, 4, 4, 5, 6, 8}[g.r.IntN(10)]
	g.calls = g.r.IntN(3) > 0
	g.joint, g.dirty = g.r.IntN(5) == 0, map[int]bool{}
	g.edges = !g.joint && g.r.IntN(6) == 0
	if g.spread = g.r.IntN(4) == 0; g.spread {
		g.world = []int{2, 4, 4, 6, 8}[g.r.IntN(5)]
	}
	g.declare()
	steps := 1 + g.r.IntN([]int{6, 14, 30}[g.r.IntN(3)])
	for range 1 + g.r.IntN(4) {
		g.input()
	}
	for range steps {
		g.step()
	}
	if seed%4 == 3 {
		g.aroundProduct()
	}
	if seed%8 == 1 {
		g.longForm()
		g.step()
	}
	if seed%8 == 5 && !g.joint {
		for range 1 + g.r.IntN(2) {
			g.control()
			g.step()
		}
	}
	c := Case{Seed: seed, Text: g.finish()}
	for a := range g.assigns {
		by := make([]map[string]int64, g.world)
		for r := range by {
			by[r] = map[string]int64{}
			for _, s := range g.syms {
				if s.values != nil {
					by[r][s.name] = s.values[a][r]
				}
			}
		}
		c.Symbols = append(c.Symbols, by)
	}
	return c
}

// declare makes groups, of which some have equal ranks, and symbols.
func (g *gen) declare() {
	var all []int
	for r := range g.world {
		all = append(all, r)
	}
	for range 1 + g.r.IntN(4) {
		ranks := slices.Clone(all)
		if g.r.IntN(2) == 0 {
			g.r.Shuffle(len(ranks), func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
		}
		var sizes []int
		for n := 1; n <= g.world; n++ {
			if g.world%n == 0 {
				sizes = append(sizes, n)
			}
		}
		n := sizes[len(sizes)-1]
		if g.r.IntN(2) == 0 {
			n = sizes[g.r.IntN(len(sizes))]
		}
		var subs [][]int
		if g.r.IntN(3) == 0 && n < g.world { // columns in place of rows
			for i := range g.world / n {
				var sub []int
				for k := range n {
					sub = append(sub, ranks[k*(g.world/n)+i])
				}
				subs = append(subs, sub)
			}
		} else {
			subs = slices.Collect(slices.Chunk(ranks, n))
		}
		if len(g.groups) > 0 && g.r.IntN(6) == 0 {
			subs = g.groups[0].ranks
		}
		g.groups = append(g.groups, &group{fmt.Sprintf("g%d", len(g.groups)), subs})
	}
	for n := 2; n <= g.world/2 && g.grid == nil; n++ {
		if g.world%n == 0 && (g.spread || g.r.IntN(6) == 0) {
			g.rowsAndColumns(all, n)
		}
	}
	if g.r.IntN(4) == 0 {
		g.assigns = 4
		for range 1 + g.r.IntN(2) {
			g.symbol(int64(1+g.r.IntN(5)), false)
		}
	}
}

func (g *gen) name() string {
	g.names++
	return fmt.Sprintf("v%d", g.names)
}

func (g *gen) storage() int {
	g.stores++
	return g.stores
}

var dtypes = []ir.DType{ir.F32, ir.F32, ir.F32, ir.F32, ir.BF16, ir.BF16, ir.F16, ir.F64, ir.I32, ir.I64, ir.I64, ir.I8, ir.U8, ir.Bool, ir.I16, ir.U16, ir.U32, ir.U64, ir.U64, ir.F8E4M3FN, ir.F8E5M2}

// rare stand for other floats of a byte now and then.
var rare = []ir.DType{ir.F8E4M3, ir.F8E3M4, ir.F8E5M2FNUZ, ir.F8E4M3FNUZ, ir.F8E4M3B11FNUZ, ir.F8E8M0FNU}

func (g *gen) dtype() ir.DType {
	dt := dtypes[g.r.IntN(len(dtypes))]
	if dt.IsFloat8() && g.r.IntN(2) == 0 {
		dt = rare[g.r.IntN(len(rare))]
	}
	return dt
}

// dims draws a shape; sizes that groups divide are likely.
func (g *gen) dims() []int64 {
	rank := []int{0, 1, 1, 1, 2, 2, 2, 3, 4}[g.r.IntN(9)]
	out := make([]int64, rank)
	total := int64(1)
	for i := range out {
		n := []int64{0, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12}[g.r.IntN(13)]
		if g.r.IntN(3) == 0 {
			n = int64(g.pickGroup().size()) * int64(1+g.r.IntN(2))
		}
		if n == 0 && g.r.IntN(4) > 0 || total*n > maxElems/4 {
			n = 1
		}
		out[i] = n
		total *= max(n, 1)
	}
	return out
}

func (g *gen) pickGroup() *group { return g.groups[g.r.IntN(len(g.groups))] }

func (g *gen) parse(text string) ir.Dim {
	d, err := ir.ParseDim(text)
	if err != nil {
		panic(err) // the text is ours
	}
	return d
}

// input declares a parameter: a tensor, or tensors in flight.
func (g *gen) input() {
	if g.r.IntN(12) == 0 {
		name := g.name()
		var ts []ir.Type
		for range 1 + g.r.IntN(2) {
			ts = append(ts, ir.Tensor(g.dtype(), g.dims()...))
		}
		t := ir.Async(ts...)
		g.inputs = append(g.inputs, "%"+name+": "+t.String())
		g.flights = append(g.flights, &flight{ref: "%" + name, typ: t})
		return
	}
	t := g.layout(ir.TensorOf(g.dtype(), g.shape()))
	if !g.fits(t) {
		t = ir.Tensor(ir.F32, 8)
	}
	role := ir.Role("")
	switch k := g.r.IntN(8); {
	case k == 0:
		role = ir.RoleParameter
	case k == 1 && !g.joint:
		role = ir.RoleSaved
	case k == 2:
		role = ir.RoleData
	case g.joint && (k < 6 || len(g.inputs) == 1):
		role = ir.RoleTangent
	}
	g.given(t, role)
}

// given declares an input that is a tensor.
func (g *gen) given(t ir.Type, role ir.Role) *value {
	v := &value{ref: "%" + g.name(), typ: t, store: g.storage(), late: role == ir.RoleTangent}
	tail := ""
	if role != "" {
		tail = fmt.Sprintf(" !{role=%q}", role)
	}
	g.params = append(g.params, &param{len(g.inputs), v, tail})
	g.inputs = append(g.inputs, v.ref+": "+t.String())
	g.pool = append(g.pool, v)
	return v
}

// pick chooses a tensor that ok accepts, the newest most often, or nil.
func (g *gen) pick(ok func(v *value) bool) *value {
	n := len(g.pool)
	if n == 0 {
		return nil
	}
	for range 12 {
		i := n - 1 - min(g.r.IntN(n), g.r.IntN(n))
		if v := g.pool[i]; ok == nil || ok(v) {
			return v
		}
	}
	return nil
}

// some is a tensor of that type: one that is there, a new input, or a constant.
func (g *gen) some(t ir.Type) *value {
	if v := g.pick(func(v *value) bool { return v.typ.SameTensor(t) }); v != nil {
		return v
	}
	if len(g.inputs) < 8 && g.r.IntN(2) == 0 {
		return g.given(t, "")
	}
	if rs := g.emit(ir.OpFull, nil, list("value", float64(g.r.IntN(5)-2)), nil, t); rs != nil {
		return rs[0]
	}
	return nil
}

// fits reports whether a type's sizes are within bounds, whatever the symbols are.
func (g *gen) fits(t ir.Type) bool {
	for _, e := range t.Tensors() {
		total := int64(1)
		for _, d := range e.Shape() {
			lo, hi := g.bounds(d)
			if lo < 0 {
				return false
			}
			total *= max(hi, 1)
		}
		if total > maxElems {
			return false
		}
	}
	return true
}

func list(kv ...any) attr.List {
	var l []attr.Attr
	for i := 0; i < len(kv); i += 2 {
		a := attr.Attr{Key: kv[i].(string)}
		switch v := kv[i+1].(type) {
		case int:
			a.Val = attr.Int(int64(v))
		case int64:
			a.Val = attr.Int(v)
		case float64:
			a.Val = attr.Float(v)
		case bool:
			a.Val = attr.Bool(v)
		case string:
			a.Val = attr.String(v)
		case []int64:
			a.Val = attr.Ints(v...)
		case []string:
			a.Val = attr.Strings(v...)
		}
		l = append(l, a)
	}
	return attr.Make(l...)
}

// emit writes an operation if the type rules accept it. want declares result types
// where they are open. It returns the results, nil if it is refused.
func (g *gen) emit(op ir.Op, gr *group, attrs attr.List, args []*value, want ...ir.Type) []*value {
	var types []ir.Type
	varying, overlap, late := false, false, false
	for _, a := range args {
		types = append(types, a.typ)
		late = late || g.isLate(a)
		varying = varying || a.varying
		overlap = overlap || a.overlap
	}
	var in *ir.Group
	if gr != nil {
		in = gr.ir()
	}
	got, err := ir.Infer(op, in, attrs, types, want...)
	if err != nil || len(got) == 0 {
		return nil
	}
	for i, t := range got {
		if !g.fits(t) {
			return nil
		}
		if !op.IsView() && !t.IsAsync() {
			got[i] = g.layout(t)
		}
	}
	if op.IsView() && moves(attrs) && !g.placed(args[0], int(attrs.Int("dim", 0))) {
		return nil
	}
	refs := g.write(op.Name(), gr, attrs, args, got)
	if op.IsCollective() {
		f := &flight{ref: refs[0], typ: got[0], varying: varying, late: late}
		for _, a := range args {
			f.reads = append(f.reads, a.store)
		}
		g.flights = append(g.flights, f)
		return []*value{}
	}
	var out []*value
	for i, t := range got {
		v := &value{ref: refs[i], typ: t, varying: varying, late: late}
		if op.IsView() {
			v.store = args[0].store
			v.overlap = overlap || op == ir.OpExpand || op == ir.OpAsStrided && overlaps(t)
		} else {
			v.store = g.storage()
		}
		out = append(out, v)
	}
	g.pool = append(g.pool, out...)
	return out
}

// isLate reports whether a tangent had a part in what v holds now.
func (g *gen) isLate(v *value) bool { return v.late || g.dirty[v.store] }

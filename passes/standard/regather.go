package standard

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
	"github.com/seed-ee968945/concert/passes/simplify"
)

// regather trades communication for memory. Backward reads weights that forward has gathered, so that
// in between all of them lie whole on every rank, which sharding was to avoid. Where more is live than
// the cap, the gathered tensor that is not read for longest around that place is freed after its last
// reader before it and gathered again for the first one behind, at most once; and so on at the place that has most then.
//
// Only the gather of one tensor whose storage and operand's storage nothing writes and nobody gets is
// repeated, and what aliases its result with it. The repeat is marked, so that nobody takes it for a duplicate.
// Linear in the nodes for each gather.
func regather() passes.Pass {
	return passes.Pass{
		Name: "regather",
		Doc:  "Frees gathered tensors between distant readers and gathers them again, where live memory exceeds a cap.",
		Options: []passes.Option{
			{Name: "cap", Kind: passes.KindBytes, Default: "0", Doc: "largest live memory, 0 for any"},
		},
		Stats: []passes.Stat{
			{Name: "repeated", Doc: "gathers that are done twice"},
			{Name: "peak-before-bytes", Doc: "largest live memory before the pass"},
			{Name: "peak-after-bytes", Doc: "what is expected after it"},
		},
		Run: func(ctx *passes.Context, f *ir.Func) error {
			most := ctx.Bytes("cap")
			if most == 0 {
				return nil
			}
			d, err := deps.Analyze(ctx, f)
			if err != nil {
				return err
			}
			g := &gatherer{ctx: ctx, f: f, d: d}
			g.find()
			ctx.Count("peak-before-bytes", float64(slices.Max(g.live)))
			for _, c := range g.choose(most) {
				c.repeat(f, d)
				ctx.Count("repeated", 1)
			}
			ctx.Count("peak-after-bytes", float64(slices.Max(g.live)))
			return nil
		},
	}
}

// gatherer is the state of regather. Nodes are numbered as in deps.
type gatherer struct {
	ctx  *passes.Context
	f    *ir.Func
	d    *deps.Func
	live []int64 // node -> bytes while it runs
	all  []*gathered

	fences []int32 // node -> calls and loops that communicate before it
}

// gathered is what may be gathered twice.
type gathered struct {
	start, wait  *ir.Node
	bytes, piece int64 // piece: of the operand, 0 if that is there to the end
	last         int32 // user of the operand's storage
	alias        map[*ir.Value]bool
	users        []int32 // of the tensor
	readers      []int32 // users but views, ascending
	again        int32   // the reader that it is gathered again for, 0 for none
}

// find measures what is live and finds the gathers.
func (g *gatherer) find() {
	d := g.d
	last := make([]int32, len(d.Size)) // storage -> its last user
	users := make([][]int32, len(d.Size))
	for s := range last {
		last[s] = d.Owner[s]
	}
	for v := range int32(d.Len()) {
		for _, s := range d.Use.At(v) {
			last[s] = v
			users[s] = append(users[s], v)
		}
	}
	change := make([]int64, d.Len()+1)
	for s, size := range d.Size {
		from, to := d.Owner[s], last[s]
		if from < d.Inputs {
			from = 0
		}
		if d.Pinned[s] {
			to = int32(d.Len()) - 1
		}
		change[from] += size
		change[to+1] -= size
	}
	g.live, g.fences = make([]int64, d.Len()), make([]int32, d.Len())
	now, passed := int64(0), int32(0)
	for v := range g.live {
		now += change[v]
		g.live[v], g.fences[v] = now, passed
		if n := d.Nodes[v]; n.Communicates() && !n.Op().IsCollective() {
			passed++
		}
	}
	writes := ir.FindWrites(g.f)
	for v := range int32(d.Len()) {
		c := g.gathered(d.Nodes[v], writes)
		if c == nil {
			continue
		}
		s, own := d.Result.At(d.Pos[c.wait.ID()]), d.Result.At(d.Pos[c.start.Arg(0).Def().ID()])
		if len(s) != 1 || len(own) != 1 || d.Pinned[s[0]] {
			continue
		}
		c.bytes = d.Size[s[0]]
		if !d.Pinned[own[0]] {
			c.piece, c.last = d.Size[own[0]], last[own[0]]
		}
		if c.read(d, users[s[0]]) {
			g.all = append(g.all, c)
		}
	}
}

// gathered is n if it may be repeated.
func (g *gatherer) gathered(n *ir.Node, writes *ir.Writes) *gathered {
	if n.Op() != ir.OpAllGather || len(n.Args()) != 1 || len(n.DeclaredArgs()) != 1 || n.Ordered() || n.Meta().Bool(simplify.RegatherKey, false) {
		return nil
	}
	w := passes.WaitOf(n)
	if w == nil || w.Ordered() || len(w.DeclaredArgs()) != len(w.Args()) || writes.Written(n.Arg(0)) || writes.Written(w.Result(0)) {
		return nil
	}
	return &gathered{start: n, wait: w, alias: map[*ir.Value]bool{w.Result(0): true}}
}

// read finds who reads the tensor, and reports whether that is known of all.
func (c *gathered) read(d *deps.Func, users []int32) bool {
	for _, v := range users {
		n := d.Nodes[v]
		view := n.Op().IsView() && len(n.Args()) == 1 && !n.Ordered()
		switch {
		case n == c.start || n == c.wait:
			continue
		case n.Op().Class() == ir.ClassOutput || !slices.ContainsFunc(n.Args(), func(a *ir.Value) bool { return c.alias[a] }):
			return false
		case !view:
			c.readers = append(c.readers, v)
		}
		for _, r := range n.Results() {
			if c.alias[r.Aliases()] {
				if !view {
					return false
				}
				c.alias[r] = true
			}
		}
		c.users = append(c.users, v)
	}
	return len(c.readers) > 1
}

// gap is where the tensor is not read around node p: behind a reader and before another.
func (c *gathered) gap(p int32) (after, before int32) {
	i, found := slices.BinarySearch(c.readers, p)
	if found || i == 0 || i == len(c.readers) {
		return 0, 0
	}
	return c.readers[i-1], c.readers[i]
}

// choose gives what is gathered again.
func (g *gatherer) choose(most int64) (chosen []*gathered) {
	left := slices.Clone(g.live) // without the places where nothing helps
	for {
		g.ctx.Tick()
		p := int32(0)
		for v, b := range left {
			if b > left[p] {
				p = int32(v)
			}
		}
		if left[p] <= most {
			return chosen
		}
		var best *gathered
		var from, to int32
		for _, c := range g.all {
			if a, b := c.gap(p); b-a > to-from && c.again == 0 && c.gain(b) > 0 && g.beside(c, b) && g.ctx.Enable(c.start.Name()) {
				best, from, to = c, a, b
			}
		}
		if best == nil {
			left[p] = 0
			continue
		}
		best.again = to
		chosen = append(chosen, best)
		for v := from + 1; v < to; v++ {
			less := best.bytes
			if v > best.last {
				less = best.gain(to)
			}
			g.live[v] -= less
			if left[v] > 0 {
				left[v] = g.live[v]
			}
		}
	}
}

// beside reports whether a gather may be repeated in front of a node: what communicates and is no collective
// keeps its place among all communication.
func (g *gatherer) beside(c *gathered, before int32) bool {
	return g.fences[g.d.Pos[c.start.ID()]] == g.fences[before]
}

// gain is how much less is live if the tensor is gathered again before a node: its operand is kept until there.
func (c *gathered) gain(before int32) int64 {
	if before > c.last {
		return c.bytes - c.piece
	}
	return c.bytes
}

// repeat gathers again for the reader that was chosen and all behind it.
func (c *gathered) repeat(f *ir.Func, d *deps.Func) {
	at := d.Nodes[c.again]
	s := c.start.Spec()
	s.Meta = s.Meta.With(simplify.RegatherKey, attr.Bool(true))
	w := c.wait.Spec()
	w.Args = slices.Clone(f.InsertBefore(at, s).Results())
	made := map[*ir.Value]*ir.Value{c.wait.Result(0): f.InsertBefore(at, w).Result(0)}
	var again func(v *ir.Value) *ir.Value
	again = func(v *ir.Value) *ir.Value {
		if made[v] == nil {
			s := v.Def().Spec()
			s.Args = []*ir.Value{again(v.Def().Arg(0))}
			made[v] = f.InsertBefore(at, s).Result(0)
		}
		return made[v]
	}
	var views []*ir.Node
	for _, u := range c.users {
		n := d.Nodes[u]
		if u < c.again {
			if n.Op().IsView() {
				views = append(views, n)
			}
			continue
		}
		for i, a := range n.Args() {
			if c.alias[a] && d.Pos[a.Def().ID()] < c.again {
				f.SetArg(n, i, again(a))
			}
		}
	}
	f.RemoveDead(views...) // those of later readers would keep the tensor
}

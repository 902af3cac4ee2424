package standard

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/forwarding"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/internal/deps"
)

// canonicalize removes what does nothing:
//
//   - a collective over a group of one rank is the identity: it goes, and its
//     wait becomes an alias of the operand, or a clone where an alias would not
//     do (see identity);
//   - an alias, or a view that changes nothing, gives way to its operand, which
//     also ends second waits; a view of a view reads the first one's operand;
//   - a matmul of 16-bit floats that were widened to f32 reads them as they are, and rounds
//     its result where that is all that follows (see narrow);
//   - a transposed result of a matmul is one of the transposed operands (see transposed);
//   - a result of attention lies as a copy has it, which goes (see lay);
//   - a slice of what was put together of rows gives way to the rows (package forwarding);
//   - pure operations that nobody reads go. A collective that nobody reads stays
//     unless the option says otherwise, and so does the wait that ends it.
//
// Nodes only disappear or turn into others in place, so the order of
// the rest is kept. One pass forward and one backward; linear.
func canonicalize() passes.Pass {
	return passes.Pass{
		Name: "canonicalize",
		Doc:  "Removes dead code, collectives over one rank, second waits, views that change nothing, conversions and transposes around matmuls, and reads of what was just put together.",
		Options: []passes.Option{
			{Name: "drop-collectives", Kind: passes.KindBool, Default: "false", Doc: "also remove collectives whose results nobody reads, on all ranks alike"},
		},
		Stats: []passes.Stat{
			{Name: "unit-collectives", Doc: "collectives over groups of one rank that were removed"},
			{Name: "clones", Doc: "copies that stand in for such a collective"},
			{Name: "forwarded", Doc: "aliases and views that gave way to their operand"},
			{Name: "narrowed", Doc: "matmuls that read 16-bit floats and not what was converted from them"},
			{Name: "transposed", Doc: "matmuls that give their result as it is read"},
			{Name: "laid", Doc: "results of attention that lie as a copy of them did"},
			{Name: "parts", Doc: "slices that read a part where it was made, and not of what it was put into"},
			{Name: "dead", Doc: "operations removed because nobody read them"},
			{Name: "dead-collectives", Doc: "collectives removed because nobody read them"},
		},
		Run: runCanonicalize,
	}
}

func runCanonicalize(ctx *passes.Context, f *ir.Func) error {
	c := &canonicalizer{ctx: ctx, f: f, writes: ir.FindWrites(f)}
	for _, n := range slices.Clone(f.Order()) {
		switch {
		case f.NodeByID(n.ID()) != n: // it went with another
		case n.Op() == ir.OpWaitTensor:
			c.unitCollective(n)
		case n.Op().IsView():
			c.view(n)
		case n.Op() == ir.OpMatmul:
			c.narrowMatmul(n)
		}
	}
	for _, n := range slices.Clone(f.Order()) {
		switch {
		case f.NodeByID(n.ID()) != n:
		case n.Op() == ir.OpPermute:
			c.transposed(n)
		case n.Op() == ir.OpClone:
			c.adoptLayout(n)
		}
	}
	c.forwardSlices()
	c.removeDead()
	return nil
}

type canonicalizer struct {
	ctx    *passes.Context
	f      *ir.Func
	writes *ir.Writes
}

// unitCollective removes the collective of wait w if its group has one rank. A
// collective whose async value leaves the function stays: its caller waits for it.
func (c *canonicalizer) unitCollective(w *ir.Node) {
	s := w.Arg(0).Def()
	if !s.Op().IsCollective() || s.Group().Size() != 1 || !c.isIdentity(s) || s.Ordered() || w.Ordered() || !c.ctx.Enable(s.Name()) {
		return
	}
	c.ctx.Count("unit-collectives", 1)
	made := make([]*ir.Node, len(w.Results()))
	for k, r := range w.Results() {
		op := c.identity(s.Arg(k), r)
		if op == ir.OpClone {
			c.ctx.Count("clones", 1)
		}
		made[k] = c.f.InsertBefore(w, ir.NodeSpec{Op: op, Name: w.Name(), Args: []*ir.Value{s.Arg(k)}, Results: []ir.Type{r.Type()}, Pos: w.Pos(), From: []*ir.Node{s, w}})
		c.f.ReplaceUses(r, made[k].Result(0))
	}
	name := w.Name()
	c.f.Remove(w)
	c.f.Remove(s)
	c.f.Rename(made[0], name)
	for _, n := range made {
		if n.Op() == ir.OpAlias {
			c.view(n)
		}
	}
}

// isIdentity reports whether a collective over one rank gives each operand back.
// A permute without the pair 0, 0 gives zeros, and uneven splits could give
// another size.
func (c *canonicalizer) isIdentity(s *ir.Node) bool {
	if s.Op() == ir.OpAsyncCall || s.Op() == ir.OpCollectivePermute && len(s.Attrs().Ints("pairs")) == 0 {
		return false
	}
	for k, x := range s.Args() {
		if !x.Type().SameTensor(s.Result(0).Type().Elems()[k]) {
			return false
		}
	}
	return true
}

// identity chooses what gives operand x of a collective over one rank the name of
// its result r. An alias shares x's storage, which nobody must notice: so a copy
// is made where something writes either storage in place, where r has another layout, and
// where r leaves the function although x came in from the caller or leaves it too:
// the caller may reuse the one while still holding the other.
func (c *canonicalizer) identity(x, r *ir.Value) ir.Op {
	if c.writes.Written(x) || c.writes.Written(r) || !x.Type().Equal(r.Type()) || ir.Returned(r) && (ir.FromCaller(x) || ir.Returned(ir.StorageOf(x))) {
		return ir.OpClone
	}
	return ir.OpAlias
}

// view forwards a view that changes nothing and shortens chains of views.
func (c *canonicalizer) view(n *ir.Node) {
	x := n.Arg(0)
	if len(n.Results()) == 1 && n.Op() != ir.OpAsStrided && n.Result(0).Type().Equal(x.Type()) {
		// The layout is the same; so is the place, unless the view starts further on.
		if off, err := n.ViewOffset(0); err == nil && off == 0 && c.ctx.Enable(n.Name()) {
			c.f.ReplaceUses(n.Result(0), x)
			c.f.Remove(n)
			c.ctx.Count("forwarded", 1)
			return
		}
	}
	if n.Op() == ir.OpView && x.Def().Op() == ir.OpView {
		y := x.Def().Arg(0)
		if y.Type().Contiguous() && n.Result(0).Type().Contiguous() && c.ctx.Enable(n.Name()) {
			c.f.SetArg(n, 0, y)
			c.ctx.Count("forwarded", 1)
		}
	}
}

// forwardSlices lets slices read what was put together where it was made.
func (c *canonicalizer) forwardSlices() {
	reads := forwarding.Reads(c.f, func(n *ir.Node) bool { return c.ctx.Enable(n.Name()) })
	for _, n := range reads {
		c.f.Remove(n)
	}
	c.ctx.Count("parts", float64(len(reads)))
}

// removeDead removes what nobody reads, users before what they read.
func (c *canonicalizer) removeDead() {
	// Whoever runs a body counts on whether it communicates.
	drop := c.ctx.Bool("drop-collectives") && slices.Contains(c.f.Module().Entries(), c.f)
	order := append([]*ir.Node(nil), c.f.Order()...)
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		if n.Op() == ir.OpInput || n.Op() == ir.OpReturn || deps.Used(n) || n.Ordered() {
			continue
		}
		wait := n.Op() == ir.OpWaitTensor
		comm := drop && n.Op().IsCollective()
		switch {
		case wait && !(drop && n.Arg(0).Def().Op().IsCollective() && !n.Arg(0).Def().Ordered()):
			continue // it ends a collective that stays
		case !wait && !comm && !n.Pure():
			continue
		case !c.ctx.Enable(n.Name()):
			continue
		}
		if comm {
			c.ctx.Count("dead-collectives", 1)
		} else {
			c.ctx.Count("dead", 1)
		}
		c.f.Remove(n)
	}
}

package device

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/cuda/device/internal/segments"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Collective implements runtime.Device.
func (d *Device) Collective(s rt.Stream, c *rt.Collective) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	g := d.groups[c.Group]
	if g == nil {
		return d.call(c.Name(), fmt.Errorf("no group %q", c.Group))
	}
	if c.Dynamic != nil {
		return d.orHost(c.Name(), d.collectiveLate(st, g, c))
	}
	part := alone
	if d.rec != nil && len(d.rec.nested) > 0 {
		part = inBlock
	}
	if d.rec != nil && part == alone && !d.opts.NoOverlap && g.m != nil && c.Op != rt.Barrier {
		if _, err := d.checkCollective(g, c); err != nil {
			return d.call(c.Name(), err)
		}
		if err := d.takeTurn(g, st); err != nil {
			return d.call(c.Name(), err)
		}
		d.rec.addDigest(g, c)
		d.rec.collect(st, g, c)
		return nil
	}
	p, err := d.planned(d.collectiveKey(c, part, nil), func() (*plan, error) { return d.planCollective(g, c, part, nil) }, c.Outs, c.Ins)
	if err != nil {
		return d.call(c.Name(), err)
	}
	if err := d.takeTurn(g, st); err != nil {
		return d.call(c.Name(), err)
	}
	if d.rec != nil {
		d.rec.addDigest(g, c)
	}
	return d.emit(st, p)
}

// In the place of a part of staging: a collective that overlaps with no compute, and one in a
// loop or a branch, which is to go by kernels.
const (
	alone   = -1
	inBlock = -2
)

// planCollective checks a collective and turns it into commands. Everything it decides
// by is the same on all ranks of the group. part says that compute overlaps with it, and
// which part of the group's staging it begins with, unless it is alone or inBlock; dsts is
// collective.dsts, nil if the ranks have not told each other.
func (d *Device) planCollective(g *group, c *rt.Collective, part int, dsts [][]int64) (*plan, error) {
	staged, err := d.checkCollective(g, c)
	if err != nil {
		return nil, err
	}
	b := &builder{d: d, p: newCollective(g, c), part: part}
	switch {
	case g.nc != nil && c.CrossStage && !g.nc.crossStage:
		b.fail(fmt.Errorf("stages communicate on %q, which NCCL serves and another module has made: there its collectives take turns with those of other groups: %w", g.name, rt.ErrUnsupported))
	case g.m == nil && g.nc == nil:
		b.alone(c, staged)
	default:
		b.build(c, staged, dsts)
	}
	if b.err != nil {
		return nil, b.err
	}
	b.p.algo = b.how
	if b.p.ahead != nil {
		for i, list := range [][]rt.Tensor{c.Ins, c.Outs} {
			for _, t := range list {
				lo, hi, err := t.Span()
				if err != nil {
					return nil, err
				}
				b.p.touches[i] = append(b.p.touches[i], library.Memory{At: d.base + driver.Ptr(lo), Bytes: uint64(hi - lo)})
			}
		}
	}
	return b.p, nil
}

// checkCollective reports what is wrong with a collective whatever form it takes, and
// else whether results overlap operands, which then are moved away first.
func (d *Device) checkCollective(g *group, c *rt.Collective) (staged bool, err error) {
	if err := c.Check(len(g.ranks), g.pos); err != nil {
		return false, err
	}
	if err := d.inArena(c.Ins, c.Outs); err != nil {
		return false, err
	}
	if staged, err = layout.Overlaps(c); staged && c.CrossStage {
		err = fmt.Errorf("a result lies over an operand, which other stages cannot know: %w", rt.ErrUnsupported)
	}
	return staged, err
}

// newCollective is the plan of a collective, without commands.
func newCollective(g *group, c *rt.Collective) *plan {
	return &plan{name: c.Name(), group: g, calls: []progress.Call{{Name: c.Name(), Group: g.name}}}
}

// builder makes the commands of one collective.
type builder struct {
	d    *Device
	p    *plan
	part int    // of staging, or alone
	how  string // algorithms, for traces
	err  error  // the first
}

// alone serves a subgroup of one: every collective is a copy.
func (b *builder) alone(c *rt.Collective, staged bool) {
	b.how = "copy"
	if staged && (c.Op != rt.CollectivePermute || len(c.Pairs) > 0) {
		// There is no symmetric scratch without peers, and no program has this.
		b.fail(fmt.Errorf("a result overlaps an operand: %w", rt.ErrUnsupported))
		return
	}
	for i := range c.Outs {
		if c.Op == rt.CollectivePermute && len(c.Pairs) == 0 {
			b.fail(b.d.zero(&b.p.cmds, c.Outs[i]))
			continue
		}
		b.fail(b.d.copyInto(&b.p.cmds, c.Outs[i], c.Ins[i]))
	}
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// build makes a form of the collective that its group can take, and the commands of that.
func (b *builder) build(c *rt.Collective, staged bool, dsts [][]int64) {
	d, g := b.d, b.p.group
	if g.nc != nil && staged && segments.NCCLInPlace(c, g.pos) {
		staged = false
	}
	f, err := segments.Of(c, segments.Place{Base: d.base, Scratch: int64(g.scratch - d.base), Room: g.room, Ranks: len(g.ranks), Pos: g.pos, Dsts: dsts}, staged)
	if err != nil {
		b.fail(err)
		return
	}
	b.copies(f.Before)
	for _, t := range f.Clear {
		b.fail(d.zero(&b.p.cmds, t))
	}
	if g.nc != nil {
		b.callNCCL(f)
	} else {
		for _, op := range f.Ops {
			b.try(op)
		}
		for _, x := range f.Uneven {
			p, err := g.m.PrepareAllToAllV(x.Send, x.Recv)
			b.keep(p, err, "packets and chunks of each pair")
		}
		b.copies(f.After)
	}
	if n := len(f.Before) + len(f.After); n > 0 {
		b.how += fmt.Sprintf("; %d copies to or from scratch", n)
	}
}

// copies adds copies of which one side is scratch. What stands in front of them cannot go ahead.
func (b *builder) copies(list []segments.Move) {
	for _, m := range list {
		b.p.ahead = nil
		b.fail(b.d.copyInto(&b.p.cmds, m.Dst, m.Src))
	}
}

// barrierBytes are of every group's scratch, behind what layouts use: NCCL's barriers reduce a
// word there.
const barrierBytes = 256

// callNCCL makes a call of the plan, between what it has for commands and the copies behind it.
func (b *builder) callNCCL(f *segments.Form) {
	d, p, g := b.d, b.p, b.p.group
	before := p.cmds
	p.cmds = driver.Commands{}
	b.copies(f.After)
	after := p.cmds
	p.cmds = driver.Commands{}
	p.ops = f.NCCL(p.name, uintptr(g.scratch)+uintptr(g.room))
	for i := range p.ops {
		b.fail(p.ops[i].Check(g.pos, len(g.ranks)))
	}
	b.how = "NCCL"
	run := func(st *stream, c *driver.Commands) error {
		if c.Len() == 0 {
			return nil
		}
		return d.drv.Run(d.rank.Ctx, c.On(st.h))
	}
	p.call = func(st *stream) error {
		if err := run(st, &before); err != nil {
			return err
		}
		if err := d.runNCCL(st, p); err != nil {
			return err
		}
		return run(st, &after)
	}
}

// try plans a launch of segments.
func (b *builder) try(op coll.Op) {
	if b.err != nil {
		return
	}
	op.Kernels = b.part == inBlock
	if b.part >= 0 && op.Kind != kernels.Barrier {
		op.Overlapped, op.Part = true, (b.part+b.p.parts)%coll.StagingParts
	}
	p, err := b.p.group.m.Prepare(op)
	how := "copy engines"
	if op.Overlapped {
		how = "copies overlapped with compute"
	}
	switch {
	case op.Kind == kernels.Barrier:
		how = "barrier"
	case p != nil && p.Number() == 0 && (op.Kind == kernels.Broadcast || op.Kind == kernels.Permute):
		how = "packets and chunks"
	case p != nil && p.Launch() != nil:
		l := p.Launch()
		how = fmt.Sprintf("%s, %d blocks of %d", l.Kernel, l.Grid, l.Block)
		b.p.group.names.Keep(l.Args.Seq, b.p.name)
	}
	b.keep(p, err, how)
}

// keep adds a prepared launch.
func (b *builder) keep(p *coll.Prepared, err error, how string) {
	if err != nil {
		b.fail(err)
		return
	}
	ahead := &driver.Commands{}
	ahead.Append(&b.p.cmds)
	if b.p.ahead = nil; p.AddAhead(ahead) {
		b.p.ahead = ahead
	}
	b.p.parts += p.Parts()
	p.AddTo(&b.p.cmds)
	if b.how != "" {
		b.how += "; "
	}
	b.how += how
}

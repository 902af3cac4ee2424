package device

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/device/internal/brackets"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Loops and branches of a step that becomes a graph are conditional nodes: the device goes
// iteration by itself. What a loop computes before its test stands in front of the node, and once
// more at the end of its body. A bracket joins all streams, so each part between two brackets
// is a capture of its own, in the same streams: it begins in the main one, and ends there.

//go:embed choose.ptx
var chooseImage []byte

// Bracket implements runtime.ConditionalCapturer.
func (d *Device) Bracket(s rt.Stream, b rt.Bracket) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	switch {
	case d.rec == nil:
		return d.call(b.Kind.String(), errors.New("only a step that is being collected has brackets"))
	case b.Kind == program.Test || b.Kind == program.Case:
		if err := d.inArena([]rt.Tensor{b.Number}); err != nil {
			return d.call(b.Kind.String(), err)
		}
	}
	if err := d.rec.nested.Next(b.Kind); err != nil {
		return d.call(b.Kind.String(), err)
	}
	d.rec.words = nil
	d.rec.add(item{st: st, bracket: &b})
	return nil
}

// block is what begins at item k.
func (r *recording) block(k int) brackets.Block {
	return brackets.Find(k, func(i int) (kind program.Kind, ok bool) {
		b := r.items[i].bracket
		if b != nil {
			kind = b.Kind
		}
		return kind, b != nil
	})
}

// blocks reports whether there are loops or branches.
func (r *recording) blocks() bool {
	return slices.ContainsFunc(r.items, func(i item) bool { return i.bracket != nil })
}

// whyNotConditional is why the step cannot choose by itself, nil if it can, or need not.
func (r *recording) whyNotConditional() error {
	if r.hostReads != nil {
		return r.hostReads
	}
	if !r.blocks() {
		return nil
	}
	if err := r.conditions(); err != nil {
		return err
	}
	for k := range r.items {
		switch i := &r.items[k]; {
		case !i.inside:
		case i.mark != 0:
			return errors.New("a mark is inside a loop or a branch")
		case i.plan != nil && i.plan.call != nil:
			return fmt.Errorf("%s in a loop or a branch is enqueued by a function, which may do anything", i.plan.name)
		case i.plan != nil && i.plan.cmds.Waits():
			return fmt.Errorf("%s in a loop or a branch goes by copy engines, which wait for words of memory", i.plan.name)
		}
	}
	return nil
}

func (r *recording) conditions() error {
	if !r.graph {
		return errors.New("a list of calls has no conditional nodes")
	}
	drv, ok := r.d.drv.(driver.Conditioner)
	if !ok {
		return driver.ErrNoConditions
	}
	return drv.Conditions()
}

// branching is a part that is a conditional node.
type branching struct {
	loop   bool
	number rt.Tensor
	bodies [][]part
}

// lay makes parts of the items from one to before another, with events that tell when each call
// runs if t is not nil.
func (r *recording) lay(from, to int, t *trace) []part {
	s := r.section(t)
	var parts []part
	for k := from; k < to; k++ {
		if r.items[k].bracket == nil {
			s.add(k)
			continue
		}
		b := r.block(k)
		n := &branching{loop: r.items[k].bracket.Kind == program.Loop, number: r.items[k].bracket.Number}
		parts = append(parts, s.end()...)
		if n.loop {
			test := r.lay(b.At+1, b.Parts[0], t)
			n.number = r.items[b.Parts[0]].bracket.Number
			parts, n.bodies = append(parts, test...), [][]part{append(r.lay(b.Parts[0]+1, b.End, t), test...)}
		}
		for i := 0; !n.loop && i < len(b.Parts); i++ {
			from, to := b.Part(i)
			n.bodies = append(n.bodies, r.lay(from, to, t))
		}
		parts = append(parts, part{node: n})
		s, k = r.section(t), b.End
	}
	return append(parts, s.end()...)
}

// chooser makes conditional nodes while a step is being captured.
type chooser struct {
	c   *captured
	drv driver.Conditioner
	f   driver.Func
}

// chooser loads the kernel, when nothing runs.
func (c *captured) chooser() (*chooser, error) {
	d := c.d
	if err := d.makeStop(); err != nil {
		return nil, err
	}
	m, err := d.own(c.r.life).Module(chooseImage)
	if err != nil {
		return nil, err
	}
	f, err := d.drv.Function(d.rank.Ctx, m, "choose")
	return &chooser{c: c, drv: d.drv.(driver.Conditioner), f: f}, err
}

// makeStop makes the words of the device's loops, for as long as it lives.
func (d *Device) makeStop() error {
	if d.stop.at != 0 {
		return nil
	}
	at, err := d.own(d.life).Alloc(256)
	var host uintptr
	var seen driver.Ptr
	if err == nil {
		host, seen, err = d.drv.HostAlloc(d.rank.Ctx, 4)
	}
	if err == nil {
		err = d.life.Defer("iterations", func() error { return d.drv.HostFree(d.rank.Ctx, host) })
	}
	if err == nil {
		err = d.drv.Memset32(d.rank.Ctx, d.rank.Setup(), at, 0, 2)
	}
	if err == nil {
		err = d.drv.StreamSync(d.rank.Ctx, d.rank.Setup())
	}
	if err == nil {
		err = d.life.Defer("stop", func() error { // before the memory
			d.stop.set(0, 0, 0)
			return d.drv.StreamSync(d.rank.Ctx, d.rank.Setup()) // who stopped loops, or counted, may have done so just now
		})
	}
	if err == nil {
		d.stop.set(at, host, seen)
	}
	return err
}

// set adds the kernel that gives a node its number.
func (h *chooser) set(by driver.Condition, n *branching) error {
	d, t := h.c.d, n.number
	kind := uint32(t.DType.Size())
	if t.DType.IsUnsigned() && kind < 8 || t.DType == rt.Bool {
		kind += 16
	}
	var p []byte
	p = binary.LittleEndian.AppendUint64(p, uint64(by))
	p = binary.LittleEndian.AppendUint64(p, uint64(d.at(t)))
	p = binary.LittleEndian.AppendUint32(p, kind)
	branches := len(n.bodies)
	if n.loop {
		branches = 0
	}
	p = binary.LittleEndian.AppendUint32(p, uint32(branches))
	p = binary.LittleEndian.AppendUint64(p, uint64(d.stop.at))
	return d.drv.Launch(d.rank.Ctx, h.c.r.main.h, h.f, 1, 1, 0, p)
}

// node adds a conditional node, and continues after it.
func (h *chooser) node(n *branching) error {
	c := h.c
	ctx, main := c.d.rank.Ctx, c.r.main.h
	by, err := h.drv.ConditionCreate(ctx, main)
	if err == nil {
		err = h.set(by, n)
	}
	if err != nil {
		return err
	}
	div, err := h.drv.CaptureDivide(ctx, main, by, n.loop, len(n.bodies))
	if div != nil && div.Graph != 0 {
		err = errors.Join(err, c.owns(div.Graph))
	}
	if err != nil {
		return err
	}
	for i, body := range n.bodies {
		if err := h.drv.CaptureInto(ctx, main, div.Bodies[i], 0); err != nil {
			return err
		}
		err := c.run(body, h)
		if err == nil && n.loop {
			err = h.set(by, n)
		}
		if err != nil {
			return err
		}
		if _, err := c.d.drv.CaptureEnd(ctx, main); err != nil {
			return err
		}
	}
	return h.drv.CaptureInto(ctx, main, div.Graph, div.Node)
}

// owns takes over the first graph of a capture, which the others belong to.
func (c *captured) owns(g driver.Graph) error {
	if c.graph != 0 {
		return nil
	}
	c.graph = g
	return c.r.life.Defer("graph", func() error { return c.d.drv.GraphDestroy(c.d.rank.Ctx, g) })
}

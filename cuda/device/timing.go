package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/device/internal/pace"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// timedTogether is how many replays are enqueued at once. gatedWords is the length of
// the longest step that is held back behind a gate: what waits there takes places in the
// driver's queues, of undocumented size, and a full queue blocks the host before it
// opens the gate. Of the time of longer steps a launch is no part that counts.
const (
	timedTogether = 4
	gatedWords    = 4096
)

// words is the length of a step's commands.
func words(parts []part) int {
	n := 0
	for _, p := range parts {
		switch {
		case p.cmds != nil:
			n += p.cmds.Len()
		case p.node != nil:
			for _, body := range p.node.bodies {
				n += words(body)
			}
		}
	}
	return n
}

// Time implements runtime.Captured. Before each replay, and outside of its time, the
// ranks pass a barrier on their devices, so that no replay is charged with a late start of
// another rank. A graph that is timed alone is enqueued behind a gate, so that the host's
// work is not measured either.
func (c *captured) Time(ctx context.Context, reps int) (ms []float64, err error) {
	d := c.d
	if err := c.enter("timing"); err != nil {
		return nil, err
	}
	defer c.r.life.Done()
	if reps < 1 || reps > 1<<16 {
		return nil, d.call("timing", fmt.Errorf("%d replays", reps))
	}
	t := &timer{c: c}
	if t.life, err = d.temporary("timing"); err != nil {
		return nil, d.call("timing", err)
	}
	defer func() { err = errors.Join(err, d.driver("timing", t.life.EndInCall())) }()
	if err := t.open(min(reps, timedTogether)); err != nil {
		return nil, d.call("timing", err)
	}
	if err := d.Barrier(ctx); err != nil {
		return nil, err
	}
	for len(ms) < reps {
		some, err := t.batch(ctx, min(reps-len(ms), timedTogether))
		if err != nil {
			return nil, err
		}
		ms = append(ms, some...)
	}
	return ms, nil
}

// timer measures replays in batches.
type timer struct {
	c        *captured
	life     *lifecycle.Scope
	from, to []driver.Event
	barrier  *plan      // nil in a world of one
	gate     driver.Ptr // a word that the main stream waits for, 0 for none
	opened   uint32
	waits    pace.Waits
}

func (t *timer) open(n int) error {
	d := t.c.d
	for range n {
		for _, list := range []*[]driver.Event{&t.from, &t.to} {
			e, err := d.own(t.life).Event(true)
			if err != nil {
				return err
			}
			*list = append(*list, e)
		}
	}
	var err error
	if t.barrier, err = d.worldBarrier(); err != nil {
		return err
	}
	if t.c.exec == 0 || words(t.c.r.parts) > gatedWords {
		return nil
	}
	if t.gate, err = d.borrow(t.life, 256); err != nil {
		return err
	}
	if err := d.drv.Memset32(d.rank.Ctx, d.rank.Setup(), t.gate, 0, 1); err != nil {
		return err
	}
	return d.drv.StreamSync(d.rank.Ctx, d.rank.Setup())
}

// worldBarrier is a barrier of all ranks on their devices, nil in a world of one.
func (d *Device) worldBarrier() (*plan, error) {
	world := d.table.Load().groups[0]
	if world.m == nil && world.nc == nil {
		return nil, nil
	}
	c := &rt.Collective{Op: rt.Barrier, Group: world.name, Label: "timing"}
	return d.planned(d.collectiveKey(c, alone, nil), func() (*plan, error) { return d.planCollective(world, c, alone, nil) })
}

// barrierOn lets a stream go on when those of all ranks have arrived.
func (d *Device) barrierOn(st *stream, barrier *plan) error {
	if barrier == nil {
		return nil
	}
	if err := d.takeTurn(d.table.Load().groups[0], st); err != nil {
		return err
	}
	if barrier.call != nil {
		return barrier.call(st)
	}
	return d.drv.Run(d.rank.Ctx, barrier.cmds.On(st.h))
}

// batch times n replays.
func (t *timer) batch(ctx context.Context, n int) ([]float64, error) {
	d := t.c.d
	err := t.enqueue(n)
	if t.gated(n) { // in any case: the stream waits for it
		err = errors.Join(err, d.drv.StreamWrite32(d.rank.Ctx, d.rank.Setup(), t.gate, t.opened))
	}
	if err != nil {
		return nil, d.driver("timing", err)
	}
	var ms []float64
	for i := range n { // one by one: a wait is for one replay, not for all
		if err := d.await(ctx, &t.waits, func() (bool, error) { return d.drv.EventQuery(d.rank.Ctx, t.to[i]) }); err != nil {
			return nil, err
		}
		x, err := d.drv.EventElapsed(d.rank.Ctx, t.from[i], t.to[i])
		if err != nil {
			return nil, d.driver("timing", err)
		}
		ms = append(ms, float64(x))
	}
	return ms, nil
}

// gated reports whether the replays of a batch are held back until all are enqueued. A
// single one is, so that its launch is not measured with it. Several are not: the driver
// may hold back the host at a further launch of a graph whose first has not begun, and
// then nobody would open the gate. There the host is ahead of the device anyway.
func (t *timer) gated(n int) bool { return t.gate != 0 && n == 1 }

func (t *timer) enqueue(n int) error {
	d, main := t.c.d, t.c.r.main
	if err := t.c.after(); err != nil {
		return err
	}
	if t.gated(n) {
		t.opened++
		if err := d.drv.StreamWait32(d.rank.Ctx, main.h, t.gate, t.opened); err != nil {
			return err
		}
	}
	for i := range n {
		if err := d.barrierOn(main, t.barrier); err != nil {
			return err
		}
		if err := d.drv.EventRecord(d.rank.Ctx, t.from[i], main.h); err != nil {
			return err
		}
		if err := t.c.Enqueue(); err != nil {
			return err
		}
		if err := d.drv.EventRecord(d.rank.Ctx, t.to[i], main.h); err != nil {
			return err
		}
	}
	return nil
}

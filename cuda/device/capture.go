package device

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"slices"

	"github.com/seed-ee968945/concert/cuda/device/internal/brackets"
	"github.com/seed-ee968945/concert/cuda/device/internal/pace"
	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// recording is a step being collected. It begins and ends in the main stream, so that replays
// follow each other.
type recording struct {
	d      *Device
	life   *lifecycle.Scope // of the step
	main   *stream
	fork   driver.Event
	done   driver.Event
	items  []item
	held   []*plan // of all items
	parts  []part  // what items become in the end
	groups []*group
	marks  []driver.Event // of items, in order
	graph  bool           // it becomes a graph
	nested brackets.Open
	calls  []progress.Entry // what a replay enqueues, of which last is the last
	last   *progress.Call
	before map[*group]*stream       // who used a group last before the capture
	sums   map[*group]hash.Hash     // of what was collected for a group, see agree.go
	open   map[*group][]*collective // those of a group whose form is open, in order

	hostReads error                  // why the host has to read sizes, see sizes.go
	words     map[wordKey]driver.Ptr // sizes that kernels of a stream have computed
	free      driver.Ptr             // memory for words
	left      uint64                 // bytes of it
}

// item is one call, or the recording of an event, or a wait for one.
type item struct {
	st           *stream
	plan         *plan
	coll         *collective // whose form shows once all is collected: plan is nil until then
	record, wait driver.Event
	turn         bool         // the group of record goes on in another stream
	mark         driver.Event // which tells the time
	bracket      *rt.Bracket
	inside       bool // of a loop or a case
}

// BeginCapture makes calls from now on be collected instead of run. It implements
// runtime.Capturer.
func (d *Device) BeginCapture() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if d.rec != nil || d.trace != nil {
		return d.call("capture", errors.New("a trace or a capture is under way"))
	}
	r := &recording{d: d, before: map[*group]*stream{}, sums: map[*group]hash.Hash{}, open: map[*group][]*collective{}}
	var err error
	if r.life, err = d.life.New("step"); err != nil {
		return d.call("capture", err)
	}
	r.life.Defer("plans", func() error { d.drop(r.held...); return nil })
	if r.fork, err = d.own(r.life).Event(false); err == nil {
		r.done, err = d.own(r.life).Event(false)
	}
	if err != nil {
		return d.call("capture", errors.Join(err, r.life.EndInCall()))
	}
	for _, g := range d.turns() {
		r.before[g], g.last = g.last, nil
	}
	d.rec = r
	return nil
}

func (r *recording) add(i item) {
	r.hold(i.plan)
	i.inside = len(r.nested) > 0
	r.items = append(r.items, i)
}

// hold keeps a plan as long as the step; nil is none.
func (r *recording) hold(p *plan) {
	if p != nil {
		r.d.hold(p)
		r.held = append(r.held, p)
	}
}

// wait makes a stream wait for an event. What was recorded before the capture has
// ended, or precedes the main stream's part, when a replay begins.
func (r *recording) wait(st *stream, ev *event) {
	if ev.during == r {
		r.add(item{st: st, wait: ev.h})
	}
}

// assemble turns the items into parts. The other ranks of the world do as well.
func (r *recording) assemble(ctx context.Context) error {
	if err := r.join(); err != nil {
		return err
	}
	if err := r.fetch(); err != nil {
		return err
	}
	r.findOverlapped()
	if err := r.planWithin(); err != nil {
		return err
	}
	if err := r.d.agree(ctx, r); err != nil {
		return err
	}
	r.placeWithin()
	if err := r.form(); err != nil {
		return err
	}
	r.parts = r.lay(0, len(r.items), nil)
	return nil
}

// endRecording stops collecting.
func (d *Device) endRecording() *recording {
	r := d.rec
	d.rec = nil
	for _, g := range d.turns() {
		if g.last != nil {
			r.groups = append(r.groups, g)
		}
		g.last = r.before[g]
	}
	return r
}

// DropCapture forgets what was collected. It implements runtime.Capturer.
func (d *Device) DropCapture() {
	if d.rec != nil {
		r := d.endRecording()
		r.life.EndInCall() // it has not run
	}
}

// PlanCapture plans the collectives whose form was left open, each alone, and forgets what was
// collected. It implements runtime.Capturer.
func (d *Device) PlanCapture() (calls string, err error) {
	if err := d.enter(); err != nil {
		return "", err
	}
	defer d.leave()
	if d.rec == nil {
		return "", d.call("capture", errors.New("no capture was begun"))
	}
	own := d.rec.summary()
	r := d.endRecording()
	r.life.EndInCall() // it has not run
	for _, it := range r.items {
		if k := it.coll; k != nil {
			plan := func() (*plan, error) { return d.planCollective(k.g, &k.c, alone, nil) }
			if _, err := d.planned(d.collectiveKey(&k.c, alone, nil), plan, k.c.Outs, k.c.Ins); err != nil {
				return "", d.call(k.c.Name(), err)
			}
		}
	}
	return own, nil
}

// Compare compares what the ranks have planned. It implements runtime.Capturer.
func (d *Device) Compare(ctx context.Context, calls string) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	texts, err := d.compare(ctx, calls)
	if err != nil {
		return joinError(&d.spec, err)
	}
	return d.alike("run of", calls, texts, func(*group, int, string, []string) {})
}

// captured is a collected step.
type captured struct {
	d      *Device
	r      *recording
	graph  driver.Graph
	exec   driver.Exec
	launch driver.Commands // of a graph, or of parts that are commands only
	simple bool            // launch is all
	waits  pace.Waits
	ran    bool
}

// EndCapture ends the collection and readies it for replays: as a packed command
// buffer, or as a graph. It returns when all ranks of the world have come here, so that
// instantiating and uploading disturb no replay. It implements runtime.Capturer.
func (d *Device) EndCapture(ctx context.Context, graph bool) (rt.Captured, error) {
	if d.life.Begin() != nil {
		return nil, rt.ErrClosed
	}
	defer d.leave()
	if d.rec == nil {
		return nil, d.call("capture", errors.New("no capture was begun"))
	}
	r := d.endRecording()
	c := &captured{d: d, r: r}
	r.graph = graph
	if r.main = r.mainStream(); r.main == nil {
		return nil, d.call("capture", errors.Join(errors.New("there is no stream"), r.life.EndInCall()))
	}
	err := r.life.Work(lifecycle.Hooks{Tend: d.tend, Idle: c.idle})
	if n := len(r.nested); n > 0 {
		err = errors.Join(err, fmt.Errorf("a loop or a case has no end: nothing follows its last %s", r.nested[n-1]))
	}
	if err == nil {
		err = r.assemble(ctx)
	}
	if err == nil {
		err = d.connect(ctx, r)
	}
	if err == nil {
		var why error
		if err = c.ready(graph); err != nil && r.blocks() && c.ended() { // what this rank's driver refuses
			why, err = err, nil
		}
		if err == nil {
			_, err = d.chosen(ctx, "", why)
		}
	}
	if err != nil {
		return nil, d.call("capture", errors.Join(err, r.life.EndInCall()))
	}
	return c, nil
}

// mainStream is the stream that the others of a step follow: the first that computes, if one does,
// of those that have calls, or of all if none has; nil if there is none.
func (r *recording) mainStream() *stream {
	var all *stream
	consider := func(s *stream) {
		switch {
		case s == nil:
		case all == nil, compute(s.name) && !compute(all.name):
			all = s
		case compute(s.name) == compute(all.name) && s.id < all.id:
			all = s
		}
	}
	for i := range r.items {
		consider(r.items[i].st)
	}
	if all == nil {
		for _, s := range r.d.table.Load().streams {
			consider(s)
		}
	}
	return all
}

func (c *captured) ready(graph bool) error {
	d, r := c.d, c.r
	main := r.main.h
	if !graph {
		if c.simple = len(r.parts) == 1; c.simple {
			c.launch.Append(r.parts[0].cmds)
			c.launch.Record(main, r.done)
		}
		return nil
	}
	var h *chooser
	if slices.ContainsFunc(r.parts, func(p part) bool { return p.node != nil }) {
		var err error
		if h, err = c.chooser(); err != nil {
			return err
		}
	}
	if err := d.drv.CaptureBegin(d.rank.Ctx, main); err != nil {
		return err
	}
	err := c.run(r.parts, h)
	g, end := d.drv.CaptureEnd(d.rank.Ctx, main)
	if g != 0 {
		err = errors.Join(err, c.owns(g))
	}
	if err = errors.Join(err, end); err != nil {
		return err
	}
	if c.exec, err = d.drv.GraphInstantiate(d.rank.Ctx, c.graph); err != nil {
		return err
	}
	if err := r.life.Defer("executable graph", func() error { return d.drv.ExecDestroy(d.rank.Ctx, c.exec) }); err != nil {
		return err
	}
	if err := d.drv.GraphUpload(d.rank.Ctx, c.exec, main); err != nil {
		return err
	}
	c.simple = true
	c.launch.Graph(main, c.exec)
	c.launch.Record(main, r.done)
	return d.drv.StreamSync(d.rank.Ctx, main)
}

// ended reports whether the streams of the step capture nothing any more, and can be given work.
func (c *captured) ended() bool {
	id, err := c.d.drv.StreamCapture(c.d.rank.Ctx, c.r.main.h)
	return id == 0 && err == nil
}

// run makes the calls of all parts; h makes conditional nodes.
func (c *captured) run(parts []part, h *chooser) error {
	for _, p := range parts {
		var err error
		switch {
		case p.node != nil:
			err = h.node(p.node)
		case p.call != nil:
			err = p.call.call(p.st)
		case p.cmds.Len() > 0:
			err = c.d.drv.Run(c.d.rank.Ctx, p.cmds.On(c.r.main.h))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Enqueue implements runtime.Captured.
func (c *captured) Enqueue() error {
	d := c.d
	if err := c.usable(); err != nil {
		return err
	}
	defer c.r.life.Done()
	if err := c.after(); err != nil {
		return d.driver("replay", err)
	}
	c.ran = true
	d.enqueues(c.r.calls, c.r.last)
	if c.simple {
		return d.driver("replay", d.drv.Run(d.rank.Ctx, c.launch.On(c.r.main.h)))
	}
	if err := c.run(c.r.parts, nil); err != nil {
		return d.driver("replay", err)
	}
	return d.driver("replay", d.drv.EventRecord(d.rank.Ctx, c.r.done, c.r.main.h))
}

// enter starts a call of the step, which life.Done ends. It keeps the device, too.
func (c *captured) enter(op string) error {
	if err := c.d.failure(); err != nil {
		return err
	}
	if c.r.life.Begin() == nil {
		return nil
	}
	if c.d.life.Err() != nil {
		return rt.ErrClosed
	}
	return c.d.call(op, errors.New("the step is closed"))
}

// usable starts a replay, which life.Done ends, and takes the groups, or reports why it cannot
// start.
func (c *captured) usable() error {
	if err := c.enter("replay"); err != nil {
		return err
	}
	err := c.take()
	if err != nil {
		c.r.life.Done()
	}
	return err
}

func (c *captured) take() error {
	d := c.d
	for _, g := range c.r.groups {
		if g.m != nil && g.m.Err() != nil {
			return d.look(0)
		}
		if err := d.brokenNCCL(g); err != nil {
			return err
		}
		g.last = c.r.main
	}
	return nil
}

// after makes the main stream wait for what other streams have been given on their own.
func (c *captured) after() error {
	d := c.d
	streams := d.table.Load().streams
	for _, s := range streams {
		if s == nil || !s.loose || s == c.r.main {
			continue
		}
		s.loose = false
		if err := d.drv.EventRecord(d.rank.Ctx, s.join, s.h); err != nil {
			return err
		}
		if err := d.drv.StreamWait(d.rank.Ctx, c.r.main.h, s.join); err != nil {
			return err
		}
	}
	return nil
}

// Wait implements runtime.Captured.
func (c *captured) Wait(ctx context.Context) error {
	if err := c.enter("replay"); err != nil {
		return err
	}
	defer c.r.life.Done()
	return c.d.await(ctx, &c.waits, func() (bool, error) { return c.d.drv.EventQuery(c.d.rank.Ctx, c.r.done) })
}

// Close implements runtime.Captured. It waits for replays that have been enqueued.
func (c *captured) Close() error { return c.r.life.End(context.Background()) }

// idle reports whether all replays have ended.
func (c *captured) idle() (bool, error) {
	if !c.ran {
		return true, nil
	}
	return c.d.drv.EventQuery(c.d.rank.Ctx, c.r.done)
}

package device

import (
	"context"
	"errors"
	"hash"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// recording is a step being collected. All streams that it uses begin after what is in
// the main one, and the main one goes on after all of them have ended, so that replays
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
	used   []*stream
	groups []*group
	marks  []driver.Event // of items, in order
	graph  bool           // it becomes a graph
	calls  []entry        // what a replay enqueues, of which last is the last
	last   *called
	before map[*group]*stream       // who used a group last before the capture
	sums   map[*group]hash.Hash     // of what was collected for a group, see agree.go
	open   map[*group][]*collective // those of a group whose form is open, in order
}

// item is one call, or the recording of an event, or a wait for one.
type item struct {
	st           *stream
	plan         *plan
	coll         *collective // whose form shows once all is collected: plan is nil until then
	record, wait driver.Event
	turn         bool         // the group of record goes on in another stream
	mark         driver.Event // which tells the time
}

// part is commands, or the call of a Go function between commands.
type part struct {
	cmds *driver.Commands
	call *plan
	st   *stream
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
	if r.fork, err = d.newEvent(r.life, false); err == nil {
		r.done, err = d.newEvent(r.life, false)
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
	r.items = append(r.items, i)
}

// hold keeps a plan as long as the step; nil is none.
func (r *recording) hold(p *plan) {
	if p != nil {
		r.d.hold(p)
		r.held = append(r.held, p)
	}
}

// commands is the buffer at the end.
func (r *recording) commands() *driver.Commands {
	if n := len(r.parts); n > 0 && r.parts[n-1].cmds != nil {
		return r.parts[n-1].cmds
	}
	c := &driver.Commands{}
	r.parts = append(r.parts, part{cmds: c})
	return c
}

// on is the buffer for commands on a stream, which joins the capture.
func (r *recording) on(st *stream) *driver.Commands {
	c := r.commands()
	if st == r.main {
		return c
	}
	for _, s := range r.used {
		if s == st {
			return c
		}
	}
	r.used = append(r.used, st)
	c.Wait(st.h, r.fork)
	return c
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
	r.besides()
	if err := r.withins(); err != nil {
		return err
	}
	if err := r.d.agree(ctx, r); err != nil {
		return err
	}
	r.place()
	if err := r.form(); err != nil {
		return err
	}
	r.lay(nil)
	return nil
}

// lay makes parts of the items, with events that tell when each call runs if t is not
// nil.
func (r *recording) lay(t *trace) {
	r.commands().Record(r.main.h, r.fork)
	tails := tails{}
	for k := range r.items {
		i := &r.items[k]
		c := r.on(i.st)
		var call tracedCall
		if i.plan != nil && t != nil {
			call = t.next()
			c.Record(i.st.h, call.from)
		}
		p := i.plan
		switch {
		case i.record != 0:
			if i.turn {
				tails.join(i.st, c)
			}
			c.Record(tails.end(i.st), i.record)
		case i.wait != 0:
			tails.wait(i.st, i.wait, c)
		case i.mark != 0 && r.graph:
			c.Mark(tails.end(i.st), i.mark)
		case i.mark != 0:
			c.Record(tails.end(i.st), i.mark)
		case i.plan.call != nil:
			tails.join(i.st, c)
			r.parts = append(r.parts, part{call: i.plan, st: i.st})
		default:
			if log := r.d.opts.Log; log != nil && p.group != nil && t == nil {
				log.Info("collective", "rank", r.d.spec.Rank, "name", p.name, "form", p.algo, "beside", i.coll != nil && i.coll.beside)
			}
			cmds := &p.cmds
			if e, ok := r.early(k); ok {
				cmds = e
			}
			if ahead := tails.add(i.st, p, c); ahead != nil {
				cmds = ahead
			}
			c.AppendOn(i.st.h, cmds)
		}
		if p != nil && t != nil {
			r.commands().Record(tails.end(i.st), call.to)
			t.made(call, i.st, p)
		}
	}
	tails.join(r.main, r.commands())
	for _, s := range r.used {
		tails.join(s, r.commands())
		r.commands().Record(s.h, s.join)
		r.commands().Wait(r.main.h, s.join)
	}
}

// end stops collecting.
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

// captured is a collected step.
type captured struct {
	d      *Device
	r      *recording
	exec   driver.Exec
	launch driver.Commands // of a graph, or of parts that are commands only
	simple bool            // launch is all
	waits  waits
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
	if r.main = r.chief(); r.main == nil {
		return nil, d.call("capture", errors.Join(errors.New("there is no stream"), r.life.EndInCall()))
	}
	err := r.life.Work(lifecycle.Hooks{Tend: d.tend, Idle: c.idle})
	if err == nil {
		err = r.assemble(ctx)
	}
	if err == nil {
		err = d.connect(ctx, r)
	}
	if err == nil {
		err = c.ready(graph)
	}
	if err == nil {
		err = joinError(&d.spec, d.meet(ctx))
	}
	if err != nil {
		return nil, d.call("capture", errors.Join(err, r.life.EndInCall()))
	}
	return c, nil
}

// chief is the stream that the others of a step follow: the first that computes, if one does,
// of those that have calls, or of all if none has; nil if there is none.
func (r *recording) chief() *stream {
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
	if err := d.drv.CaptureBegin(d.rank.Ctx, main); err != nil {
		return err
	}
	err := c.run()
	g, end := d.drv.CaptureEnd(d.rank.Ctx, main)
	if g != 0 {
		err = errors.Join(err, r.life.Defer("graph", func() error { return d.drv.GraphDestroy(d.rank.Ctx, g) }))
	}
	if err = errors.Join(err, end); err != nil {
		return err
	}
	if c.exec, err = d.drv.GraphInstantiate(d.rank.Ctx, g); err != nil {
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

// run makes the calls of all parts.
func (c *captured) run() error {
	for _, p := range c.r.parts {
		var err error
		if p.call != nil {
			err = p.call.call(p.st)
		} else if p.cmds.Len() > 0 {
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
	if err := c.run(); err != nil {
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
		g.dirty, g.last = true, c.r.main
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

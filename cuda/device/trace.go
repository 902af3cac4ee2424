package device

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

// trace collects timing events around calls.
type trace struct {
	life  *lifecycle.Scope
	start driver.Event
	calls []tracedCall
	spare []driver.Event // not yet of a call
}

type tracedCall struct {
	stream, name, algo string
	from, to           driver.Event
}

// BeginTrace makes every call from now on take the times of its begin and end on its
// stream. It implements runtime.Tracer.
func (d *Device) BeginTrace() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if d.trace != nil || d.rec != nil {
		return d.call("trace", errors.New("a trace or a capture is under way"))
	}
	t, err := d.newTrace(0)
	if err != nil {
		return d.call("trace", err)
	}
	d.trace = t
	return d.driver("trace", d.drv.EventRecord(d.rank.Ctx, t.start, d.rank.Setup()))
}

// traced opens a call's interval; end is 0 when tracing is off.
func (d *Device) traced(st *stream, p *plan) (end driver.Event, err error) {
	if d.trace == nil {
		return 0, nil
	}
	c := tracedCall{stream: st.name, name: p.name, algo: p.algo}
	if c.from, err = d.own(d.trace.life).Event(true); err != nil {
		return 0, err
	}
	d.trace.calls = append(d.trace.calls, c)
	last := &d.trace.calls[len(d.trace.calls)-1]
	if last.to, err = d.own(d.trace.life).Event(true); err != nil {
		return 0, err
	}
	return last.to, d.drv.EventRecord(d.rank.Ctx, c.from, st.h)
}

// EndTrace waits for all streams and gives the calls in the order in which they were
// made, with times in milliseconds since BeginTrace.
func (d *Device) EndTrace(ctx context.Context) ([]rt.Span, error) {
	if d.life.Begin() != nil {
		return nil, rt.ErrClosed
	}
	defer d.leave()
	t := d.trace
	if t == nil {
		return nil, d.call("trace", errors.New("no trace was begun"))
	}
	d.trace = nil
	out, err := t.spans(d, d.Sync(ctx))
	if err = errors.Join(err, t.life.EndInCall()); err != nil {
		return nil, d.call("trace", err)
	}
	return out, nil
}

// spans reads the events, which have all happened unless err says otherwise.
func (t *trace) spans(d *Device, err error) ([]rt.Span, error) {
	var out []rt.Span
	for _, c := range t.calls {
		var from, to float32
		if err == nil {
			from, err = d.drv.EventElapsed(d.rank.Ctx, t.start, c.from)
		}
		if err == nil {
			to, err = d.drv.EventElapsed(d.rank.Ctx, t.start, c.to)
		}
		out = append(out, rt.Span{Stream: c.stream, Name: c.name, Algo: c.algo, Start: float64(from), End: float64(to)})
	}
	return out, err
}

// newTrace makes a trace with the events for that many calls.
func (d *Device) newTrace(calls int) (*trace, error) {
	t := new(trace)
	var err error
	if t.life, err = d.life.New("trace"); err != nil {
		return nil, err
	}
	t.start, err = d.own(t.life).Event(true)
	for range 2 * calls {
		if err == nil {
			var e driver.Event
			e, err = d.own(t.life).Event(true)
			t.spare = append(t.spare, e)
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.life.EndInCall())
	}
	return t, nil
}

// next is a call with events; there must be some left.
func (t *trace) next() tracedCall {
	n := len(t.spare)
	c := tracedCall{from: t.spare[n-1], to: t.spare[n-2]}
	t.spare = t.spare[:n-2]
	return c
}

// made adds a call.
func (t *trace) made(c tracedCall, st *stream, p *plan) {
	c.stream, c.name, c.algo = st.name, p.name, p.algo
	t.calls = append(t.calls, c)
}

// Trace implements runtime.Captured. Kernels that replays would let begin early do
// not: an event stands in between.
func (c *captured) Trace(ctx context.Context) (spans []rt.Span, err error) {
	d := c.d
	if slices.ContainsFunc(c.r.parts, func(p part) bool { return p.node != nil }) {
		return nil, d.call("trace", fmt.Errorf("the device runs loops and branches by itself, and gives no times there: %w", rt.ErrUnsupported))
	}
	if err := c.usable(); err != nil {
		return nil, err
	}
	defer c.r.life.Done()
	calls := 0
	for i := range c.r.items {
		if c.r.items[i].plan != nil {
			calls++
		}
	}
	t, err := d.newTrace(calls)
	if err != nil {
		return nil, d.call("trace", err)
	}
	defer func() { err = errors.Join(err, d.driver("trace", t.life.EndInCall())) }()
	barrier, err := d.worldBarrier()
	if err != nil {
		return nil, d.call("trace", err)
	}
	// The same items, laid with events: their own copy of what laying changes.
	r := &recording{d: d, main: c.r.main, fork: c.r.fork, done: c.r.done, items: c.r.items}
	r.parts = r.lay(0, len(r.items), t)
	if err := d.Barrier(ctx); err != nil {
		return nil, err
	}
	err = c.after()
	if err == nil {
		err = d.barrierOn(r.main, barrier)
	}
	if err == nil {
		err = d.drv.EventRecord(d.rank.Ctx, t.start, r.main.h)
	}
	if err == nil {
		err = (&captured{d: d, r: r}).run(r.parts, nil)
	}
	if err == nil {
		err = d.drv.EventRecord(d.rank.Ctx, r.done, r.main.h)
	}
	if err != nil {
		return nil, d.driver("trace", err)
	}
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	spans, err = t.spans(d, nil)
	return spans, d.driver("trace", err)
}

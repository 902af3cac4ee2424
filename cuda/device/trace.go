package device

import (
	"context"
	"errors"

	"github.com/seed-ee968945/concert/cuda"
	rt "github.com/seed-ee968945/concert/runtime"
)

// trace collects timing events around calls.
type trace struct {
	start cuda.Event
	calls []tracedCall
}

type tracedCall struct {
	stream, name, algo string
	from, to           cuda.Event
}

// BeginTrace makes every call from now on take the times of its begin and end on its
// stream. It implements runtime.Tracer.
func (d *Device) BeginTrace() error {
	if err := d.alive(); err != nil {
		return err
	}
	if d.trace != nil || d.rec != nil {
		return d.call("trace", errors.New("a trace or a capture is under way"))
	}
	ev, err := d.drv.EventCreate(d.rank.Ctx, true)
	if err != nil {
		return d.call("trace", err)
	}
	d.trace = &trace{start: ev}
	return d.driver("trace", d.drv.EventRecord(d.rank.Ctx, ev, d.rank.Setup()))
}

// traced opens a call's interval; end is 0 when nobody traces.
func (d *Device) traced(st *stream, p *plan) (end cuda.Event, err error) {
	if d.trace == nil {
		return 0, nil
	}
	c := tracedCall{stream: st.name, name: p.name, algo: p.algo}
	if c.from, err = d.drv.EventCreate(d.rank.Ctx, true); err != nil {
		return 0, err
	}
	d.trace.calls = append(d.trace.calls, c)
	last := &d.trace.calls[len(d.trace.calls)-1]
	if last.to, err = d.drv.EventCreate(d.rank.Ctx, true); err != nil {
		return 0, err
	}
	return last.to, d.drv.EventRecord(d.rank.Ctx, c.from, st.h)
}

// EndTrace waits for all streams and gives the calls in the order in which they were
// made, with times in milliseconds since BeginTrace.
func (d *Device) EndTrace(ctx context.Context) ([]rt.Span, error) {
	t := d.trace
	if t == nil {
		return nil, d.call("trace", errors.New("no trace was begun"))
	}
	d.trace = nil
	err := d.Sync(ctx)
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
	errs := []error{err, d.drv.EventDestroy(d.rank.Ctx, t.start)}
	for _, c := range t.calls {
		for _, e := range []cuda.Event{c.from, c.to} {
			if e != 0 {
				errs = append(errs, d.drv.EventDestroy(d.rank.Ctx, e))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, d.call("trace", err)
	}
	return out, nil
}

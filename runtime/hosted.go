package runtime

import (
	"context"
	"fmt"
	"time"
)

// hosted is a step whose loops and branches the device cannot do by itself, or whose sizes it cannot
// read: each replay enqueues it anew, and waits for the numbers that decide.
type hosted struct {
	s    *Step
	dev  Capturer
	step func(*Exec)
	x    *Exec // the last replay
}

// HostControlFlow is why the host runs the loops and branches of the step and reads its
// sizes, nil if there are none, or if the device does. The error is a *ControlFlowError.
func (s *Step) HostControlFlow() error {
	if s.host == nil {
		return nil
	}
	return s.host
}

// Enqueue implements Captured. It returns when the last number has been read.
func (h *hosted) Enqueue() error {
	s := h.s
	h.x = &Exec{r: s.r, m: s.m, l: s.r.find(s.m), opts: s.opts, syms: s.syms, recorded: make([]string, s.m.Events), unmarked: true}
	for _, q := range s.m.Inputs {
		if q.Async {
			h.x.recorded[q.Event] = "inbound"
		}
	}
	h.step(h.x)
	return h.x.err
}

// Wait implements Captured.
func (h *hosted) Wait(ctx context.Context) error {
	h.x.join()
	if h.x.err != nil {
		return h.x.err
	}
	first := h.x.l.streams[0]
	if err := h.x.r.dev.Record(first.Stream, first.end); err != nil {
		return err
	}
	return h.x.r.dev.Synchronize(ctx, first.end)
}

// Trace implements Captured.
func (h *hosted) Trace(context.Context) ([]Span, error) {
	return nil, h.refused("trace")
}

// Marks implements Captured: the step was enqueued anew, and marks are of captures.
func (h *hosted) Marks() ([]float64, error) { return nil, h.refused("marks") }

func (h *hosted) refused(what string) error {
	return &CallError{Rank: h.s.r.env.Rank, Op: what + " of module " + h.s.m.Name, Err: h.s.host}
}

// Time implements Captured. The host is part of the step, so its clock tells.
func (h *hosted) Time(ctx context.Context, reps int) ([]float64, error) {
	if reps < 1 {
		return nil, &CallError{Rank: h.s.r.env.Rank, Op: "timing", Err: fmt.Errorf("%d replays", reps)}
	}
	var ms []float64
	for range reps {
		if err := h.dev.Barrier(ctx); err != nil {
			return nil, err
		}
		start := time.Now()
		err := h.Enqueue()
		if err == nil {
			err = h.Wait(ctx)
		}
		if err != nil {
			return nil, err
		}
		ms = append(ms, float64(time.Since(start))/float64(time.Millisecond))
	}
	return ms, nil
}

// Close implements Captured.
func (h *hosted) Close() error { return nil }

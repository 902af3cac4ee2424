package lt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda"
)

// Set is memory for one product: addresses of element (0, ..., 0).
type Set struct{ A, B, Out cuda.Ptr }

// TuneOptions say how to measure.
type TuneOptions struct {
	// Sets are the operands to use in turn; at least one. Where a product is to be
	// measured as it runs in a program, with operands that are not in the cache, give
	// as many as it takes to exceed the cache. Results are overwritten.
	Sets []Set
	// Candidates is how many algorithms of the library are tried; zero stands for 16.
	Candidates int
	// Kernels is how many kernels of this package are tried if they fit and the handle
	// has a compiler; zero stands for 8, a negative number for none.
	Kernels int
	// Time is about how long one measurement of one candidate takes, in milliseconds;
	// zero stands for 2. Each candidate is measured three times.
	Time float64
	// Check is how many bytes of the result, from its lowest address, must be the same
	// in three runs of a candidate; zero stands for 1 MiB, a negative number for none.
	// Candidates that fail are not chosen.
	Check int64
	// SMs is the number of multiprocessors of the device; zero stands for 132.
	SMs int
}

// Timing is the measurement of one candidate.
type Timing struct {
	Algo         Algo
	Microseconds float64 // of one product, the least of three measurements; NaN if Err is set
	Err          error   // why the candidate cannot be used
}

// ErrUnstable is the error of a candidate whose results differ from run to run.
var ErrUnstable = errors.New("results differ from run to run")

// Tune measures the candidates for a problem on a stream that nothing else uses, puts
// the fastest into the handle's tuning, and gives all measurements, the fastest
// first and those that failed last. It must not run while a kernel waits for a peer.
func (h *Handle) Tune(ctx context.Context, s cuda.Stream, p Problem, o TuneOptions) (best Algo, all []Timing, err error) {
	o.defaults()
	if len(o.Sets) == 0 {
		return Algo{}, nil, errors.New("tuning of a product: no operands are given")
	}
	if p.empty() || p.K == 0 {
		return Algo{}, nil, nil
	}
	if err := h.Reserve(s); err != nil {
		return Algo{}, nil, err
	}
	algos, err := h.Candidates(p, o.Candidates, o.Kernels, o.SMs)
	if err != nil {
		return Algo{}, nil, err
	}
	reps := o.reps(&p)
	for _, a := range algos {
		if err := ctx.Err(); err != nil {
			return Algo{}, nil, err
		}
		t := Timing{Algo: a, Microseconds: math.NaN()}
		l, err := h.PlanWith(p, a)
		if err == nil {
			err = l.stable(s, o)
		}
		if err == nil {
			t.Microseconds, err = l.measure(s, o, reps)
		}
		if lost(err) {
			return Algo{}, nil, fmt.Errorf("tuning of %v with %v: %w", &p, a, err)
		}
		t.Err = err
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b Timing) int {
		switch {
		case a.Err != nil || b.Err != nil:
			return boolInt(a.Err != nil) - boolInt(b.Err != nil)
		case a.Microseconds < b.Microseconds:
			return -1
		}
		return boolInt(a.Microseconds > b.Microseconds)
	})
	if len(all) == 0 || all[0].Err != nil {
		return Algo{}, all, fmt.Errorf("tuning of %v: no candidate works", &p)
	}
	h.Adopt(p, all[0].Algo)
	return all[0].Algo, all, nil
}

// lost reports whether an error means that the context can no longer be used: a
// kernel failed.
func lost(err error) bool {
	const illegalAddress, outOfResources, streamErrors = 700, 701, 900
	var e *cuda.Error
	return errors.As(err, &e) && e.Code >= illegalAddress && e.Code != outOfResources && e.Code < streamErrors
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (o *TuneOptions) defaults() {
	if o.Candidates == 0 {
		o.Candidates = 16
	}
	if o.Kernels == 0 {
		o.Kernels = 8
	}
	if o.Time == 0 {
		o.Time = 2
	}
	if o.Check == 0 {
		o.Check = 1 << 20
	}
	if o.SMs == 0 {
		o.SMs = 132
	}
}

// reps is how many products take about the wanted time, at the rates of an H200.
func (o *TuneOptions) reps(p *Problem) int {
	us := max(p.Flops()/600e6, p.Bytes()/4e6, 4)
	return min(max(int(o.Time*1e3/us), 2, min(len(o.Sets), 64)), 1000)
}

// Candidates lists algorithms for a problem: the library's, best first in its
// opinion, then kernels of this package if the handle has a compiler.
func (h *Handle) Candidates(p Problem, library, kernels, sms int) ([]Algo, error) {
	lt, err := h.lib.lib.plan(h.ctx, h.h, &p)
	if err != nil {
		return nil, err
	}
	defer h.lib.lib.free(lt)
	algos, err := h.lib.lib.heuristics(h.ctx, lt, h.opts.Workspace, library)
	if err != nil {
		return nil, err
	}
	if h.opts.Compile != nil && kernels > 0 {
		for _, s := range skinnies(&p, sms, kernels) {
			algos = append(algos, Algo{Skinny: s})
		}
	}
	return algos, nil
}

// Adopt puts an algorithm into the handle's tuning. Later calls of Plan use it; plans
// that exist stay as they are.
func (h *Handle) Adopt(p Problem, a Algo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opts.Tuning == nil {
		h.opts.Tuning = &Tuning{}
	}
	h.opts.Tuning.Set(p, a)
	for key, old := range h.plans {
		if key.problem == p && key.algo == (Algo{}) && old.algo != a {
			delete(h.plans, key)
			h.old = append(h.old, old)
		}
	}
}

// Tuning is the handle's tuning; nil if it has none.
func (h *Handle) Tuning() *Tuning {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opts.Tuning
}

// stable runs the product three times and compares the results' bytes.
func (l *Plan) stable(s cuda.Stream, o TuneOptions) error {
	p := &l.problem
	drv, ctx := l.h.lib.drv, l.h.ctx
	span := ((p.Batch-1)*p.D.Stride + (p.N-1)*p.D.LD + p.M) * int64(p.Out.Size())
	n := min(span, o.Check)
	var first []byte
	for i := range 3 {
		t := o.Sets[0]
		if err := l.Enqueue(s, t.A, t.B, t.Out); err != nil {
			return err
		}
		if n <= 0 {
			return drv.StreamSync(ctx, s)
		}
		got := make([]byte, n)
		if err := drv.CopyOut(ctx, s, got, t.Out); err != nil {
			return err
		}
		if i == 0 {
			first = got
		} else if !bytes.Equal(first, got) {
			return ErrUnstable
		}
	}
	return nil
}

// measure captures reps products over the sets in turn, so that the host's part does
// not count, and times replays of the graph.
func (l *Plan) measure(s cuda.Stream, o TuneOptions, reps int) (us float64, err error) {
	drv, ctx := l.h.lib.drv, l.h.ctx
	var cmds cuda.Commands
	for i := range reps {
		t := o.Sets[i%len(o.Sets)]
		if err := l.AddTo(&cmds, s, t.A, t.B, t.Out); err != nil {
			return 0, err
		}
	}
	if err := drv.CaptureBegin(ctx, s); err != nil {
		return 0, err
	}
	runErr := drv.Run(ctx, cmds.On(s))
	g, err := drv.CaptureEnd(ctx, s)
	if err = errors.Join(runErr, err); err != nil {
		return 0, err
	}
	x, err := drv.GraphInstantiate(ctx, g)
	if err = errors.Join(err, drv.GraphDestroy(ctx, g)); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, drv.ExecDestroy(ctx, x)) }()
	var ev [2]cuda.Event
	for i := range ev {
		if ev[i], err = drv.EventCreate(ctx, true); err != nil {
			return 0, err
		}
		e := ev[i]
		defer func() { err = errors.Join(err, drv.EventDestroy(ctx, e)) }()
	}
	us = math.Inf(1)
	for i := range 4 { // the first one warms up
		if err := drv.EventRecord(ctx, ev[0], s); err != nil {
			return 0, err
		}
		if err := drv.GraphLaunch(ctx, x, s); err != nil {
			return 0, err
		}
		if err := drv.EventRecord(ctx, ev[1], s); err != nil {
			return 0, err
		}
		if err := drv.StreamSync(ctx, s); err != nil {
			return 0, err
		}
		ms, err := drv.EventElapsed(ctx, ev[0], ev[1])
		if err != nil {
			return 0, err
		}
		if i > 0 {
			us = min(us, float64(ms)*1e3/float64(reps))
		}
	}
	return us, nil
}

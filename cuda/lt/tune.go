package lt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Operands is memory for one matmul: addresses of element (0, ..., 0).
type Operands struct{ A, B, Out driver.Ptr }

// TuneOptions say how to measure.
type TuneOptions struct {
	// Sets are the operands to use in turn; at least one. Where a matmul is to be
	// measured as it runs in a program, with operands that are not in the cache, give
	// as many as it takes to exceed the cache. The operands hold finite numbers, best
	// random ones: power, and with it speed, depends on them. Results are overwritten,
	// gaps between their columns too.
	Sets []Operands
	// Candidates is how many algorithms of the library are tried; zero stands for 16.
	Candidates int
	// Kernels is how many kernels of this package are tried if they fit and the handle
	// has a compiler; zero stands for 8, a negative number for none.
	Kernels int
	// Time is about how long one measurement of one candidate takes, in milliseconds;
	// zero stands for 2. Each candidate is measured three times, a finalist Rounds times
	// more.
	Time float64
	// Rounds is how often the finalists are measured in turns; zero stands for 7.
	Rounds int
	// Margin is by how much a candidate must be faster than the library's first
	// suggestion to take its place, as a part of its time; zero stands for 0.03. Large
	// matmuls draw so much power that clocks change from one measurement to the next.
	Margin float64
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
	Microseconds float64 // of one matmul, the least of three measurements; NaN if Err is set
	// Ratio is the median over the rounds of its time in units of that of the first
	// suggestion in the same round; NaN of candidates that came to no rounds.
	Ratio float64
	Err   error // why the candidate cannot be used
}

// ErrUnstable is the error of a candidate whose results differ from run to run.
var ErrUnstable = errors.New("results differ from run to run")

// finalists is how many candidates are compared with the first suggestion in turns.
const finalists = 3

// Tune chooses the algorithm of a problem by measurement, on a stream that nothing
// else uses, puts it into the handle's tuning, and gives all measurements, the chosen
// one first and those that failed last.
//
// A candidate is usable if samples of its result agree with sums in double (ErrWrongResult)
// and if three runs give the same bits (ErrUnstable). Of the usable ones the fastest
// few are measured in turns with the library's first suggestion, which they replace
// only if they win by the margin in the median round. The device needs a handle with a
// compiler, for the sums in double. It must not run while a kernel waits for a peer.
func (h *Handle) Tune(ctx context.Context, s driver.Stream, p Problem, o TuneOptions) (best Algo, all []Timing, err error) {
	if p.empty() || p.K == 0 {
		return Algo{}, nil, nil
	}
	if err := h.Reserve(s); err != nil {
		return Algo{}, nil, err
	}
	o.defaults()
	algos, err := h.Candidates(p, o.Candidates, o.Kernels, o.SMs)
	if err != nil {
		return Algo{}, nil, err
	}
	list := make([]candidate, len(algos))
	for i, a := range algos {
		list[i].algo, list[i].problems = a, []Problem{p}
		l, err := h.PlanWith(p, a)
		if list[i].err = err; err == nil {
			list[i].add = func(c *driver.Commands, t []Operands) error { return l.AddTo(c, s, t[0].A, t[0].B, t[0].Out) }
		}
	}
	var sets [][]Operands
	for _, t := range o.Sets {
		sets = append(sets, []Operands{t})
	}
	all, err = h.measureAll(ctx, s, list, sets, o)
	if err != nil {
		return Algo{}, all, fmt.Errorf("tuning of %v: %w", &p, err)
	}
	h.Adopt(p, all[0].Algo)
	return all[0].Algo, all, nil
}

// measureAll checks and measures candidates on operands that are used in turn, each a
// list with one entry for each matmul of a candidate. The first candidate that is
// usable is the one to beat. The chosen one comes first.
func (h *Handle) measureAll(ctx context.Context, s driver.Stream, list []candidate, sets [][]Operands, o TuneOptions) (all []Timing, err error) {
	if len(sets) == 0 {
		return nil, errors.New("no operands are given")
	}
	t := tuner{h: h, s: s, sets: sets, o: o}
	if t.check, err = h.newChecker(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.check.close()) }()
	var graphs []*timed
	defer func() {
		for _, g := range graphs {
			err = errors.Join(err, g.close())
		}
	}()
	for _, c := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m := Timing{Algo: c.algo, Microseconds: math.NaN(), Ratio: math.NaN(), Err: c.err}
		if m.Err == nil {
			m.Err = t.usable(&c)
		}
		if m.Err == nil {
			var g *timed
			if g, m.Err = t.capture(&c); m.Err == nil {
				g.timing = len(all)
				graphs = append(graphs, g)
				m.Microseconds, m.Err = g.least()
			}
		}
		if contextLost(m.Err) || m.Err != nil && len(graphs) > 0 && graphs[len(graphs)-1].timing == len(all) {
			return nil, fmt.Errorf("%v: %w", c.algo, m.Err)
		}
		all = append(all, m)
	}
	if len(graphs) == 0 {
		var why error
		if len(all) > 0 {
			why = all[0].Err
		}
		return all, fmt.Errorf("no candidate works: %w", cmp.Or(why, error(ErrUnsupported)))
	}
	chosen, err := playOff(graphs, all, &o)
	if err != nil {
		return nil, err
	}
	first := all[chosen]
	all = slices.Delete(all, chosen, chosen+1)
	slices.SortStableFunc(all, func(a, b Timing) int {
		switch {
		case a.Err != nil || b.Err != nil:
			return boolInt(a.Err != nil) - boolInt(b.Err != nil)
		case a.Microseconds < b.Microseconds:
			return -1
		}
		return boolInt(a.Microseconds > b.Microseconds)
	})
	return append([]Timing{first}, all...), nil
}

// playOff measures the fastest few in turns with the first suggestion and gives the
// index of the one to choose.
func playOff(graphs []*timed, all []Timing, o *TuneOptions) (int, error) {
	first := graphs[0]
	rest := slices.Clone(graphs[1:])
	slices.SortStableFunc(rest, func(a, b *timed) int {
		return cmp.Compare(all[a.timing].Microseconds, all[b.timing].Microseconds)
	})
	run := append([]*timed{first}, rest[:min(finalists, len(rest))]...)
	ratios := make([][]float64, len(run))
	us := make([]float64, len(run))
	for r := range o.Rounds + 1 { // the first one brings clocks to where they stay
		for j := range run {
			i := (j + r) % len(run)
			var err error
			if us[i], err = run[i].once(); err != nil {
				return 0, err
			}
		}
		for i := range run {
			if r > 0 {
				ratios[i] = append(ratios[i], us[i]/us[0])
			}
		}
	}
	best, medians := choose(ratios, o.Margin)
	for i := range run {
		all[run[i].timing].Ratio = medians[i]
	}
	return run[best].timing, nil
}

// choose is the index with the least median, or 0 if that does not win by the margin.
func choose(ratios [][]float64, margin float64) (best int, medians []float64) {
	for i, list := range ratios {
		list = slices.Sorted(slices.Values(list))
		medians = append(medians, list[len(list)/2])
		if medians[i] < 1-margin && medians[i] < medians[best] {
			best = i
		}
	}
	return best, medians
}

// contextLost reports whether an error means that the context can no longer be used: a
// kernel failed.
func contextLost(err error) bool {
	const illegalAddress, outOfResources, streamErrors = 700, 701, 900
	var e *driver.Error
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
	if o.Rounds <= 0 {
		o.Rounds = 7
	}
	if o.Margin == 0 {
		o.Margin = 0.03
	}
	if o.Check == 0 {
		o.Check = 1 << 20
	}
	if o.SMs == 0 {
		o.SMs = 132
	}
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
	if h.canSkinny() && kernels > 0 {
		for _, s := range skinnyKernels([]Problem{p}, sms, kernels) {
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

// tuner measures candidates.
type tuner struct {
	h     *Handle
	s     driver.Stream
	sets  [][]Operands
	o     TuneOptions
	check *checker
}

// candidate is one way to compute some matmuls.
type candidate struct {
	algo     Algo
	problems []Problem
	add      func(c *driver.Commands, t []Operands) error // adds all of them
	err      error
}

// usable runs a candidate three times on the first operands and compares the results'
// bytes with each other, and samples of them with sums in double.
func (t *tuner) usable(c *candidate) error {
	drv, ctx := t.h.lib.drv, t.h.ctx
	var cmds driver.Commands
	for k := range c.problems {
		// Not a number, so that what is not written shows.
		if out := t.sets[0][k].Out; out%4 == 0 {
			cmds.Memset32(t.s, out, 0xffffffff, uint64(c.problems[k].span())/4)
		}
	}
	if err := c.add(&cmds, t.sets[0]); err != nil {
		return err
	}
	var first [][]byte
	for i := range 3 {
		if err := drv.Run(ctx, cmds.On(t.s)); err != nil {
			return err
		}
		for k := range c.problems {
			got := make([]byte, max(0, min(c.problems[k].span(), t.o.Check)))
			if len(got) > 0 {
				if err := drv.CopyOut(ctx, t.s, got, t.sets[0][k].Out); err != nil {
					return err
				}
			}
			if i == 0 {
				first = append(first, got)
			} else if !bytes.Equal(first[k], got) {
				return ErrUnstable
			}
		}
	}
	for k := range c.problems {
		p := &c.problems[k]
		x, y := t.sets[0][k].A, t.sets[0][k].B
		if p.Swapped {
			x, y = y, x
		}
		list, err := t.check.run(t.s, p, x, y, t.sets[0][k].Out)
		if err == nil {
			_, err = p.verify(list)
		}
		if err != nil {
			return err
		}
	}
	return drv.StreamSync(ctx, t.s)
}

// span is the bytes from the first to the last element of D.
func (p *Problem) span() int64 {
	return ((p.Batch-1)*p.D.Stride + (p.N-1)*p.D.LD + p.M) * int64(p.Out.Size())
}

// reps is how many repetitions take about the wanted time, at the rates of an H200.
func (t *tuner) reps(c *candidate) int {
	us := 4.0
	for i := range c.problems {
		us = max(us, c.problems[i].Flops()/600e6, c.problems[i].Bytes()/4e6)
	}
	return min(max(int(t.o.Time*1e3/us), 2, min(len(t.sets), 64)), 1000)
}

// timed is a graph of repetitions between two events.
type timed struct {
	t      *tuner
	reps   int
	exec   driver.Exec
	ev     [2]driver.Event
	timing int // index of its Timing
}

// capture captures repetitions over the operands in turn, so that the host's part
// does not count.
func (t *tuner) capture(c *candidate) (g *timed, err error) {
	drv, ctx := t.h.lib.drv, t.h.ctx
	g = &timed{t: t, reps: t.reps(c)}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	var cmds driver.Commands
	for i := range g.reps {
		if err := c.add(&cmds, t.sets[i%len(t.sets)]); err != nil {
			return g, err
		}
	}
	if err := drv.CaptureBegin(ctx, t.s); err != nil {
		return g, err
	}
	runErr := drv.Run(ctx, cmds.On(t.s))
	graph, err := drv.CaptureEnd(ctx, t.s)
	if err = errors.Join(runErr, err); err != nil {
		return g, err
	}
	g.exec, err = drv.GraphInstantiate(ctx, graph)
	if err = errors.Join(err, drv.GraphDestroy(ctx, graph)); err != nil {
		return g, err
	}
	for i := range g.ev {
		if g.ev[i], err = drv.EventCreate(ctx, true); err != nil {
			return g, err
		}
	}
	return g, nil
}

// once replays and gives the microseconds of one repetition.
func (g *timed) once() (us float64, err error) {
	drv, ctx := g.t.h.lib.drv, g.t.h.ctx
	if err := drv.EventRecord(ctx, g.ev[0], g.t.s); err != nil {
		return 0, err
	}
	if err := drv.GraphLaunch(ctx, g.exec, g.t.s); err != nil {
		return 0, err
	}
	if err := drv.EventRecord(ctx, g.ev[1], g.t.s); err != nil {
		return 0, err
	}
	if err := drv.StreamSync(ctx, g.t.s); err != nil {
		return 0, err
	}
	ms, err := drv.EventElapsed(ctx, g.ev[0], g.ev[1])
	return max(float64(ms), 1e-6) * 1e3 / float64(g.reps), err
}

// least is the least of three replays after one that warms up.
func (g *timed) least() (us float64, err error) {
	us = math.Inf(1)
	for i := range 4 {
		v, err := g.once()
		if err != nil {
			return math.NaN(), err
		}
		if i > 0 {
			us = min(us, v)
		}
	}
	return us, nil
}

func (g *timed) close() error {
	drv, ctx := g.t.h.lib.drv, g.t.h.ctx
	var errs []error
	if g.exec != 0 {
		errs = append(errs, drv.ExecDestroy(ctx, g.exec))
	}
	for _, e := range g.ev {
		if e != 0 {
			errs = append(errs, drv.EventDestroy(ctx, e))
		}
	}
	return errors.Join(errs...)
}

package bench

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// measuredProgram is one program that is measured. All ranks measure the same things in
// the same order.
type measuredProgram struct {
	s           *session
	j           *Job
	h           *half
	forward     *measuredProgram // what feeds this one, if it is a backward function; else nil
	flags       *Calibration
	p           *program.Program
	module      *rt.Module // the program's, with room of our own behind its arena and events of our own
	room        int64      // where that room starts
	bytes       int64      // its size
	keep        []int64    // by input: where behind that room its first value is kept, if the program overwrites it
	partner     int        // a short launch that keeps multiprocessors to itself, -1 if there is none
	beside      []bool
	chains      []program.Chain
	collectives []int                           // instructions
	guess       func(in *program.Instr) float64 // of what was not measured, in microseconds
}

// finding is one time, in microseconds. A process rank writes its own as JSON.
type finding struct {
	What  kindOf  `json:"what"`
	Key   string  `json:"key"`
	Ranks int     `json:"ranks"`
	Bytes int64   `json:"bytes"`
	Us    float64 `json:"us"`
	Alone float64 `json:"alone,omitempty"` // of a collective of the sweep: with nothing beside it
	Step  *inStep `json:"step,omitempty"`  // of a program
}

// key tells findings apart.
func (f *finding) key() string {
	if f.What == anInstruction {
		return f.Key
	}
	return fmt.Sprintf("%d|%s|%d|%d", f.What, f.Key, f.Ranks, f.Bytes)
}

// kindOf says what a finding is of.
type kindOf int

const (
	anInstruction kindOf = iota
	aCollective          // of the sweep
	anEdge
	aStep  // a whole program, by the key of all of it
	aChain // found with its step; only to tell which are known
)

func newMeasuredProgram(s *session, j *Job, h *half, model *cost.Model) *measuredProgram {
	f := s.flags
	c := &measuredProgram{s: s, guess: compile.NodeTimes(h.program, h.f, model), j: j, h: h, flags: f, p: h.program, beside: h.program.Overlapped()}
	c.chains = c.p.Chains()
	for i := range c.p.Instrs {
		if c.p.Instrs[i].Kind == program.Collective {
			c.collectives = append(c.collectives, i)
		}
	}
	m := *h.step.Module
	c.room = (m.Arena + program.Align - 1) / program.Align * program.Align
	c.bytes = (max(2*f.Flush, 2*f.Sweep, mostPatterns*program.Align) + 2*program.Align - 1) / (2 * program.Align) * (2 * program.Align)
	m.Arena, m.Events = c.room+c.bytes, m.Events+2
	c.keep = make([]int64, len(m.Inputs))
	for i, q := range m.Inputs {
		if h.overwrites[i] && len(q.Tensors) == 1 {
			c.keep[i] = m.Arena
			m.Arena += (q.Tensors[0].Bytes() + program.Align - 1) / program.Align * program.Align
		}
	}
	c.partner = -1
	for i := range c.p.Instrs {
		in := &c.p.Instrs[i]
		if in.Kind == program.Launch && (in.Op == "matmul" || in.Op == "addmm") && (c.partner < 0 || c.guess(in) < c.guess(&c.p.Instrs[c.partner])) {
			c.partner = i
		}
	}
	m.Text = "" // it is not the program's module any more
	m.Digest += " calibration"
	c.module = &m
	return c
}

// key is what instruction i is entered under, "" if it costs nothing.
func (c *measuredProgram) key(i int) string {
	key := c.p.CostKey(&c.p.Instrs[i])
	if key != "" && c.beside[i] {
		key += compile.OverlappedKey
	}
	return key
}

// rank measures everything that is not known on one rank.
func (s *session) rank(ctx context.Context, t *Console, r *rt.Rank) error {
	// A rank that is a goroutine shares s with others.
	seen := maps.Clone(s.seen)
	edge := 0.0
	if s.known != nil {
		edge = s.known.EdgeUs
	}
	var found []finding
	meters := map[*measuredProgram]*meter{}
	for _, c := range s.cals {
		k := &meter{c: c, r: r, forward: meters[c.forward], seen: seen, edgeUs: edge, h: half{name: c.h.name, f: c.h.f, program: c.h.program, overwrites: c.h.overwrites}}
		k.h.step.Module, k.h.step.Run = c.module, func(x *rt.Exec) { rt.Interpret(x, c.p) }
		meters[c] = k
		if err := k.all(ctx, t); err != nil {
			return fmt.Errorf("@%s: %w", c.h.f.Name, err)
		}
		edge = k.edgeUs
		found = append(found, k.found...)
	}
	s.found[r.Info().Rank] = found
	return nil
}

// all measures a program.
func (k *meter) all(ctx context.Context, t *Console) error {
	start := time.Now()
	say := func(what string) {
		if k.c.flags.Verbose && k.r.Info().Rank == 0 {
			fmt.Fprintf(t.Err, "@%s: %s, %s in all, %v\n", k.c.h.f.Name, what, count(len(k.found), "measurement"), time.Since(start).Round(time.Millisecond))
		}
	}
	var err error
	if k.inputs, err = k.given(ctx); err != nil {
		return err
	}
	if _, err := k.upTo(ctx, len(k.c.p.Instrs)); err != nil { // which keeps inputs first
		return err
	}
	if k.forward != nil {
		say("fed by @" + k.forward.c.h.f.Name)
	}
	say("ready")
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{"edges", k.edges}, {"step", k.steps}, {"instructions", k.instructions}, {"sizes", k.sweep}} {
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		say(part.name)
	}
	return nil
}

// table is what was known with what all ranks found: the slowest counts.
func (s *session) table() *calibration.File {
	m := &calibration.File{Ranks: s.world()}
	if s.known != nil {
		m = s.known.Clone()
		m.Ranks = s.world()
	}
	for i, f := range s.found[0] {
		for _, other := range s.found[1:] {
			f.Us, f.Alone = max(f.Us, other[i].Us), max(f.Alone, other[i].Alone)
		}
		switch f.What {
		case anInstruction:
			m.Instructions = append(m.Instructions, calibration.Instruction{Key: f.Key, Us: rounded(f.Us), Late: s.known != nil})
		case aCollective:
			m.Collectives = append(m.Collectives, calibration.Collective{Op: f.Key, Impl: calibration.Own, Ranks: f.Ranks, Bytes: f.Bytes, Us: max(rounded(f.Us), 0.001)},
				calibration.Collective{Op: f.Key, Impl: calibration.OwnAlone, Ranks: f.Ranks, Bytes: f.Bytes, Us: max(rounded(f.Alone), 0.001)})
		case anEdge:
			m.EdgeUs = rounded(f.Us)
		}
	}
	slices.SortFunc(m.Instructions, func(a, b calibration.Instruction) int { return strings.Compare(a.Key, b.Key) })
	s.addSteps(m)
	if s.known == nil { // later, nodes' costs are measured ones
		m.MemoryScale = rounded(s.scale(m.Instructions))
	}
	return m
}

// rounded is not less than 0, in steps of a thousandth.
func rounded(us float64) float64 { return max(math.Round(us*1e3)/1e3, 0) }

// scale is what generated kernels take over what their nodes were said to.
func (s *session) scale(measured []calibration.Instruction) float64 {
	us := map[string]float64{}
	for _, e := range measured {
		us[e.Key] = e.Us
	}
	took, said := 0.0, 0.0
	for _, c := range s.cals {
		for i := range c.p.Instrs {
			in := &c.p.Instrs[i]
			t, ok := us[c.key(i)]
			if c.p.Kernel(in) == nil || !ok {
				continue
			}
			if nodes := c.guess(in); nodes > 0 {
				took, said = took+t, said+nodes
			}
		}
	}
	if said == 0 {
		return 0
	}
	return took / said
}

// meter measures on one rank.
type meter struct {
	c         *measuredProgram
	r         *rt.Rank
	h         half
	forward   *meter // of what feeds the program, nil if nothing does
	inputs    []rt.Value
	bound     bool    // the inputs have been brought in
	partnerUs float64 // what the partner takes beside nothing; 0 if that was not measured
	seen      map[string]bool
	edgeUs    float64
	found     []finding
}

func (k *meter) add(f finding) { k.found = append(k.found, f) }

// isNew reports whether something was not measured before, and takes it to be from now on.
func (k *meter) isNew(f finding) bool {
	key := f.key()
	if k.seen[key] {
		return false
	}
	k.seen[key] = true
	return true
}

// upTo runs the program up to an instruction, so that what comes next finds its
// operands: an index that is no index would be read from anywhere. It returns where the
// outputs are, which are there if n is all of it.
func (k *meter) upTo(ctx context.Context, n int) ([]rt.Value, error) {
	inputs := k.inputs
	back := k.bound
	if k.bound {
		inputs = resident(inputs)
	}
	k.bound = true
	return rt.RunModule(ctx, k.r, k.c.module, func(x *rt.Exec) {
		k.c.saveInputs(x, back)
		for i := range n {
			rt.Instruct(x, k.c.p, i)
		}
	}, inputs, k.c.j.options(k.r, &k.h))
}

// time captures a step and returns the median of its replays, in microseconds.
func (k *meter) time(ctx context.Context, step func(x *rt.Exec)) (us float64, err error) {
	s, err := rt.Prepare(ctx, k.r, k.c.module, step, k.c.j.options(k.r, &k.h), true)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	ms, err := s.Time(ctx, 1+k.c.flags.Reps)
	if err != nil {
		return 0, err
	}
	return median(ms[1:]) * 1e3, nil
}

// The sizes of measurements. How often an instruction stands in a graph follows from
// what it is said to cost, which all ranks know alike: often enough for what is short
// to be measured well, and no more often for what is long.
const (
	mostTimes  = 12   // for the short
	leastTimes = 2    // for the long
	aimUs      = 1200 // of measured time in a graph
	longUs     = 100  // from here on, what is before an instruction does not matter
)

// repetitions is how often something of that length stands in a graph.
func repetitions(us float64) int { return int(min(max(aimUs/max(us, 1), leastTimes), mostTimes)) }

// slope is the time of one more repetition of a step that is said to take so long: the
// difference of two graphs.
func (k *meter) slope(ctx context.Context, said float64, once func(x *rt.Exec)) (float64, error) {
	many := repetitions(said)
	few := max(many/6, 1)
	var us [2]float64
	for i, n := range []int{few, many} {
		var err error
		us[i], err = k.time(ctx, func(x *rt.Exec) {
			for range n {
				once(x)
			}
		})
		if err != nil {
			return 0, err
		}
	}
	return (us[1] - us[0]) / float64(many-few), nil
}

// computeStream is the stream of launches.
func (c *measuredProgram) computeStream() string { return c.p.Streams[0].Name }

// ownEvent is number i of the events that are not the program's.
func (c *measuredProgram) ownEvent(i int) int { return c.p.Events + i }

// flush copies enough to drive everything else out of the caches.
func (c *measuredProgram) flush(x *rt.Exec) {
	if n := c.flags.Flush; n > 0 {
		x.Copy(c.computeStream(), rt.C(c.room, rt.U8, n), rt.C(c.room+n, rt.U8, n))
	}
}

// tinyLaunch is as little compute as there can be.
func (c *measuredProgram) tinyLaunch(x *rt.Exec, stream string) {
	x.Copy(stream, rt.C(c.room, rt.U8, 512), rt.C(c.room+1024, rt.U8, 512))
}

// instructions measures every distinct one.
func (k *meter) instructions(ctx context.Context) error {
	for i := range k.c.p.Instrs {
		f := finding{What: anInstruction, Key: k.c.key(i)}
		if f.Key == "" || !k.isNew(f) {
			continue
		}
		var err error
		if f.Us, err = k.instruction(ctx, i); err != nil {
			return fmt.Errorf("instruction %d, %s: %w", i, f.Key, err)
		}
		k.add(f)
	}
	return nil
}

func (k *meter) instruction(ctx context.Context, i int) (float64, error) {
	c := k.c
	in := &c.p.Instrs[i]
	said := c.guess(in)
	if in.Kind == program.Collective {
		if c.beside[i] {
			return k.overlappedCompute(ctx, said, in.Stream, func(x *rt.Exec) { rt.Instruct(x, c.p, i) })
		}
		return k.slope(ctx, said, func(x *rt.Exec) { rt.Instruct(x, c.p, i) })
	}
	var before []int
	if said < longUs {
		before = c.before(i)
	}
	if indexes(in) {
		if _, err := k.upTo(ctx, i); err != nil {
			return 0, err
		}
	}
	many := repetitions(said)
	var us [2]float64
	for n, list := range [][]int{before, append(slices.Clone(before), i)} {
		var err error
		us[n], err = k.time(ctx, func(x *rt.Exec) {
			for range many {
				c.flush(x)
				for _, at := range list {
					rt.Instruct(x, c.p, at)
				}
			}
		})
		if err != nil {
			return 0, err
		}
	}
	return (us[1] - us[0]) / float64(many), nil
}

// before lists the two launches or copies before instruction i on its stream, up to
// one that reads indices, which may be gone when it runs again, and to one so long that
// its noise would drown what is measured.
func (c *measuredProgram) before(i int) []int {
	var out []int
	for n := i - 1; n >= 0 && len(out) < 2; n-- {
		in := &c.p.Instrs[n]
		if in.Stream != c.p.Instrs[i].Stream || in.Kind != program.Launch && in.Kind != program.Copy {
			continue
		}
		if indexes(in) || c.guess(in) >= longUs {
			break
		}
		out = append(out, n)
	}
	slices.Reverse(out)
	return out
}

// indexes reports whether an instruction reads integers, which may be places in memory.
func indexes(in *program.Instr) bool {
	return in.Kind != program.Copy && slices.ContainsFunc(in.Ins, func(t program.Tensor) bool { return t.DType.IsInt() })
}

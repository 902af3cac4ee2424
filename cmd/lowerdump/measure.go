package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// calibration measures one program on all ranks of a world. All ranks measure the
// same things in the same order; each writes its times to its own column.
type calibration struct {
	j      *job
	h      *half
	flags  *calibrateFlags
	p      *program.Program
	module *rt.Module // the program's, with room of our own behind its arena and events of our own
	room   int64      // where that room starts
	bytes  int64      // its size
	beside []bool
	model  *cost.Model
	found  [][]finding // by rank
}

// finding is one time, in microseconds. A process rank writes its own as JSON.
type finding struct {
	What  kindOf  `json:"what"`
	Key   string  `json:"key"`   // of an instruction; launch of a pair
	Other string  `json:"other"` // collective of a pair
	Ranks int     `json:"ranks"`
	Bytes int64   `json:"bytes"`
	Us    float64 `json:"us"`
	Us2   float64 `json:"us2"` // of a pair: what compute adds to communication
}

// kindOf says what a finding is of.
type kindOf int

const (
	anInstruction kindOf = iota
	aCollective          // of the sweep
	anEdge
	aPair
)

// The sizes of measurements: how often an instruction stands in a graph, less in the
// shorter of two graphs whose difference counts.
const (
	fewTimes  = 2
	manyTimes = 12
)

func newCalibration(j *job, h *half, f *calibrateFlags, model *cost.Model) *calibration {
	c := &calibration{model: model, j: j, h: h, flags: f, p: h.program, beside: h.program.Overlapped(), found: make([][]finding, j.pair.World())}
	m := *h.step.Module
	c.room = (m.Arena + program.Align - 1) / program.Align * program.Align
	c.bytes = (max(2*f.flush, 2*f.sweep, 1<<12) + 2*program.Align - 1) / (2 * program.Align) * (2 * program.Align)
	m.Arena, m.Events = c.room+c.bytes, m.Events+2
	m.Text = "" // it is not the program's module any more
	m.Digest += " calibration"
	c.module = &m
	return c
}

// rank measures everything on one rank.
func (c *calibration) rank(ctx context.Context, r *rt.Rank) error {
	k := &meter{c: c, r: r, h: half{name: c.h.name, f: c.h.f, program: c.h.program, overwrites: c.h.overwrites}}
	k.h.step.Module, k.h.step.Run = c.module, func(x *rt.Exec) { rt.Interpret(x, c.p) }
	var err error
	if k.inputs, err = c.j.given(ctx, r, &k.h); err != nil {
		return err
	}
	if err := k.upTo(ctx, len(c.p.Instrs)); err != nil {
		return err
	}
	edge, err := k.edge(ctx)
	if err != nil {
		return fmt.Errorf("edges: %w", err)
	}
	k.add(finding{What: anEdge, Us: edge})
	if err := k.instructions(ctx, edge); err != nil {
		return err
	}
	if err := k.sweep(ctx); err != nil {
		return err
	}
	if err := k.pairs(ctx); err != nil {
		return err
	}
	c.found[r.Info().Rank] = k.found
	return nil
}

// table is what all ranks found: the slowest counts.
func (c *calibration) table() *cost.Measured {
	m := &cost.Measured{Ranks: len(c.found)}
	scale := scaler{c: c}
	for i, f := range c.found[0] {
		for _, other := range c.found[1:] {
			f.Us, f.Us2 = max(f.Us, other[i].Us), max(f.Us2, other[i].Us2)
		}
		switch f.What {
		case anInstruction:
			m.Instructions = append(m.Instructions, cost.Instruction{Key: f.Key, Us: rounded(f.Us)})
			scale.saw(f.Key, f.Us)
		case aCollective:
			m.Collectives = append(m.Collectives, cost.Collective{Op: f.Key, Ranks: f.Ranks, Bytes: f.Bytes, Us: max(rounded(f.Us), 0.001)})
		case anEdge:
			m.EdgeUs = rounded(f.Us)
		case aPair:
			compute, comm := cost.Speeds(f.Us, f.Us2)
			m.Beside = append(m.Beside, cost.Beside{Launch: f.Key, Collective: f.Other, Compute: rounded(compute), Comm: rounded(comm)})
		}
	}
	m.MemoryScale = rounded(scale.value())
	return m
}

// rounded is not less than 0, in steps of a thousandth.
func rounded(us float64) float64 { return max(math.Round(us*1e3)/1e3, 0) }

// scaler compares what generated kernels take with what their nodes were said to.
type scaler struct {
	c           *calibration
	took, nodes float64
}

func (s *scaler) saw(key string, us float64) {
	if !strings.HasPrefix(key, program.OpFused+"(") {
		return
	}
	for i := range s.c.p.Instrs {
		in := &s.c.p.Instrs[i]
		k := s.c.p.Kernel(in)
		if k == nil || s.c.p.CostKey(in) != key {
			continue
		}
		said := 0.0
		for b := range k.Body {
			if n := s.c.h.f.Lookup(k.Body[b].Node); n != nil {
				ms, _ := n.Cost()
				if !math.IsNaN(ms) {
					said += ms * 1e3
				}
			}
		}
		if said > 0 {
			s.took, s.nodes = s.took+us, s.nodes+said
		}
	}
}

func (s *scaler) value() float64 {
	if s.nodes == 0 {
		return 0
	}
	return s.took / s.nodes
}

// meter measures on one rank.
type meter struct {
	c      *calibration
	r      *rt.Rank
	h      half
	inputs []rt.Value
	bound  bool // the inputs have been brought in
	found  []finding
}

func (k *meter) add(f finding) { k.found = append(k.found, f) }

// upTo runs the program up to an instruction, so that what comes next finds its
// operands: an index that is no index would be read from anywhere.
func (k *meter) upTo(ctx context.Context, n int) error {
	inputs := k.inputs
	if k.bound {
		inputs = k.h.again(inputs)
		for i := range inputs { // other values may be anything, and bringing them in costs time
			inputs[i].Resident = inputs[i].Resident || !inputs[i].DType.IsInt()
		}
	}
	k.bound = true
	_, err := rt.RunModule(ctx, k.r, k.c.module, func(x *rt.Exec) {
		for i := range n {
			rt.Instruct(x, k.c.p, i)
		}
	}, inputs, rt.Options{KeepOutputs: true})
	return err
}

// time captures a step and returns the median of its replays, in microseconds.
func (k *meter) time(ctx context.Context, step func(x *rt.Exec)) (us float64, err error) {
	s, err := rt.Prepare(ctx, k.r, k.c.module, step, rt.Options{KeepOutputs: true}, true)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	ms, err := s.Time(ctx, 1+k.c.flags.run.reps)
	if err != nil {
		return 0, err
	}
	return median(ms[1:]) * 1e3, nil
}

// slope is the time of one more repetition of a step.
func (k *meter) slope(ctx context.Context, once func(x *rt.Exec)) (float64, error) {
	var us [2]float64
	for i, n := range []int{fewTimes, manyTimes} {
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
	return (us[1] - us[0]) / (manyTimes - fewTimes), nil
}

// computeStream is the stream of launches.
func (c *calibration) computeStream() string { return c.p.Streams[0].Name }

// our is number i of the events that are not the program's.
func (c *calibration) our(i int) int { return c.p.Events + i }

// flush copies enough to drive everything else out of the caches.
func (c *calibration) flush(x *rt.Exec) {
	if n := c.flags.flush; n > 0 {
		x.Copy(c.computeStream(), rt.C(c.room, rt.U8, n), rt.C(c.room+n, rt.U8, n))
	}
}

// speck is as little compute as there can be.
func (c *calibration) speck(x *rt.Exec, stream string) {
	x.Copy(stream, rt.C(c.room, rt.U8, 512), rt.C(c.room+1024, rt.U8, 512))
}

// edge is the time from an end on one stream to the beginning of what waits for it on
// another; 0 if the program has one stream.
func (k *meter) edge(ctx context.Context) (float64, error) {
	c := k.c
	if len(c.p.Streams) < 2 {
		return 0, nil
	}
	a, b := c.computeStream(), c.p.Streams[1].Name
	apart, err := k.slope(ctx, func(x *rt.Exec) {
		c.speck(x, a)
		x.Record(a, c.our(0))
		x.Wait(b, c.our(0))
		c.speck(x, b)
		x.Record(b, c.our(1))
		x.Wait(a, c.our(1))
	})
	if err != nil {
		return 0, err
	}
	together, err := k.slope(ctx, func(x *rt.Exec) {
		c.speck(x, a)
		c.speck(x, a)
	})
	return max(apart-together, 0) / 2, err
}

// instructions measures every distinct one.
func (k *meter) instructions(ctx context.Context, edge float64) error {
	c := k.c
	seen := map[string]bool{}
	for i := range c.p.Instrs {
		in := &c.p.Instrs[i]
		key := c.p.CostKey(in)
		if key == "" {
			continue
		}
		if c.beside[i] {
			key += besideKey
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		us, err := k.instruction(ctx, i, edge)
		if err != nil {
			return fmt.Errorf("instruction %d, %s: %w", i, key, err)
		}
		k.add(finding{What: anInstruction, Key: key, Us: us})
	}
	return nil
}

func (k *meter) instruction(ctx context.Context, i int, edge float64) (float64, error) {
	c := k.c
	in := &c.p.Instrs[i]
	if in.Kind == program.Collective {
		if c.beside[i] {
			us, err := k.slope(ctx, c.withSpeck(in, func(x *rt.Exec) { rt.Instruct(x, c.p, i) }))
			return us - 2*edge, err
		}
		return k.slope(ctx, func(x *rt.Exec) { rt.Instruct(x, c.p, i) })
	}
	before := c.before(i)
	if indexes(in) {
		if err := k.upTo(ctx, i); err != nil {
			return 0, err
		}
	}
	var us [2]float64
	for n, list := range [][]int{before, append(slices.Clone(before), i)} {
		var err error
		us[n], err = k.time(ctx, func(x *rt.Exec) {
			for range manyTimes {
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
	return (us[1] - us[0]) / manyTimes, nil
}

// withSpeck surrounds a collective by events, with something to compute meanwhile.
func (c *calibration) withSpeck(in *program.Instr, run func(x *rt.Exec)) func(x *rt.Exec) {
	a, b := c.computeStream(), c.p.Streams[in.Stream].Name
	return func(x *rt.Exec) {
		x.Record(a, c.our(0))
		x.Wait(b, c.our(0))
		run(x)
		x.Record(b, c.our(1))
		c.speck(x, a)
		x.Wait(a, c.our(1))
	}
}

// before lists the two launches or copies before instruction i on its stream, up to
// one that reads indices: they may be gone when it runs again.
func (c *calibration) before(i int) []int {
	var out []int
	for n := i - 1; n >= 0 && len(out) < 2; n-- {
		in := &c.p.Instrs[n]
		if in.Stream != c.p.Instrs[i].Stream || in.Kind != program.Launch && in.Kind != program.Copy {
			continue
		}
		if indexes(in) {
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

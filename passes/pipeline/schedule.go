package pipeline

import (
	"fmt"
	"math"
	"slices"
)

// Phase is a part of a micro-batch's work in a chunk.
type Phase uint8

// The phases. Where backward is not divided, Weights has nothing to do.
const (
	Forward  Phase = iota
	Backward       // what other chunks wait for
	Weights        // what nothing waits for: gradients of parameters
)

// String is F, B or W.
func (p Phase) String() string { return [...]string{"F", "B", "W"}[p] }

// Action is the work of one micro-batch in one chunk.
type Action struct {
	Phase Phase
	Chunk int // of the step, in the order of forward; chunk c is on stage c mod stages
	Micro int
}

// String is F3, or F3.1 for chunk 1.
func (a Action) String() string { return fmt.Sprintf("%v%d.%d", a.Phase, a.Micro, a.Chunk) }

// Shape is what a schedule is made for.
type Shape struct {
	Stages      int
	Chunks      int // in all, a multiple of Stages
	Micro       int // micro-batches
	MaxInFlight int // micro-batches, of all chunks of a stage, whose activations a stage keeps at once; 0 is no bound
}

// Times are what actions take: by chunk, and a transfer behind each chunk in both directions.
type Times struct {
	Forward, Backward, Weights []float64
	Up, Down                   []float64
}

// of is the time of an action.
func (t *Times) of(a Action) float64 {
	return [...][]float64{t.Forward, t.Backward, t.Weights}[a.Phase][a.Chunk]
}

// Kind is a rule by which stages take turns.
type Kind string

// The schedules.
const (
	GPipe       Kind = "gpipe"       // all forwards, then all backwards
	OneFOneB    Kind = "1f1b"        // forward and backward in turns, as soon as there is something to go back with
	Interleaved Kind = "interleaved" // 1f1b of several chunks on each stage
	ZeroBubble  Kind = "zero-bubble" // gradients of parameters where a stage would wait
)

// Schedule is what each stage does, in order.
type Schedule struct {
	Shape
	Stage [][]Action
}

// NewSchedule makes a schedule. The error says which shape the kind cannot have.
func NewSchedule(kind Kind, s Shape, t *Times) (*Schedule, error) {
	if s.Stages < 2 || s.Chunks < s.Stages || s.Chunks%s.Stages != 0 || s.Micro < 1 || s.MaxInFlight < 0 {
		return nil, fmt.Errorf("%d micro-batches in %d chunks on %d stages: want two stages at least, as many chunks on each, and a micro-batch", s.Micro, s.Chunks, s.Stages)
	}
	out := &Schedule{Shape: s}
	per := s.Chunks / s.Stages
	switch kind {
	case GPipe:
		if s.MaxInFlight > 0 && s.MaxInFlight < s.Micro*per {
			return nil, fmt.Errorf("gpipe keeps the activations of all %d micro-batches, %d are allowed", s.Micro*per, s.MaxInFlight)
		}
		fallthrough
	case OneFOneB:
		if per != 1 {
			return nil, fmt.Errorf("%s has one chunk on each stage, not %d", kind, per)
		}
		for st := range s.Stages {
			ahead := s.Micro
			if kind == OneFOneB {
				ahead = s.Stages - st
			}
			out.Stage = append(out.Stage, s.turns(st, ahead, 0))
		}
	case Interleaved:
		if s.Micro%s.Stages != 0 {
			return nil, fmt.Errorf("interleaved takes micro-batches in rounds of one for each of the %d stages; %d are not a multiple", s.Stages, s.Micro)
		}
		for st := range s.Stages {
			ahead := 2*(s.Stages-st-1) + (per-1)*s.Stages + 1
			if s.MaxInFlight > 0 && s.MaxInFlight < ahead {
				return nil, fmt.Errorf("interleaved keeps the activations of %d micro-batches on stage %d, %d are allowed", ahead, st, s.MaxInFlight)
			}
			out.Stage = append(out.Stage, s.turns(st, ahead, 0))
		}
	case ZeroBubble:
		if per != 1 {
			return nil, fmt.Errorf("%s has one chunk on each stage, not %d", kind, per)
		}
		return s.fill(t)
	default:
		return nil, fmt.Errorf("%q is not a schedule", kind)
	}
	return out, nil
}

// fill lets gradients of parameters fill the bubbles, while no stage keeps more than the first
// one of 1f1b. It takes the shortest of some: weights that follow backward at a distance of as
// many micro-batches as there are stages before (ZB-H1), and whatever can begin first.
func (s *Shape) fill(t *Times) (*Schedule, error) {
	if t == nil {
		return nil, fmt.Errorf("%s needs times", ZeroBubble)
	}
	var best *Schedule
	shortest := math.Inf(1)
	for _, late := range []int{-1, 0, 1} {
		o := &Schedule{Shape: *s}
		if late < 0 {
			o.Stage = s.greedy(t)
		} else {
			for st := range s.Stages {
				o.Stage = append(o.Stage, s.turns(st, s.Stages-st, min(late*st, max(0, s.kept()-(s.Stages-st)))))
			}
		}
		l, err := o.Simulate(t)
		if err != nil {
			return nil, err
		}
		if l.Makespan < shortest {
			best, shortest = o, l.Makespan
		}
	}
	return best, nil
}

// turns is forward and backward in turns, forward being ahead by some, and weights behind
// backward by others.
func (s *Shape) turns(stage, ahead, late int) []Action {
	per := s.Chunks / s.Stages
	n := s.Micro * per
	ahead = min(ahead, n)
	if s.MaxInFlight > 0 {
		ahead = min(ahead, s.MaxInFlight)
	}
	// the k-th action takes chunks in rounds of as many micro-batches as there are stages
	at := func(k int, back bool) (chunk, micro int) {
		if per == 1 {
			return stage, k
		}
		round := s.Stages * per
		v := k % round / s.Stages
		if back {
			v = per - 1 - v
		}
		return v*s.Stages + stage, k/round*s.Stages + k%s.Stages
	}
	var out []Action
	weights := 0
	back := func(k int) {
		c, m := at(k, true)
		out = append(out, Action{Backward, c, m})
		if k >= weights+late || k >= n-ahead {
			c, m = at(weights, true)
			out = append(out, Action{Weights, c, m})
			weights++
		}
	}
	for k := range n {
		c, m := at(k, false)
		out = append(out, Action{Forward, c, m})
		if k >= ahead-1 {
			back(k - ahead + 1)
		}
	}
	for k := n - ahead + 1; k < n; k++ {
		back(k)
	}
	for ; weights < n; weights++ {
		c, m := at(weights, true)
		out = append(out, Action{Weights, c, m})
	}
	return out
}

// greedy gives each stage that is free the first of these that can begin: backward, forward if
// the memory is there, weights. Of what can begin at one time, that of the lower stage does.
func (s *Shape) greedy(t *Times) [][]Action {
	out := make([][]Action, s.Stages)
	ended := map[Action]float64{} // look-up only
	free := make([]float64, s.Stages)
	next := make([][3]int, s.Stages) // by stage and phase
	for done := 0; done < 3*s.Micro*s.Stages; done++ {
		best, at, begin := -1, Action{}, math.Inf(1)
		for st := range s.Stages {
			for _, p := range []Phase{Backward, Forward, Weights} {
				a := Action{p, st, next[st][p]}
				ready, ok := s.ready(a, t, ended)
				if !ok || a.Micro >= s.Micro || p == Forward && a.Micro-next[st][Weights] >= s.kept() {
					continue
				}
				if b := max(ready, free[st]); b < begin {
					best, at, begin = st, a, b
				}
			}
		}
		out[best] = append(out[best], at)
		next[best][at.Phase]++
		free[best] = begin + t.of(at)
		ended[at] = free[best]
	}
	return out
}

// kept bounds the micro-batches whose activations a stage keeps: as many as 1f1b has on the
// first stage, or as allowed.
func (s *Shape) kept() int {
	if s.MaxInFlight > 0 {
		return s.MaxInFlight
	}
	return s.Stages
}

// ready is when what an action takes from other actions is there; false if some has not run.
func (s *Shape) ready(a Action, t *Times, ended map[Action]float64) (float64, bool) {
	at, ok := 0.0, true
	need := func(b Action, more float64) {
		e, there := ended[b]
		at, ok = max(at, e+more), ok && there
	}
	switch {
	case a.Phase == Forward && a.Chunk > 0:
		need(Action{Forward, a.Chunk - 1, a.Micro}, t.Up[a.Chunk-1])
	case a.Phase == Backward:
		need(Action{Forward, a.Chunk, a.Micro}, 0)
		if a.Chunk < s.Chunks-1 {
			need(Action{Backward, a.Chunk + 1, a.Micro}, t.Down[a.Chunk])
		}
	case a.Phase == Weights:
		need(Action{Backward, a.Chunk, a.Micro}, 0)
	}
	return at, ok
}

// Timeline is when a schedule's actions run.
type Timeline struct {
	Begin, End [][]float64 // by stage and place in its order
	Makespan   float64
	Busy       []float64 // by stage
	InFlight   []int     // by stage: micro-batches, of all its chunks, whose activations it keeps at most at once
	Bubble     float64   // part of all stages' time in which they wait
}

// Simulate says when everything runs: a stage begins an action when it has ended the one before and
// has what it takes from others. The error names the stages that wait for each other.
func (s *Schedule) Simulate(t *Times) (*Timeline, error) {
	out := &Timeline{Begin: make([][]float64, s.Stages), End: make([][]float64, s.Stages), Busy: make([]float64, s.Stages), InFlight: make([]int, s.Stages)}
	ended := map[Action]float64{} // look-up only
	held := make([]int, s.Stages)
	for moved := true; moved; {
		moved = false
		for st, l := range s.Stage {
			for len(out.End[st]) < len(l) {
				k := len(out.End[st])
				ready, ok := s.ready(l[k], t, ended)
				if !ok {
					break
				}
				if k > 0 {
					ready = max(ready, out.End[st][k-1])
				}
				switch l[k].Phase {
				case Forward:
					held[st]++
					out.InFlight[st] = max(out.InFlight[st], held[st])
				case Weights:
					held[st]--
				}
				end := ready + t.of(l[k])
				out.Begin[st], out.End[st] = append(out.Begin[st], ready), append(out.End[st], end)
				out.Busy[st] += t.of(l[k])
				out.Makespan = max(out.Makespan, end)
				ended[l[k]] = end
				moved = true
			}
		}
	}
	for st, l := range s.Stage {
		if k := len(out.End[st]); k < len(l) {
			return nil, fmt.Errorf("stage %d waits for ever at %v", st, l[k])
		}
	}
	busy := 0.0
	for _, b := range out.Busy {
		busy += b
	}
	if out.Makespan > 0 {
		out.Bubble = 1 - busy/(out.Makespan*float64(s.Stages))
	}
	return out, nil
}

// Kinds lists the schedules.
func Kinds() []string {
	out := []string{string(GPipe), string(OneFOneB), string(Interleaved), string(ZeroBubble)}
	return slices.Clip(out)
}

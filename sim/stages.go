package sim

import (
	"fmt"
	"slices"
	"strings"
)

// StageCollective is a collective of ranks in several stages: its start in each.
type StageCollective []Site

// Site is a node of a stage.
type Site struct {
	Stage int
	Node  int32
}

// EvaluateStages prices stages that run side by side, each in its own order, without buckets: as
// Evaluate does each, but that a collective of several begins when all of them have
// arrived at it and their streams are free, and takes as long as the longest of its parts. A start
// is in one collective at most. The error is an *OrderError, of the first stage that has one, or says
// which stages wait for each other.
func EvaluateStages(models []*Model, orders [][]int32, calls []StageCollective) ([]*Timeline, error) {
	x := &stagedRun{calls: calls, callOf: make([]map[int32]int, len(models)), came: make([]int, len(calls))}
	for i := range models {
		x.callOf[i] = map[int32]int{}
	}
	for k, m := range calls {
		for _, s := range m {
			x.callOf[s.Stage][s.Node] = k
		}
	}
	for i, m := range models {
		pos, err := positions(m, orders[i])
		if err != nil {
			return nil, err
		}
		s := &stageRun{m: m, order: orders[i], t: &Timeline{}, free: make([]float64, m.Streams), pending: make([][]int32, m.Streams), flying: make([]bool, m.Len())}
		n := m.Len()
		s.t.Begin, s.t.End, s.t.Issue = make([]float64, n), make([]float64, n), make([]float64, n)
		s.t.memory(m, orders[i], pos)
		x.sides = append(x.sides, s)
	}
	for moved := true; moved; {
		moved = false
		for i := range x.sides {
			moved = x.advance(i) || moved
		}
	}
	var out []*Timeline
	var stuck []string
	for i, s := range x.sides {
		if s.at < len(s.order) || slices.ContainsFunc(s.pending, func(l []int32) bool { return len(l) > 0 }) {
			stuck = append(stuck, fmt.Sprint(i))
		}
		s.t.Makespan = max(s.last, s.now)
		s.t.Exposed = s.t.Makespan - s.t.Compute
		out = append(out, s.t)
	}
	if len(stuck) > 0 {
		return nil, fmt.Errorf("sim: stages %s wait for each other", strings.Join(stuck, ", "))
	}
	return out, nil
}

// stagedRun is the state of one EvaluateStages.
type stagedRun struct {
	sides  []*stageRun
	calls  []StageCollective
	callOf []map[int32]int // by stage and start; look-up only
	came   []int           // by collective: how many parts stand first on their streams
}

// stageRun is one stage as the evaluation has come.
type stageRun struct {
	m         *Model
	order     []int32
	t         *Timeline
	at        int // place in order
	now, last float64
	free      []float64 // by stream
	pending   [][]int32 // by stream: starts that have not begun
	flying    []bool    // by node: a start that is pending
}

// advance goes on with a stage until it waits for a start that has not begun.
func (x *stagedRun) advance(stage int) (moved bool) {
	s := x.sides[stage]
	for ; s.at < len(s.order); s.at++ {
		v := s.order[s.at]
		switch s.m.Kind[v] {
		case Compute:
			s.issue(v)
			s.now += s.m.Dur[v]
			s.t.Compute += s.m.Dur[v]
		case Start:
			s.issue(v)
			stream := s.m.Stream[v]
			s.pending[stream], s.flying[v] = append(s.pending[stream], v), true
			if len(s.pending[stream]) == 1 {
				x.reachHead(stage, stream)
			}
			moved = true
			continue
		case Wait:
			if c := s.m.StartOf[v]; c >= 0 {
				if s.flying[c] {
					return moved
				}
				s.issue(v)
				s.now = max(s.now, s.t.End[c])
			}
		default:
			s.issue(v)
		}
		s.t.End[v] = s.now
		moved = true
	}
	return moved
}

func (s *stageRun) issue(v int32) { s.t.Issue[v], s.t.Begin[v] = s.now, s.now }

// reachHead deals with a start that has come to be the first of its stream.
func (x *stagedRun) reachHead(stage int, stream int32) {
	s := x.sides[stage]
	v := s.pending[stream][0]
	k, ok := x.callOf[stage][v]
	if !ok {
		x.run([]Site{{stage, v}})
		return
	}
	if x.came[k]++; x.came[k] == len(x.calls[k]) {
		x.run(x.calls[k])
	}
}

// run begins a collective whose parts all stand first on their streams.
func (x *stagedRun) run(parts []Site) {
	begin, dur := 0.0, 0.0
	for _, p := range parts {
		s := x.sides[p.Stage]
		begin, dur = max(begin, s.t.Issue[p.Node], s.free[s.m.Stream[p.Node]]), max(dur, s.m.Dur[p.Node])
	}
	for _, p := range parts {
		s := x.sides[p.Stage]
		stream := s.m.Stream[p.Node]
		s.t.Begin[p.Node], s.t.End[p.Node], s.free[stream] = begin, begin+dur, begin+dur
		s.last = max(s.last, begin+dur)
		s.pending[stream], s.flying[p.Node] = s.pending[stream][1:], false
	}
	for _, p := range parts {
		stream := x.sides[p.Stage].m.Stream[p.Node]
		if len(x.sides[p.Stage].pending[stream]) > 0 {
			x.reachHead(p.Stage, stream)
		}
	}
}

package program

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/dim"
)

// Stages are the programs of the stages of a pipeline, in order: each rank runs the one that has it in
// Program.Ranks.
type Stages []*Program

// String is the text of all programs, one after the other.
func (s Stages) String() string {
	var b []byte
	for _, p := range s {
		b = p.AppendText(b)
	}
	return string(b)
}

// Of returns the program that a rank runs, nil if there is none.
func (s Stages) Of(rank int) *Program {
	for _, p := range s {
		if slices.Contains(p.Ranks, rank) {
			return p
		}
	}
	return nil
}

// ParseStages reads the text of programs that stand one after the other. Errors are those of
// Parse, with the lines of the whole text.
func ParseStages(name, s string) (Stages, error) {
	var out Stages
	lines, at := strings.SplitAfter(s, "\n"), 0
	begins := func(line string) bool { return strings.HasPrefix(line, "program ") }
	for end := 1; end <= len(lines); end++ {
		if end < len(lines) && (!begins(lines[end]) || !slices.ContainsFunc(lines[at:end], begins)) {
			continue // what stands ahead of the first program is its own
		}
		p, err := Parse(name, strings.Repeat("\n", at)+strings.Join(lines[at:end], ""))
		if err != nil {
			return nil, err
		}
		out, at = append(out, p), end
	}
	return out, nil
}

// CheckStages proves what no program says alone: that each rank has one program, that programs
// issue the same collectives between stages in the same order, and that they do not deadlock. Each is also to be checked by itself (CheckWith). The error is the first finding.
func CheckStages(s Stages) error {
	if len(s) == 0 {
		return fmt.Errorf("no program of a stage")
	}
	of := make([]int, max(s[0].World, 0)) // by rank: its program, from 1
	for i, p := range s {
		if err := p.Validate(); err != nil {
			return err
		}
		if p.World != s[0].World || p.Arena != s[0].Arena || !slices.EqualFunc(p.Groups, s[0].Groups, func(a, b Group) bool {
			return a.Name == b.Name && slices.EqualFunc(a.Ranks, b.Ranks, slices.Equal)
		}) {
			return fmt.Errorf("programs %s and %s: stages have one world, the same groups and arenas of one size", s[0].Name, p.Name)
		}
		for _, r := range p.Ranks {
			if of[r] != 0 {
				return fmt.Errorf("programs %s and %s: rank %d runs both", s[of[r]-1].Name, p.Name, r)
			}
			of[r] = i + 1
		}
	}
	if r := slices.Index(of, 0); r >= 0 {
		return fmt.Errorf("no stage is for rank %d", r)
	}
	x := &staged{s: s}
	if err := x.collect(of); err != nil {
		return err
	}
	return x.simulate()
}

// staged is what stages do together. Index pairs are of stage and group.
type staged struct {
	s     Stages
	peers [][][]int // the stages in its collectives there, nil where it issues none
	calls [][][]int // its collectives between stages, as indices of instructions
}

// collect finds the collectives between stages, and holds them against each other.
func (x *staged) collect(of []int) error {
	for _, p := range x.s {
		peers, calls := make([][]int, len(p.Groups)), make([][]int, len(p.Groups))
		blocks, err := p.Blocks()
		if err != nil {
			return err
		}
		depth := 0
		for k := range p.Instrs {
			in := &p.Instrs[k]
			if in.Joins() && blocks != nil && blocks[k] != nil {
				switch {
				case k == blocks[k].At:
					depth++
				case in.Kind == End:
					depth--
				}
			}
			if in.Kind != Collective {
				continue
			}
			g := in.Group
			if peers[g] == nil {
				if peers[g], err = stagesOf(p, &p.Groups[g], of); err != nil {
					return fmt.Errorf("program %s: instruction %d: %w", p.Name, k, err)
				}
			}
			if len(peers[g]) > 1 {
				if depth > 0 {
					return fmt.Errorf("program %s: instruction %d: %s on @%s communicates with other stages within a loop or a branch", p.Name, k, in.Op, p.Groups[g].Name)
				}
				calls[g] = append(calls[g], k)
			}
		}
		x.peers, x.calls = append(x.peers, peers), append(x.calls, calls)
	}
	for i := range x.s {
		for g, own := range x.calls[i] {
			for _, o := range x.peers[i][g] {
				if err := x.same(i, o, g, own); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// stagesOf lists the stages in the subgroups of a program's ranks.
func stagesOf(p *Program, g *Group, of []int) ([]int, error) {
	var out []int
	for k, r := range p.Ranks {
		var l []int
		for _, sub := range g.Ranks {
			if slices.Contains(sub, r) {
				for _, q := range sub {
					l = append(l, of[q]-1)
				}
			}
		}
		slices.Sort(l)
		if l = slices.Compact(l); k > 0 && !slices.Equal(l, out) {
			return nil, fmt.Errorf("ranks %d and %d communicate with different stages in @%s", p.Ranks[0], r, g.Name)
		}
		out = l
	}
	return out, nil
}

// same holds what two stages issue on a group against each other.
func (x *staged) same(i, o, g int, own []int) error {
	p, q := x.s[i], x.s[o]
	if len(x.calls[o][g]) != len(own) {
		return fmt.Errorf("programs %s and %s issue %d and %d collectives on @%s", p.Name, q.Name, len(own), len(x.calls[o][g]), p.Groups[g].Name)
	}
	for k, at := range own {
		a, b := &p.Instrs[at], &q.Instrs[x.calls[o][g][k]]
		alike := func(s, t Tensor) bool {
			return s.DType == t.DType && slices.EqualFunc(s.Strides, t.Strides, dim.Dim.Equal) && fmt.Sprint(s.Shape) == fmt.Sprint(t.Shape)
		}
		if a.Op != b.Op || !a.Attrs.Equal(b.Attrs) || !slices.EqualFunc(a.Ins, b.Ins, alike) || !slices.EqualFunc(a.Outs, b.Outs, alike) {
			return fmt.Errorf("programs %s and %s: collective %d on @%s is %s %v for %%%s and %s %v for %%%s, or of other types", p.Name, q.Name, k+1, p.Groups[g].Name, a.Op, a.Attrs, a.Node, b.Op, b.Attrs, b.Node)
		}
	}
	return nil
}

// stageRun is one program in a simulation.
type stageRun struct {
	queue [][]int // by stream: its instructions
	next  []int   // by stream
	from  []int   // by instruction that waits: the record, -1 for an input's event
	done  []bool  // by instruction
	ended int     // all before have finished
	joins []int   // the brackets that have not been passed, which are on one stream
	turns []int   // the collectives within the stage that have not begun
}

// simulate runs the streams of all stages side by side: each goes on until it waits for an event, a collective that has not
// come, or its turn among those within the stage. Nothing that happens keeps anything else from happening, so where
// this stops, every run does.
func (x *staged) simulate() error {
	ps := make([]*stageRun, len(x.s))
	for i, p := range x.s {
		ps[i] = newStageRun(p)
	}
	arrived := make([][]int, len(x.s)) // by stage and group
	numbers := make([]map[int]int, len(x.s))
	for i := range x.s {
		arrived[i], numbers[i] = make([]int, len(x.s[i].Groups)), map[int]int{}
		for g := range x.calls[i] {
			for k, at := range x.calls[i][g] {
				numbers[i][at] = k + 1
			}
		}
		ps[i].turns = slices.DeleteFunc(ps[i].turns, func(at int) bool { return numbers[i][at] > 0 })
	}
	finished := func(i, at int) bool {
		in := &x.s[i].Instrs[at]
		n := numbers[i][at]
		if n == 0 {
			return true
		}
		arrived[i][in.Group] = max(arrived[i][in.Group], n)
		for _, o := range x.peers[i][in.Group] {
			if arrived[o][in.Group] < n {
				return false
			}
		}
		return true
	}
	for moved := true; moved; {
		moved = false
		for i, p := range ps {
			before := slices.Clone(arrived[i])
			if p.advance(x.s[i], func(at int) bool { return finished(i, at) }) || !slices.Equal(before, arrived[i]) {
				moved = true
			}
		}
	}
	var stuck []string
	for i, p := range ps {
		if at := slices.Index(p.done, false); at >= 0 {
			in := &x.s[i].Instrs[at]
			stuck = append(stuck, fmt.Sprintf("%s at instruction %d (%s %s for %%%s)", x.s[i].Name, at, in.Kind, in.Op, in.Node))
		}
	}
	if len(stuck) > 0 {
		return fmt.Errorf("stages wait for each other: %s", strings.Join(stuck, ", "))
	}
	return nil
}

func newStageRun(p *Program) *stageRun {
	out := &stageRun{queue: make([][]int, len(p.Streams)), next: make([]int, len(p.Streams)), from: make([]int, len(p.Instrs)), done: make([]bool, len(p.Instrs))}
	last := map[int]int{} // by event: its latest record; look-up only
	for i := range p.Instrs {
		in := &p.Instrs[i]
		out.queue[in.Stream] = append(out.queue[in.Stream], i)
		if in.Joins() {
			out.joins = append(out.joins, i)
		}
		switch in.Kind {
		case Collective:
			out.turns = append(out.turns, i)
		case Record:
			last[in.Event] = i
		case Wait:
			out.from[i] = -1
			if at, ok := last[in.Event]; ok {
				out.from[i] = at
			}
		}
	}
	return out
}

// advance goes on with all streams as far as they come, and reports whether one did.
func (p *stageRun) advance(q *Program, finished func(at int) bool) (moved bool) {
	for again := true; again; {
		again = false
		for s, l := range p.queue {
			for p.next[s] < len(l) {
				at := l[p.next[s]]
				for p.ended < at && p.done[p.ended] {
					p.ended++
				}
				in := &q.Instrs[at]
				if in.Joins() && p.ended < at || in.Kind == Wait && p.from[at] >= 0 && !p.done[p.from[at]] || in.Kind == Collective && (!finished(at) || !p.turn(at)) || len(p.joins) > 0 && p.joins[0] < at {
					break
				}
				if in.Joins() {
					p.joins = p.joins[1:]
				}
				if in.Kind == Collective && len(p.turns) > 0 && p.turns[0] == at {
					p.turns = p.turns[1:]
				}
				p.done[at] = true
				p.next[s]++
				again, moved = true, true
			}
		}
	}
	return moved
}

// turn reports whether a collective may begin: those within a stage take turns in the order of
// the list, as a device may have them do (over NCCL); those between stages do not.
func (p *stageRun) turn(at int) bool {
	_, within := slices.BinarySearch(p.turns, at)
	return !within || p.turns[0] == at
}

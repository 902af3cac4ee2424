package progtest

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/program"
)

// Mutant is a program with one thing changed.
type Mutant struct {
	Kind string // what was changed, a class
	What string // what was changed, in full
	*program.Program
}

// clone copies what mutations change.
func clone(p *program.Program) *program.Program {
	q := *p
	q.Instrs = slices.Clone(p.Instrs)
	q.Buffers = slices.Clone(p.Buffers)
	return &q
}

// Mutants lists the mutants of p: without one record or wait; with a wait one
// place later or for another event; with two neighbouring collectives of a group
// swapped; with two neighbours of the list on different streams swapped; with a
// buffer moved onto another one.
func Mutants(p *program.Program) []Mutant {
	var out []Mutant
	add := func(kind string, q *program.Program, format string, args ...any) {
		out = append(out, Mutant{kind, kind + ": " + fmt.Sprintf(format, args...), q})
	}
	line := func(i int) string { return string(p.AppendInstr(nil, &p.Instrs[i])) }
	prev := slices.Repeat([]int{-1}, len(p.Groups)) // by group: its latest collective
	for i := range p.Instrs {
		in := &p.Instrs[i]
		switch in.Kind {
		case program.Record, program.Wait:
			q := clone(p)
			q.Instrs = slices.Delete(q.Instrs, i, i+1)
			add("drop "+in.Kind.String(), q, "%d: %s", i, line(i))
		}
		if in.Kind == program.Wait {
			if j := nextOn(p, i); j >= 0 {
				q := clone(p)
				q.Instrs = slices.Insert(slices.Delete(q.Instrs, i, i+1), j, *in)
				add("late wait", q, "%d after %d", i, j)
			}
			if in.Event > 0 {
				q := clone(p)
				q.Instrs[i].Event--
				add("other event", q, "%d: %s", i, line(i))
			}
		}
		if in.Kind == program.Record {
			if j := prevOn(p, i); j >= 0 {
				q := clone(p)
				q.Instrs = slices.Insert(slices.Delete(q.Instrs, i, i+1), j, *in)
				add("early record", q, "%d before %d", i, j)
			}
		}
		if in.Communicates() {
			if j := prev[in.Group]; j >= 0 {
				q := clone(p)
				q.Instrs[i], q.Instrs[j] = q.Instrs[j], q.Instrs[i]
				add("swap collectives", q, "%d and %d", j, i)
			}
			prev[in.Group] = i
		}
		if i > 0 && p.Instrs[i-1].Stream != in.Stream {
			q := clone(p)
			q.Instrs[i], q.Instrs[i-1] = q.Instrs[i-1], q.Instrs[i]
			add("swap streams", q, "%d and %d", i-1, i)
		}
		if in.Stream > 0 && in.Kind != program.Record && in.Kind != program.Wait {
			q := clone(p)
			q.Instrs[i].Stream = (in.Stream + 1) % len(p.Streams)
			add("other stream", q, "%d: %s", i, line(i))
		}
	}
	g := generator(uint64(len(p.Buffers)))
	for i := range p.Buffers {
		j := int(g.next() % uint64(len(p.Buffers)))
		if i == j || p.Buffers[i].Offset == p.Buffers[j].Offset {
			continue
		}
		q := clone(p)
		b := &q.Buffers[i]
		b.Offset = p.Buffers[j].Offset
		q.Arena = max(q.Arena, (b.Offset+b.Size+program.Align-1)/program.Align*program.Align)
		add("move buffer", q, "%%%s onto %%%s", b.Name, p.Buffers[j].Name)
	}
	return out
}

// Pick keeps at most n mutants of each kind, evenly spread; all if n is 0.
func Pick(ms []Mutant, n int) []Mutant {
	if n <= 0 {
		return ms
	}
	count, seen := map[string]int{}, map[string]int{}
	for _, m := range ms {
		count[m.Kind]++
	}
	var out []Mutant
	for _, m := range ms {
		k := seen[m.Kind]
		seen[m.Kind]++
		if c := count[m.Kind]; c <= n || k*n/c != (k-1)*n/c || k == 0 {
			out = append(out, m)
		}
	}
	return out
}

func nextOn(p *program.Program, i int) int {
	for j := i + 1; j < len(p.Instrs); j++ {
		if p.Instrs[j].Stream == p.Instrs[i].Stream {
			return j
		}
	}
	return -1
}

func prevOn(p *program.Program, i int) int {
	for j := i - 1; j >= 0; j-- {
		if p.Instrs[j].Stream == p.Instrs[i].Stream {
			return j
		}
	}
	return -1
}

// Evaluate runs p under all schedules. It returns how the program goes wrong, or ""
// if every schedule gives the digest wanted.
func Evaluate(p *program.Program, in Inputs, want uint64) string {
	var first *Outcome
	for k, s := range Schedules(p) {
		o, err := Run(p, in, s, uint64(k)*7919+1)
		switch {
		case err != nil:
			return fmt.Sprintf("under %v it fails: %v", s, err)
		case o.Left >= 0:
			return fmt.Sprintf("under %v instruction %d is left running", s, o.Left)
		case o.Digest != want:
			return fmt.Sprintf("under %v the outputs differ", s)
		}
		if first == nil {
			first = o
		}
		for g := range o.Orders {
			if !slices.Equal(o.Orders[g], first.Orders[g]) {
				return fmt.Sprintf("under %v the collectives of @%s run in another order", s, p.Groups[g].Name)
			}
		}
	}
	return ""
}

// Score counts what a checker makes of mutants.
type Score struct {
	Kind        string
	Mutants     int
	Harmful     int // mutants that change results, hang or fail
	Detected    int // harmful mutants that the checker refuses
	FalseAlarms int // harmless mutants that the checker refuses
}

// Measure evaluates every mutant and what the checker says of it, by kind of mutation
// in the order of first appearance, and describes what the checker missed and
// what it refused without need.
func Measure(mutants []Mutant, in Inputs, want uint64, check func(*program.Program) error) (scores []Score, missed, alarms []string) {
	for _, m := range mutants {
		k := slices.IndexFunc(scores, func(s Score) bool { return s.Kind == m.Kind })
		if k < 0 {
			k = len(scores)
			scores = append(scores, Score{Kind: m.Kind})
		}
		s := &scores[k]
		s.Mutants++
		err := check(m.Program)
		harm := Evaluate(m.Program, in, want)
		switch {
		case harm != "" && err != nil:
			s.Harmful++
			s.Detected++
		case harm != "":
			s.Harmful++
			missed = append(missed, m.What+": "+harm)
		case err != nil:
			s.FalseAlarms++
			alarms = append(alarms, m.What+": "+err.Error())
		}
	}
	return scores, missed, alarms
}

package main

import (
	"cmp"
	"slices"

	rt "github.com/seed-ee968945/concert/runtime"
)

// waiting is for how long, in milliseconds, a traced step computes nothing while a
// collective runs: between calls of the compute stream, before the first and after the
// last. What lies between two calls anyway, the median of the gaps, does not count: with
// the events of a trace it is some microseconds.
func waiting(spans []rt.Span, compute string) float64 {
	var calls, comms []rt.Span
	for _, s := range spans {
		if s.Stream == compute {
			calls = append(calls, s)
		} else {
			comms = append(comms, s)
		}
	}
	early := func(a, b rt.Span) int { return cmp.Compare(a.Start, b.Start) }
	slices.SortStableFunc(calls, early)
	slices.SortStableFunc(comms, early)
	comms = merged(comms)
	if len(calls) == 0 || len(comms) == 0 {
		return 0
	}
	begin, end := min(calls[0].Start, comms[0].Start), comms[len(comms)-1].End
	type gap struct{ from, to float64 }
	var gaps []gap
	var lengths []float64
	reach := calls[0].End
	for _, s := range calls[1:] {
		if s.Start > reach {
			gaps, lengths = append(gaps, gap{reach, s.Start}), append(lengths, s.Start-reach)
		}
		reach = max(reach, s.End)
	}
	usual := 0.0
	if len(lengths) > 0 {
		usual = median(lengths)
	}
	total := during(comms, begin, calls[0].Start) + during(comms, reach, max(reach, end))
	for _, g := range gaps {
		total += max(0, min(g.to-g.from-usual, during(comms, g.from, g.to)))
	}
	return total
}

// exposed is the communication that a step does not hide. Two measurements say more than
// that: the step less its computing alone, lost, counts what kernels lose to the copies
// beside them, and depends on what computing without collectives finds in memory; waiting
// counts what the events of a trace take around every collective, which is most of it in
// a step of short ones. The smaller of them is nearest.
func exposed(lost, waiting float64) float64 { return max(0, min(lost, waiting)) }

// merged joins spans that overlap; they come in the order of their beginnings.
func merged(spans []rt.Span) []rt.Span {
	var out []rt.Span
	for _, s := range spans {
		if n := len(out); n > 0 && s.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
			continue
		}
		out = append(out, s)
	}
	return out
}

// during is how much of a stretch of time merged spans cover.
func during(spans []rt.Span, from, to float64) (sum float64) {
	for _, s := range spans {
		sum += max(0, min(to, s.End)-max(from, s.Start))
	}
	return sum
}

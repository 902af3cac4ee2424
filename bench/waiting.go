package bench

import (
	"cmp"
	"slices"

	rt "github.com/seed-ee968945/concert/runtime"
)

// waiting is for how long, in milliseconds, a traced step computes nothing while a
// collective runs: between calls of the compute stream, before the first and after the
// last. What is between two calls anyway, the median of the gaps, does not count: with
// the events of a trace it is some microseconds.
func waiting(spans []rt.Span, compute string) float64 {
	var calls, comms []span
	for _, s := range spans {
		if x := (span{from: s.Start, to: s.End}); s.Stream == compute {
			calls = append(calls, x)
		} else {
			comms = append(comms, x)
		}
	}
	calls, comms = merged(calls), merged(comms)
	if len(calls) == 0 || len(comms) == 0 {
		return 0
	}
	begin, end := min(calls[0].from, comms[0].from), comms[len(comms)-1].to
	var gaps []span
	var lengths []float64
	reach := calls[0].to
	for _, s := range calls[1:] {
		gaps, lengths = append(gaps, span{from: reach, to: s.from}), append(lengths, s.from-reach)
		reach = s.to
	}
	usual := 0.0
	if len(lengths) > 0 {
		usual = median(lengths)
	}
	total := span{from: begin, to: calls[0].from}.covered(comms) + span{from: reach, to: max(reach, end)}.covered(comms)
	for _, g := range gaps {
		total += max(0, min(g.to-g.from-usual, g.covered(comms)))
	}
	return total
}

// exposed is the communication that a step does not hide. Two measurements say more than
// that: the step less its computing alone, lost, counts what kernels lose to the copies
// beside them, and depends on what computing without collectives finds in memory; waiting
// counts what the events of a trace take around every collective, which is most of it in
// a step of short ones. The smaller of them is nearest.
func exposed(lost, waiting float64) float64 { return max(0, min(lost, waiting)) }

// merged are spans in order of time, those that overlap or touch joined to one.
func merged(spans []span) []span {
	spans = slices.SortedStableFunc(slices.Values(spans), func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

package program

import "slices"

// Collectives in flight. Those that may be so at once are pairwise unordered; by
// Dilworth's theorem there are at most n of them everywhere if and only if all
// collectives fall into n chains, in each of which one is before the next. Streams are
// chains, so few streams need no more.

// before reports whether collective a has finished before b starts, which the list puts
// behind it.
func (a *comm) before(b *comm) bool {
	return a.stream == b.stream || b.clock[a.stream] > a.instr
}

// chained reports whether collectives in list order fall into at most n chains: it
// extends a matching of each with the one before it in its chain by alternating paths.
// It looks at O(collectives) pairs for each of them where such paths are short.
func chained(comms []comm, n int) bool {
	next := slices.Repeat([]int32{-1}, len(comms)) // the one behind it in its chain
	seen := make([]int32, len(comms))
	var extend func(k, round int32, before int32) bool
	extend = func(k, round, before int32) bool {
		for _, free := range []bool{true, false} {
			for i := before - 1; i >= 0; i-- {
				if (next[i] < 0) != free || seen[i] == round || !comms[i].before(&comms[k]) {
					continue
				}
				seen[i] = round
				if free || extend(next[i], round, next[i]) {
					next[i] = k
					return true
				}
			}
		}
		return false
	}
	for k := range comms {
		if k := int32(k); !extend(k, k+1, k) {
			if n--; n < 0 {
				return false
			}
		}
	}
	return true
}

// collectives lists what communicates, with the clocks of its streams.
func (p *Program) collectives() []comm {
	var out []comm
	o := newOrder(p)
	for i := range p.Instrs {
		in := &p.Instrs[i]
		switch {
		case in.Kind == Record:
			o.record(in.Stream, in.Event, i)
		case in.Kind == Wait:
			o.wait(in.Stream, in.Event)
		case in.Joins():
			o.joinAll(i)
		case in.Communicates():
			out = append(out, comm{int32(i), int32(in.Stream), slices.Clone(o.clock[in.Stream])})
		}
	}
	return out
}

// Communicates reports whether an instruction takes part in communication: a
// collective, or a call that has a group.
func (in *Instr) Communicates() bool {
	return in.Kind == Collective || in.IsCall() && in.Group >= 0
}

// LimitInFlight orders collectives so that at most n are in flight at once on a rank: where
// one too many could start, its stream waits for the oldest that may still run. A program
// that keeps to the limit stays as it is. Waits for events that were recorded before in
// the list make no cycle, whatever the other streams do.
//
// It takes time linear in the instructions where there are no more than n streams of
// collectives, and else instructions times streams, unless a program seems to need waits:
// see chained.
func (p *Program) LimitInFlight(n int) {
	used := make([]bool, len(p.Streams))
	streams := 0
	for i := range p.Instrs {
		if s := p.Instrs[i].Stream; p.Instrs[i].Communicates() && !used[s] {
			used[s] = true
			streams++
		}
	}
	if streams <= n {
		return
	}
	l := limiter{events: p.Events, o: newOrder(p)}
	for _, in := range p.Instrs {
		if in.Communicates() {
			l.start(&in, n)
		}
		l.add(in)
	}
	if len(l.out) > len(p.Instrs) && !chained(p.collectives(), n) {
		p.Instrs, p.Events = l.out, l.events
	}
}

// limiter makes the list anew.
type limiter struct {
	events int
	o      *order
	out    []Instr
	last   []comm // of each chain
}

func (l *limiter) add(in Instr) {
	switch in.Kind {
	case Record:
		l.o.record(in.Stream, in.Event, len(l.out))
	case Wait:
		l.o.wait(in.Stream, in.Event)
	case Loop, Test, Case, Branch, End:
		l.o.joinAll(len(l.out))
	}
	l.out = append(l.out, in)
}

// start makes room for a collective.
func (l *limiter) start(in *Instr, n int) {
	c := comm{stream: int32(in.Stream), clock: l.o.clock[in.Stream]}
	// Behind the latest that is over: those that are over longer serve others as well.
	at := -1
	for k := range l.last {
		a := &l.last[k]
		if a.before(&c) && (at < 0 || a.stream == c.stream || l.last[at].stream != c.stream && a.instr > l.last[at].instr) {
			at = k
		}
	}
	if at < 0 && len(l.last) < n {
		at = len(l.last)
		l.last = append(l.last, comm{})
	}
	if at < 0 {
		at = 0
		for k := range l.last {
			if l.last[k].instr < l.last[at].instr {
				at = k
			}
		}
		l.add(Instr{Kind: Wait, Stream: in.Stream, Event: l.event(&l.last[at]), Group: -1})
	}
	l.last[at] = comm{int32(len(l.out)), c.stream, nil}
}

// event is one that stands for collective a.
func (l *limiter) event(a *comm) int {
	for _, r := range l.o.records[a.stream] {
		if r.instr > int(a.instr) && l.o.latest[r.event].instr == r.instr {
			return r.event
		}
	}
	e := l.events
	l.events++
	l.add(Instr{Kind: Record, Stream: int(a.stream), Event: e, Group: -1})
	return e
}

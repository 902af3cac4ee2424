package program

import "slices"

// order is the happens-before relation of one rank, as vector clocks. A clock has
// one entry per stream of the program, one per async input and two for the caller
// before and after the run. Entry t of the clock of stream s is n if everything
// that t was given at list positions below n has finished before what s is given
// next. Within a stream the list orders.
type order struct {
	virtual virtualStreams
	none    []int32   // the clock of what has seen nothing
	clock   [][]int32 // by stream

	// The latest record of each event that is in use, and its clock. A map, since
	// a program may declare far more events than it uses; it is never ranged over.
	latest map[int]record
	// by stream: its records in list order, to find one that a missing wait could use
	records [][]recorded
}

// record is what an event stands for.
type record struct {
	clock []int32
	instr int // list position, -1 for the event of an async input
}

type recorded struct {
	instr, event int
}

// virtualStreams numbers the streams beyond the program's own: each async input
// is a stream with one instruction.
type virtualStreams struct {
	input      []int32 // by input: its stream if it is async
	start, end int32   // the caller before and after the run
	count      int     // of all streams
}

func virtual(p *Program) virtualStreams {
	n := int32(len(p.Streams))
	v := virtualStreams{input: make([]int32, len(p.Inputs))}
	for i := range p.Inputs {
		if p.Inputs[i].Async {
			v.input[i] = n
			n++
		}
	}
	v.start, v.end, v.count = n, n+1, int(n)+2
	return v
}

// newOrder is the order before the first instruction.
func newOrder(p *Program) *order {
	o := &order{virtual: virtual(p), latest: map[int]record{}, records: make([][]recorded, len(p.Streams))}
	o.none = make([]int32, o.virtual.count)
	for range p.Streams {
		o.clock = append(o.clock, make([]int32, o.virtual.count))
	}
	for i := range p.Inputs {
		if q := &p.Inputs[i]; q.Async {
			c := make([]int32, o.virtual.count)
			c[o.virtual.input[i]] = 1
			o.latest[q.Event] = record{c, -1}
		}
	}
	return o
}

// record makes event stand for what stream was given before position i.
func (o *order) record(stream, event, i int) {
	c := slices.Clone(o.clock[stream])
	c[stream] = int32(i)
	o.latest[event] = record{c, i}
	o.records[stream] = append(o.records[stream], recorded{i, event})
}

// wait orders what stream is given from now on behind what event stands for.
func (o *order) wait(stream, event int) {
	join(o.clock[stream], o.fired(event))
}

// joinAll orders all that any stream is given from position i on behind all before, and behind
// what happens at i.
func (o *order) joinAll(i int) {
	all := make([]int32, o.virtual.count)
	for _, c := range o.clock {
		join(all, c)
	}
	for s := range o.clock {
		all[s] = int32(i) + 1
	}
	for s := range o.clock {
		copy(o.clock[s], all)
	}
}

// fired is the clock of an event, everything zero if nothing recorded it.
func (o *order) fired(event int) []int32 {
	if r, ok := o.latest[event]; ok {
		return r.clock
	}
	return o.none
}

// ends returns the clock of the caller when the run has returned, and when all
// async outputs have been awaited, too. It is called after the last instruction.
func (o *order) ends(p *Program) (joined, all []int32) {
	// Streams whose record an async output waits for are not joined.
	flying := make([]bool, len(p.Streams))
	for i := range p.Outputs {
		if q := &p.Outputs[i]; q.Async {
			if r := o.latest[q.Event]; r.clock != nil && r.instr >= 0 {
				flying[p.Instrs[r.instr].Stream] = true
			}
		}
	}
	joined = make([]int32, o.virtual.count)
	for s, c := range o.clock {
		if !flying[s] {
			join(joined, c)
			joined[s] = int32(len(p.Instrs))
		}
	}
	all = slices.Clone(joined)
	for i := range p.Outputs {
		if q := &p.Outputs[i]; q.Async {
			join(all, o.fired(q.Event))
		}
	}
	return joined, all
}

// join raises a to at least b everywhere and returns it.
func join(a, b []int32) []int32 {
	for i, v := range b {
		a[i] = max(a[i], v)
	}
	return a
}

// before reports whether access a has finished before something on stream starts
// whose clock is given, and which the list puts behind a.
func before(a *access, stream int32, clock []int32) bool {
	return a.stream == stream || clock[a.stream] >= a.pos
}

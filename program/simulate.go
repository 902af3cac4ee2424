package program

import (
	"fmt"
	"math"
	"slices"
)

// SimOptions say how long things take. Times are microseconds.
type SimOptions struct {
	// Us is the time of a launch, copy or collective with nothing beside it.
	Us func(in *Instr) float64
	// EdgeUs is the time from the end of what an event stands for to the beginning
	// of what waits for it on another stream, where both streams have something to do:
	// a collective that nothing runs beside (Program.Overlapped) follows what is before
	// it, and is followed, as within one stream.
	EdgeUs float64
	// Overlap gives the speeds, as parts of those alone, at which a launch and a
	// collective go on while both run; nil: both at full speed.
	Overlap func(launch, collective *Instr) (compute, comm float64)
	// Links is the part of what the links of its ranks carry that a collective takes
	// while no other runs, between 0 and 1, within NVLink domains and between them; nil:
	// nothing. Collectives on several streams that run at once share the links if their
	// groups have a rank in common: if they take more than 1 of links together, each that
	// needs them goes on at its part of that. What launches lose
	// beside a collective does not grow with the number of collectives. Beside a launch as
	// well the slower of the two speeds counts.
	Links func(collective *Instr) [2]float64
	// NoCollectives takes collectives to be done at once, and nothing to wait for
	// them: what is left is the time of computing alone.
	NoCollectives bool
}

// Simulated is what a simulation found. Times are microseconds from the step's
// beginning.
type Simulated struct {
	Us         float64   // the last end
	Begin, End []float64 // by instruction
}

// Simulate plays a valid program: streams in order, events as CUDA has them, every instruction
// for the time that the options give it, slower while others run beside it. All ranks are alike. Of a loop it plays one
// iteration, and of a case every branch. It takes time linear in instructions and streams. The error names an instruction
// that waits for an event that is never recorded.
func Simulate(p *Program, o SimOptions) (*Simulated, error) {
	s := &simulation{p: p, o: o, out: &Simulated{Begin: make([]float64, len(p.Instrs)), End: make([]float64, len(p.Instrs))},
		queue: make([][]int, len(p.Streams)), run: make([]running, len(p.Streams)), source: make([]int, len(p.Instrs)), edge: p.edges(), shared: map[[2]int]bool{}}
	last := make([]int, p.Events)
	for i := range last {
		last[i] = -1
	}
	for i := range p.Instrs {
		in := &p.Instrs[i]
		for k := range s.queue {
			if k == in.Stream || in.Joins() {
				s.queue[k] = append(s.queue[k], i)
			}
		}
		s.out.End[i] = math.Inf(1)
		switch in.Kind {
		case Record:
			last[in.Event] = i
		case Wait:
			s.source[i] = last[in.Event]
		}
	}
	for i := range s.run {
		s.run[i].at = -1
	}
	for {
		wake := s.start()
		more, err := s.step(wake)
		if err != nil {
			return nil, err
		}
		if !more {
			return s.out, nil
		}
	}
}

// simulation is the state of one Simulate.
type simulation struct {
	p      *Program
	o      SimOptions
	out    *Simulated
	queue  [][]int // by stream: instructions that have not begun
	run    []running
	source []int           // by wait: the record that it waits for, -1 for an event of the caller
	edge   []bool          // by wait: whether it takes EdgeUs
	shared map[[2]int]bool // by two groups: whether they have a rank in common, as far as asked; look-up only
	now    float64
}

// running is what a stream is at.
type running struct {
	at   int // instruction, -1 if the stream is idle
	left float64
}

// start begins all that can begin now. It returns when the next wait whose event
// has fired ends, or infinity.
func (s *simulation) start() (wake float64) {
	for again := true; again; {
		again, wake = false, math.Inf(1)
		for k := range s.queue {
			for s.run[k].at < 0 && len(s.queue[k]) > 0 {
				i := s.queue[k][0]
				in := &s.p.Instrs[i]
				if in.Kind == Wait {
					if at := s.fires(i); at > s.now {
						wake = min(wake, at)
						break
					}
				}
				if in.Joins() {
					if !s.joined(i) {
						break
					}
					for j := range s.queue {
						s.queue[j] = s.queue[j][1:]
					}
					s.out.Begin[i], again = s.now, true
					s.end(i)
					continue
				}
				s.queue[k] = s.queue[k][1:]
				s.out.Begin[i] = s.now
				again = true
				if us := s.length(in); us > 0 {
					s.run[k] = running{i, us}
				} else {
					s.end(i)
				}
			}
		}
	}
	return wake
}

// joined reports whether all streams have come to a bracket.
func (s *simulation) joined(i int) bool {
	for k := range s.queue {
		if s.run[k].at >= 0 || len(s.queue[k]) == 0 || s.queue[k][0] != i {
			return false
		}
	}
	return true
}

// fires is when a wait is over: infinity while its event has not been recorded.
func (s *simulation) fires(wait int) float64 {
	from := s.source[wait]
	if from < 0 {
		return 0
	}
	at := s.out.End[from]
	if in := &s.p.Instrs[from]; in.Stream != s.p.Instrs[wait].Stream {
		if s.o.NoCollectives && s.p.Streams[in.Stream].Group >= 0 {
			return at
		}
		if s.edge[wait] {
			at += s.o.EdgeUs
		}
	}
	return at
}

// edges reports, for each wait, whether what it holds runs beside something else: not
// if the collective that waits, or is waited for, has nothing beside it.
func (p *Program) edges() []bool {
	out := make([]bool, len(p.Instrs))
	overlapped := p.beside(func(in *Instr) bool { return in.Kind == Launch || in.Kind == Copy })
	latest := make([]bool, len(p.Streams)) // whether the stream's last collective is overlapped
	joins := make([]bool, p.Events)        // the same of the stream of an event, when it was recorded
	waits := make([][]int, len(p.Streams)) // of a stream, since its last collective
	for i := range p.Instrs {
		in := &p.Instrs[i]
		comm := p.Streams[in.Stream].Group >= 0
		switch in.Kind {
		case Record:
			joins[in.Event] = !comm || latest[in.Stream]
		case Wait:
			out[i] = joins[in.Event]
			if comm {
				waits[in.Stream] = append(waits[in.Stream], i)
			}
		case Collective:
			latest[in.Stream] = overlapped[i] || !comm
			for _, w := range waits[in.Stream] {
				out[w] = latest[in.Stream]
			}
			waits[in.Stream] = waits[in.Stream][:0]
		}
	}
	return out
}

func (s *simulation) length(in *Instr) float64 {
	switch {
	case in.Kind == Record || in.Kind == Wait || in.Kind == Collective && s.o.NoCollectives:
		return 0
	}
	return s.o.Us(in)
}

func (s *simulation) end(i int) {
	s.out.End[i] = s.now
	s.out.Us = max(s.out.Us, s.now)
}

// step lets time pass until something ends or wakes; false if nothing is left.
func (s *simulation) step(wake float64) (more bool, err error) {
	next := wake
	speeds := make([]float64, len(s.run))
	for k := range s.run {
		if s.run[k].at >= 0 {
			speeds[k] = s.speed(k)
			next = min(next, s.now+s.run[k].left/speeds[k])
		}
	}
	if math.IsInf(next, 1) {
		for k := range s.queue {
			if len(s.queue[k]) > 0 {
				return false, fmt.Errorf("program %s: instruction %d waits for an event that is never recorded", s.p.Name, s.queue[k][0])
			}
		}
		return false, nil
	}
	before := s.now
	s.now = next
	for k := range s.run {
		r := &s.run[k]
		switch {
		case r.at < 0:
		case before+r.left/speeds[k] <= next: // not what is left: subtraction rounds
			s.end(r.at)
			r.at = -1
		default:
			r.left -= (next - before) * speeds[k]
		}
	}
	return true, nil
}

// speed is how fast what runs on a stream goes on, beside what runs on others.
func (s *simulation) speed(k int) float64 {
	me := &s.p.Instrs[s.run[k].at]
	speed := 1.0
	if me.Kind == Collective {
		speed = s.share(me)
	}
	for j := range s.run {
		if j == k || s.run[j].at < 0 || s.o.Overlap == nil {
			continue
		}
		other := &s.p.Instrs[s.run[j].at]
		switch {
		case me.Kind != Collective && other.Kind == Collective:
			c, _ := s.o.Overlap(me, other)
			speed = min(speed, c)
		case me.Kind == Collective && other.Kind != Collective:
			_, c := s.o.Overlap(other, me)
			speed = min(speed, c)
		}
	}
	return max(speed, 0.001)
}

// share is the speed of a collective beside the others that run, by what the links
// carry.
func (s *simulation) share(me *Instr) float64 {
	if s.o.Links == nil {
		return 1
	}
	var all [2]float64
	for j := range s.run {
		if s.run[j].at < 0 {
			continue
		}
		if other := &s.p.Instrs[s.run[j].at]; other.Kind == Collective && s.shareRank(me.Group, other.Group) {
			for k, part := range s.o.Links(other) {
				all[k] += part
			}
		}
	}
	slowest := 1.0
	for k, part := range s.o.Links(me) {
		if part > 0 {
			slowest = max(slowest, all[k])
		}
	}
	return 1 / slowest
}

// shareRank reports whether two groups have a rank in common.
func (s *simulation) shareRank(a, b int) bool {
	key := [2]int{min(a, b), max(a, b)}
	yes, known := s.shared[key]
	if !known {
		ranks := map[int]bool{} // look-up only
		for _, r := range slices.Concat(s.p.Groups[a].Ranks...) {
			ranks[r] = true
		}
		yes = slices.ContainsFunc(slices.Concat(s.p.Groups[b].Ranks...), func(r int) bool { return ranks[r] })
		s.shared[key] = yes
	}
	return yes
}

// Overlapped reports, for each instruction, whether it is a collective during which
// the compute stream has launches to do that hold the device (Instr.Holds): between
// the event of the compute stream that its stream waited for last, and the first wait
// of the compute stream for it. Devices may do such a collective in another way.
func (p *Program) Overlapped() []bool {
	return p.beside((*Instr).Holds)
}

// beside reports which collectives run beside instructions that count. Linear.
func (p *Program) beside(counts func(*Instr) bool) []bool {
	n := len(p.Instrs)
	next := make([]int, n+1) // the first instruction that counts from here on
	next[n] = n
	for i := n - 1; i >= 0; i-- {
		next[i] = next[i+1]
		if in := &p.Instrs[i]; p.Streams[in.Stream].Group < 0 && counts(in) {
			next[i] = i
		}
	}
	recorded := make([]int, p.Events) // the last record of an event, -1 for none
	for e := range recorded {
		recorded[e] = -1
	}
	out := make([]bool, n)
	since := make([]int, len(p.Streams))  // the record of the compute stream that a stream has waited for last
	open := make([][]int, len(p.Streams)) // collectives that the compute stream has not waited for
	from := make([]int, n)                // of a collective: what it may start after
	for i := range p.Instrs {
		in := &p.Instrs[i]
		computes := p.Streams[in.Stream].Group < 0
		switch in.Kind {
		case Record:
			recorded[in.Event] = i
		case Wait:
			r := recorded[in.Event]
			if r < 0 {
				continue
			}
			s := p.Instrs[r].Stream
			if p.Streams[s].Group < 0 {
				since[in.Stream] = r
			}
			for computes && len(open[s]) > 0 && open[s][0] < r {
				k := open[s][0]
				out[k], open[s] = next[from[k]] < i, open[s][1:]
			}
		case Loop, Test, Case, Branch, End:
			for s := range open {
				for _, k := range open[s] {
					out[k] = next[from[k]] < i
				}
				since[s], open[s] = i, open[s][:0]
			}
		case Collective:
			if !computes {
				from[i], open[in.Stream] = since[in.Stream], append(open[in.Stream], i)
			}
		}
	}
	for _, ks := range open {
		for _, k := range ks {
			out[k] = next[from[k]] < n
		}
	}
	return out
}

// Holds reports whether in is a launch whose kernels may keep multiprocessors until
// they end: a product, attention, or a call, which libraries and callers bring. Blocks
// of generated kernels come and go. A device knows who serves each launch, and asks that
// instead (cuda/device); here there is only the operation.
func (in *Instr) Holds() bool {
	switch in.Op {
	case "matmul", "addmm", "attention", "attention_backward", "call":
		return in.Kind == Launch
	}
	return false
}

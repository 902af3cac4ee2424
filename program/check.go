package program

import (
	"cmp"
	"fmt"
	"slices"
)

// The static checker. From the program alone it proves that every execution
// gives the same bytes and comes to an end, whatever the speed of streams, ranks
// and callers. What is proven, against which contract, and why the method
// suffices:
//
// # What may happen at the same time
//
// A stream runs its instructions in list order. A wait holds its stream until
// everything has finished that the latest record of its event, before it in the
// list, was given. Plain inputs are in the arena before the first instruction;
// the results of an async input are written at any time until its event fires,
// and async inputs are not ordered among each other. Nothing else orders two
// instructions. At the end the runtime joins every stream except those that
// recorded an async output's event last, and then reads the plain outputs; an
// async output is read when its event has fired; when all have, the program may
// run again.
//
// These edges go from smaller to larger list positions and do not depend on the
// run, so they are computed in one pass with vector clocks: the clock of a stream
// says, for each stream, up to which position all its instructions are known to
// have finished. A record stores the clock of its stream, a wait joins it
// (check_order.go).
//
// # One rank stands for all
//
// All ranks run the same list. A collective starts on a rank when its stream
// reaches it. The ranks of the subgroup tell each other that they have entered,
// and only when all have does anyone touch a peer's memory; it finishes on a rank
// only when all have said that they are done with the memory of others. So a peer
// reads this rank's operands and writes its results within this rank's own
// execution of the same collective, and it is enough to treat a collective as an
// access of this rank to its operands and results for as long as it runs. The
// same is asked of a `call` that has a group. Order through other ranks adds
// nothing either: a path that leaves rank r by collective c and comes back by
// collective d needs "c before d" on another rank, hence, the list being the
// same, on r.
//
// For that the n-th collective of a group must be the same instruction on all
// ranks of a subgroup. Streams may run ahead of each other differently on
// different ranks, so the collectives of one group must be ordered among
// themselves by streams and events (GroupOrder).
//
// # Every wait ends
//
// Suppose some instructions never finish. Take the one at the smallest list
// position, on any rank where it hangs. What it waits for on its own rank stands
// before it and has finished. If it is a collective, its peers are the same
// instruction, which by the same argument have been reached and can start. So it
// finishes, given that an instruction whose predecessors have finished can start
// at all: that a device has room for it. Ordinary work makes room by itself,
// collectives that wait for peers do not. So the number of collectives that may
// be in flight at once is bounded by a parameter (InFlight). No cycle of waits
// between streams or groups is possible beyond that, and a wait for an event that
// nothing recorded before is refused (Unrecorded).
//
// # Memory
//
// Two accesses conflict if they share bytes and one of them writes. check_memory.go
// keeps, for every byte, the frontier of accesses that a new one must be compared
// with, and proves there why that is enough.
//
// Besides order, bytes must be the right ones: a buffer stands for one value, so
// what is read through a buffer must have been written through the same buffer
// (Clobbered) at all (Unwritten). That holds the memory plan to the lifetimes
// of values, also where all is on one stream. The inputs that the caller keeps
// (every role but saved and tangent, unless they are donated) must be intact at the end;
// a donated input and the output in its place are two buffers on the same bytes.
//
// # Loops and branches
//
// The brackets of blocks join all streams (block.go), so no instruction of one iteration or branch
// runs beside one of another, or beside what stands around. What is left is whether bytes are
// the right ones. The list is still walked once, with what holds in any iteration and behind any
// branch: at the beginning of a loop, and behind it, what it writes anywhere is taken to be
// gone, but for what it carries, which is there because it is read as if by the loop before the
// first iteration and at the end of each. At the beginning of a branch what other branches write is
// gone, and behind a case what any of them does, but for the results, which each has to write.
//
// # Sizes in memory
//
// What names a symbol that a launch has read from a tensor (sizes.go) finds the value in memory
// when it runs: an access like any other.
//
// # Limits
//
// Kernels are taken at their word: a launch reads its operands and writes its
// results and touches nothing else, a call touches what its effects say (Instr.Writes,
// Instr.Aliases). Symbols stand at their upper bounds, which
// over-approximates accesses. Two windows with gaps are compared element run by
// element run up to a limit, beyond which they count as overlapping. All of this
// errs towards reporting.

// DefaultInFlight is the number of collectives that may be in flight at once if
// CheckOptions does not say: the number of hardware queues that a CUDA device
// serves at the same time by default.
const DefaultInFlight = 8

// CheckOptions adapt the checker to a device and an operator table.
type CheckOptions struct {
	// InFlight bounds how many collectives may be in flight at once on a rank; 0
	// means DefaultInFlight, a negative number no bound.
	InFlight int
	// InPlace reports whether a launch may have a result that is exactly the elements
	// of that operand; nil: every launch may. Copies always may, and collectives
	// with the operand that belongs to the result.
	InPlace func(in *Instr, operand int) bool
	// Pointwise reports whether element i of the results of an operation follows from
	// elements i of its operands alone; nil: of every operation. A kernel of such
	// operations may have a result on an operand.
	Pointwise func(op string) bool
	// Limit bounds the findings that are kept, 0 for 100. The rest is counted.
	Limit int
}

// Check proves p free of races and deadlocks under default options. The error is
// a *CheckError with everything found, or says why p is malformed. Time is
// near-linear: O(accesses x (streams + log accesses)), with one more factor, the
// number of different windows on the same bytes, where writes leave gaps.
func Check(p *Program) error {
	r, err := CheckWith(p, CheckOptions{})
	if err != nil {
		return err
	}
	return r.Err()
}

// CheckWith is Check with options and with the report of a program that passes.
// The error is for malformed programs only.
func CheckWith(p *Program, o CheckOptions) (*Report, error) {
	if o.InFlight == 0 {
		o.InFlight = DefaultInFlight
	}
	if o.Limit <= 0 {
		o.Limit = 100
	}
	c := &checker{p: p, o: o, r: &Report{Program: p}, seen: map[findingKey]int{}}
	c.r.Stats.Instrs, c.r.Stats.Streams = len(p.Instrs), len(p.Streams)
	if c.unrecorded(); len(c.r.Findings) > 0 {
		return c.r, nil // everything else rests on waits that wait for something
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := c.collect(); err != nil {
		return nil, err
	}
	c.ord = newOrder(p)
	c.mem = newFrontier(c)
	c.run()
	return c.r, nil
}

// checker is the state of one check.
type checker struct {
	p    *Program
	o    CheckOptions
	r    *Report
	seen map[findingKey]int // index in r.Findings

	accs  []access // of inputs, then of instructions in list order, then of the end
	first []int32  // by instruction: index of its first access; one more at the end
	ord   *order
	mem   *frontier
	comms []comm
	last  []int32 // by group: index into comms of its latest collective, -1
}

// comm is a collective, or a call that communicates.
type comm struct {
	instr, stream int32
	clock         []int32 // of its stream when it starts
}

// access is one tensor of an instruction, input or output.
type access struct {
	win     window
	buffer  int32
	instr   int32 // list position, or number of the parameter
	pos     int32 // in its stream's clock: instr + 1, or what a virtual stream counts
	stream  int32 // may be virtual, see order
	operand int32 // number among the operands or results, -1 of a size that is named
	by      SiteKind
	write   bool
	inPlace bool // a call writes its operand
	gone    bool // what it has written may be gone: another branch ran, or no iteration
}

// holds reports whether a write leaves what the read b of the same bytes expects: it is
// of the same buffer, and where b finds what belongs to the caller it is his own, or
// that of a call in place.
func (a *access) holds(b *access) bool {
	return a.buffer == b.buffer && !a.gone && (b.by != AtKept || a.by == AtInput || a.inPlace)
}

// unrecorded finds waits whose event nothing before them records. It needs no
// valid program: Validate refuses these waits too, but with less to say.
func (c *checker) unrecorded() {
	p := c.p
	fired := map[int]bool{}
	for i := range p.Inputs {
		if p.Inputs[i].Async {
			fired[p.Inputs[i].Event] = true
		}
	}
	for i := range p.Instrs {
		in := &p.Instrs[i]
		if in.Stream < 0 || in.Stream >= len(p.Streams) {
			return // Validate will say so
		}
		switch in.Kind {
		case Record:
			fired[in.Event] = true
		case Wait:
			if fired[in.Event] {
				continue
			}
			f := Finding{Kind: Unrecorded, First: c.site(i), Second: c.site(i), Event: in.Event}
			for j := i + 1; j < len(p.Instrs); j++ {
				if r := &p.Instrs[j]; r.Kind == Record && r.Event == in.Event && r.Stream >= 0 && r.Stream < len(p.Streams) {
					f.Second = c.site(j)
					break
				}
			}
			c.add(f)
		}
	}
}

// collect lists all accesses and checks what windows need.
func (c *checker) collect() error {
	p := c.p
	sizes := p.SizesRead()
	v := virtual(p)
	// Async inputs first: they are in flight while the plain ones are filled in.
	for _, async := range []bool{true, false} {
		for i := range p.Inputs {
			q := &p.Inputs[i]
			if q.Async != async {
				continue
			}
			a := access{instr: int32(i), by: AtInput, write: true, stream: v.start}
			if async {
				a.stream, a.pos = v.input[i], 1
			}
			if err := c.touch(q.Tensors, a); err != nil {
				return fmt.Errorf("program %s: input %s: %w", p.Name, q.Name, err)
			}
		}
	}
	blocks, err := p.Blocks()
	if err != nil {
		return err
	}
	for i := range p.Instrs {
		in := &p.Instrs[i]
		c.first = append(c.first, int32(len(c.accs)))
		if in.Joins() {
			if err := c.bracket(blocks[i], i); err != nil {
				return fmt.Errorf("program %s: instruction %d (%s): %w", p.Name, i, in.Node, err)
			}
			continue
		}
		if err := c.instr(in, i, sizes); err != nil {
			return fmt.Errorf("program %s: instruction %d (%s): %w", p.Name, i, in.Node, err)
		}
	}
	c.first = append(c.first, int32(len(c.accs)))
	for i := range p.Outputs {
		a := access{instr: int32(i), by: AtOutput, stream: v.end}
		err := c.touch(p.Outputs[i].Tensors, a)
		if err == nil && sizes != nil {
			err = c.named(sizes, symbolsOf(nil, p.Outputs[i].Tensors), a)
		}
		if err != nil {
			return fmt.Errorf("program %s: output %s: %w", p.Name, p.Outputs[i].Name, err)
		}
	}
	for i := range p.Inputs {
		if q := &p.Inputs[i]; !q.Async && q.Role != "saved" && q.Role != "tangent" && p.Donated(i) < 0 {
			if err := c.touch(q.Tensors, access{instr: int32(i), by: AtKept, stream: v.end}); err != nil {
				return err
			}
		}
	}
	c.r.Stats.Accesses = len(c.accs)
	return nil
}

// touch collects accesses to tensors, of which a says the rest.
func (c *checker) touch(ts []Tensor, a access) error {
	for k := range ts {
		w, err := c.p.window(&ts[k])
		if err != nil {
			return err
		}
		a.win, a.buffer, a.operand = w, int32(ts[k].Buffer), int32(k)
		c.accs = append(c.accs, a)
	}
	return nil
}

// named collects reads of the sizes that have these names, which are no operands.
func (c *checker) named(sizes map[string]Tensor, names []string, a access) error {
	from := len(c.accs)
	err := c.touch(sizesNamed(sizes, names), a)
	for k := from; k < len(c.accs); k++ {
		c.accs[k].operand = -1
	}
	return err
}

// instr collects what instruction i reads and writes.
func (c *checker) instr(in *Instr, i int, sizes map[string]Tensor) error {
	a := access{instr: int32(i), pos: int32(i) + 1, stream: int32(in.Stream)}
	err := c.touch(in.Ins, a)
	a.write = true
	if err == nil && !in.Aliases() {
		err = c.touch(in.Outs, a)
	}
	for k := range in.Ins {
		if err == nil && in.Writes(k) {
			w := c.accs[int(c.first[i])+k]
			w.write, w.inPlace = true, true
			c.accs = append(c.accs, w)
		}
	}
	if err == nil && sizes != nil {
		a.write = false
		err = c.named(sizes, in.SymbolsNamed(), a)
	}
	return err
}

// run walks over the program once.
func (c *checker) run() {
	p := c.p
	c.last = slices.Repeat([]int32{-1}, len(p.Groups))
	for i := range c.accs[:c.first[0]] {
		c.mem.access(int32(i), c.ord.none)
	}
	lastUse := make([]int32, len(p.Streams)) // by stream: the latest instruction that does something, plus 1
	for i := range p.Instrs {
		in := &p.Instrs[i]
		switch in.Kind {
		case Record:
			c.ord.record(in.Stream, in.Event, i)
			continue
		case Wait:
			c.ord.wait(in.Stream, in.Event)
			continue
		}
		if in.Communicates() {
			c.communicates(i, in)
		}
		if in.Joins() {
			c.ord.joinAll(i)
		}
		lastUse[in.Stream] = int32(i) + 1
		accs := c.accs[c.first[i]:c.first[i+1]]
		if !in.Joins() {
			c.apart(in, accs)
		}
		for k := range accs {
			c.mem.access(c.first[i]+int32(k), c.ord.clock[in.Stream])
		}
	}
	c.end(lastUse)
	c.residency()
}

// communicates holds a group's collectives to one order.
func (c *checker) communicates(i int, in *Instr) {
	clock := c.ord.clock[in.Stream]
	if k := c.last[in.Group]; k >= 0 {
		if b := &c.comms[k]; int(b.stream) != in.Stream && clock[b.stream] <= b.instr {
			if f := c.add(Finding{Kind: GroupOrder, First: c.site(int(b.instr)), Second: c.site(i), Group: in.Group}); f != nil {
				f.Missing = c.edge(b.stream, b.instr, int32(in.Stream), int32(i))
			}
		}
	}
	c.last[in.Group] = int32(len(c.comms))
	c.comms = append(c.comms, comm{int32(i), int32(in.Stream), slices.Clone(clock)})
}

// end checks what the caller does: it reads outputs, keeps inputs, and runs the
// program again.
func (c *checker) end(lastUse []int32) {
	p, o := c.p, c.ord
	joined, all := o.ends(p)
	for i := int(c.first[len(p.Instrs)]); i < len(c.accs); i++ {
		a := &c.accs[i]
		clock := joined
		switch a.by {
		case AtKept:
			clock = all
		case AtOutput:
			if q := &p.Outputs[a.instr]; q.Async {
				clock = join(slices.Clone(joined), o.fired(q.Event))
			}
		}
		c.mem.access(int32(i), clock)
	}
	for s, n := range lastUse {
		if n > all[s] {
			c.add(Finding{Kind: LeftRunning, First: c.site(int(n) - 1), Second: c.site(int(n) - 1)})
		}
	}
	for i := range p.Inputs {
		if q := &p.Inputs[i]; q.Async && all[o.virtual.input[i]] < 1 {
			c.add(Finding{Kind: LeftRunning, First: c.inputSite(i), Second: c.inputSite(i)})
		}
	}
}

// apart checks the tensors of one instruction against each other: results share
// no bytes, and a result shares bytes with an operand only as the same window,
// where the instruction works in place.
func (c *checker) apart(in *Instr, accs []access) {
	if len(in.Outs) == 0 || len(accs) < 2 {
		return
	}
	byStart := make([]int, 0, len(accs))
	for k := range accs {
		if accs[k].win.lo < accs[k].win.hi {
			byStart = append(byStart, k)
		}
	}
	slices.SortFunc(byStart, func(a, b int) int {
		if accs[a].win.lo != accs[b].win.lo {
			return cmp.Compare(accs[a].win.lo, accs[b].win.lo)
		}
		return a - b
	})
	for x, k := range byStart {
		for _, m := range byStart[x+1:] {
			a, b := &accs[k], &accs[m]
			if b.win.lo >= a.win.hi {
				break
			}
			if a.ofOperand() && b.ofOperand() || !a.win.overlaps(&b.win) {
				continue // what a call does with operands that overlap is its own matter
			}
			if a.write != b.write && c.worksInPlace(in, a, b) {
				continue
			}
			f := Finding{Kind: SelfOverlap, First: c.accessSite(a), Second: c.accessSite(b), Lo: max(a.win.lo, b.win.lo), Hi: min(a.win.hi, b.win.hi)}
			c.add(f)
		}
	}
}

// ofOperand reports whether an access is to an operand, read or written in place.
func (a *access) ofOperand() bool { return !a.write || a.inPlace }

// worksInPlace reports whether an instruction may have an operand and a result on the
// same bytes. A collective reads and writes element by element with its peers, so
// the operand must be the result's own.
func (c *checker) worksInPlace(in *Instr, a, b *access) bool {
	if a.write {
		a, b = b, a
	}
	if a.operand < 0 || !c.p.sameElements(&in.Ins[a.operand], &in.Outs[b.operand]) {
		return false
	}
	switch in.Kind {
	case Collective:
		return a.operand == b.operand
	case Launch:
		if k := c.p.Kernel(in); k != nil {
			return k.inPlace(int(a.operand), len(in.Ins)+int(b.operand), &c.o)
		}
		return c.o.InPlace == nil || c.o.InPlace(in, int(a.operand))
	}
	return true
}

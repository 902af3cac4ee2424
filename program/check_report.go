package program

import (
	"fmt"
	"strconv"
)

// FindingKind says what a finding is about.
type FindingKind uint8

// What Check finds.
const (
	// Unordered: two accesses share bytes, one writes, and nothing orders them.
	Unordered FindingKind = iota
	// Clobbered: bytes are read through one buffer after they were written last
	// through another. First is the write, Second the read.
	Clobbered
	// Unwritten: bytes are read that nothing has written.
	Unwritten
	// Unrecorded: a wait for an event that nothing before it records. Second is
	// the first record behind it, if there is one.
	Unrecorded
	// GroupOrder: nothing orders two collectives of one group, so that ranks may
	// start them in different orders.
	GroupOrder
	// InFlight: more collectives may be in flight at once than the device has
	// room for, so that ranks may wait for collectives that their peers cannot
	// start. First and Second are two of them.
	InFlight
	// SelfOverlap: tensors of one instruction share bytes that its result may not
	// share.
	SelfOverlap
	// LeftRunning: an instruction, or an async input, that may be unfinished when
	// the run has returned and all async outputs have been awaited, and that
	// would then run into the next run.
	LeftRunning
)

var findingNames = [...]string{"unordered", "clobbered", "unwritten", "unrecorded", "group-order", "in-flight", "self-overlap", "left-running"}

// String returns the rule's name.
func (k FindingKind) String() string {
	if int(k) < len(findingNames) {
		return findingNames[k]
	}
	return "finding " + strconv.Itoa(int(k))
}

// SiteKind says where something happens.
type SiteKind uint8

// Where things happen.
const (
	InBody   SiteKind = iota // an instruction
	AtInput                  // an input is filled in, or arrives
	AtOutput                 // the caller reads an output
	AtKept                   // the caller relies on an input after the run
)

// Site is one side of a finding.
type Site struct {
	Kind   SiteKind
	Index  int    // position of the instruction, or number of the input or output
	Stream int    // of an instruction, else -1
	Node   string // IR node behind the instruction, or the parameter's name
	Tensor int    // number among the operands or results, -1 if no tensor is meant, or a size that is named
	Buffer int    // of the tensor, -1 if none
	Write  bool   // the tensor is written
	Of     bool   // the tensor that is written is an operand, in place
}

// Edge is an order that is missing: what To stands for must start after what From
// stands for has finished.
type Edge struct {
	From, To             int // positions of instructions; From -1: an async input, To -1: the run's end
	FromStream, ToStream int // -1: none
	// Event is one that stands for From where To starts, so that a wait for it
	// is all that is missing; -1 if there is none.
	Event int
}

// Finding is one thing that is wrong with a program.
type Finding struct {
	Kind          FindingKind
	First, Second Site  // in list order; equal if there is only one
	Lo, Hi        int64 // bytes of the arena that both accesses touch; equal if none are meant
	Missing       *Edge // of Unordered and GroupOrder
	Event         int   // of Unrecorded
	Group         int   // of GroupOrder
	Count, Limit  int   // of InFlight: collectives at once, and how many may be
}

// CheckStats describes the size of a check.
type CheckStats struct {
	Instrs, Streams int
	Accesses        int // tensors of instructions and parameters
	Comparisons     int // of accesses with the frontier
	InFlight        int // collectives that may be in flight at once, at most
}

// Report is the outcome of a check.
type Report struct {
	Program  *Program
	Findings []Finding // by the list position at which they were noticed
	More     int       // findings beyond CheckOptions.Limit
	Stats    CheckStats
}

// Err is nil if nothing was found, else a *CheckError.
func (r *Report) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	return &CheckError{r}
}

// CheckError says that a program is not proven free of races and deadlocks.
type CheckError struct {
	Report *Report
}

// Error prints all findings.
func (e *CheckError) Error() string { return e.Report.String() }

// String prints the findings, one after the other, with the instructions quoted.
func (r *Report) String() string {
	if len(r.Findings) == 0 {
		return fmt.Sprintf("program %s: %d instructions on %d streams, %d accesses ordered, at most %d collectives in flight\n",
			r.Program.Name, r.Stats.Instrs, r.Stats.Streams, r.Stats.Accesses, r.Stats.InFlight)
	}
	var b []byte
	for i := range r.Findings {
		b = r.AppendFinding(b, &r.Findings[i])
	}
	if r.More > 0 {
		b = fmt.Appendf(b, "program %s: %d more findings\n", r.Program.Name, r.More)
	}
	return string(b)
}

// AppendFinding appends the text of one finding: a headline, the instructions or
// parameters involved, and what to do.
func (r *Report) AppendFinding(b []byte, f *Finding) []byte {
	p := r.Program
	b = fmt.Appendf(b, "program %s: error[%v]: %s\n", p.Name, f.Kind, r.headline(f))
	b = r.appendSite(b, &f.First)
	if f.Second != f.First {
		b = r.appendSite(b, &f.Second)
	}
	if e := f.Missing; e != nil {
		b = fmt.Appendf(b, "  missing: %s before %s\n", p.place(e.From, e.FromStream), p.place(e.To, e.ToStream))
	}
	if help := r.help(f); help != "" {
		b = fmt.Appendf(b, "  help: %s\n", help)
	}
	return b
}

// headline says in one line what is wrong.
func (r *Report) headline(f *Finding) string {
	switch f.Kind {
	case Unordered:
		return fmt.Sprintf("nothing orders two accesses to bytes %d to %d", f.Lo, f.Hi)
	case Clobbered:
		return fmt.Sprintf("%%%s is read where bytes %d to %d were overwritten as %%%s", r.buffer(&f.Second), f.Lo, f.Hi, r.buffer(&f.First))
	case Unwritten:
		return fmt.Sprintf("%%%s is read where nothing has written bytes %d to %d", r.buffer(&f.Second), f.Lo, f.Hi)
	case Unrecorded:
		return fmt.Sprintf("waits for event %d, which nothing before it records", f.Event)
	case GroupOrder:
		return fmt.Sprintf("nothing orders two collectives of group @%s, so ranks may start them in different orders", r.Program.Groups[f.Group].Name)
	case InFlight:
		return fmt.Sprintf("up to %d collectives may be in flight at once, the device has room for %d", f.Count, f.Limit)
	case SelfOverlap:
		if f.First.Write && f.Second.Write && !f.First.Of && !f.Second.Of {
			return fmt.Sprintf("two results share bytes %d to %d", f.Lo, f.Hi)
		}
		return fmt.Sprintf("a result shares bytes %d to %d with an operand that is still being read", f.Lo, f.Hi)
	case LeftRunning:
		return "may be unfinished when the program runs again"
	}
	return f.Kind.String()
}

// help says what would mend it.
func (r *Report) help(f *Finding) string {
	p := r.Program
	switch f.Kind {
	case Unordered, GroupOrder:
		e := f.Missing
		switch {
		case e == nil:
			return ""
		case e.To < 0 && e.Event >= 0:
			return fmt.Sprintf("let @%s wait for event %d before the end", p.Streams[0].Name, e.Event)
		case e.To < 0:
			return fmt.Sprintf("record an event on %s and let a stream that the run's end joins wait for it", p.streamName(e.FromStream))
		case e.Event >= 0:
			return fmt.Sprintf("let %s wait for event %d before %d", p.streamName(e.ToStream), e.Event, e.To)
		case e.FromStream < 0:
			return fmt.Sprintf("give the input an event of its own and let %s wait for it before %d", p.streamName(e.ToStream), e.To)
		}
		return fmt.Sprintf("record an event on %s after %d and let %s wait for it before %d", p.streamName(e.FromStream), e.From, p.streamName(e.ToStream), e.To)
	case Clobbered:
		if f.First.Buffer == f.Second.Buffer {
			return "what a loop or a branch writes is there behind it, and in the next iteration, as one of its results only"
		}
		return "place the buffers apart, or read before the bytes are given away"
	case Unrecorded:
		if f.Second.Index != f.First.Index {
			return fmt.Sprintf("move the record at %d before the wait", f.Second.Index)
		}
		return "record it where the awaited work has been issued"
	case InFlight:
		return "put the collectives on fewer streams, or order them by events"
	case SelfOverlap:
		return "give the result bytes of its own; an operand and its result may only be the same elements"
	case LeftRunning:
		return "record an event behind it and wait for it on a stream that ends the run"
	}
	return ""
}

func (r *Report) buffer(s *Site) string {
	if s.Buffer < 0 || s.Buffer >= len(r.Program.Buffers) {
		return "?"
	}
	return r.Program.Buffers[s.Buffer].Name
}

// maxQuote bounds the bytes of a quoted line: buckets have hundreds of operands.
const maxQuote = 240

// appendSite quotes the line of a site and says what it does.
func (r *Report) appendSite(b []byte, s *Site) []byte {
	p := r.Program
	var line []byte
	switch s.Kind {
	case InBody:
		b = fmt.Appendf(b, "%6d: ", s.Index)
		line = p.AppendInstr(nil, &p.Instrs[s.Index])
	case AtOutput:
		b = append(b, "        output "...)
		line = p.appendParam(nil, &p.Outputs[s.Index], -1)
	default:
		b = append(b, "        input "...)
		line = p.appendParam(nil, &p.Inputs[s.Index], p.Donated(s.Index))
	}
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if len(line) > maxQuote {
		line = append(line[:maxQuote], "..."...)
	}
	b = append(append(b, line...), '\n')
	if s.Tensor < 0 && s.Buffer < 0 {
		return b
	}
	if s.Tensor < 0 {
		return fmt.Appendf(b, "        reads a size, in %%%s\n", r.buffer(s))
	}
	what := "reads operand"
	switch {
	case s.Kind == AtOutput:
		what = "the caller reads tensor"
	case s.Kind == AtKept:
		what = "the caller keeps tensor"
	case s.Kind == AtInput:
		what = "is filled in: tensor"
	case s.Write && s.Of:
		what = "writes operand"
	case s.Write:
		what = "writes result"
	}
	return fmt.Appendf(b, "        %s %d, in %%%s\n", what, s.Tensor, r.buffer(s))
}

// place names one end of an edge.
func (p *Program) place(instr, stream int) string {
	switch {
	case instr < 0 && stream < 0:
		return "the caller"
	case instr < 0:
		return "the end of " + p.streamName(stream)
	}
	return fmt.Sprintf("%d on %s", instr, p.streamName(stream))
}

func (p *Program) streamName(s int) string {
	if s < 0 || s >= len(p.Streams) {
		return "the caller"
	}
	return "@" + p.Streams[s].Name
}

// findingKey identifies a finding: segments of one pair of tensors are one.
type findingKey struct {
	kind          FindingKind
	first, second Site
}

// add keeps a finding, or extends the one about the same pair. It returns the
// finding if it is a new one that is kept.
func (c *checker) add(f Finding) *Finding {
	key := findingKey{f.Kind, f.First, f.Second}
	if i, ok := c.seen[key]; ok {
		if i >= 0 {
			g := &c.r.Findings[i]
			g.Lo, g.Hi = min(g.Lo, f.Lo), max(g.Hi, f.Hi)
		}
		return nil
	}
	if len(c.r.Findings) >= c.o.Limit {
		c.seen[key] = -1
		c.r.More++
		return nil
	}
	c.seen[key] = len(c.r.Findings)
	c.r.Findings = append(c.r.Findings, f)
	return &c.r.Findings[len(c.r.Findings)-1]
}

// site is an instruction as a whole.
func (c *checker) site(i int) Site {
	in := &c.p.Instrs[i]
	return Site{Kind: InBody, Index: i, Stream: in.Stream, Node: in.Node, Tensor: -1, Buffer: -1}
}

// inputSite is an input as a whole.
func (c *checker) inputSite(i int) Site {
	return Site{Kind: AtInput, Index: i, Stream: -1, Node: c.p.Inputs[i].Name, Tensor: -1, Buffer: -1}
}

// accessSite is one access.
func (c *checker) accessSite(a *access) Site {
	s := Site{Kind: a.by, Index: int(a.instr), Stream: -1, Tensor: int(a.operand), Buffer: int(a.buffer), Write: a.write, Of: a.inPlace}
	switch a.by {
	case InBody:
		in := &c.p.Instrs[a.instr]
		s.Stream, s.Node = in.Stream, in.Node
	case AtOutput:
		s.Node = c.p.Outputs[a.instr].Name
	default:
		s.Node = c.p.Inputs[a.instr].Name
	}
	return s
}

// unordered reports a pair that nothing orders.
func (c *checker) unordered(b, a *access, lo, hi int64) {
	from, to := int32(-1), int32(-1)
	if b.by == InBody {
		from = b.instr
	}
	if a.by == InBody {
		to = a.instr
	}
	if f := c.add(Finding{Kind: Unordered, First: c.accessSite(b), Second: c.accessSite(a), Lo: lo, Hi: hi}); f != nil {
		f.Missing = c.edge(b.stream, from, a.stream, to)
	}
}

func (c *checker) clobbered(b, a *access, lo, hi int64) {
	c.add(Finding{Kind: Clobbered, First: c.accessSite(b), Second: c.accessSite(a), Lo: lo, Hi: hi})
}

func (c *checker) unwritten(a *access, lo, hi int64) {
	c.add(Finding{Kind: Unwritten, First: c.accessSite(a), Second: c.accessSite(a), Lo: lo, Hi: hi})
}

// edge describes a missing order and looks for an event that would provide it:
// recorded on the first stream behind from, and not recorded again since.
func (c *checker) edge(fromStream, from, toStream, to int32) *Edge {
	e := &Edge{From: int(from), To: int(to), FromStream: int(fromStream), ToStream: int(toStream), Event: -1}
	streams := len(c.p.Streams)
	if e.ToStream >= streams {
		e.ToStream = -1
	}
	if e.FromStream >= streams {
		e.FromStream = -1
		for i, s := range c.ord.virtual.input {
			if ev := c.p.Inputs[i].Event; c.p.Inputs[i].Async && s == fromStream && c.ord.latest[ev].instr < 0 && c.ord.latest[ev].clock[s] == 1 {
				e.Event = ev
			}
		}
		return e
	}
	list := c.ord.records[fromStream]
	for i := len(list) - 1; i >= 0 && list[i].instr > e.From; i-- {
		if c.ord.latest[list[i].event].instr == list[i].instr {
			e.Event = list[i].event // the earliest that will do delays least
		}
	}
	return e
}

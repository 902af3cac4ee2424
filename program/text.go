package program

import (
	"fmt"
	"math"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/text"
)

// Text form. One line is one declaration or instruction:
//
//	program @step world 2
//	group @dp = [[0, 1]]
//	sym s0 hint 16 max 64
//	stream @compute
//	stream @comm.dp on @dp
//	events 2
//	arena 2048
//	buffer %x at 0 size 1024
//	input x {parameter} = %x: bf16[8,64]
//	input w donate 1 = %w: f32[8]
//	input g async 1 = %g: bf16[8], %h: bf16[8]
//	output y = %y+512: bf16[8,32:64,1]
//	need s0-4 from %head
//	unit {flags=["--fmad=false"], source="4bf1..."}
//	kernel k0 {block=256, grid=1, shared=0, source="9c7e..."}
//	step add (p0: bf16[8,8], p1: bf16[8,8]) -> (t0: bf16[8,8]) from %a
//	step neg (t0: bf16[8,8]) -> (p2: bf16[8,8]) from %b
//	body
//	@compute record 0
//	@comm.dp wait 0
//	@comm.dp all_gather on @dp (%x: bf16[8,64]) -> (%y: bf16[16,64]) {dim=0} from %gather
//	@compute launch matmul (%a: ..., %b: ...) -> (%c: ...) from %mm
//	@compute launch fused (%a: ..., %b: ...) -> (%c: ...) {kernel="k0"} from %b
//	@compute copy (%a: ...) -> (%c: ...)
//
// A unit and a kernel show the SHA-256 of their source, which the text does not
// hold: a program that was read has digests in its place. But for that, Print and
// Parse are exact inverses, comments and blank lines aside. The steps behind a
// kernel are its body, on parameters p0, p1, ... (operands, then results) and
// temporaries t0, t1, ...

// String returns the text form.
func (p *Program) String() string { return string(p.AppendText(nil)) }

// AppendText appends the text form.
func (p *Program) AppendText(b []byte) []byte {
	b = fmt.Appendf(text.AppendName(append(b, "program @"...), p.Name), " world %d", p.World)
	if p.Ranks != nil {
		b = text.AppendRanks(append(b, " on "...), [][]int{p.Ranks})
	}
	b = append(b, '\n')
	for _, g := range p.Groups {
		b = append(text.AppendRanks(append(text.AppendName(append(b, "group @"...), g.Name), " = "...), g.Ranks), '\n')
	}
	for _, s := range p.Symbols {
		b = fmt.Appendf(b, "sym %s hint %d", s.Name, s.Hint)
		if s.Min != 0 {
			b = fmt.Appendf(b, " min %d", s.Min)
		}
		b = fmt.Appendf(b, " max %d\n", s.Max)
	}
	for _, s := range p.Streams {
		b = text.AppendName(append(b, "stream @"...), s.Name)
		if s.Group >= 0 {
			b = text.AppendName(append(b, " on @"...), p.Groups[s.Group].Name)
		}
		b = append(b, '\n')
	}
	b = fmt.Appendf(b, "events %d\narena %d\n", p.Events, p.Arena)
	for _, f := range p.Buffers {
		b = fmt.Appendf(text.AppendName(append(b, "buffer %"...), f.Name), " at %d size %d\n", f.Offset, f.Size)
	}
	for i := range p.Inputs {
		b = p.appendParam(append(b, "input "...), &p.Inputs[i], p.Donated(i))
	}
	for i := range p.Outputs {
		b = p.appendParam(append(b, "output "...), &p.Outputs[i], -1)
	}
	for _, n := range p.Needs {
		b = fmt.Appendf(b, "need %v", n.Size)
		b = append(appendFrom(b, n.Node), '\n')
	}
	b = p.appendKernels(b)
	b = append(b, "body\n"...)
	for i := range p.Instrs {
		b = append(p.AppendInstr(b, &p.Instrs[i]), '\n')
	}
	return b
}

func (p *Program) appendParam(b []byte, q *Param, donated int) []byte {
	b = text.AppendName(b, q.Name)
	if q.Role != "" {
		b = append(append(append(b, " {"...), q.Role...), '}')
	}
	if q.Async {
		b = strconv.AppendInt(append(b, " async "...), int64(q.Event), 10)
	}
	if donated >= 0 {
		b = strconv.AppendInt(append(b, " donate "...), int64(donated), 10)
	}
	return append(p.appendTensors(append(b, " = "...), q.Tensors), '\n')
}

// AppendInstr appends one instruction's line without its end.
func (p *Program) AppendInstr(b []byte, in *Instr) []byte {
	b = append(text.AppendName(append(b, '@'), p.Streams[in.Stream].Name), ' ')
	switch in.Kind {
	case Record, Wait:
		b = fmt.Appendf(b, "%s %d", in.Kind, in.Event)
	case Branch, End:
		b = append(b, in.Kind.String()...)
	default:
		switch in.Kind {
		case Launch:
			b = append(append(b, "launch "...), in.Op...)
			if in.Group >= 0 {
				b = text.AppendName(append(b, " on @"...), p.Groups[in.Group].Name)
			}
		case Collective:
			b = text.AppendName(append(append(b, in.Op...), " on @"...), p.Groups[in.Group].Name)
		default:
			b = append(b, in.Kind.String()...)
		}
		b = append(p.appendTensors(append(b, " ("...), in.Ins), ") -> ("...)
		b = append(p.appendTensors(b, in.Outs), ')')
		if len(in.Attrs) > 0 {
			b = in.Attrs.AppendText(append(b, ' '))
		}
	}
	return appendFrom(b, in.Node)
}

// appendFrom appends the node that a line serves, if it is known.
func appendFrom(b []byte, node string) []byte {
	if node == "" {
		return b
	}
	return text.AppendName(append(b, " from %"...), node)
}

func (p *Program) appendTensors(b []byte, ts []Tensor) []byte {
	for i := range ts {
		t := &ts[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		b = text.AppendName(append(b, '%'), p.Buffers[t.Buffer].Name)
		if t.Offset != 0 {
			b = strconv.AppendInt(append(b, '+'), t.Offset, 10)
		}
		b = text.AppendTensor(append(b, ": "...), t.DType, t.Shape, t.Strides)
	}
	return b
}

// Parse reads a program's text form and validates it. name is what errors call
// the text; a syntax error is a *diag.Error with line, column and caret.
func Parse(name, s string) (*Program, error) {
	r := &reader{Scanner: text.NewScanner(name, s), p: &Program{}, groups: map[string]int{}, streams: map[string]int{}, buffers: map[string]int{}, syms: map[string]bool{}}
	r.program()
	if err := r.Errs.Err(); err != nil {
		return nil, err
	}
	if err := r.p.Validate(); err != nil {
		return nil, err
	}
	return r.p, nil
}

// maxFindings ends the parse of a text that is broken all over.
const maxFindings = 50

// maxEvents bounds what a text may ask to be allocated.
const maxEvents = 1 << 28

type reader struct {
	text.Scanner
	p                        *Program
	groups, streams, buffers map[string]int // index by name
	syms                     map[string]bool
}

func (r *reader) program() {
	r.Lines()
	r.Keyword("program")
	r.Expect('@', "before the program's name")
	r.p.Name = r.Name("a name")
	r.Keyword("world")
	r.p.World = int(r.Int("the number of ranks"))
	if at := r.I; !r.Bad && r.Word("on") {
		l := r.Ranks()
		if !r.Bad && (len(l) != 1 || len(l[0]) == 0) {
			r.Failf(at, r.I-at, "ranks", "want the ranks that run the program in one list, as in on [[0, 1]]")
		} else if !r.Bad {
			r.p.Ranks = l[0]
		}
	}
	r.EndOfLine()
	body := false
	for !r.Bad || r.resync() {
		r.Lines()
		if r.I >= len(r.S) || len(r.Errs.All) >= maxFindings {
			break
		}
		switch {
		case body:
			r.instr()
		case r.Word("body"):
			body = true
		default:
			r.declaration()
		}
		r.EndOfLine()
	}
	if !body {
		r.Failf(len(r.S), 1, "syntax", "the program has no body")
	}
}

func (r *reader) resync() bool {
	r.Recover()
	return true
}

func (r *reader) declaration() {
	at := r.I
	p := r.p
	switch {
	case r.Word("group"):
		name := r.declare(r.groups, '@', len(p.Groups))
		r.Expect('=', "after a group's name")
		p.Groups = append(p.Groups, Group{Name: name, Ranks: r.Ranks()})
	case r.Word("sym"):
		s := Symbol{Name: r.Ident("a symbol's name")}
		r.Keyword("hint")
		s.Hint = r.Int("a hint")
		if !r.Bad && r.Word("min") {
			s.Min = r.Int("a lower bound")
		}
		r.Keyword("max")
		s.Max = r.Int("an upper bound")
		r.syms[s.Name] = true
		p.Symbols = append(p.Symbols, s)
	case r.Word("stream"):
		s := Stream{Name: r.declare(r.streams, '@', len(p.Streams)), Group: -1}
		if !r.Bad && r.Word("on") {
			s.Group = r.lookup(r.groups, '@', "group")
		}
		p.Streams = append(p.Streams, s)
	case r.Word("events"):
		n := r.Int("the number of events")
		if n < 0 || n > maxEvents {
			r.Failf(at, r.I-at, "syntax", "the number of events must be within 0..%d", maxEvents)
			return
		}
		p.Events = int(n)
	case r.Word("arena"):
		p.Arena = r.Int("the arena's size")
	case r.Word("buffer"):
		b := Buffer{Name: r.declare(r.buffers, '%', len(p.Buffers))}
		r.Keyword("at")
		b.Offset = r.Int("an offset")
		r.Keyword("size")
		b.Size = r.Int("a size")
		p.Buffers = append(p.Buffers, b)
	case r.Word("input"):
		q := r.param()
		if !r.Bad && r.Word("donate") {
			p.Donations = append(p.Donations, Donation{len(p.Inputs), r.event()})
		}
		p.Inputs = append(p.Inputs, r.windows(q))
	case r.Word("output"):
		p.Outputs = append(p.Outputs, r.windows(r.param()))
	case r.Word("need"):
		n := Need{Size: r.Dim(func(s string) bool { return r.syms[s] })}
		if !r.Bad {
			n.Node = r.from()
		}
		p.Needs = append(p.Needs, n)
	case r.Word("unit"):
		r.unit()
	case r.Word("kernel"):
		r.kernel()
	case r.Word("step"):
		r.step(at)
	default:
		r.Failf(at, 1, "syntax", "expected group, sym, stream, events, arena, buffer, input, output, unit, kernel, step or body, found %s", r.Found())
	}
}

// declare reads a sigil and a new name and gives it an index.
func (r *reader) declare(in map[string]int, sigil byte, index int) string {
	r.Expect(sigil, "before a name")
	at := r.I
	name := r.Name("a name")
	if _, ok := in[name]; ok {
		r.Failf(at, len(name), "redefined", "%c%s is declared twice", sigil, name)
	}
	if !r.Bad {
		in[name] = index
	}
	return name
}

// lookup reads a sigil and a declared name and returns its index.
func (r *reader) lookup(in map[string]int, sigil byte, what string) int {
	r.Expect(sigil, "before a "+what)
	at := r.I
	name := r.Name("a " + what)
	i, ok := in[name]
	if !ok {
		r.Failf(at, len(name), "undefined", "%s %c%s is not declared", what, sigil, name)
	}
	return i
}

func (r *reader) param() Param {
	q := Param{Name: r.Name("a parameter's name"), Event: -1}
	if !r.Bad && r.Eat('{') {
		q.Role = r.Ident("a role")
		r.Expect('}', "after a role")
	}
	if !r.Bad && r.Word("async") {
		q.Async, q.Event = true, r.event()
	}
	return q
}

// windows reads where a parameter is.
func (r *reader) windows(q Param) Param {
	r.Expect('=', "before a parameter's tensors")
	q.Tensors = r.tensors()
	return q
}

func (r *reader) event() int {
	at := r.I
	n := r.Int("an event")
	if n < 0 || n > math.MaxInt32 {
		r.Failf(at, r.I-at, "syntax", "event %d", n)
	}
	return int(n)
}

func (r *reader) instr() {
	in := Instr{Event: -1, Group: -1, Stream: r.lookup(r.streams, '@', "stream")}
	r.Space()
	at := r.I
	switch op := r.Ident("an instruction"); op {
	case "record", "wait":
		in.Kind = Record
		if op == "wait" {
			in.Kind = Wait
		}
		in.Event = r.event()
	case "launch":
		in.Kind, in.Op = Launch, r.Ident("a kernel")
		if !r.Bad && r.Word("on") {
			in.Group = r.lookup(r.groups, '@', "group")
		}
		r.operands(&in)
	case "copy", "loop", "test", "case":
		in.Kind = map[string]Kind{"copy": Copy, "loop": Loop, "test": Test, "case": Case}[op]
		r.operands(&in)
	case "branch", "end":
		in.Kind = map[string]Kind{"branch": Branch, "end": End}[op]
	default:
		in.Kind, in.Op = Collective, op
		if !r.Bad && !r.Word("on") {
			r.Failf(at, len(op), "syntax", "%q is not an instruction; have launch copy record wait loop test case branch end, or a collective on a group", op)
		}
		in.Group = r.lookup(r.groups, '@', "group")
		r.operands(&in)
	}
	if !r.Bad {
		in.Node = r.from()
	}
	r.p.Instrs = append(r.p.Instrs, in)
}

// from reads the node that a line serves, if it says.
func (r *reader) from() string {
	if !r.Word("from") {
		return ""
	}
	r.Expect('%', "before a node's name")
	return r.Name("a node's name")
}

func (r *reader) operands(in *Instr) {
	r.signature(func() { in.Ins = r.tensors() }, func() { in.Outs = r.tensors() }, &in.Attrs)
}

// signature reads operands, results and attributes, if there are any.
func (r *reader) signature(ins, outs func(), attrs *attr.List) {
	r.Expect('(', "before the operands")
	if r.Peek() != ')' {
		ins()
	}
	r.Expect(')', "after the operands")
	r.Expect('-', "in '->' before the results")
	r.Expect('>', "in '->' before the results")
	r.Expect('(', "before the results")
	if r.Peek() != ')' {
		outs()
	}
	r.Expect(')', "after the results")
	if !r.Bad && r.Peek() == '{' {
		r.Attrs(attrs)
	}
}

func (r *reader) tensors() []Tensor {
	var ts []Tensor
	for !r.Bad {
		t := Tensor{Buffer: r.lookup(r.buffers, '%', "buffer")}
		if !r.Bad && r.Eat('+') {
			t.Offset = r.Int("an offset")
		}
		r.Expect(':', "before a tensor's type")
		if r.Bad {
			break
		}
		x := r.Tensor(func(s string) bool { return r.syms[s] })
		t.DType, t.Shape, t.Strides = x.DType, x.Shape, x.Strides
		ts = append(ts, t)
		if r.Bad || !r.Eat(',') {
			break
		}
	}
	return ts
}

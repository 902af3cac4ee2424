package progtest

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
)

// What random programs are made of: i32[8,2] everywhere, in a world of four ranks
// with two groups that cross, and streams that share a group.
const (
	randomRows  = 8
	randomSlots = 12 // places for values; few, so that bytes are used again
)

// Random makes a program of about n instructions in which every value is read
// while it is there, and nothing but streams orders anything: Mend adds the events.
func Random(seed uint64, n int) *program.Program {
	g := generator(seed)
	b := &randomProgram{g: &g, p: &program.Program{
		Name: "random", World: 4, Arena: randomSlots * program.Align,
		Groups:  []program.Group{{Name: "a", Ranks: [][]int{{0, 1}, {2, 3}}}, {Name: "b", Ranks: [][]int{{2, 0}, {1, 3}}}},
		Streams: []program.Stream{{Name: "compute", Group: -1}, {Name: "s0", Group: 0}, {Name: "s1", Group: 1}, {Name: "s2", Group: 0}},
	}}
	for i := range 1 + b.pick(3) {
		v := b.value(i)
		q := program.Param{Name: fmt.Sprintf("in%d", i), Role: []string{"parameter", "saved"}[b.pick(2)], Event: -1, Tensors: []program.Tensor{whole(v)}}
		if b.pick(3) == 0 {
			q.Role, q.Async, q.Event = "saved", true, b.p.Events
			b.p.Events++
		}
		if q.Role == "parameter" {
			b.kept = append(b.kept, v)
		}
		b.p.Inputs = append(b.p.Inputs, q)
	}
	for range n {
		b.instr()
	}
	b.outputs()
	return b.p
}

type randomProgram struct {
	g    *generator
	p    *program.Program
	live []int // buffers that may be read
	kept []int // buffers that nothing may overwrite
	last int   // result of the latest collective, and where it was issued
	at   int
}

func (b *randomProgram) pick(n int) int { return int(b.g.next() % uint64(n)) }

// value makes a buffer in a slot and ends the life of what lay there.
func (b *randomProgram) value(slot int) int {
	v := len(b.p.Buffers)
	at := int64(slot) * program.Align
	b.p.Buffers = append(b.p.Buffers, program.Buffer{Name: fmt.Sprintf("v%d", v), Offset: at, Size: randomRows * 2 * 4})
	b.live = slices.DeleteFunc(b.live, func(u int) bool { return b.p.Buffers[u].Offset == at })
	b.live = append(b.live, v)
	return v
}

// slot picks a place that holds nothing that must stay.
func (b *randomProgram) slot(busy ...int) int {
	for {
		s := b.pick(randomSlots)
		at := int64(s) * program.Align
		if !slices.ContainsFunc(slices.Concat(b.kept, busy), func(u int) bool { return b.p.Buffers[u].Offset == at }) {
			return s
		}
	}
}

func tensor(v int, off, rows, cols int64, strides []dim.Dim) program.Tensor {
	return program.Tensor{Buffer: v, Offset: off, DType: dtype.I32, Shape: []dim.Dim{dim.New(rows), dim.New(cols)}, Strides: strides}
}

func whole(v int) program.Tensor { return tensor(v, 0, randomRows, 2, nil) }

// column is one column, and half some rows of a value.
func column(v, c int) program.Tensor {
	return tensor(v, int64(c)*4, randomRows, 1, []dim.Dim{dim.New(2), dim.New(1)})
}
func half(v, h int) program.Tensor { return tensor(v, int64(h)*randomRows*4, randomRows/2, 2, nil) }

func (b *randomProgram) instr() {
	in := program.Instr{Event: -1, Group: -1, Stream: b.pick(len(b.p.Streams)), Node: fmt.Sprintf("n%d", len(b.p.Instrs))}
	x, y := b.live[b.pick(len(b.live))], b.live[b.pick(len(b.live))]
	sum := attr.List{{Key: "reduce", Val: attr.String([]string{"sum", "max", "min"}[b.pick(3)])}}
	d0 := attr.Attr{Key: "dim", Val: attr.Int(0)}
	switch b.pick(11) {
	case 0, 1:
		in.Kind, in.Op = program.Launch, []string{"add", "mul", "sub"}[b.pick(3)]
		in.Ins = []program.Tensor{whole(x), whole(y)}
		in.Outs = []program.Tensor{whole(b.value(b.slot(x, y)))}
	case 2: // a part of a value that is there is overwritten
		if slices.Contains(b.kept, y) || x == y {
			return
		}
		in.Kind = program.Copy
		parts := []func(int, int) program.Tensor{column, half}[b.pick(2)]
		in.Ins, in.Outs = []program.Tensor{parts(x, b.pick(2))}, []program.Tensor{parts(y, b.pick(2))}
	case 3: // in place
		if slices.Contains(b.kept, x) {
			return
		}
		in.Kind, in.Op = program.Launch, "add"
		in.Ins, in.Outs = []program.Tensor{whole(x), whole(x)}, []program.Tensor{whole(x)}
	case 4, 5:
		if !b.call(&in, x, y) {
			return
		}
	default:
		in.Kind = program.Collective
		in.Group = max(b.p.Streams[in.Stream].Group, 0)
		in.Ins = []program.Tensor{whole(x)}
		switch b.pick(6) {
		case 0:
			in.Op, in.Attrs = "all_reduce", sum
			if b.pick(2) == 0 && !slices.Contains(b.kept, x) {
				in.Outs = in.Ins
			}
		case 1:
			in.Op, in.Attrs, in.Ins = "all_gather", attr.List{d0}, []program.Tensor{half(x, b.pick(2))}
		case 2:
			// The other half stays what it is: a value is whole before it is read.
			if slices.Contains(b.kept, y) || x == y {
				return
			}
			in.Op, in.Attrs, in.Outs = "reduce_scatter", attr.List{d0, sum[0]}, []program.Tensor{half(y, b.pick(2))}
		case 3:
			in.Op = "all_to_all"
		case 4:
			in.Op, in.Attrs = "broadcast", attr.List{{Key: "root", Val: attr.Int(int64(b.pick(2)))}}
		case 5:
			in.Op, in.Attrs = "collective_permute", attr.List{{Key: "pairs", Val: attr.Ints(0, 1)}}
		}
		if in.Outs == nil {
			in.Outs = []program.Tensor{whole(b.value(b.slot(x)))}
		}
		b.last, b.at = in.Outs[0].Buffer, len(b.p.Instrs)+1
	}
	b.p.Instrs = append(b.p.Instrs, in)
}

// call makes in a call that writes x, shows it under another name, or both, and may
// read y or communicate. False if x has to stay as it is.
func (b *randomProgram) call(in *program.Instr, x, y int) bool {
	in.Kind, in.Op = program.Launch, "call"
	parts := []func(int, int) program.Tensor{column, half, func(v, _ int) program.Tensor { return whole(v) }}
	part := parts[b.pick(len(parts))]
	in.Ins = []program.Tensor{part(x, b.pick(2))}
	effects := [][]string{{"writes"}, {"writes"}, {"alias"}, {"alias", "writes"}}[b.pick(4)]
	if slices.Contains(b.kept, x) && effects[len(effects)-1] == "writes" {
		return false
	}
	if slices.Contains(effects, "alias") {
		in.Outs = slices.Clone(in.Ins)
	}
	if x != y && b.pick(2) == 0 {
		in.Ins = append(in.Ins, whole(y))
	}
	if b.pick(4) == 0 {
		effects, in.Group = append(slices.Clone(effects), "communicates"), max(b.p.Streams[in.Stream].Group, 0)
	}
	in.Attrs = attr.List{{Key: "effects", Val: attr.Strings(effects...)}, {Key: "target", Val: attr.String(Target)}}
	if slices.Contains(effects, "writes") {
		in.Attrs = in.Attrs.With("writes", attr.Ints(0))
	}
	return true
}

// outputs makes some of what is left outputs, and sometimes the latest collective
// one that may be in flight.
func (b *randomProgram) outputs() {
	for i, v := range b.live {
		if async := v == b.last && b.at > 0 && b.p.Instrs[b.at-1].Stream > 0; async && b.pick(2) == 0 {
			rec := program.Instr{Kind: program.Record, Stream: b.p.Instrs[b.at-1].Stream, Event: b.p.Events, Group: -1}
			b.p.Instrs = slices.Insert(b.p.Instrs, b.at, rec)
			b.p.Outputs = append(b.p.Outputs, program.Param{Name: fmt.Sprintf("out%d", i), Async: true, Event: b.p.Events, Tensors: []program.Tensor{whole(v)}})
			b.p.Events++
		} else if b.pick(2) == 0 {
			b.p.Outputs = append(b.p.Outputs, program.Param{Name: fmt.Sprintf("out%d", i), Event: -1, Tensors: []program.Tensor{whole(v)}})
		}
	}
}

// AddEvents adds to p the events that the checker's findings ask for, one finding at a
// time, until there are none. It fails if a finding names no remedy, or after more
// rounds than p has pairs of instructions.
func AddEvents(p *program.Program) (*program.Program, error) {
	p = clone(p)
	p.Outputs = slices.Clone(p.Outputs)
	for range (len(p.Instrs) + 10) * (len(p.Instrs) + 10) {
		r, err := program.CheckWith(p, program.CheckOptions{})
		if err != nil {
			return nil, err
		}
		if len(r.Findings) == 0 {
			return p, nil
		}
		f := &r.Findings[0]
		from, to, event, toStream := f.First.Index, -1, -1, 0
		if e := f.Missing; e != nil {
			from, to, event = e.From, e.To, e.Event
			toStream = max(e.ToStream, 0)
		} else if f.Kind != program.LeftRunning {
			return nil, fmt.Errorf("no event would mend this:\n%s", r)
		}
		if f.Kind == program.LeftRunning && f.First.Kind == program.AtInput {
			from, event = -1, p.Inputs[f.First.Index].Event
		}
		if to < 0 {
			to = len(p.Instrs)
		}
		wait := program.Instr{Kind: program.Wait, Stream: toStream, Event: event, Group: -1}
		if event < 0 {
			if from < 0 {
				return nil, fmt.Errorf("no event stands for the start:\n%s", r)
			}
			wait.Event = p.Events
			rec := program.Instr{Kind: program.Record, Stream: p.Instrs[from].Stream, Event: p.Events, Group: -1}
			p.Events++
			p.Instrs = slices.Insert(p.Instrs, to, wait)
			p.Instrs = slices.Insert(p.Instrs, from+1, rec)
			continue
		}
		p.Instrs = slices.Insert(p.Instrs, to, wait)
	}
	return nil, fmt.Errorf("the findings do not end")
}

// InsertEvents inserts records and waits where bytes say: three of them give a place,
// a stream and an event of at most eight, and whether it is a wait.
func InsertEvents(p *program.Program, bytes []byte) {
	first := p.Events
	p.Events += 8
	for ; len(bytes) >= 3 && len(p.Instrs) < 200; bytes = bytes[3:] {
		in := program.Instr{Kind: program.Record, Stream: int(bytes[1]) % len(p.Streams), Event: first + int(bytes[2])%8, Group: -1}
		if bytes[1]&128 != 0 {
			in.Kind = program.Wait
		}
		p.Instrs = slices.Insert(p.Instrs, int(bytes[0])%(len(p.Instrs)+1), in)
	}
}

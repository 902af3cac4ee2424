package program

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
)

// Validate checks what every reader of a program relies on: indices within their
// lists, tensors within their buffers and buffers within the arena, events
// recorded before they are waited for, operand counts. It does not prove the
// absence of races. Linear time; the error is the first finding, with its declaration or the
// number of its instruction.
func (p *Program) Validate() error {
	if p.World < 1 || len(p.Streams) == 0 {
		return fmt.Errorf("program %s: a world of %d ranks, %d streams; want at least one of each", p.Name, p.World, len(p.Streams))
	}
	for i, r := range p.Ranks {
		if r < 0 || r >= p.World || i > 0 && r <= p.Ranks[i-1] {
			return fmt.Errorf("program %s: is for ranks %v: want ranks of the world of %d in ascending order", p.Name, p.Ranks, p.World)
		}
	}
	for _, s := range p.Symbols {
		if s.Min < 0 || s.Hint < s.Min || s.Hint > s.Max {
			return fmt.Errorf("program %s: symbol %s has hint %d outside %d..%d", p.Name, s.Name, s.Hint, s.Min, s.Max)
		}
	}
	for _, n := range p.Needs {
		if r, ok := p.Bounds(n.Size); !ok || r.Max < 0 {
			return fmt.Errorf("program %s: %%%s needs %v not to be negative, which no values of the symbols make so", p.Name, n.Node, n.Size)
		}
	}
	for i, s := range p.Streams {
		if s.Group < -1 || s.Group >= len(p.Groups) || (i == 0) != (s.Group < 0) {
			return fmt.Errorf("program %s: stream @%s: the first stream computes and every other one serves a group", p.Name, s.Name)
		}
	}
	for _, b := range p.Buffers {
		if b.Offset < 0 || b.Offset%Align != 0 || b.Size < 0 || b.Offset > p.Arena-b.Size {
			return fmt.Errorf("program %s: buffer %%%s at %d of %d bytes does not lie aligned in the arena of %d", p.Name, b.Name, b.Offset, b.Size, p.Arena)
		}
	}
	if err := p.checkKernels(); err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	blocks, err := p.Blocks()
	if err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	if err := p.checkSizes(blocks); err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	fired := make([]bool, p.Events)
	var before [][]bool // what had fired when the open blocks began
	for _, in := range p.Inputs {
		if err := p.checkParam(&in, fired); err != nil {
			return fmt.Errorf("program %s: input %s: %w", p.Name, in.Name, err)
		}
	}
	for i := range p.Instrs {
		if blocks != nil && blocks[i] != nil {
			switch b := blocks[i]; {
			case i == b.At:
				before = append(before, slices.Clone(fired))
			case p.Instrs[i].Kind != Test: // what a branch or an iteration records, nobody else waits for
				copy(fired, before[len(before)-1])
			}
			if p.Instrs[i].Kind == End {
				before = before[:len(before)-1]
			}
		}
		if err := p.checkInstr(&p.Instrs[i], fired); err != nil {
			return fmt.Errorf("program %s: instruction %d (%s): %w", p.Name, i, p.Instrs[i].Node, err)
		}
	}
	for _, out := range p.Outputs {
		if err := p.checkParam(&out, nil); err != nil {
			return fmt.Errorf("program %s: output %s: %w", p.Name, out.Name, err)
		}
		if out.Async && !fired[out.Event] {
			return fmt.Errorf("program %s: output %s: event %d is never recorded", p.Name, out.Name, out.Event)
		}
	}
	return p.checkDonations()
}

// checkDonations checks that an output is exactly where the input that is donated to it
// lay, and that inputs and outputs take part once.
func (p *Program) checkDonations() error {
	to := make([]bool, len(p.Outputs))
	for k, d := range p.Donations {
		if d.Input < 0 || d.Input >= len(p.Inputs) || d.Output < 0 || d.Output >= len(p.Outputs) {
			return fmt.Errorf("program %s: input %d of %d is donated to output %d of %d", p.Name, d.Input, len(p.Inputs), d.Output, len(p.Outputs))
		}
		in, out := &p.Inputs[d.Input], &p.Outputs[d.Output]
		if k > 0 && p.Donations[k-1].Input >= d.Input || to[d.Output] {
			return fmt.Errorf("program %s: input %s is donated to output %s: each takes part once, in the order of inputs", p.Name, in.Name, out.Name)
		}
		to[d.Output] = true
		if in.Async || out.Async || !p.sameTensor(&in.Tensors[0], &out.Tensors[0]) {
			return fmt.Errorf("program %s: input %s is donated to output %s, which is not a tensor of its type in its place", p.Name, in.Name, out.Name)
		}
	}
	return nil
}

// sameTensor reports whether two tensors are the same elements of one type.
func (p *Program) sameTensor(t, u *Tensor) bool {
	return t.DType == u.DType && slices.EqualFunc(t.Shape, u.Shape, dim.Dim.Equal) && p.sameElements(t, u)
}

// Donated returns the output that input i is donated to, -1 if there is none.
func (p *Program) Donated(i int) int {
	k, ok := slices.BinarySearchFunc(p.Donations, i, func(d Donation, i int) int { return d.Input - i })
	if !ok {
		return -1
	}
	return p.Donations[k].Output
}

// checkParam checks an input or output; fired collects the events of async inputs.
func (p *Program) checkParam(q *Param, fired []bool) error {
	if !q.Async && (len(q.Tensors) != 1 || q.Event != -1) || len(q.Tensors) == 0 {
		return fmt.Errorf("%d tensors and event %d; a plain parameter has one tensor and no event", len(q.Tensors), q.Event)
	}
	if q.Async {
		if q.Event < 0 || q.Event >= p.Events {
			return fmt.Errorf("event %d of %d", q.Event, p.Events)
		}
		if fired != nil {
			fired[q.Event] = true
		}
	}
	return p.checkTensors(q.Tensors)
}

func (p *Program) checkInstr(in *Instr, fired []bool) error {
	if in.Stream < 0 || in.Stream >= len(p.Streams) {
		return fmt.Errorf("stream %d of %d", in.Stream, len(p.Streams))
	}
	switch in.Kind {
	case Record, Wait:
		if in.Event < 0 || in.Event >= p.Events {
			return fmt.Errorf("event %d of %d", in.Event, p.Events)
		}
		if in.Kind == Wait && !fired[in.Event] {
			return fmt.Errorf("waits for event %d, which nothing before it records", in.Event)
		}
		fired[in.Event] = true
	case Loop, Test, Case, Branch, End:
		return p.checkBracket(in)
	case Collective:
		if in.Group >= 0 && in.Group < len(p.Groups) {
			if r := p.missing(&p.Groups[in.Group]); r >= 0 {
				return fmt.Errorf("rank %d runs it and is not in @%s", r, p.Groups[in.Group].Name)
			}
		}
		if in.Group < 0 || in.Group >= len(p.Groups) || len(in.Ins) == 0 || len(in.Ins) != len(in.Outs) {
			return fmt.Errorf("group %d of %d, %d operands, %d results; want a group and as many results as operands", in.Group, len(p.Groups), len(in.Ins), len(in.Outs))
		}
	case Copy:
		if len(in.Ins) != 1 || len(in.Outs) != 1 {
			return fmt.Errorf("copies %d tensors to %d, want one to one", len(in.Ins), len(in.Outs))
		}
	case Launch:
		switch {
		case in.Op == "":
			return fmt.Errorf("launches nothing")
		case in.Group < -1 || in.Group >= len(p.Groups):
			return fmt.Errorf("group %d of %d", in.Group, len(p.Groups))
		case in.IsCall():
			return p.checkCall(in)
		case in.Op == "shard" && (in.Group < 0 || len(in.Ins) != 1 || len(in.Outs) != 1):
			return fmt.Errorf("a shard takes a group, one operand and one result")
		}
	default:
		return fmt.Errorf("kind %d", in.Kind)
	}
	if err := p.checkTensors(in.Ins); err != nil {
		return err
	}
	if err := p.checkTensors(in.Outs); err != nil {
		return err
	}
	switch {
	case in.Kind == Launch && in.Op == OpFused:
		return p.checkFused(in)
	case in.Kind == Collective && in.Op == "all_to_all":
		return p.checkSplits(in)
	}
	return nil
}

// checkCall checks a call's effects, and its tensors.
func (p *Program) checkCall(in *Instr) error {
	for _, i := range in.Attrs.Ints("writes") {
		if i < 0 || i >= int64(len(in.Ins)) || !in.has("writes") {
			return fmt.Errorf("writes=[%d] names no operand of a call with the effect writes", i)
		}
	}
	if err := p.checkTensors(in.Ins); err != nil {
		return err
	}
	if err := p.checkTensors(in.Outs); err != nil || !in.Aliases() {
		return err
	}
	for i := range in.Outs {
		if len(in.Ins) == 0 || in.Outs[i].Buffer != in.Ins[0].Buffer {
			return fmt.Errorf("result %d aliases operand 0 and does not lie in its buffer", i)
		}
	}
	return nil
}

// checkSplits checks that the pieces of an all_to_all are never negative and make up
// dimension 0.
func (p *Program) checkSplits(in *Instr) error {
	send, receive, err := in.Splits()
	if err != nil || send == nil && receive == nil {
		return err
	}
	for k, lists := range [2][][]dim.Dim{send, receive} {
		key, ts := [2]string{"in_splits", "out_splits"}[k], [2][]Tensor{in.Ins, in.Outs}[k]
		if len(lists) != len(ts) {
			return fmt.Errorf("%s has %d entries for %d operands", key, len(lists), len(ts))
		}
		for i, list := range lists {
			sum := dim.New(0)
			for _, d := range list {
				if _, ok := p.Bound(d); !ok {
					return fmt.Errorf("%s: size %v may be negative or too large", key, d)
				}
				sum = sum.Add(d)
			}
			if len(list) != p.Groups[in.Group].Size() || len(ts[i].Shape) == 0 || !p.needed(sum.Sub(ts[i].Shape[0])) || !p.needed(ts[i].Shape[0].Sub(sum)) {
				return fmt.Errorf("%s: %d sizes that add up to %v do not make up dimension 0 of tensor %d", key, len(list), sum, i)
			}
		}
	}
	return nil
}

// needed reports whether a size is not negative, since it never is or since the program needs
// it not to be.
func (p *Program) needed(d dim.Dim) bool {
	r, ok := p.Bounds(d)
	return ok && r.Min >= 0 || slices.ContainsFunc(p.Needs, func(n Need) bool { return n.Size.Equal(d) })
}

func (p *Program) checkTensors(ts []Tensor) error {
	for i := range ts {
		t := &ts[i]
		if t.Buffer < 0 || t.Buffer >= len(p.Buffers) {
			return fmt.Errorf("tensor %d: buffer %d of %d", i, t.Buffer, len(p.Buffers))
		}
		b := &p.Buffers[t.Buffer]
		if t.Strides != nil && len(t.Strides) != len(t.Shape) {
			return fmt.Errorf("tensor %d has %d dimensions and %d strides", i, len(t.Shape), len(t.Strides))
		}
		n, ok := p.Span(t)
		if !t.DType.Valid() || !ok || t.Offset < 0 || n > b.Size-t.Offset {
			return fmt.Errorf("tensor %d reaches %d bytes from %d in buffer %%%s of %d", i, n, t.Offset, b.Name, b.Size)
		}
	}
	return nil
}

// missing is a rank of the program's that a group does not have, -1 if there is none. Programs
// for every rank are not asked: who opens a world checks its groups.
func (p *Program) missing(g *Group) int {
	for _, r := range p.Ranks {
		if !slices.ContainsFunc(g.Ranks, func(sub []int) bool { return slices.Contains(sub, r) }) {
			return r
		}
	}
	return -1
}

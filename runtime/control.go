package runtime

import (
	"context"
	"fmt"
	"iter"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
)

// Loops and branches. The host runs them: it waits for the number that decides,
// reads it, and enqueues what comes next. Where a step is planned nothing runs and no number
// is known: each loop then runs once, and every branch is taken. A step that is captured
// is written down in the same way, with brackets between, and the device chooses.

// ConditionalCapturer is a Capturer whose steps may run loops and branches by themselves.
type ConditionalCapturer interface {
	// Bracket adds what begins, divides or ends a loop or a case to the step that is being
	// collected. All streams have been joined. What the device cannot do is a *ControlFlowError of EndCapture,
	// on all ranks.
	Bracket(s Stream, b Bracket) error
}

// Bracket begins, divides or ends a loop or a case, as in programs.
type Bracket struct {
	Kind   program.Kind // Loop, Test, Case, Branch, End
	Number Tensor       // of Test and Case: what decides
}

// ways says what is done about numbers that decide.
type ways uint8

const (
	chosen  ways = iota // they are waited for
	all                 // nothing runs: each way once
	written             // a step is captured: each way once, between brackets
)

// Loop is a loop of one run.
type Loop struct {
	x          *Exec
	iterations int
	calls      int // of the step, when it began
}

// Loop begins a loop:
//
//	for l := x.Loop(); l.Next(); {
//		... // computes whether to go on
//		if !l.Holds(number) {
//			break
//		}
//		...
//	}
func (x *Exec) Loop() *Loop {
	x.node = ""
	x.join()
	x.bracket(program.Loop, Tensor{})
	return &Loop{x: x, calls: x.calls}
}

// Next begins an iteration, after all of the last; false after an error.
func (l *Loop) Next() bool {
	x := l.x
	x.join()
	if l.iterations > 0 {
		x.bracket(program.End, Tensor{})
	}
	if x.err != nil || l.iterations > 0 && x.ways != chosen {
		return false
	}
	l.iterations++
	x.calls = l.calls // an iteration makes the calls of the last one
	return true
}

// Holds waits for a number and reports whether it is not 0.
func (l *Loop) Holds(number Tensor) bool {
	n, ok := l.x.number(program.Test, number)
	return ok && (n != 0 || l.x.ways != chosen)
}

// Case waits for a number and gives it, where it is not one of so many branches the last one.
//
//	for k := range x.Case(number, 2) {
//		switch k {
//		case 0:
//			...
//		case 1:
//			...
//		}
//	}
func (x *Exec) Case(number Tensor, branches int) iter.Seq[int] {
	return func(yield func(int) bool) {
		x.node = ""
		n, ok := x.number(program.Case, number)
		if n < 0 || n >= int64(branches) {
			n = int64(branches) - 1
		}
		for k := range branches {
			if !ok || x.ways == chosen && int64(k) != n {
				continue
			}
			x.bracket(program.Branch, Tensor{})
			if !yield(k) {
				return
			}
			x.join()
		}
		x.bracket(program.End, Tensor{})
	}
}

// bracket writes a bracket down where a step is captured.
func (x *Exec) bracket(k program.Kind, number Tensor) {
	if x.err != nil || x.ways != written {
		return
	}
	dev, ok := x.r.dev.(ConditionalCapturer)
	if !ok {
		x.fail(opName(k.String()), fmt.Errorf("steps of a %s device do not choose: %w", x.r.dev.Info().Kind, ErrUnsupported))
		return
	}
	x.done(dev.Bracket(x.l.streams[0].Stream, Bracket{k, number}))
}

// join makes all streams wait for each other.
func (x *Exec) join() {
	streams := x.l.streams
	if x.err != nil || len(streams) < 2 {
		return
	}
	first := streams[0]
	for _, s := range streams[1:] {
		x.done(x.r.dev.Record(s.Stream, s.end))
		x.done(x.r.dev.Wait(first.Stream, s.end))
	}
	x.done(x.r.dev.Record(first.Stream, first.end))
	for _, s := range streams[1:] {
		x.done(x.r.dev.Wait(s.Stream, first.end))
	}
}

// number waits for all streams and reads a number.
func (x *Exec) number(what program.Kind, t Tensor) (int64, bool) {
	op := opName(what.String())
	x.join()
	ts, ok := x.place(op, []Tensor{t})
	if x.err != nil || !ok {
		return 0, false
	}
	if len(t.Shape) > 0 || t.DType.IsFloat() {
		x.fail(op, fmt.Errorf("goes by %v, want an integer or a truth value without dimensions", t))
		return 0, false
	}
	if x.ways != chosen {
		x.bracket(what, ts[0])
		return 0, x.err == nil
	}
	first := x.l.streams[0]
	if err := x.r.dev.Record(first.Stream, first.end); err != nil {
		x.done(err)
		return 0, false
	}
	// Who cancels the run aborts the device.
	if err := x.r.dev.Synchronize(context.Background(), first.end); err != nil {
		x.done(err)
		return 0, false
	}
	data := make([]byte, t.DType.Size())
	if err := x.r.dev.Download(data, ts[0]); err != nil {
		x.done(err)
		return 0, false
	}
	return dtype.LoadInt(t.DType, data), true
}

// interpreter enqueues a program's instructions.
type interpreter struct {
	x      *Exec
	p      *program.Program
	known  []made
	blocks []*program.Block
}

// run enqueues instructions from one to before another.
func (t *interpreter) run(from, to int) {
	x := t.x
	for i := from; i < to && x.err == nil; i++ {
		if t.blocks != nil && t.blocks[i] != nil {
			t.block(t.blocks[i])
			i = t.blocks[i].End
			continue
		}
		if x.again(&t.known[i]) {
			continue
		}
		x.keep, x.varies = &t.known[i], false
		x.instr(t.p, &t.p.Instrs[i])
		x.keep = nil
	}
}

// block runs a loop or a case.
func (t *interpreter) block(b *program.Block) {
	x, p := t.x, t.p
	number := func(i int) Tensor {
		ts, err := x.resolve(p, p.Instrs[i].Ins)
		if err != nil {
			x.fail(opName("%"+p.Instrs[i].Node), err)
			return Tensor{}
		}
		return ts[0]
	}
	if p.Instrs[b.At].Kind == program.Loop {
		for l := x.Loop(); l.Next(); {
			if t.run(b.At+1, b.Parts[0]); !l.Holds(number(b.Parts[0])) {
				break
			}
			t.run(b.Parts[0]+1, b.End)
		}
		return
	}
	for k := range x.Case(number(b.At), len(b.Parts)) {
		end := b.End
		if k+1 < len(b.Parts) {
			end = b.Parts[k+1]
		}
		t.run(b.Parts[k]+1, end)
	}
}

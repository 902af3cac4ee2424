package place

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/pack"
	"github.com/seed-ee968945/concert/ir"
)

// searchBuffers is the largest number of buffers for which a plan is searched for
// where best fit is not good enough, searchSteps the effort (see pack.Options).
const (
	searchBuffers = 1000
	searchSteps   = 20_000_000
)

// Plan is where the buffers of a layout are.
type Plan struct {
	Offsets []int64 // by buffer, in bytes
	Height  int64   // bytes of the arena
	Bound   int64   // no plan is lower than this
}

// CapacityError reports a layout that does not fit. It unwraps to the
// *pack.CapacityError.
type CapacityError struct {
	*pack.CapacityError
	Layout *Layout
}

// shownAtPeak bounds the tensors that a message names.
const shownAtPeak = 10

// Error implements error: the sizes, and the largest tensors that live at the peak.
func (e *CapacityError) Error() string {
	f := e.Layout.Func
	var b strings.Builder
	verdict := "no placement was found within it"
	if e.Proved {
		verdict = "none fits"
	}
	fmt.Fprintf(&b, "the arena needs %d bytes and may have %d; %s, every placement needs %d\n", e.Height, e.CapacityError.Capacity, verdict, e.LowerBound)
	at := ""
	if order := f.Order(); e.PeakTime >= 0 && e.PeakTime < int64(len(order)) {
		at = " at %" + order[e.PeakTime].Name()
	}
	fmt.Fprintf(&b, "the most lives%s: %d tensors of %d bytes together, the largest being", at, len(e.Peak), e.PeakBytes)
	for i, k := range e.Peak {
		if i == shownAtPeak {
			fmt.Fprintf(&b, "\n  and %d more", len(e.Peak)-shownAtPeak)
			break
		}
		t := &e.Layout.Buffers[k]
		fmt.Fprintf(&b, "\n  %%%s: %s, %d bytes", t.Name, t.Type, t.Bytes)
	}
	return b.String()
}

// Unwrap returns the packer's error.
func (e *CapacityError) Unwrap() error { return e.CapacityError }

// Problem is the placement problem of the layout: buffer i is buffer i. Times are
// positions, so a buffer's upper end is Last+1. The error is a malformed pin.
func (l *Layout) Problem() (pack.Problem, error) {
	var p pack.Problem
	for i := range l.Buffers {
		b := &l.Buffers[i]
		q := pack.Buffer{Lower: int64(b.Def), Upper: int64(b.Last) + 1, Size: b.Size(), Align: Align}
		if pins := b.Node.Meta().Ints(PinKey); pins != nil && !b.Copy && !b.Room {
			if b.Index >= len(pins) {
				return p, fmt.Errorf("%%%s: %s has %d entries, the node has more result tensors", b.Node.Name(), PinKey, len(pins))
			}
			if at := pins[b.Index]; at != -1 {
				q.Pinned, q.Offset = true, at
			}
		}
		p.Buffers = append(p.Buffers, q)
	}
	if err := p.Check(); err != nil {
		return p, l.named(err)
	}
	return p, nil
}

// Bound is the largest sum of buffers that live together, in bytes: no plan is lower.
func (l *Layout) Bound() (int64, error) {
	p, err := l.Problem()
	if err != nil {
		return 0, err
	}
	return pack.LowerBound(p)
}

// Place plans the layout. With a capacity above 0, a plan that exceeds it is a
// *CapacityError; if ctx ends, the plan is worse than it had to be. It is deterministic; time is near-linear in the buffers.
func (l *Layout) Place(ctx context.Context, capacity int64) (*Plan, error) {
	p, err := l.Problem()
	if err != nil {
		return nil, err
	}
	plan, err := solve(ctx, p, capacity)
	if full, ok := err.(*pack.CapacityError); ok {
		return nil, &CapacityError{full, l}
	}
	if err != nil {
		return nil, l.named(err)
	}
	return plan, nil
}

// Unpacked places every buffer behind the one before it.
func (l *Layout) Unpacked() *Plan {
	p := &Plan{Offsets: make([]int64, len(l.Buffers))}
	for i := range l.Buffers {
		p.Offsets[i] = p.Height
		p.Height += l.Buffers[i].Size()
	}
	return p
}

func solve(ctx context.Context, p pack.Problem, capacity int64) (*Plan, error) {
	opt := pack.Options{Capacity: capacity, Steps: -1}
	if len(p.Buffers) <= searchBuffers {
		opt.Steps = searchSteps
	}
	r, err := pack.Solve(ctx, p, opt)
	if err != nil {
		return nil, err
	}
	return &Plan{Offsets: r.Offsets, Height: (r.Height + Align - 1) / Align * Align, Bound: r.LowerBound}, nil
}

// named puts the buffers' names into an error of the packer.
func (l *Layout) named(err error) error {
	switch e := err.(type) {
	case *pack.BufferError:
		return fmt.Errorf("%%%s: %s", l.Buffers[e.Buffer].Name, e.Reason)
	case *pack.OverlapError:
		return fmt.Errorf("%%%s at %d of %d bytes and %%%s at %d of %d bytes live at the same time and share bytes",
			l.Buffers[e.A].Name, e.OffsetA, e.SizeA, l.Buffers[e.B].Name, e.OffsetB, e.SizeB)
	}
	return err
}

// Annotate writes a plan of the layout into its function.
func (l *Layout) Annotate(offsets []int64) {
	for _, n := range l.Func.Order() {
		meta := n.Meta().Without(OffsetKey).Without(OperandOffsetKey)
		if !meta.Equal(n.Meta()) {
			l.Func.SetMeta(n, meta)
		}
	}
	lists := map[copyKey][]int64{} // look-up only; operand counts the list: 0 results, 1 operands
	var nodes []*ir.Node
	for i := range l.Buffers {
		b := &l.Buffers[i]
		key, length := copyKey{b.Node.ID(), 0}, 0
		if b.Copy {
			key.operand, length = 1, len(b.Node.Args())
		} else {
			for _, r := range b.Node.Results() {
				length += len(r.Type().Tensors())
			}
			if b.Node.Op().Info().Bodies != nil {
				length++
			}
		}
		if lists[key] == nil {
			list := make([]int64, length)
			for k := range list {
				list[k] = -1
			}
			lists[key] = list
			nodes = append(nodes, b.Node)
		}
		lists[key][b.Index] = offsets[i]
	}
	for _, n := range nodes {
		meta := n.Meta()
		for k, name := range [2]string{OffsetKey, OperandOffsetKey} {
			if list := lists[copyKey{n.ID(), k}]; list != nil {
				meta = meta.With(name, attr.Ints(list...))
			}
		}
		l.Func.SetMeta(n, meta)
	}
}

// Annotated reads the plan that plan-memory left in the function; false if there is
// none. A plan that is not of this function, because something changed since, is an
// error.
func (l *Layout) Annotated() (*Plan, bool, error) {
	stale := func(format string, args ...any) (*Plan, bool, error) {
		return nil, false, fmt.Errorf("the offsets of plan-memory are stale: %s; run plan-memory after every other pass", fmt.Sprintf(format, args...))
	}
	any := false
	for _, n := range l.Func.Order() {
		any = any || n.Meta().Has(OffsetKey)
	}
	if !any {
		return nil, false, nil
	}
	p, err := l.Problem()
	if err != nil {
		return nil, false, err
	}
	plan := &Plan{Offsets: make([]int64, len(l.Buffers))}
	for i := range l.Buffers {
		b := &l.Buffers[i]
		key := OffsetKey
		if b.Copy {
			key = OperandOffsetKey
		}
		list := b.Node.Meta().Ints(key)
		if b.Index >= len(list) || list[b.Index] < 0 {
			return stale("%%%s has none", b.Name)
		}
		plan.Offsets[i] = list[b.Index]
		plan.Height = max(plan.Height, list[b.Index]+b.Size())
	}
	if err := pack.Verify(p, plan.Offsets, plan.Height); err != nil {
		return stale("%v", l.named(err))
	}
	if plan.Bound, err = pack.LowerBound(p); err != nil {
		return nil, false, err
	}
	return plan, true, nil
}

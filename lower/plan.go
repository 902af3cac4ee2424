package lower

import (
	"context"
	"fmt"

	"github.com/seed-ee968945/concert/internal/pack"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
)

// MemoryPlan is the placement problem of a function: which buffers it needs and
// when. Times are positions in the function's order; see the package for why
// order in the list is order in time.
type MemoryPlan struct {
	Buffers []PlannedBuffer // buffer i is Problem.Buffers[i]
	Problem pack.Problem

	layout *place.Layout
}

// PlannedBuffer names a buffer, says which tensor it was made for, and gives its
// size before alignment, in bytes.
type PlannedBuffer struct {
	Name  string
	Type  ir.Type
	Bytes int64
}

// Plan returns the placement problem of a verified function, with the reuse that its
// annotations ask for. The error says which annotation or size is wrong.
func Plan(f *ir.Func) (*MemoryPlan, error) {
	lay, err := place.Of(f)
	if err != nil {
		return nil, fmt.Errorf("plan: @%s: %w", f.Name, err)
	}
	p := &MemoryPlan{layout: lay}
	if p.Problem, err = lay.Problem(); err != nil {
		return nil, fmt.Errorf("plan: @%s: %w", f.Name, err)
	}
	for i := range lay.Buffers {
		b := &lay.Buffers[i]
		p.Buffers = append(p.Buffers, PlannedBuffer{b.Name, b.Type, b.Bytes})
	}
	return p, nil
}

// Offsets are those that plan-memory left in the function; false if there are none. The error
// says which of them is wrong.
func (p *MemoryPlan) Offsets() ([]int64, bool, error) {
	plan, ok, err := p.layout.Annotated()
	if err != nil || !ok {
		return nil, false, err
	}
	return plan.Offsets, true, nil
}

// Explain puts names and types into an error about a capacity; other errors are
// returned as they are.
func (p *MemoryPlan) Explain(err error) error {
	if full, ok := err.(*pack.CapacityError); ok {
		return &place.CapacityError{CapacityError: full, Layout: p.layout}
	}
	return err
}

// Place plans the buffers afresh and returns the height of the arena in bytes. The error is
// that of sizes that do not add up to an int64.
func (p *MemoryPlan) Place() (int64, error) {
	plan, err := p.layout.Place(context.Background(), 0)
	if err != nil {
		return 0, err
	}
	return plan.Height, nil
}

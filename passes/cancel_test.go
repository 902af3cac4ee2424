package passes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

// countdown is a context that ends when it has been asked so often.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// Passes ask their context while they work, and end with its error wherever it ends.
func TestRunContext(t *testing.T) {
	for _, name := range []string{"simplify-collectives", "bucket", "overlap", "add-slack", "reorder-comms", "fuse", "fuse{kernels=true}", "plan-memory"} {
		t.Run(name, func(t *testing.T) {
			run := func(left int) (asked int, err error) {
				m, err := layers(600)
				if err != nil {
					t.Fatal(err)
				}
				p, err := standard.Table().Parse(name)
				if err != nil {
					t.Fatal(err)
				}
				g := passes.Manager{Costs: cost.TracedH200()}
				ctx := &countdown{t.Context(), left}
				_, err = g.RunContext(ctx, m, p)
				return left - ctx.left, err
			}
			const many = 1 << 30
			asked, err := run(many)
			if err != nil {
				t.Fatal(err)
			}
			if asked < 5 {
				t.Fatalf("the pass asked its context %d times", asked)
			}
			for _, left := range []int{0, 1, 2, asked / 2, asked - 1} {
				if _, err := run(left); !errors.Is(err, context.Canceled) {
					t.Errorf("ended at %d of %d: %v", left, asked, err)
				}
			}
		})
	}
}

// A pass that breaks after its context has ended says that it was ended.
func TestRunContextPanic(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	table, err := passes.NewTable([]passes.Pass{{Name: "slow", Doc: "Works until it is told to end.", Run: func(c *passes.Context, f *ir.Func) error {
		cancel()
		for {
			c.Tick()
		}
	}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := layers(10)
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.Parse("slow")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&passes.Manager{}).RunContext(ctx, m, p); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

package runtime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurn: a call that waits for a rank in use by another returns when its context ends.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Rank{running: make(chan struct{}, 1)}
		if err := r.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func(context.Context) error{
			"RunModule": func(ctx context.Context) error {
				_, err := RunModule(ctx, r, &Module{}, nil, nil, Options{})
				return err
			},
			"Start":  func(ctx context.Context) error { _, err := r.Start(ctx, "", &Collective{Op: Barrier}); return err },
			"Replay": (&Step{r: r}).Replay,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		r.give()
		if err := r.take(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

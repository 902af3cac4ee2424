package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// interruption is the cause of a context that a signal has ended.
type interruption struct{ sig os.Signal }

// Error implements error.
func (e *interruption) Error() string {
	if e.sig == os.Interrupt {
		return "ended by SIGINT"
	}
	return "ended by SIGTERM"
}

// status is the exit status that shells give to a process that the signal ended.
func (e *interruption) status() int {
	if n, ok := e.sig.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitFindings
}

// endGrace is how long a command may take to end in good order after a signal. Nothing is
// lost if it does not: ranks that are processes die with this one, their memory goes with
// them, and folders of temporary files have guards.
const endGrace = 50 * time.Millisecond

// interruptible runs a command line until it is done or a signal arrives.
func interruptible(signals <-chan os.Signal, args []string, t tool) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan int, 1)
	go func() { done <- run(ctx, args, t) }()
	select {
	case code := <-done:
		return code
	case sig := <-signals:
		why := &interruption{sig}
		cancel(why)
		select {
		case code := <-done:
			if code == exitOK {
				return code
			}
		case <-time.After(endGrace):
		}
		fmt.Fprintf(t.err, "lowerdump %s: %v\n", args[0], why)
		return why.status()
	}
}

// interrupted reports whether a signal has ended ctx.
func interrupted(ctx context.Context) bool {
	var why *interruption
	return errors.As(context.Cause(ctx), &why)
}

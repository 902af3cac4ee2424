// Package foreground is a command before the person who waits for it: signals end it, a line on
// the terminal says what it does. It has the goroutines of the command line and imports none of
// the commands, so that the race detector runs it without them.
package foreground

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	return 1
}

// endGrace is how long a command may take to end in good order after a signal. Nothing is
// lost if it does not: ranks that are processes die with this one, their memory goes with
// them, and folders of temporary files have guards.
const endGrace = 50 * time.Millisecond

// Run runs a command until it is done or a signal arrives, which it says on stderr under the
// command's name, and returns the exit status. A command that has succeeded all the same has
// its own status, 0.
func Run(signals <-chan os.Signal, stderr io.Writer, name string, command func(context.Context) int) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan int, 1)
	go func() { done <- command(ctx) }()
	select {
	case code := <-done:
		return code
	case sig := <-signals:
		why := &interruption{sig}
		cancel(why)
		select {
		case code := <-done:
			if code == 0 {
				return code
			}
		case <-time.After(endGrace):
		}
		fmt.Fprintf(stderr, "%s: %v\n", name, why)
		return why.status()
	}
}

// Interrupted reports whether a signal has ended ctx.
func Interrupted(ctx context.Context) bool {
	var why *interruption
	return errors.As(context.Cause(ctx), &why)
}

package foreground

import (
	"bytes"
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A signal ends a command that works, one that looks whether it should end, and one that does
// not; a command that is done keeps its status.
func TestRun(t *testing.T) {
	stop := make(chan bool) // ends who does not look
	for _, c := range []struct {
		name    string
		sig     os.Signal // nil: none
		command func(context.Context) int
		status  int
		says    string
	}{
		{"no signal", nil, func(context.Context) int { return 2 }, 2, ""},
		{"looks", os.Interrupt, func(ctx context.Context) int { <-ctx.Done(); return 1 }, 130, "tool x: ended by SIGINT\n"},
		{"looks, SIGTERM", syscall.SIGTERM, func(ctx context.Context) int { <-ctx.Done(); return 1 }, 143, "tool x: ended by SIGTERM\n"},
		{"succeeds all the same", os.Interrupt, func(ctx context.Context) int { <-ctx.Done(); return 0 }, 0, ""},
		{"never looks", os.Interrupt, func(context.Context) int { <-stop; return 1 }, 130, "tool x: ended by SIGINT\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop = make(chan bool)
				defer close(stop)
				signals := make(chan os.Signal, 1)
				if c.sig != nil {
					time.AfterFunc(time.Second, func() { signals <- c.sig })
				}
				var b bytes.Buffer
				if got := Run(signals, &b, "tool x", c.command); got != c.status || b.String() != c.says {
					t.Errorf("status %d, said %q; want %d and %q", got, &b, c.status, c.says)
				}
			})
		})
	}
}

// What a signal has ended is told from what its caller has.
func TestInterrupted(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	var b bytes.Buffer
	ended := make(chan bool, 1)
	Run(signals, &b, "tool", func(ctx context.Context) int {
		<-ctx.Done()
		ended <- Interrupted(ctx)
		return 1
	})
	if !<-ended {
		t.Error("a signal is not seen")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Interrupted(ctx) {
		t.Error("a cancelled context is no signal's")
	}
}

// A command that goes on after a signal, announcing phases, steps and warnings, shares nothing
// with what says why it ended.
func TestRunProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal, stderr := make(written, 1000), make(written, 1000)
		p := &Progress{w: terminal, every: time.Millisecond}
		signals := make(chan os.Signal, 1)
		time.AfterFunc(30*time.Millisecond, func() { signals <- os.Interrupt })
		over := make(chan bool)
		code := Run(signals, stderr, "tool x", func(context.Context) int {
			defer close(over)
			defer p.Phase("passes")()
			for i := range 10 { // the last is after Run has given up
				time.Sleep(10 * time.Millisecond)
				p.Step(i, 10, "fuse")
				p.Over(stderr).Write([]byte("warning\n"))
			}
			return 1
		})
		<-over
		if code != 130 || len(stderr) != 11 || len(terminal) < 10 {
			t.Errorf("status %d, %d lines, want 11; drawn %d times", code, len(stderr), len(terminal))
		}
	})
}

// written is a file: it may be written to concurrently.
type written chan string

func (w written) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

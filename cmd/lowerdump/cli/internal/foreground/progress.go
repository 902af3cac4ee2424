package foreground

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress says on a terminal what has been going on for longer than a second:
// one line, redrawn in place, gone once the work is done. A nil *Progress, where
// standard error is no terminal, does nothing.
type Progress struct {
	w     io.Writer
	delay time.Duration // nothing is drawn before, counted from the first phase
	every time.Duration

	mu    sync.Mutex
	start time.Time // of the first phase
	what  string    // going on now; empty between phases
	drawn bool
}

// NewProgress returns the progress of a command that writes errors to w.
func NewProgress(w io.Writer, env func(string) string) *Progress {
	f, ok := w.(*os.File)
	if !ok || env("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &Progress{w: w, delay: time.Second, every: 200 * time.Millisecond}
}

// Phase announces work and returns what ends it, which also clears the line.
// Phases do not overlap.
func (p *Progress) Phase(what string) (end func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.start.IsZero() {
		p.start = time.Now()
	}
	p.what = what
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				p.draw()
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		p.mu.Lock()
		defer p.mu.Unlock()
		p.what = ""
		p.clear()
	}
}

// Step says how far the phase is.
func (p *Progress) Step(number, of int, what string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = fmt.Sprintf("[%d/%d] %s", number, of, what)
}

// Over returns a writer to w, the terminal that p draws on, which clears the line first.
func (p *Progress) Over(w io.Writer) io.Writer {
	if p == nil {
		return w
	}
	return overProgress{p, w}
}

type overProgress struct {
	p *Progress
	w io.Writer
}

func (o overProgress) Write(b []byte) (int, error) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	o.p.clear()
	return o.w.Write(b)
}

// clear removes the line; p.mu is held.
func (p *Progress) clear() {
	if p.drawn {
		p.drawn = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *Progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(p.start)
	if p.what == "" || took < p.delay {
		return
	}
	p.drawn = true
	fmt.Fprintf(p.w, "\r\x1b[K%s, %d s", p.what, int(took.Seconds()))
}

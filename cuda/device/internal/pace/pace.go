// Package pace decides how the host waits for a device.
// A spinning core sees the end of a step within a microsecond; a sleeping one wakes up to a
// tenth of a millisecond late. A step usually takes as long as the previous one. So a wait
// sleeps for most of that time, spins around the expected end, and after that sleeps again for
// longer and longer intervals.
package pace

import (
	"sync/atomic"
	"time"
)

const (
	blindSpin = 50 * time.Microsecond  // of a wait that nothing is known of
	leastRest = 20 * time.Microsecond  // shorter sleeps take as long
	mostRest  = 250 * time.Microsecond // until a failure is noticed at the latest
	wakeUp    = 80 * time.Microsecond  // by how much a sleep may be late
	mostSpin  = 250 * time.Microsecond // before the expected end, and behind it
)

// spin is for how long around the expected end a wait does not sleep, on either side:
// longer for longer steps, whose lengths differ by more.
func spin(expect time.Duration) time.Duration { return min(wakeUp+expect/32, mostSpin) }

// Rest is for how long a wait sleeps that has lasted so long and is expected to last so
// long in all, 0 if that is not known. A result of 0 means to look again at once.
func Rest(waited, expect time.Duration) time.Duration {
	over := waited - expect
	if expect == 0 {
		if waited < blindSpin {
			return 0
		}
		return min(max(waited/8, leastRest), mostRest)
	}
	near := spin(expect)
	switch {
	case over < -near-leastRest:
		return min(-near-over, mostRest)
	case over < near:
		return 0
	}
	return min(max(over/8, leastRest), mostRest)
}

// Waits is how long the last two waits for something took. The shorter counts: what
// held up one step need not hold up the next, and to look too late costs time, to look
// too early only work. The zero value knows nothing.
type Waits struct{ last, before atomic.Int64 }

// Expect is how long the next one should take.
func (w *Waits) Expect() time.Duration { return time.Duration(min(w.last.Load(), w.before.Load())) }

// Took adds a wait.
func (w *Waits) Took(d time.Duration) {
	last := w.last.Swap(int64(d))
	if last == 0 {
		last = int64(d)
	}
	w.before.Store(last)
}

// Progress remembers when iterations were counted, and when there were more.
type Progress struct {
	iterations    uint32
	Looked, Moved time.Time
}

// Still is for how long of a wait nothing has moved. It counts at every eighth of the limit, and not in waits that are shorter.
func (p *Progress) Still(now time.Time, waited, limit time.Duration, count func() (uint32, error)) time.Duration {
	if waited < limit/8 || limit == 0 {
		return waited
	}
	if now.Sub(p.Looked) >= limit/8 {
		p.Looked = now
		if n, err := count(); err == nil && n != p.iterations {
			p.iterations, p.Moved = n, now
		}
	}
	return min(waited, now.Sub(p.Moved))
}

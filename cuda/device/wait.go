package device

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// How the host waits for the device. A core that spins sees the end of a step within a
// microsecond, one that sleeps wakes up to a tenth of a millisecond late; a step is as
// long as the one before, as a rule. So a wait sleeps for most of that time, spins
// around the expected end, and sleeps again, longer and longer, once that has passed.
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

// rest is for how long a wait sleeps that has lasted so long and is expected to last so
// long in all, 0 if that is not known. A result of 0 means to look again at once.
func rest(waited, expect time.Duration) time.Duration {
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

// waits is how long the last two waits for something took. The shorter counts: what
// held up one step need not hold up the next, and to look too late costs time, to look
// too early only work. The zero value knows nothing.
type waits struct{ last, before atomic.Int64 }

func (w *waits) expect() time.Duration { return time.Duration(min(w.last.Load(), w.before.Load())) }

func (w *waits) took(d time.Duration) {
	last := w.last.Swap(int64(d))
	if last == 0 {
		last = int64(d)
	}
	w.before.Store(last)
}

// await waits until done, and then sees what became of the collectives before; past
// is how long such waits took. It ends early when ctx does or the world breaks.
func (d *Device) await(ctx context.Context, past *waits, done func() (bool, error)) error {
	start, expect := time.Now(), past.expect()
	for first := true; ; first = false {
		ok, err := done()
		if err != nil {
			d.fail(d.call("waiting", err))
			return d.failure()
		}
		waited := time.Since(start)
		if ok {
			if !first { // else it may have been over long ago
				past.took(waited)
			}
			return d.settled()
		}
		if err := d.look(waited); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r := rest(waited, expect); r > 0 {
			hostmem.Sleep(r)
		} else {
			runtime.Gosched() // ranks may be more than cores
		}
	}
}

package device

import (
	"context"
	"runtime"
	"time"

	"github.com/seed-ee968945/concert/cuda/device/internal/pace"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// await waits until done, and then sees what became of the collectives before; past
// is how long such waits took. It ends early when ctx does or the world breaks.
func (d *Device) await(ctx context.Context, past *pace.Waits, done func() (bool, error)) error {
	start, expect := time.Now(), past.Expect()
	for first := true; ; first = false {
		ok, err := done()
		if err != nil {
			d.fail(d.call("waiting", err))
			return d.failure()
		}
		waited := time.Since(start)
		if ok {
			if !first { // else it may have been over long ago
				past.Took(waited)
			}
			return d.settled()
		}
		if err := d.look(waited); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r := pace.Rest(waited, expect); r > 0 {
			hostmem.Sleep(r)
		} else {
			runtime.Gosched() // ranks may be more than cores
		}
	}
}

//go:build linux

package cuda

import (
	"testing"
	"time"
)

// plenty is a deadline for what has to come, however busy the machine is.
const plenty = 3 * time.Minute

// patience is how long something may take that a wait of mere moments precedes, however busy
// the machine is; deadlines that must not be waited for are farther off.
const patience = 20 * time.Second

// until waits for what only a device, another process or the scheduler can do, and which can
// only be asked for; it gives up when that does not come.
func until(t testing.TB, ok func() bool) bool {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); !ok(); <-tick.C {
		if time.Since(start) > patience {
			return false
		}
	}
	return true
}

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
	for looks := 0; !ok(); <-tick.C { // counted: a stall of the machine is one
		if looks++; looks > 20_000 {
			return false
		}
	}
	return true
}

// eased runs a subtest in which waits of a group are to end by their limit. Where the machine stands
// still they may have waited for others than they should, which f then says: all get more time, until no
// stall excuses it.
func eased(t *testing.T, name string, limit time.Duration, f func(t *testing.T, limit time.Duration) (others string)) {
	t.Run(name, func(t *testing.T) {
		for others := f(t, limit); others != ""; others = f(t, limit) {
			if limit *= 4; limit > patience {
				t.Fatal(others)
			}
			t.Log(others)
		}
	})
}

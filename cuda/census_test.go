//go:build linux

package cuda

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// census is what a process has of what drivers do not count.
type census struct{ goroutines, descriptors int }

// takeCensus counts. The poller of the network, which lives as long as the process, is there
// before.
func takeCensus(t testing.TB) census {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	return census{runtime.NumGoroutine(), descriptors(t)}
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// more says what there is more of now. Goroutines that have nothing left to do but to end are
// waited for.
func (c census) more(t testing.TB) string {
	t.Helper()
	var text string
	until(t, func() bool {
		text = ""
		if n := runtime.NumGoroutine(); n > c.goroutines {
			text = fmt.Sprintf("goroutines: %d before, %d now ", c.goroutines, n)
		}
		if n := descriptors(t); n > c.descriptors {
			text += fmt.Sprintf("descriptors: %d before, %d now", c.descriptors, n)
		}
		return text == ""
	})
	return text
}

// until waits for what only a device, another process or the scheduler can do, and which can
// only be asked for; it gives up when that does not come.
func until(t testing.TB, ok func() bool) bool {
	t.Helper()
	const patience = 20 * time.Second
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); !ok(); <-tick.C {
		if time.Since(start) > patience {
			return false
		}
	}
	return true
}

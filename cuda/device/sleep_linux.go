package device

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep sleeps for less than a millisecond. time.Sleep cannot do that where nothing else
// runs: the runtime then waits in epoll, which counts milliseconds.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // one that a signal ends early is as good
}

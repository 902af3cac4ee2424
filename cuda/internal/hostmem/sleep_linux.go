package hostmem

import (
	"time"

	"golang.org/x/sys/unix"
)

// Sleep sleeps for less than a millisecond, and takes up a thread. time.Sleep cannot do
// that where nothing else runs: the runtime then waits in epoll, which counts milliseconds.
func Sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // one that a signal ends early is as good
}

//go:build !linux

package device

import "time"

// sleep sleeps for less than a millisecond.
func sleep(d time.Duration) { time.Sleep(d) }

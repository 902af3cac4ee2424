//go:build !linux

package hostmem

import "time"

// Sleep sleeps for less than a millisecond.
func Sleep(d time.Duration) { time.Sleep(d) }

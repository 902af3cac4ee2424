// Package stall measures time in which this process runs. Where a machine stands still for seconds,
// as virtual ones do, all that waits finds its deadline over on waking up, before what it waits for
// has had a chance to come.
package stall

import "time"

// Clock is how long somebody waits who looks again and again: of a stall it counts a moment.
type Clock struct {
	looked time.Time // last
	waited time.Duration
}

// Start is a clock that begins now.
func Start() Clock { return Clock{looked: time.Now()} }

// Look adds the time since the last look, and gives the sum.
func (c *Clock) Look() time.Duration {
	const most = 50 * time.Millisecond
	now := time.Now()
	c.waited += min(now.Sub(c.looked), most)
	c.looked = now
	return c.waited
}

// Until asks for what only another process, a device or the scheduler can do and nobody tells, and
// reports whether it has come before many looks, a millisecond apart or more.
func Until(looks int, come func() bool) bool {
	for ; !come(); looks-- {
		if looks == 0 {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// After is closed when this process has run for a limit: of many ticks one passes in a stall.
func After(limit time.Duration) <-chan struct{} {
	over := make(chan struct{})
	AfterFunc(limit, func() { close(over) })
	return over
}

// AfterFunc calls f then, from another goroutine.
func AfterFunc(limit time.Duration, f func()) { tick(20, limit/20, f) }

func tick(left int, every time.Duration, f func()) {
	if left == 0 {
		f()
		return
	}
	time.AfterFunc(every, func() { tick(left-1, every, f) })
}

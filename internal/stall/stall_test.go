package stall

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestClock: what passes between two looks counts, but not a stall.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Start()
		for range 100 {
			time.Sleep(time.Millisecond)
			c.Look()
		}
		time.Sleep(time.Hour)
		if d := c.Look(); d != 150*time.Millisecond {
			t.Errorf("it has waited for %v", d)
		}
	})
}

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		<-After(time.Second)
		if d := time.Since(start); d != time.Second {
			t.Errorf("it is over after %v", d)
		}
	})
}

// TestUntil: it ends with what it waits for, or after so many looks.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ comes, looks int }{{0, 0}, {3, 3}, {4, 3}} {
			asked := 0
			come := Until(c.looks, func() bool { asked++; return asked > c.comes })
			if want := min(c.comes, c.looks); come != (c.comes <= c.looks) || asked != want+1 {
				t.Errorf("%+v: %v after %d looks", c, come, asked)
			}
		}
	})
}

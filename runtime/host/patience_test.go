package host

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPatience: what passes between two looks counts, but not a stall.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := patience{looked: time.Now()}
		for range 100 {
			time.Sleep(time.Millisecond)
			p.look()
		}
		time.Sleep(time.Hour)
		if d := p.look(); d != 150*time.Millisecond {
			t.Errorf("it has waited for %v", d)
		}
	})
}

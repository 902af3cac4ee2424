package device

import (
	"testing"
	"time"
)

// waited walks through a wait for something that takes so long: how much later than its
// end the wait is over, for how long it spun, and how often it slept, when every sleep
// is late by wakeUp and every look takes a microsecond.
func waited(takes, expect time.Duration) (late, spun time.Duration, sleeps int) {
	now := time.Duration(0)
	for now < takes {
		now += time.Microsecond
		if r := rest(now, expect); r > 0 {
			now += r + wakeUp
			sleeps++
		} else {
			spun += time.Microsecond
		}
	}
	return now - takes, spun, sleeps
}

func TestRest(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		takes, expect time.Duration
		late, spun    time.Duration // at most
		sleeps        int           // at most
	}{
		{10 * us, 0, us, 10 * us, 0},
		{100 * us, 0, leastRest + wakeUp, blindSpin + us, 2},
		{ms, 0, 125*us + wakeUp, blindSpin + us, 12},
		{50 * ms, 0, mostRest + wakeUp, blindSpin + us, 200},
		{50 * us, 50 * us, us, 50 * us, 0},
		{480 * us, 480 * us, us, 100 * us, 2},
		{500 * us, 480 * us, us, 120 * us, 2}, // a little longer
		{470 * us, 480 * us, us, 100 * us, 2}, // a little shorter
		{25 * ms, 25 * ms, us, 260 * us, 80},
		{25*ms + 200*us, 25 * ms, us, 460 * us, 80},
		{200 * us, 25 * ms, mostRest + wakeUp, us, 1}, // much shorter: late once
		{10 * ms, 100 * us, mostRest + wakeUp, 2*spin(100*us) + blindSpin, 60},
		{time.Minute, ms, mostRest + wakeUp, 2*spin(ms) + blindSpin, 200000},
	} {
		late, spun, sleeps := waited(c.takes, c.expect)
		if late > c.late || spun > c.spun || sleeps > c.sleeps {
			t.Errorf("%v, expected %v: %v late, want %v; spun %v, want %v; slept %d times, want %d", c.takes, c.expect, late, c.late, spun, c.spun, sleeps, c.sleeps)
		}
	}
	for waited := time.Duration(0); waited < 3*ms; waited += 7 * us { // a failure is noticed after each
		for expect := time.Duration(0); expect < 3*ms; expect += 41 * us {
			if r := rest(waited, expect); r < 0 || r > mostRest || r > 0 && r < leastRest {
				t.Errorf("after %v of %v it sleeps %v", waited, expect, r)
			}
		}
	}
}

func TestWaits(t *testing.T) {
	var w waits
	for i, c := range []struct{ took, expect time.Duration }{{0, 0}, {7, 7}, {5, 5}, {90, 5}, {6, 6}, {6, 6}, {8, 6}, {8, 8}} {
		if c.took > 0 {
			w.took(c.took)
		}
		if got := w.expect(); got != c.expect {
			t.Errorf("wait %d: expected %d, want %d", i, got, c.expect)
		}
	}
}

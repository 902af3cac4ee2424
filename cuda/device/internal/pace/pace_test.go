package pace

import (
	"errors"
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
		if r := Rest(now, expect); r > 0 {
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
			if r := Rest(waited, expect); r < 0 || r > mostRest || r > 0 && r < leastRest {
				t.Errorf("after %v of %v it sleeps %v", waited, expect, r)
			}
		}
	}
}

func TestWaits(t *testing.T) {
	var w Waits
	for i, c := range []struct{ took, expect time.Duration }{{0, 0}, {7, 7}, {5, 5}, {90, 5}, {6, 6}, {6, 6}, {8, 6}, {8, 8}} {
		if c.took > 0 {
			w.Took(c.took)
		}
		if got := w.Expect(); got != c.expect {
			t.Errorf("wait %d: expected %d, want %d", i, got, c.expect)
		}
	}
}

// A wait is as long as the loops have stood still, to an eighth of the limit.
func TestTurns(t *testing.T) {
	const limit = 80 * time.Second
	broken := errors.New("broken")
	for _, c := range []struct {
		name       string
		iterations func(at time.Duration) (uint32, error)
		late       time.Duration // when the limit is passed; 0: never
	}{
		{"no round", func(time.Duration) (uint32, error) { return 0, nil }, limit},
		{"a counter that cannot be read", func(time.Duration) (uint32, error) { return 7, broken }, limit},
		{"without end", func(at time.Duration) (uint32, error) { return uint32(at / time.Second), nil }, 0},
		{"iterations of three quarters of the limit", func(at time.Duration) (uint32, error) { return uint32(at / (60 * time.Second)), nil }, 0},
		{"iterations longer than the limit", func(at time.Duration) (uint32, error) { return uint32(at / (200 * time.Second)), nil }, limit},
		{"an end", func(at time.Duration) (uint32, error) { return uint32(min(at, 305*time.Second)), nil }, 310*time.Second + limit},
	} {
		var p Progress
		began := time.Unix(1000, 0)
		late := time.Duration(0)
		for at := time.Duration(0); at < 20*limit && late == 0; at += time.Second {
			if p.Still(began.Add(at), at, limit, func() (uint32, error) { return c.iterations(at) }) >= limit {
				late = at
			}
		}
		if late != c.late {
			t.Errorf("%s: late after %v, want %v", c.name, late, c.late)
		}
	}
}

package device

import (
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
)

// SetTimeout changes how long a rank's waits may take from now on: tests of what is late let
// everything before it take its time.
func SetTimeout(r *rt.Rank, limit time.Duration) { r.Device().(*Device).spec.Timeout = limit }

// Drawn are the types of which a GPU has random numbers.
var Drawn = drawn

// Turns says for how long of a wait the loops of a device stood still, and at what time.
type Turns = turns

func (p *turns) Still(now time.Time, waited, limit time.Duration, count func() (uint32, error)) time.Duration {
	return p.still(now, waited, limit, count)
}

// Rounds counts the tests of a rank's loops.
func Rounds(r *rt.Rank) (uint32, error) { d := r.Device().(*Device); return d.stop.rounds(d) }

// Look is what a wait does that has lasted so long.
func Look(r *rt.Rank, waited time.Duration) error { return r.Device().(*Device).look(waited) }

// BackThen moves what is known of a rank's loops into the past.
func BackThen(r *rt.Rank, ago time.Duration) {
	s := &r.Device().(*Device).stop
	s.turn.looked, s.turn.moved = s.turn.looked.Add(-ago), s.turn.moved.Add(-ago)
}

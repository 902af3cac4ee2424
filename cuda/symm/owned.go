package symm

import (
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/owned"
	"github.com/seed-ee968945/concert/internal/lifecycle"
)

// own makes objects of the driver in the rank's context, for a scope.
func (r *Rank) own(s *lifecycle.Scope) owned.Maker {
	return owned.Maker{Driver: r.World.drv, Ctx: r.Ctx, Life: s}
}

// drained gives a question for the end of all work of the rank's device, which can be asked
// again and again, by one goroutine. The driver has none: one call waits for each answer.
func (r *Rank) drained() func() (bool, error) {
	var asked func() (bool, error)
	return func() (bool, error) {
		if asked == nil {
			asked = r.synced()
		}
		ok, err := asked()
		if ok || err != nil {
			asked = nil
		}
		return ok, err
	}
}

// NewStream makes a stream that the group gives back, of the highest priority if high is
// set.
func (m *Member) NewStream(high bool) (driver.Stream, error) {
	return m.Rank.own(m.Group.life).Stream(high)
}

// NewEvent makes an event without timing that the group gives back.
func (m *Member) NewEvent() (driver.Event, error) { return m.Rank.own(m.Group.life).Event(false) }

// NewMemory makes plain memory of the rank's device that the group gives back.
func (m *Member) NewMemory(bytes uint64) (driver.Ptr, error) {
	return m.Rank.own(m.Group.life).Alloc(bytes)
}

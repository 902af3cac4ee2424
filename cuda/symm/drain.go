package symm

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	"github.com/seed-ee968945/concert/internal/stall"
)

// Drain waits until idle, which asks for the end of some of this member's work, within a
// call. It ends waits that no kernel ends at the deadline or when the group is broken, and
// aborts the group when ctx ends; then it waits a little longer for the kernels to leave.
func (m *Member) Drain(ctx context.Context, idle func() (bool, error)) error {
	start := time.Now()
	var ended *stall.Clock // since the group is aborted
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, 100*time.Microsecond) {
		ok, err := idle()
		if ok || err != nil {
			return err
		}
		if err := m.ext.Tend(time.Since(start)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			if ended == nil {
				ended = new(stall.Start())
				m.Break(context.Cause(ctx))
			} else if ended.Look() > lifecycle.Grace {
				return fmt.Errorf("rank %d: its device has not finished: %w", m.Rank.ID, context.Cause(ctx))
			}
		}
		if pause > 10*time.Microsecond { // what is short ends while we spin
			time.Sleep(pause)
		}
	}
}

// hearing is how long a rank keeps its streams waiting after its group has broken, so
// that other processes hear of the break before what these streams go on to do reaches
// them: their last collective would end with what has not come, and without an error. A
// message through rank 0 takes less than a millisecond.
const hearing = 50 * time.Millisecond

// AbortDelivered says that the other processes of a broken group can have heard of the break.
func (m *Member) AbortDelivered() bool {
	at := m.brokenAt.Load()
	return m.Rank.World.control == nil || at != nil && time.Since(*at) >= hearing
}

// finishAll waits for the streams, or for all work of the rank's context if there are
// none. Meanwhile it keeps ending waits that nothing else would end in a broken group.
func (m *Member) finishAll(ctx context.Context, streams ...driver.Stream) error {
	d, c := m.Rank.World.drv, m.Rank.Ctx
	var idle func() (bool, error)
	if len(streams) == 0 {
		idle = m.Rank.synced()
	} else {
		idle = func() (bool, error) {
			for len(streams) > 0 {
				if ok, err := d.StreamQuery(c, streams[0]); !ok || err != nil {
					return ok, err
				}
				streams = streams[1:]
			}
			return true, nil
		}
	}
	return m.Drain(ctx, func() (bool, error) {
		for _, o := range m.Group.members { // ranks may share the device
			if err := o.ext.EndWaits(); err != nil {
				return false, err
			}
		}
		return idle()
	})
}

// synced starts to wait for all work of the rank's context, for which the driver has no
// question that can be asked again, and gives one for the end of that wait.
func (r *Rank) synced() (idle func() (bool, error)) {
	done := make(chan error, 1)
	go func() { done <- r.World.drv.CtxSync(r.Ctx) }()
	return func() (bool, error) {
		select {
		case err := <-done:
			return err == nil, err
		default:
			return false, nil
		}
	}
}

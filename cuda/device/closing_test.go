package device_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/internal/stall"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// stuck is a device whose Grow returns only when it is cancelled.
type stuck struct {
	*device.Device
	job    *rendezvous.Group
	called chan struct{} // closed when it is asked to
	until  chan struct{}
}

var errStuck = errors.New("this one fails")

func (s *stuck) Grow(context.Context, rt.Region) error {
	close(s.called)
	<-s.until
	s.job.Cancel(errStuck) // as who grows does
	return errStuck
}

// TestCloseWhileGrowing: a rank that waits for another to grow can be closed: nobody comes to the
// timeout.
func TestCloseWhileGrowing(t *testing.T) {
	fakeOnly(t)
	noGoroutines(t)
	o := small(2)
	opener := device.LocalOpener(newFake(t, 2), devices(2), o)
	job, called, until := rendezvous.NewLocal(), make(chan struct{}), make(chan struct{})
	ranks := make([]*rt.Rank, 2)
	var wg sync.WaitGroup
	for i := range ranks {
		open := func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
			d, err := opener(ctx, spec)
			if err == nil && i == 1 {
				d = &stuck{d.(*device.Device), spec.Job, called, until}
			}
			return d, err
		}
		wg.Go(func() {
			var err error
			if ranks[i], err = rt.Join(t.Context(), open, rt.Config{Env: &rt.Env{Rank: i, World: 2}, Job: job, Timeout: time.Hour}); err != nil {
				t.Error(err)
			}
		})
	}
	if wg.Wait(); t.Failed() {
		return
	}
	errs := make([]error, len(ranks))
	for i, r := range ranks {
		wg.Go(func() { _, errs[i] = r.NewBuffer(t.Context(), "w", 256) })
	}
	<-called
	if !stall.Until(10_000, func() bool { return ranks[0].Info().ArenaBytes > 0 }) {
		t.Error("rank 0 has not grown")
	}
	err := ranks[0].Device().Close()
	close(until)
	wg.Wait()
	if !errors.Is(errs[0], rt.ErrClosed) || !errors.Is(errs[1], errStuck) {
		t.Errorf("got %v", errs)
	}
	if err := errors.Join(err, ranks[0].Close(), ranks[1].Close()); err != nil {
		t.Error(err)
	}
}

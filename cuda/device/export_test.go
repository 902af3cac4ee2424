package device

import (
	"errors"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
)

// SetTimeout changes how long a rank's waits may take from now on: tests of what is late let
// everything before it take its time.
func SetTimeout(r *rt.Rank, limit time.Duration) { r.Device().(*Device).spec.Timeout = limit }

// Iterations counts the tests of a rank's loops.
func Iterations(r *rt.Rank) (uint32, error) {
	d := r.Device().(*Device)
	if _, err := d.stop.iterations(d); err != nil {
		return 0, err
	}
	if err := d.drv.StreamSync(d.rank.Ctx, d.rank.Setup()); err != nil {
		return 0, err
	}
	return d.stop.iterations(d)
}

// HoldSetup holds up the stream that the host has for itself, as a queue that is stuck does.
func HoldSetup(r *rt.Rank) (release func() error, err error) {
	d := r.Device().(*Device)
	life, err := d.life.New("held")
	if err != nil {
		return nil, err
	}
	at, err := d.own(life).Alloc(4)
	if err == nil {
		err = errors.Join(d.drv.Memset32(d.rank.Ctx, d.rank.Setup(), at, 0, 1), d.drv.StreamSync(d.rank.Ctx, d.rank.Setup()))
	}
	if err == nil {
		err = d.drv.StreamWait32(d.rank.Ctx, d.rank.Setup(), at, 1)
	}
	st, serr := d.openStream("releases", false)
	return func() error {
		return errors.Join(d.drv.StreamWrite32(d.rank.Ctx, st.h, at, 1), d.drv.StreamSync(d.rank.Ctx, d.rank.Setup()), st.life.EndInCall(), life.EndInCall())
	}, errors.Join(err, serr)
}

// Still says for how long of a wait no loop of a rank has begun an iteration.
func Still(r *rt.Rank, waited time.Duration) time.Duration { return r.Device().(*Device).still(waited) }

// BackThen moves what is known of a rank's loops into the past.
func BackThen(r *rt.Rank, ago time.Duration) {
	s := &r.Device().(*Device).stop
	s.progress.Looked, s.progress.Moved = s.progress.Looked.Add(-ago), s.progress.Moved.Add(-ago)
}

// TimedOut waits until the kernels of a rank have given up a collective of all ranks. Who asks
// tells the other ranks, ahead of the rank's own device.
func TimedOut(r *rt.Rank) {
	m := r.Device().(*Device).table.Load().groups[0].m
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for m.Failure() == nil {
		<-tick.C
	}
}

// Broken is closed once a rank's device is broken.
func Broken(r *rt.Rank) <-chan struct{} { return r.Device().(*Device).broken.Done() }

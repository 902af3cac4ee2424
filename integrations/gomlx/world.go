package gomlx

import (
	"context"
	"fmt"
	"sync"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// world is ranks that compute together, one on each of some devices. A device may belong to
// several worlds: a computation of one device runs in a world of its own.
type world struct {
	b       *Backend
	devices []compute.DeviceNum

	// running is held by whatever all ranks do: so they do the same in the same order.
	running sync.Mutex
	ranks   []*rt.Rank // by place among devices, nil those of other processes; nil: not opened, or closed
	mine    int        // the first that is this process's
	stage   *rt.Buffer // see launched.go
	free    []*room    // with values that no program has taken, see rooms.go
	made    int        // buffers for such
}

// world is the one of these devices.
func (b *Backend) world(devices []compute.DeviceNum) (*world, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return nil, errFinalized
	}
	key := fmt.Sprint(devices)
	w := b.worlds[key]
	if w == nil {
		w = &world{b: b, devices: devices}
		b.worlds[key] = w
	}
	if w.ranks != nil {
		return w, nil
	}
	open, err := b.opener(devices)
	if err != nil {
		return nil, err
	}
	if b.place != nil {
		return w, b.launched(w, open)
	}
	return w, w.open(open)
}

var errFinalized = errors.New("concert: the backend is finalized")

// opener opens the devices of a world.
func (b *Backend) opener(devices []compute.DeviceNum) (rt.Opener, error) {
	if b.kind == "host" {
		return host.Opener(host.Options{Local: b.place == nil}), nil
	}
	var o device.Options
	if b.kind == "cuda" {
		o.Libraries = device.Standard(device.Paths{})
	}
	if b.drv == nil && b.kind == "fake" {
		b.drv = fake.New(b.devices)
	} else if b.drv == nil {
		d, err := driver.Open("")
		if err != nil {
			return nil, errors.WithStack(err)
		}
		b.drv = d
	}
	if b.place != nil {
		return device.Opener(b.drv, o), nil
	}
	devs := make([]int, len(devices))
	for i, d := range devices {
		devs[i] = int(d)
	}
	return device.LocalOpener(b.drv, devs, o), nil
}

// open joins the ranks.
func (w *world) open(open rt.Opener) error {
	ctx, cancel := context.WithCancelCause(w.b.ctx)
	defer cancel(nil)
	n := len(w.devices)
	job := rendezvous.NewLocal()
	ranks := make([]*rt.Rank, n)
	err := each(n, func(i int) error {
		env := &rt.Env{Rank: i, World: n, LocalRank: i, LocalWorld: n, Source: "a backend of GoMLX"}
		r, err := rt.Join(ctx, open, rt.Config{Env: env, Job: job})
		if err != nil {
			cancel(err)
			return err
		}
		ranks[i] = r
		return nil
	})
	if err == nil {
		w.ranks = ranks
		return nil
	}
	for _, r := range ranks {
		if r != nil {
			r.Close()
		}
	}
	return err
}

// each calls f for n ranks side by side. The error has all that differ.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		if i == n-1 { // the only one, as a rule
			errs[i] = f(i)
			break
		}
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		case all.Error() != err.Error():
			all = fmt.Errorf("%w: %w", err, all)
		}
	}
	return errors.WithStack(all)
}

// each calls f for every rank of this process side by side; w.running is held.
func (w *world) each(f func(i int, r *rt.Rank) error) error {
	if w.ranks == nil {
		return errFinalized
	}
	return each(len(w.ranks), func(i int) error {
		if w.ranks[i] == nil {
			return nil
		}
		return f(i, w.ranks[i])
	})
}

// close closes the ranks when what runs has ended.
func (w *world) close() {
	w.running.Lock()
	defer w.running.Unlock()
	w.each(func(_ int, r *rt.Rank) error { return r.Close() })
	w.ranks = nil
}

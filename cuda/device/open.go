package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/device/internal/domain"
	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/cuda/driver"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Opener opens CUDA devices for ranks that are processes, each with one device. The driver
// belongs to the caller, who closes it after the ranks.
func Opener(drv driver.Driver, o Options) rt.Opener {
	return func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
		dev, err := ordinal(drv, &o, &spec)
		if err != nil {
			return nil, joinError(&spec, err)
		}
		s := &site{kind: "process", devs: map[int]int{spec.Rank: dev}, domains: map[int]*domain.Domain{}}
		return s.open(ctx, drv, spec, o)
	}
}

// LocalOpener opens the devices of a world of goroutines of this process that join one by
// one, rank r on device devs[r]; all of them join with this opener and, as Config.Job, with
// one rendezvous.NewLocal.
func LocalOpener(drv driver.Driver, devs []int, o Options) rt.Opener {
	s := &site{kind: "goroutine", devs: map[int]int{}, domains: map[int]*domain.Domain{}}
	for rank, dev := range devs {
		s.devs[rank] = dev
	}
	return func(ctx context.Context, spec rt.Spec) (rt.Device, error) { return s.open(ctx, drv, spec, o) }
}

// Local runs a world of goroutines of this process, rank r on device devs[r], see
// runtime.Local.
func Local(ctx context.Context, drv driver.Driver, devs []int, cfg rt.Config, o Options, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) error {
	return rt.Local(ctx, len(devs), 0, LocalOpener(drv, devs, o), cfg, mods, f)
}

// ordinal is the device of a rank.
func ordinal(drv driver.Driver, o *Options, spec *rt.Spec) (int, error) {
	infos, err := drv.Devices()
	if err != nil {
		return 0, err
	}
	if o.Devices != nil {
		if spec.Rank >= len(o.Devices) {
			return 0, fmt.Errorf("rank %d has no device: %d are listed", spec.Rank, len(o.Devices))
		}
		return o.Devices[spec.Rank], nil
	}
	if len(infos) == 0 {
		return 0, errors.New("this machine has no device")
	}
	return spec.LocalRank % len(infos), nil
}

// ready does all that may block a device. A barrier follows, at the end of joining,
// so that none launches before all are ready.
func (d *Device) ready() (rt.Device, error) {
	d.link = progress.NewLink(d.spec.Job, d.logs, d.onPeerFailure)
	d.life.Defer("link", func() error { d.open.Store(false); d.link.Leave(0); d.link.Close(); return nil })
	if err := d.load(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.open.Store(true)
	d.onPeerFailure() // for what came before
	return d, nil
}

// Barrier implements runtime.Capturer.
func (d *Device) Barrier(ctx context.Context) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return joinError(&d.spec, d.barrier(ctx))
}

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// platform is what ranks run on: the host device, or GPUs.
type platform struct {
	drv  driver.Driver // nil: the host device
	devs int
	name string // of the machine
	opts device.Options
}

// platform opens what Device names for a world of that many ranks. It fails if the
// machine lacks it: a GPU for each rank where they are timed, else one that
// they share. The caller closes it after the ranks.
func (c *Config) platform(world int, timed bool) (*platform, error) {
	if c.Device != "cuda" {
		return &platform{}, nil
	}
	p := &platform{opts: c.GPUs}
	var err error
	if c.FakeGPUs > 0 {
		p.drv, err = fakeDriver(c.FakeGPUs)
	} else {
		p.drv, err = driver.Open("")
	}
	if err != nil {
		return nil, fmt.Errorf("-device=cuda: %w", err)
	}
	infos, err := p.drv.Devices()
	if err == nil && len(infos) == 0 {
		err = errors.New("this machine has no GPU")
	}
	if err == nil && len(infos) < world && c.FakeGPUs == 0 && timed {
		err = fmt.Errorf("the program is for %s, this machine has %s", count(world, "rank"), count(len(infos), "GPU"))
	}
	if err != nil {
		p.drv.Close() // the first error matters
		return nil, fmt.Errorf("-device=cuda: %w", err)
	}
	p.devs = len(infos)
	p.name = fmt.Sprintf("%d x %s", p.devs, infos[0].Name)
	if c.FakeGPUs > 0 {
		p.smallGroups()
	}
	return p, nil
}

// smallGroups makes groups of little memory, which is written to when they are made.
func (p *platform) smallGroups() { p.opts.Group.Region, p.opts.Group.Flagged = 1<<20, 1<<20 }

// local runs f on ranks that are goroutines of this process. They share GPUs if there are fewer.
func (p *platform) local(ctx context.Context, world int, cfg rt.Config, mods []*rt.Module, f func(context.Context, *rt.Rank) error) error {
	if p.drv == nil {
		return host.Local(ctx, world, cfg, host.Options{}, mods, f)
	}
	devs := make([]int, world)
	for r := range devs {
		devs[r] = r % p.devs
	}
	on := *p
	if on.opts.ShareDevice = p.devs < world; on.opts.ShareDevice {
		on.smallGroups()
	}
	return device.Local(ctx, p.drv, devs, cfg, on.opts, mods, f)
}

// opener opens the device of this process, which is one rank.
func (p *platform) opener() rt.Opener {
	if p.drv == nil {
		return host.Opener(host.Options{})
	}
	return device.Opener(p.drv, p.opts)
}

func (p *platform) close() error {
	if p.drv == nil {
		return nil
	}
	return p.drv.Close()
}

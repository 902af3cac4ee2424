package device

import (
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/device/internal/domain"
	"github.com/seed-ee968945/concert/cuda/nccl"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Memory that network adapters use directly. What operations over NCCL use is registered as a whole:
// the regions of the arena and the scratch of groups. So it is registered on all ranks of a
// group or on none, also where one of them moves tensors to scratch and another does not.

// unregistered is why this rank registers nothing for a group of ranks, nil if it does.
func (d *Device) unregistered(ranks []int) error {
	switch {
	case d.opts.NCCL.NoRegister:
		return errors.New("the options say so")
	case !d.site.routes.Apart(ranks):
		return errors.New("the group has several ranks on one host")
	case !d.rank.Info.Network:
		return fmt.Errorf("device %d makes no memory for network adapters", d.dev)
	}
	return nil
}

// enroll lets a group have a new communicator, which gets to know the arena.
func (n *overNCCL) enroll(g *group, c *comm) error {
	if log := n.d.opts.Log; log != nil {
		log.Info("registration", "rank", n.d.spec.Rank, "group", g.name, "missing", c.c.Registers())
	}
	err := n.use(g, c)
	for _, at := range n.d.domain.Regions() {
		if err == nil {
			err = n.register(c.c, at)
		}
	}
	return err
}

// use lets a group have a communicator. The group's scratch may go before that.
func (n *overNCCL) use(g *group, c *comm) error {
	g.nc = c
	c.users++
	at := uintptr(g.scratch)
	if err := c.c.Register(at, g.scratchBytes()); err != nil {
		return err
	}
	return g.life.Defer("registration of scratch", func() error { return c.c.Deregister(at) })
}

func (n *overNCCL) at(r rt.Region) uintptr { return uintptr(n.d.base) + uintptr(r.Lo) }

func (n *overNCCL) register(c *nccl.Comm, r rt.Region) error {
	return c.Register(n.at(r), uint64(r.Hi-r.Lo))
}

// watcher registers regions that come with all communicators, and deregisters those that go.
func (n *overNCCL) watcher() domain.Watcher {
	each := func(f func(c *nccl.Comm, r rt.Region) error) func(rt.Region) error {
		return func(r rt.Region) error {
			var errs []error
			for _, c := range n.comms() {
				errs = append(errs, f(c.c, r))
			}
			return errors.Join(errs...)
		}
	}
	return domain.Watcher{Came: each(n.register), Goes: each(func(c *nccl.Comm, r rt.Region) error { return c.Deregister(n.at(r)) })}
}

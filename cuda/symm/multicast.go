package symm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Multicast through the switches of NVLink: a store to one address reaches the memory of
// all ranks of a group, a load gives the sum of theirs. It is off unless
// WorldOptions.Multicast asks for it, and then no call that concerns it reaches the driver.
// Each group has an object of its own, made in NewGroup in steps. Behind each step all
// processes tell each other how it went, and if one refuses all of them give back what they
// have and go on without multicast:
//
//	support   every rank asks its driver, its device and the granularity, and has the kernels
//	creation  the rank with index 0 makes the object and hands it to the other processes
//	joining   every rank takes it and adds its device. The driver blocks in the steps behind
//	          until all devices are added, so no rank may get there before all have joined
//	binding   every rank binds its symmetric memory, the whole of it
//	mapping   every process maps the object at an address of its own
//
// Nothing of this file, of multicast_*.go or of kernels/src/*_multicast.cu has run on a GPU.

// MulticastError is why a group has no multicast. It wraps ErrNoMulticast and what the
// driver said, if it was the one of this process.
type MulticastError struct {
	Rank int    // world rank that refused, -1 where multicast is switched off
	Step string // what failed
	Err  error
}

// Error names the rank, the step and the reason.
func (e *MulticastError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("%v: %s", driver.ErrNoMulticast, e.Step)
	}
	return fmt.Sprintf("%v: rank %d: %s: %v", driver.ErrNoMulticast, e.Rank, e.Step, e.Err)
}

// Unwrap gives ErrNoMulticast and the cause.
func (e *MulticastError) Unwrap() []error {
	if e.Err == nil {
		return []error{driver.ErrNoMulticast}
	}
	return []error{driver.ErrNoMulticast, e.Err}
}

// HasMulticast says whether collectives of the group may go through multicast. It never
// fails: where multicast is switched off, missing or refused it is false, on every rank.
func (g *Group) HasMulticast() bool { return g.mc != nil }

// MulticastBase is the address that means offset 0 of all ranks' memory.
func (g *Group) MulticastBase() driver.Ptr { return g.mc.base }

// HasMulticast is the group's.
func (m *Member) HasMulticast() bool { return m.Group.HasMulticast() }

// Multicast is nil if the group has multicast, else a *MulticastError.
func (g *Group) Multicast() error {
	switch {
	case g == nil:
		return g.usable()
	case g.mc != nil:
		return nil
	case g.noMulticast != nil:
		return g.noMulticast
	}
	return &MulticastError{Rank: -1, Step: "it is switched off, see WorldOptions.Multicast"}
}

// multicast is a group's object in this process. It is filled step by step, and close
// undoes what there is.
type multicast struct {
	g       *Group
	drv     driver.Multicaster
	ranks   []*Rank // the group's of this process
	unit    uint64  // granularity
	object  driver.Mem
	bound   []*Rank
	base    driver.Ptr // an address that means offset 0 of the memory of all ranks, 0 before
	mapped  bool
	refused *MulticastError
	handed  memHandle // the object as another process gave it
	failed  error     // the processes could not exchange it
}

// openMulticast goes through the steps. Whatever the driver refuses is no error: the group
// then has no multicast. An error means that the processes could not exchange it.
func (g *Group) openMulticast(ctx context.Context) error {
	mc := &multicast{g: g, handed: noHandle}
	for _, m := range g.members {
		mc.ranks = append(mc.ranks, m.Rank)
	}
	for _, step := range []func(){mc.support, func() { mc.create(ctx) }, mc.join, mc.bind, mc.mapAll} {
		step()
		err := mc.failed
		if err == nil {
			err = mc.agree(ctx)
		}
		if err != nil {
			return errors.Join(err, mc.close())
		}
		if mc.refused != nil {
			if err := mc.close(); err != nil {
				mc.refused.Err = errors.Join(mc.refused.Err, err)
			}
			g.noMulticast = mc.refused
			return nil
		}
	}
	g.mc = mc
	return nil
}

// agree makes what one process refused refused for all.
func (mc *multicast) agree(ctx context.Context) error {
	text := ""
	if mc.refused != nil {
		text = fmt.Sprintf("%s: %v", mc.refused.Step, mc.refused.Err)
	}
	texts, err := mc.g.world.Compare(ctx, text)
	if err != nil || mc.refused != nil {
		return err
	}
	for rank, text := range texts {
		if step, why, refused := strings.Cut(text, ": "); refused {
			mc.refused = &MulticastError{Rank: rank, Step: step, Err: errors.New(why)}
			break
		}
	}
	return nil
}

// try does part of a step on a rank, unless something was refused before.
func (mc *multicast) try(r *Rank, step string, f func() error) {
	if mc.refused != nil {
		return
	}
	if err := f(); err != nil {
		mc.refused = &MulticastError{Rank: r.ID, Step: step, Err: err}
	}
}

func (mc *multicast) support() {
	w, n := mc.g.world, len(mc.g.ranks)
	for i, r := range mc.ranks {
		mc.try(r, "kernels", func() error { return r.noMulticast })
		mc.try(r, "driver", func() error {
			var ok bool
			if mc.drv, ok = w.drv.(driver.Multicaster); !ok {
				return errors.New("the driver has no multicast objects")
			}
			ok, err := mc.drv.MulticastSupported(r.Dev)
			if err == nil && !ok {
				err = fmt.Errorf("device %d cannot join multicast objects", r.Dev)
			}
			return err
		})
		mc.try(r, "devices", func() error {
			if slices.ContainsFunc(mc.ranks[:i], func(o *Rank) bool { return o.Dev == r.Dev }) {
				return fmt.Errorf("%w: device %d joins a multicast object once", ErrSharedDevice, r.Dev)
			}
			return nil
		})
		mc.try(r, "granularity", func() (err error) {
			if mc.unit, err = mc.drv.MulticastGranularity(r.Ctx, n, w.stride, r.how); err == nil && (mc.unit == 0 || w.stride%mc.unit != 0) {
				err = fmt.Errorf("symmetric memory of %d bytes is no multiple of %d: change WorldOptions.Bytes", w.stride, mc.unit)
			}
			return err
		})
	}
}

func (mc *multicast) create(ctx context.Context) {
	w := mc.g.world
	r, own := w.local[mc.g.ranks[0]], noHandle
	if r != nil {
		mc.try(r, "creation", func() (err error) {
			mc.object, err = mc.drv.MulticastCreate(r.Ctx, len(mc.g.ranks), w.stride, r.how)
			return err
		})
	}
	if w.control == nil {
		return
	}
	if r != nil {
		mc.try(r, "export", func() (err error) {
			own, err = exportMem(w.drv, r.Ctx, mc.object, r.how)
			return err
		})
	}
	all, err := w.control.exchange(ctx, own, w.Local()[0].how) // where creation failed as well: the others wait
	own.close()
	mc.failed = err
	for i, h := range all {
		if i == mc.g.ranks[0] && r == nil && err == nil {
			mc.handed = h
		} else {
			h.close()
		}
	}
}

func (mc *multicast) join() {
	w := mc.g.world
	for _, r := range mc.ranks {
		if mc.object == 0 {
			mc.try(r, "import", func() (err error) {
				mc.object, err = mc.handed.importMem(w.drv, r.Ctx)
				return err
			})
		}
		mc.try(r, "adding the device", func() error { return mc.drv.MulticastAdd(r.Ctx, mc.object, r.Dev) })
	}
	mc.dropHanded()
}

func (mc *multicast) bind() {
	w := mc.g.world
	for _, r := range mc.ranks {
		mc.try(r, "binding", func() error {
			err := mc.drv.MulticastBind(r.Ctx, mc.object, (*w.pieces.Load())[0].mems[r.ID], w.stride)
			if err == nil {
				mc.bound = append(mc.bound, r)
			}
			return err
		})
	}
}

func (mc *multicast) mapAll() {
	if len(mc.ranks) == 0 {
		return
	}
	w, r := mc.g.world, mc.ranks[0]
	var devs []int
	for _, r := range mc.ranks {
		devs = append(devs, r.Dev)
	}
	slices.Sort(devs)
	mc.try(r, "addresses", func() (err error) {
		mc.base, err = w.drv.Reserve(r.Ctx, w.stride, mc.unit)
		return err
	})
	mc.try(r, "mapping", func() error {
		err := w.drv.Map(r.Ctx, mc.base, w.stride, mc.object)
		mc.mapped = err == nil
		return err
	})
	mc.try(r, "access", func() error { return w.drv.Allow(r.Ctx, mc.base, w.stride, devs) })
}

// close undoes what was done, in the opposite order: the memory is bound no longer when
// the world releases it.
func (mc *multicast) close() error {
	if mc == nil {
		return nil
	}
	mc.dropHanded()
	if len(mc.ranks) == 0 {
		return nil
	}
	w, r := mc.g.world, mc.ranks[0]
	var errs []error
	if mc.mapped {
		errs = append(errs, w.drv.Unmap(r.Ctx, mc.base, w.stride))
	}
	if mc.base != 0 {
		errs = append(errs, w.drv.Unreserve(r.Ctx, mc.base, w.stride))
	}
	for _, r := range mc.bound {
		errs = append(errs, mc.drv.MulticastUnbind(r.Ctx, mc.object, r.Dev, w.stride))
	}
	if mc.object != 0 {
		errs = append(errs, w.drv.MemRelease(r.Ctx, mc.object))
	}
	mc.mapped, mc.base, mc.bound, mc.object = false, 0, nil, 0
	return errors.Join(errs...)
}

// dropHanded closes the object's handle.
func (mc *multicast) dropHanded() {
	mc.handed.close()
	mc.handed = noHandle
}

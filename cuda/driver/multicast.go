package driver

import "errors"

// Multicaster is implemented by a Driver that can make multicast objects. A driver
// library that is too old for them gives errors that match ErrNoMulticast.
type Multicaster interface {
	// MulticastSupported says whether device dev can join multicast objects.
	MulticastSupported(dev int) (bool, error)
	// MulticastGranularity is what sizes of objects of that many devices, and what is
	// bound to them, must be multiples of.
	MulticastGranularity(c Ctx, devices int, bytes uint64, how Sharing) (uint64, error)
	// MulticastCreate makes an object that bytes of each device can be bound to. It is
	// exported, imported, mapped and released like memory.
	MulticastCreate(c Ctx, devices int, bytes uint64, how Sharing) (Mem, error)
	// MulticastAdd adds a device, once, until the object is released by all. MulticastBind
	// and Map of the object may block until it has all its devices.
	MulticastAdd(c Ctx, object Mem, dev int) error
	// MulticastBind binds the first bytes of m, memory of a device that was added, to the
	// first bytes of the object. m must be shareable as the object is.
	MulticastBind(c Ctx, object, m Mem, bytes uint64) error
	// MulticastUnbind undoes it, before m is released.
	MulticastUnbind(c Ctx, object Mem, dev int, bytes uint64) error
}

// ErrNoMulticast means that a group does without multicast. MulticastError says why.
var ErrNoMulticast = errors.New("no multicast")

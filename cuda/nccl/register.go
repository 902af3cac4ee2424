package nccl

import (
	"errors"
	"fmt"
	"slices"
)

// Registration is memory that is registered with a communicator; 0 is none, which the
// library also gives where it has no use for a registration.
type Registration uintptr

// registers is the first version whose network transport uses registered memory. Older
// versions have the call, and use it within a host only.
const registers = 22400

// ErrNoRegistration is wrapped by every error that says why memory is not registered.
var ErrNoRegistration = errors.New("no memory is registered with the network")

// LackError says what the library, or what it was told, lacks for registrations.
type LackError struct {
	Version int
	Call    string // that it does not have
	Setting string // of the environment, that is missing
}

// Error names the library's version and what is missing.
func (e *LackError) Error() string {
	switch {
	case e.Call != "":
		return fmt.Sprintf("NCCL %s has no %s", VersionText(e.Version), e.Call)
	case e.Setting != "":
		return fmt.Sprintf("the environment lacks %s: NCCL registers captured memory by itself", e.Setting)
	}
	return fmt.Sprintf("NCCL %s does not use registered memory on the network, %s does", VersionText(e.Version), VersionText(registers))
}

// Unwrap gives ErrNoRegistration.
func (e *LackError) Unwrap() error { return ErrNoRegistration }

// UnregisteredError says why a group registers nothing: all of its ranks do, or none.
type UnregisteredError struct {
	Rank   int    // of the world, that cannot
	Reason string // its own
	Err    error  // the reason, on that rank
}

// Error names the rank and its reason.
func (e *UnregisteredError) Error() string {
	return fmt.Sprintf("%v: rank %d: %s", ErrNoRegistration, e.Rank, e.Reason)
}

// Unwrap gives ErrNoRegistration and the cause.
func (e *UnregisteredError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrNoRegistration}
	}
	return []error{ErrNoRegistration, e.Err}
}

// registered is memory of this rank.
type registered struct {
	at uintptr
	r  Registration
}

// unregistered is why this rank registers nothing, nil if it does.
func (c *Comm) unregistered(o *Options) error {
	if o.Unregistered != nil {
		return o.Unregistered
	}
	return c.lib.Registers()
}

// agree takes the reason of the first rank that has one; own is this rank's.
func (c *Comm) agree(records []record, own error) {
	for r, rec := range records {
		if rec.Unregistered == "" {
			continue
		}
		e := &UnregisteredError{Rank: c.g.Ranks()[r], Reason: rec.Unregistered}
		if r == c.rank {
			e.Err = own
		}
		c.lacks = e
		return
	}
}

// Registers says whether Register registers memory: nil, or an *UnregisteredError.
func (c *Comm) Registers() error { return c.lacks }

// Register lets the network read and write memory of this rank without copies of the
// library's own, from its next operation on, where Registers allows. All ranks
// call it alike, between the same operations: whether an operation's memory is registered must
// be the same on all of them, or they wait for each other for ever. The memory must stay until
// Deregister, the end of the communicator, or the group's break. The ranks must each be on
// a host of its own: within a host an abort would take memory from under a peer's kernel.
func (c *Comm) Register(at uintptr, bytes uint64) error {
	if c.lacks != nil || bytes == 0 {
		return nil
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	h, err := c.handle()
	if err != nil {
		return err
	}
	r, err := c.lib.Register(c.ctx, h, at, bytes)
	if err != nil {
		return c.fail(c.where("registering memory").Own(err), true)
	}
	c.regs = append(c.regs, registered{at, r})
	return nil
}

// Deregister ends the registration of the memory at an address, if there is one. No
// operation may use it any more. Of a broken group it waits until nothing is registered.
func (c *Comm) Deregister(at uintptr) error {
	works, err := c.withdraw(at)
	if !works {
		c.wait(func() chan struct{} { return c.bare })
	}
	return err
}

// withdraw is Deregister while the group works.
func (c *Comm) withdraw(at uintptr) (works bool, err error) {
	c.calls.Lock()
	defer c.calls.Unlock()
	h, err := c.handle()
	if err != nil {
		return false, nil
	}
	for i, r := range c.regs {
		if r.at != at {
			continue
		}
		c.regs = slices.Delete(c.regs, i, i+1)
		if err := c.lib.Deregister(c.ctx, h, r.r); err != nil {
			return true, c.fail(c.where("deregistering memory").Own(err), true)
		}
		break
	}
	return true, nil
}

// handle is the communicator while the group works.
func (c *Comm) handle() (Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.h, c.err
}

// deregister ends all registrations, the last first, and gives the first failure. Nobody else
// uses the communicator.
func (c *Comm) deregister(h Handle) (err error) {
	for len(c.regs) > 0 {
		r := c.regs[len(c.regs)-1]
		c.regs = c.regs[:len(c.regs)-1]
		if e := c.lib.Deregister(c.ctx, h, r.r); err == nil {
			err = e
		}
	}
	return err
}

// discard ends the registrations of a communicator that is about to be aborted. The library
// would end them itself, but after it has freed what it needs for that (commFree of 2.24
// to 2.30). While it is in the middle of something it has to. An operation in flight names a
// registration that has ended until the abort, which is next; it uses it only if its peer comes just then.
func (c *Comm) discard(h Handle) {
	if len(c.regs) == 0 {
		return
	}
	if state, err := c.lib.AsyncError(h); err == nil && state != InProgress {
		_ = c.deregister(h) // there is nothing left to do with its failure
	}
	c.regs = nil
}

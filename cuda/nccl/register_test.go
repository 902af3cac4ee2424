package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// TestRegister registers memory, uses it, and leaves with and without giving it back: the fake
// refuses what comes after the end of its communicator, and what is left counts as leaked.
func TestRegister(t *testing.T) {
	for _, end := range []string{"deregistered", "closed", "aborted", "dropped"} {
		t.Run(end, func(t *testing.T) {
			f, st := NewFake(), rendezvous.NewLocal()
			noErrors(t, ranks(2, func(rank int) error {
				c, err := Join(t.Context(), f, member(t, st, rank, 2), "g", 0, Options{Timeout: plenty})
				if err != nil {
					return err
				}
				first, _ := f.Alloc(64)
				second, _ := f.Alloc(64)
				if err := errors.Join(c.Registers(), c.Register(first, 64), c.Register(second, 64), c.Register(second, 0)); err != nil {
					return err
				}
				if f.count(c, first) != 1 || f.count(c, second) != 1 {
					return fmt.Errorf("%d and %d registrations", f.count(c, first), f.count(c, second))
				}
				op := Op{Kind: AllReduce, DType: dtype.F32, Tensors: []Tensor{{Src: first, Dst: second, Bytes: 64}}}
				if err := c.Run(t.Context(), 1, op); err != nil {
					return err
				}
				if err := c.g.Barrier(t.Context(), "used"); err != nil {
					return err
				}
				switch end {
				case "deregistered":
					if err := errors.Join(c.Deregister(first), c.Deregister(first), c.Deregister(1)); err != nil {
						return err
					}
					if f.count(c, first) != 0 || f.count(c, second) != 1 {
						return errors.New("the wrong memory was deregistered")
					}
				case "dropped":
					return c.Drop()
				case "aborted":
					if rank == 1 {
						c.Abort(errors.New("enough"))
					}
					<-c.broken
					if err := c.Register(first, 64); err == nil {
						return errors.New("a broken group registers memory")
					}
					if err := c.Deregister(first); err != nil {
						return err
					}
				}
				return c.Close(t.Context())
			}))
			if f.Leaks() != 0 {
				t.Errorf("%d communicators and registrations leaked", f.Leaks())
			}
		})
	}
}

// count is how often memory is registered with c's communicator.
func (f *Fake) count(c *Comm, at uintptr) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.regs {
		if r.h == c.h && r.at == at {
			n++
		}
	}
	return n
}

// TestUnregistered lets a rank lack something: nobody registers, and everybody knows why.
func TestUnregistered(t *testing.T) {
	off := errors.New("out of order")
	old := &LackError{Version: 21805, Call: "ncclCommRegister"}
	for _, tc := range []struct {
		name   string
		lacks  error // the library
		caller error // rank 1
		rank   int   // who is blamed
		want   string
	}{
		{"library", old, nil, 0, "rank 0: NCCL 2.18.5 has no ncclCommRegister"},
		{"version", &LackError{Version: 22304}, nil, 0, "NCCL 2.23.4 does not use registered memory on the network, 2.24.0 does"},
		{"setting", &LackError{Version: 22803, Setting: "NCCL_GRAPH_REGISTER=0"}, nil, 0, "lacks NCCL_GRAPH_REGISTER=0"},
		{"caller", nil, off, 1, "no memory is registered with the network: rank 1: out of order"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, st := NewFake(), rendezvous.NewLocal()
			f.lacks = tc.lacks
			noErrors(t, ranks(2, func(rank int) error {
				o := Options{Timeout: plenty}
				if rank == 1 {
					o.Unregistered = tc.caller
				}
				c, err := Join(t.Context(), f, member(t, st, rank, 2), "g", 0, o)
				if err != nil {
					return err
				}
				why := c.Registers()
				var u *UnregisteredError
				if !errors.As(why, &u) || u.Rank != tc.rank || !errors.Is(why, ErrNoRegistration) || !strings.Contains(why.Error(), tc.want) {
					return fmt.Errorf("registers: %v", why)
				}
				if cause := errors.Join(tc.lacks, tc.caller); rank == tc.rank && (u.Err == nil || u.Err.Error() != cause.Error()) {
					return fmt.Errorf("the cause is lost: %v", why)
				}
				at, _ := f.Alloc(64)
				if err := c.Register(at, 64); err != nil {
					return err
				}
				if f.count(c, at) != 0 {
					return errors.New("memory was registered")
				}
				return errors.Join(c.Deregister(at), c.Close(t.Context()))
			}))
			if f.Leaks() != 0 {
				t.Errorf("%d leaked", f.Leaks())
			}
		})
	}
}

// TestEveryRegistrationFails makes each call that registers memory, or ends that, fail in
// turn, of whichever rank it is: all ranks learn it, nothing hangs, nothing leaks.
func TestEveryRegistrationFails(t *testing.T) {
	for _, c := range []struct {
		call  string
		times int // of two ranks
	}{{"ncclCommRegister", 4}, {"ncclCommDeregister", 4}} {
		for nth := 1; nth <= c.times; nth++ {
			f, st := NewFake(), rendezvous.NewLocal()
			f.FailCall(c.call, nth, SystemError)
			cx, cancel := context.WithTimeout(t.Context(), plenty)
			errs := ranks(2, func(rank int) error {
				c, err := Join(cx, f, member(t, st, rank, 2), "g", 0, Options{Timeout: plenty})
				if err != nil {
					return err
				}
				first, _ := f.Alloc(64)
				second, _ := f.Alloc(64)
				err = errors.Join(c.Register(first, 64), c.Register(second, 64), c.Deregister(first))
				return errors.Join(err, c.Close(cx))
			})
			cancel()
			if f.Leaks() != 0 {
				t.Errorf("%s %d: %d communicators and registrations leaked: %v", c.call, nth, f.Leaks(), errs)
			}
			var own *Error
			for r, err := range errs {
				if errors.Is(err, rendezvous.ErrTimeout) {
					t.Errorf("%s %d: rank %d waited for its deadline: %v", c.call, nth, r, err)
				}
				if e := (*Error)(nil); errors.As(err, &e) {
					own = e
				}
			}
			if own == nil || own.Code != SystemError || own.Call != c.call {
				t.Errorf("%s %d: no rank reports the failure: %v", c.call, nth, errs)
			}
		}
	}
}

// stuck is a library whose communicators are in the middle of something.
type stuck struct{ *Fake }

func (s stuck) AsyncError(h Handle) (Code, error) {
	if code, err := s.Fake.AsyncError(h); code != Success || err != nil {
		return code, err
	}
	return InProgress, nil
}

// TestDiscard looks at what an abort does to registrations: it ends all of them, unless the library is in the middle of something.
func TestDiscard(t *testing.T) {
	f := NewFake()
	id, err := f.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	h, _ := f.Init(0, 1, id, 0, Config{})
	at, _ := f.Alloc(64)
	c := &Comm{lib: stuck{f}}
	for range 2 {
		r, err := f.Register(0, h, at, 64)
		if err != nil {
			t.Fatal(err)
		}
		c.regs = append(c.regs, registered{at, r})
	}
	mine := slices.Clone(c.regs)
	if c.discard(h); len(f.regs) != 2 || c.regs != nil {
		t.Errorf("in the middle of something: %d registrations, %v", len(f.regs), c.regs)
	}
	c.lib, c.regs = f, mine
	f.FailAt(1, SystemError) // the first failure does not keep the others
	if c.discard(h); len(f.regs) != 0 {
		t.Errorf("%d registrations are left", len(f.regs))
	}
}

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
)

// End ends s and all below it: see the package's documentation. It returns what failed on
// the way, a *HeldError if work has not ended, and nil if s has been released before. When
// ctx ends first it cancels what waits, and gives that Grace.
func (s *Scope) End(ctx context.Context) error { return s.drive(ctx, false) }

// EndInCall is End within a call of the owner, for a scope that the call has made for itself
// or could not make. If the owner is being ended it does nothing: that waits for the call,
// which must not wait for it, and ends the scope, too.
func (s *Scope) EndInCall() error {
	select {
	case s.token <- struct{}{}:
		return s.drive(context.Background(), true)
	default:
		return nil
	}
}

// drive does the work of End. mine says that the caller has the token of s.
func (s *Scope) drive(ctx context.Context, mine bool) error {
	s.stop()
	defer s.wait(ctx)()
	all, err := s.seize(ctx, mine, nil)
	defer func() {
		for _, c := range all {
			<-c.token
		}
	}()
	if err != nil {
		return err
	}
	if s.State() == Released {
		return nil
	}
	failed, err := s.drain(all)
	if err != nil {
		for _, c := range all {
			c.become(Quarantined)
		}
		return errors.Join(failed, err)
	}
	return errors.Join(failed, s.release())
}

// stop lets nothing begin any more.
func (s *Scope) stop() {
	s.mu.Lock()
	if s.state == Open {
		s.state = Draining
		s.word.Or(stopped)
		s.end(s.closed())
	}
	below := s.below()
	s.mu.Unlock()
	for _, c := range below {
		c.stop()
	}
}

// wait makes ctx one of those whose end cancels what is waited for, here and below, until the
// returned function is called.
func (s *Scope) wait(ctx context.Context) (stop func()) {
	s.mu.Lock()
	place := s.ending.PushBack(ctx)
	s.mu.Unlock()
	unwatch := context.AfterFunc(ctx, s.look)
	return func() {
		unwatch()
		s.mu.Lock()
		s.ending.Remove(place)
		s.mu.Unlock()
	}
}

// look lets who drives s, or a scope below it, look again.
func (s *Scope) look() {
	s.mu.Lock()
	below := s.below()
	s.mu.Unlock()
	for _, c := range below {
		c.look()
	}
	s.leave(0)
}

// below lists the scopes in s, last made first; s.mu is held.
func (s *Scope) below() (out []*Scope) {
	for e := s.made.Back(); e != nil; e = e.Prev() {
		if c := e.Value.(*entry).child; c != nil {
			out = append(out, c)
		}
	}
	return out
}

// seize takes the tokens of s and of all below it, and adds them to all, lowest first.
// Everybody takes an owner's before those of what it owns, and tells it to stop before it
// waits for them: who ends one of those may wait for what Stop ends.
func (s *Scope) seize(ctx context.Context, mine bool, all []*Scope) ([]*Scope, error) {
	if !mine && !s.take(ctx) {
		return all, &HeldError{Name: s.name, Busy: []string{"another call that ends it"}, Err: context.Cause(ctx)}
	}
	if !s.hooked && s.State() != Released {
		s.hooked = true
		if s.hooks.Stop != nil {
			s.hooks.Stop()
		}
	}
	s.mu.Lock()
	below := s.below()
	s.mu.Unlock()
	for _, c := range below {
		var err error
		if all, err = c.seize(ctx, false, all); err != nil {
			return append(all, s), err
		}
	}
	return append(all, s), nil
}

// take waits for the token, for a little longer than whoever has it drains.
func (s *Scope) take(ctx context.Context) bool {
	select {
	case s.token <- struct{}{}:
		return true
	case <-ctx.Done():
	}
	select {
	case s.token <- struct{}{}:
		return true
	case <-stall.After(Grace + Grace/2):
		return false
	}
}

// drain waits until nothing runs in all. failed is what went wrong in scopes that are idle
// now; err is a *HeldError.
func (s *Scope) drain(all []*Scope) (failed, err error) {
	const least, most = 10 * time.Microsecond, time.Millisecond
	fails := make([]int, len(all))
	start := time.Now()
	var cause error           // why waits are cancelled: the first that there is
	var cancelled stall.Clock // since they are
	polls := slices.ContainsFunc(all, func(c *Scope) bool { return c.hooks.Tend != nil || c.hooks.Idle != nil })
	for pause := least; ; pause = min(2*pause, most) {
		if cause == nil {
			cause, cancelled = s.why(), stall.Start()
		}
		var busy []string
		note := func(c *Scope, idle bool, err error) {
			if failed = join(failed, err); !idle {
				busy = append(busy, c.name)
			}
		}
		for _, c := range all {
			uncalled, err := c.tend(time.Since(start), cause)
			note(c, uncalled, err)
		}
		if len(busy) == 0 { // what a call enqueues, an answer that was asked for before need not know of
			for i, c := range all {
				idle, err := c.idle(&fails[i])
				note(c, idle, err)
			}
		}
		if len(busy) == 0 {
			return failed, nil
		}
		limit := Grace
		if cause != nil {
			if limit = Grace - cancelled.Look(); limit <= 0 {
				return failed, &HeldError{Name: s.name, Busy: busy, Keeps: s.keeps(nil), Err: cause}
			}
		}
		var again <-chan time.Time
		var timer *time.Timer
		if polls || cause != nil {
			timer = time.NewTimer(min(pause, limit))
			again = timer.C
		}
		select {
		case <-s.wake:
		case <-again:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// join keeps the first error: what fails does so again and again.
func join(first, err error) error {
	if first != nil {
		return first
	}
	return err
}

// why is the cause of a call that ends s or an owner of it, and waits no more; nil while all do.
func (s *Scope) why() error {
	for ; s != nil; s = s.owner {
		s.mu.Lock()
		for e := s.ending.Front(); e != nil; e = e.Next() {
			if ctx := e.Value.(context.Context); ctx.Err() != nil {
				s.mu.Unlock()
				return context.Cause(ctx)
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// tend does for the work of one scope what only the host can, and reports whether no call is
// under way.
func (s *Scope) tend(waited time.Duration, cause error) (uncalled bool, err error) {
	if s.State() == Released {
		return true, nil
	}
	if s.hooks.Tend != nil {
		err = s.hooks.Tend(waited, cause)
	}
	return s.word.Load()&calls == 0, err
}

// idle reports whether the work of one scope has ended, when no call is under way.
func (s *Scope) idle(fails *int) (bool, error) {
	if s.hooks.Idle == nil || s.State() == Released {
		return true, nil
	}
	idle, err := s.hooks.Idle()
	if err != nil { // not yet is no answer: the question may be under way
		*fails++
		idle = *fails >= insist
	}
	return idle, err
}

// release gives back all that s has. Whoever calls it has the tokens of s and of all below.
func (s *Scope) release() error {
	s.become(Releasing)
	s.word.Or(releasing)
	for s.word.Load()&holds != 0 {
		<-s.wake
	}
	var errs []error
	for e := s.last(); e != nil; e = s.last() {
		if e.child != nil {
			errs = append(errs, e.child.release())
		} else if err := e.give(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.what, err))
		}
	}
	s.become(Released)
	if o := s.owner; o != nil {
		o.mu.Lock()
		o.made.Remove(s.place) // unless its owner has taken it
		o.mu.Unlock()
	}
	return errors.Join(errs...)
}

// last takes the end of the list; nil if the list is empty.
func (s *Scope) last() *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.made.Back()
	if at == nil {
		return nil
	}
	return s.made.Remove(at).(*entry)
}

// become changes the state of a scope that has not been released.
func (s *Scope) become(to State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != Released {
		s.state = to
	}
}

// keeps adds what s and all below it have.
func (s *Scope) keeps(out []string) []string {
	s.mu.Lock()
	var entries []*entry
	for e := s.made.Front(); e != nil; e = e.Next() {
		entries = append(entries, e.Value.(*entry))
	}
	s.mu.Unlock()
	for _, e := range entries {
		if e.child != nil {
			out = e.child.keeps(out)
			continue
		}
		out = append(out, e.what)
	}
	return out
}

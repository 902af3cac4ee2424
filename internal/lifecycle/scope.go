package lifecycle

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is wrapped by the errors of what is used after its end has begun.
var ErrClosed = errors.New("closed")

// State is where a scope is on its way. The package's documentation has the transitions.
type State uint8

// The states in order.
const (
	Open State = iota
	Draining
	Quarantined
	Releasing
	Released
)

// String names the state.
func (s State) String() string {
	return [...]string{"open", "draining", "quarantined", "releasing", "released"}[s]
}

// Hooks are what a scope has to know of the work that is done in it. All may be nil. They
// are called by one goroutine at a time, without locks.
type Hooks struct {
	// Stop is called once, when no call begins any more.
	Stop func()
	// Tend is called again and again while the scope drains: it does for the work what only
	// the host can do. waited is for how long that has been. cause is nil at first; once it
	// is not, what waits is to be cancelled.
	Tend func(waited time.Duration, cause error) error
	// Idle reports whether all work has ended. After an error it is asked again; if it fails
	// several times while the scope drains there is nothing left that could run.
	Idle func() (bool, error)
}

// Grace is how long work that has been cancelled has to end; while this process stands still,
// as when the whole machine does, it has more.
const Grace = 2 * time.Second

// insist is how often Idle has to fail until there is nothing to wait for.
const insist = 3

// The word of a scope: calls that have begun, holds, and how far its end is.
const (
	oneCall   = 1
	oneHold   = 1 << 30
	calls     = oneHold - 1
	holds     = calls << 30
	stopped   = 1 << 62
	releasing = 1 << 63
)

// Scope is something that lives.
type Scope struct {
	name  string
	owner *Scope // nil for the root of a tree
	hooks Hooks  // set under mu while s is open
	word  atomic.Uint64
	wake  chan struct{} // a call or a hold has ended in this scope or below it
	token chan struct{} // held by who drives the end; guards hooked
	ends  context.Context
	end   context.CancelCauseFunc

	hooked bool // Stop has been called

	mu     sync.Mutex
	state  State
	ending list.List     // of context.Context: of calls of End under way
	made   list.List     // of *entry, in the order of making
	place  *list.Element // in the owner's list
}

// entry is a resource or a scope.
type entry struct {
	what  string
	give  func() error
	child *Scope
}

// New makes the root of a tree.
func New(name string) *Scope {
	s := &Scope{name: name, wake: make(chan struct{}, 1), token: make(chan struct{}, 1)}
	s.ends, s.end = context.WithCancelCause(context.Background())
	return s
}

// New makes a scope that s owns.
func (s *Scope) New(name string) (*Scope, error) {
	c := New(name)
	c.owner = s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != Open {
		return nil, s.closed()
	}
	c.place = s.made.PushBack(&entry{what: name, child: c})
	return c, nil
}

// Work says what has to be known of the work that is done in s from now on, when all is made
// that the hooks look at. It fails with an error that wraps ErrClosed if s is being ended.
func (s *Scope) Work(h Hooks) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != Open {
		return s.closed()
	}
	s.hooks = h
	return nil
}

// Defer hands over a resource that was made in s, with the function that gives it back. In a
// scope that has been released it is given back at once, and the result wraps ErrClosed.
func (s *Scope) Defer(what string, give func() error) error {
	s.mu.Lock()
	if s.state < Releasing {
		defer s.mu.Unlock()
		s.made.PushBack(&entry{what: what, give: give})
		return nil
	}
	s.mu.Unlock()
	return errors.Join(s.closed(), give())
}

func (s *Scope) closed() error { return fmt.Errorf("%s: %w", s.name, ErrClosed) }

// State is the scope's.
func (s *Scope) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Err is nil while s is open, and wraps ErrClosed afterwards. It takes no lock.
func (s *Scope) Err() error {
	if s.word.Load()&stopped == 0 {
		return nil
	}
	return s.closed()
}

// Begin starts a call, which Done ends. Once s drains it fails with an error that wraps
// ErrClosed.
func (s *Scope) Begin() error {
	if s.word.Add(oneCall)&stopped == 0 {
		return nil
	}
	s.leave(oneCall)
	return s.closed()
}

// Done ends a call.
func (s *Scope) Done() { s.leave(oneCall) }

// Hold keeps s from releasing until Drop. It fails once s releases.
func (s *Scope) Hold() bool {
	if s.word.Add(oneHold)&releasing == 0 {
		return true
	}
	s.leave(oneHold)
	return false
}

// Drop undoes Hold.
func (s *Scope) Drop() { s.leave(oneHold) }

func (s *Scope) leave(one uint64) {
	if s.word.Add(-one)&stopped == 0 {
		return
	}
	for ; s != nil; s = s.owner { // whoever drives may drive from an owner
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Bound is ctx for a wait that depends on s: it ends with an error that wraps ErrClosed when
// s begins to end. The function it gives frees it.
func (s *Scope) Bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ends, func() { cancel(context.Cause(s.ends)) })
	return ctx, func() { stop(); cancel(nil) }
}

// HeldError says that a scope could not be drained, and keeps what it has.
type HeldError struct {
	Name  string   // of the scope
	Busy  []string // scopes whose work has not ended
	Keeps []string // resources in the order of making
	Err   error    // why the waiting ended
}

// Error names what runs and what is kept.
func (e *HeldError) Error() string {
	s := fmt.Sprintf("%s: work of %s has not finished: %v", e.Name, strings.Join(e.Busy, ", "), e.Err)
	if len(e.Keeps) > 0 {
		s += "; until it has, these are kept: " + strings.Join(e.Keeps, ", ")
	}
	return s
}

// Unwrap gives the cause.
func (e *HeldError) Unwrap() error { return e.Err }

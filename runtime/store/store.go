// Package store is the small key-value store through which the ranks of a job
// find each other: set, blocking get, add, compare-and-set, a barrier and a job
// nonce. It carries rendezvous records of a few hundred bytes, never tensor data.
//
// Three things implement [Store]: [Mem] for ranks that are goroutines of one
// process, [Server] (rank 0 hosts it) and [Client] (everyone else) over TCP. An
// adapter to another service (a key-value table with watches) only has to
// implement the interface; [Barrier] is written against it.
//
// Every call takes a context; its deadline is the only time limit that applies.
package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Limits that every implementation enforces, so that a program which passes on
// one store passes on the others.
const (
	MaxKey   = 4 << 10  // bytes of a key
	MaxValue = 64 << 20 // bytes of a value
)

// Store is what rendezvous needs of a key-value service. Implementations are
// safe for concurrent use; values are copied in and out.
type Store interface {
	// Nonce identifies the job: every rank of one job sees the same text, and
	// no two jobs share one.
	Nonce() string
	// Set gives key a value, creating or replacing it.
	Set(ctx context.Context, key string, value []byte) error
	// Get returns the value of key, waiting until it exists. When ctx ends
	// first the error is a *WaitError.
	Get(ctx context.Context, key string) ([]byte, error)
	// TryGet returns the value of key, or false if it does not exist now.
	TryGet(ctx context.Context, key string) ([]byte, bool, error)
	// Add adds delta to the decimal number under key (absent counts as 0) and
	// returns the sum.
	Add(ctx context.Context, key string, delta int64) (int64, error)
	// CompareAndSet replaces the value of key by new if it equals old; a nil
	// old demands that key does not exist. It returns the value that key has
	// afterwards and whether the replacement took place.
	CompareAndSet(ctx context.Context, key string, old, new []byte) (current []byte, swapped bool, err error)
	// Close releases the caller's connection or, at the hosting rank, ends the
	// service. Calls that wait return an error that is ErrClosed.
	Close() error
}

// Errors that errors.Is finds in what a Store returns.
var (
	ErrClosed = errors.New("store closed")
	ErrWait   = errors.New("store wait ended")
)

// WaitError says that a key did not appear before the context ended.
type WaitError struct {
	Key     string
	Elapsed time.Duration
	Err     error // context.DeadlineExceeded or context.Canceled
}

// Error implements error.
func (e *WaitError) Error() string {
	return fmt.Sprintf("store: key %q did not appear in %v: %v", e.Key, e.Elapsed.Round(time.Millisecond), e.Err)
}

// Unwrap gives the context's error.
func (e *WaitError) Unwrap() error { return e.Err }

// Is reports a match with ErrWait.
func (e *WaitError) Is(target error) bool { return target == ErrWait }

// ConnError says that the service at Addr cannot be reached, or no longer.
type ConnError struct {
	Addr string
	Op   string // "dial", "handshake", "read", "write"
	Err  error
}

// Error implements error.
func (e *ConnError) Error() string {
	return fmt.Sprintf("store: %s %s: %v", e.Op, e.Addr, e.Err)
}

// Unwrap gives the cause.
func (e *ConnError) Unwrap() error { return e.Err }

// ProtocolError says that the other side speaks another protocol or another
// version of it, or refused a request.
type ProtocolError struct{ Reason string }

// Error implements error.
func (e *ProtocolError) Error() string { return "store: " + e.Reason }

// BarrierError names the ranks that did not reach a barrier in time.
type BarrierError struct {
	Name    string
	Rank    int
	Missing []int
	Err     error
}

// Error implements error.
func (e *BarrierError) Error() string {
	return fmt.Sprintf("store: rank %d: barrier %q: ranks %v are missing: %v", e.Rank, e.Name, e.Missing, e.Err)
}

// Unwrap gives the wait's error.
func (e *BarrierError) Unwrap() error { return e.Err }

// Barrier returns when all world ranks have called it with the same name. A
// name serves once. On expiry the error is a *BarrierError that names who is
// missing.
func Barrier(ctx context.Context, s Store, name string, rank, world int) error {
	if rank < 0 || rank >= world {
		return &ProtocolError{Reason: fmt.Sprintf("barrier %q: rank %d of %d", name, rank, world)}
	}
	if err := s.Set(ctx, barrierKey(name, rank), []byte{1}); err != nil {
		return err
	}
	for r := range world {
		_, err := s.Get(ctx, barrierKey(name, r))
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrWait) {
			return err
		}
		return &BarrierError{Name: name, Rank: rank, Missing: absent(ctx, s, name, r, world), Err: err}
	}
	return nil
}

func barrierKey(name string, rank int) string { return "barrier/" + name + "/" + strconv.Itoa(rank) }

// absent lists the ranks from first on that have not reached the barrier. The
// caller's context has expired, so the look-ups get a short one of their own.
func absent(ctx context.Context, s Store, name string, first, world int) []int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
	defer cancel()
	missing := []int{first}
	for r := first + 1; r < world; r++ {
		if _, ok, err := s.TryGet(ctx, barrierKey(name, r)); err == nil && !ok {
			missing = append(missing, r)
		}
	}
	return missing
}

// NewNonce returns 128 random bits in hexadecimal.
func NewNonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return hex.EncodeToString(b[:])
}

// Mem is a Store in this process's memory. The zero value is not usable; call
// NewMem.
type Mem struct{ t *table }

// NewMem returns an empty store with a fresh nonce.
func NewMem() *Mem { return &Mem{newTable(NewNonce())} }

// Nonce implements Store.
func (m *Mem) Nonce() string { return m.t.nonce }

// Set implements Store.
func (m *Mem) Set(ctx context.Context, key string, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.t.set(key, value)
}

// Get implements Store.
func (m *Mem) Get(ctx context.Context, key string) ([]byte, error) { return m.t.get(ctx, key) }

// TryGet implements Store.
func (m *Mem) TryGet(ctx context.Context, key string) ([]byte, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	return m.t.tryGet(key)
}

// Add implements Store.
func (m *Mem) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return m.t.add(key, delta)
}

// CompareAndSet implements Store.
func (m *Mem) CompareAndSet(ctx context.Context, key string, old, new []byte) ([]byte, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	return m.t.cas(key, old, new)
}

// Close implements Store: waiting calls of every user return ErrClosed.
func (m *Mem) Close() error { m.t.close(); return nil }

// table is the data that Mem and Server share.
type table struct {
	nonce string

	mu     sync.Mutex
	vals   map[string][]byte
	wake   map[string]chan struct{} // closed when the key appears
	waits  map[string]int           // waiters per key, so that wake entries of abandoned keys go away
	done   chan struct{}            // closed by close
	closed bool
}

func newTable(nonce string) *table {
	return &table{
		nonce: nonce,
		vals:  map[string][]byte{},
		wake:  map[string]chan struct{}{},
		waits: map[string]int{},
		done:  make(chan struct{}),
	}
}

func checkKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return &ProtocolError{Reason: fmt.Sprintf("a key has 1 to %d bytes, not %d", MaxKey, len(key))}
	}
	return nil
}

func checkValue(v []byte) error {
	if len(v) > MaxValue {
		return &ProtocolError{Reason: fmt.Sprintf("a value has at most %d bytes, not %d", MaxValue, len(v))}
	}
	return nil
}

// put stores v, which it keeps, and wakes those who wait. t.mu is held.
func (t *table) put(key string, v []byte) {
	t.vals[key] = v
	if c, ok := t.wake[key]; ok {
		close(c)
		delete(t.wake, key)
	}
}

func (t *table) set(key string, value []byte) error {
	if err := errors.Join(checkKey(key), checkValue(value)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.put(key, append([]byte{}, value...))
	return nil
}

func (t *table) tryGet(key string) ([]byte, bool, error) {
	if err := checkKey(key); err != nil {
		return nil, false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, false, ErrClosed
	}
	v, ok := t.vals[key]
	return slices.Clone(v), ok, nil
}

func (t *table) get(ctx context.Context, key string) ([]byte, error) {
	start := time.Now()
	for {
		v, ok, err := t.tryGet(key)
		if err != nil || ok {
			return v, err
		}
		c, done := t.listen(key)
		if c == nil {
			continue
		}
		select {
		case <-c:
			done()
		case <-t.done:
			done()
			return nil, ErrClosed
		case <-ctx.Done():
			done()
			return nil, &WaitError{Key: key, Elapsed: time.Since(start), Err: ctx.Err()}
		}
	}
}

// listen returns a channel that closes when key appears and a function to call
// when the wait is over; nil if the key is there already.
func (t *table) listen(key string) (<-chan struct{}, func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.vals[key]; ok {
		return nil, nil
	}
	c, ok := t.wake[key]
	if !ok {
		c = make(chan struct{})
		t.wake[key] = c
	}
	t.waits[key]++
	return c, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.waits[key]--; t.waits[key] == 0 {
			delete(t.waits, key)
			delete(t.wake, key)
		}
	}
}

func (t *table) add(key string, delta int64) (int64, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, ErrClosed
	}
	var n int64
	if v, ok := t.vals[key]; ok {
		var err error
		if n, err = strconv.ParseInt(string(v), 10, 64); err != nil {
			return 0, &ProtocolError{Reason: fmt.Sprintf("add: key %q holds %.20q, not a decimal number", key, v)}
		}
	}
	n += delta
	t.put(key, strconv.AppendInt(nil, n, 10))
	return n, nil
}

func (t *table) cas(key string, old, new []byte) ([]byte, bool, error) {
	if err := errors.Join(checkKey(key), checkValue(new)); err != nil {
		return nil, false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, false, ErrClosed
	}
	v, ok := t.vals[key]
	if ok != (old != nil) || !bytes.Equal(v, old) {
		return slices.Clone(v), false, nil
	}
	t.put(key, append([]byte{}, new...))
	return slices.Clone(new), true, nil
}

func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		close(t.done)
	}
}

package nccl

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrClosed is what a Comm returns after Close.
var ErrClosed = errors.New("the communicator is closed")

// TimeoutError says that a group did not get on in time.
type TimeoutError struct {
	Group   string
	Rank    int
	What    string // what was waited for: "join", an op's name, "leave"
	Seq     uint64 // ops of this rank enqueued so far
	Elapsed time.Duration
	Err     error // the context's error, or nil when the group's own deadline passed
}

// Error names the group, the rank, what it waited for and how long.
func (e *TimeoutError) Error() string {
	s := fmt.Sprintf("nccl group %q, rank %d: %s did not end in %v (%d ops enqueued): a peer is lost, late, or runs other ops",
		e.Group, e.Rank, e.What, e.Elapsed.Round(time.Millisecond), e.Seq)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the context's error; a passed deadline matches DeadlineExceeded.
func (e *TimeoutError) Unwrap() error {
	if e.Err == nil {
		return context.DeadlineExceeded
	}
	return e.Err
}

// BrokenError says that the group is broken. The cause is the rank's own error, or
// what another rank recorded.
type BrokenError struct {
	Group  string
	Rank   int    // this rank
	Origin int    // the rank that broke the group, -1 if unknown
	Reason string // what that rank said
	Err    error  // the cause when it is this rank's own
}

// Error names the group and the cause.
func (e *BrokenError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("nccl group %q, rank %d: broken: %v", e.Group, e.Rank, e.Err)
	}
	return fmt.Sprintf("nccl group %q, rank %d: broken by rank %d: %s", e.Group, e.Rank, e.Origin, e.Reason)
}

// Unwrap gives the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// JoinError says that the ranks of a group do not fit together.
type JoinError struct {
	Group  string
	Rank   int
	Reason string
	Err    error
}

// Error names the group, the rank and the reason.
func (e *JoinError) Error() string {
	s := fmt.Sprintf("nccl group %q, rank %d: %s", e.Group, e.Rank, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *JoinError) Unwrap() error { return e.Err }

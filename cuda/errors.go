package cuda

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrClosed means that a world, a group or a handle was used after its Close.
var ErrClosed = errors.New("closed")

// ArgumentError is an argument that cannot be served, found before anything was done.
type ArgumentError struct {
	What   string // which argument, such as "GroupOptions.Region"
	Reason string
}

// Error names the argument and the reason.
func (e *ArgumentError) Error() string { return e.What + ": " + e.Reason }

// bad makes an ArgumentError.
func bad(what, format string, args ...any) error {
	return &ArgumentError{What: what, Reason: fmt.Sprintf(format, args...)}
}

// MeetingError means that a meeting of a world's processes came to nothing because one
// of them gave up, or has left the world. The world itself goes on: the next meeting is
// the next one for all.
type MeetingError struct {
	Rank   int // world rank
	Reason string
	Left   bool // it has left the world, and comes to no meeting any more
}

// Error names the rank and its reason.
func (e *MeetingError) Error() string {
	return fmt.Sprintf("rank %d gave up a meeting of the world: %s", e.Rank, e.Reason)
}

// MeetingTimeoutError means that processes of a world did not meet in time. It matches
// ErrTimeout.
type MeetingTimeoutError struct {
	Rank    int   // world rank that waited, or came too late
	Missing []int // world ranks that had not come in time, nil where only rank 0 knows
	Waited  time.Duration
}

// Error names the ranks.
func (e *MeetingTimeoutError) Error() string {
	who := "not all processes of the world came"
	if slices.Contains(e.Missing, e.Rank) {
		return fmt.Sprintf("rank %d came too late to a meeting of the world: ranks %v did not come in time", e.Rank, e.Missing)
	}
	if len(e.Missing) > 0 {
		who = fmt.Sprintf("ranks %v did not come", e.Missing)
	}
	return fmt.Sprintf("rank %d waited %v at a meeting of the world: %s", e.Rank, e.Waited.Round(time.Millisecond), who)
}

// Is matches ErrTimeout.
func (e *MeetingTimeoutError) Is(target error) bool { return target == ErrTimeout }

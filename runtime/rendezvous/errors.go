package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ee968945/concert/internal/lifecycle"
)

// What errors.Is finds in the errors of this package, which all of runtime and cuda
// use. Ranks are those of the job.
var (
	ErrTimeout  = errors.New("timeout")
	ErrPeerLost = errors.New("peer lost")
	ErrMismatch = errors.New("ranks disagree")
	ErrCanceled = errors.New("canceled")
	ErrClosed   = lifecycle.ErrClosed
	// ErrUnauthenticated says that a listener belongs to another job.
	ErrUnauthenticated = errors.New("not of this job")
)

// TimeoutError says that a peer did not do its part of a collective, or did not
// arrive at a barrier, before the deadline.
type TimeoutError struct {
	Op      string        // what was waiting, such as `all_reduce on "tp" (%17)` or `rendezvous before all_reduce on "tp" (%17)`
	Rank    int           // who waited
	Peer    int           // the first peer that was missing, -1 if not known
	Missing []int         // all peers that were missing, Peer among them
	Group   string        // the group's name; empty for the job
	Step    uint64        // number of the call in the group, 0 if not known
	Elapsed time.Duration // how long it waited
	Detail  string        // what else is known, such as what the peer did last
}

// Error implements error.
func (e *TimeoutError) Error() string {
	who := fmt.Sprintf(" waiting for rank %d", e.Peer)
	switch {
	case slices.Contains(e.Missing, e.Rank):
		return fmt.Sprintf("rank %d: %s: came too late: ranks %s did not arrive in time", e.Rank, e.Op, listRanks(e.Missing))
	case len(e.Missing) > 1:
		who = " waiting for ranks " + listRanks(e.Missing)
	case e.Peer < 0:
		who = ""
	}
	s := fmt.Sprintf("rank %d: %s: timed out after %v%s", e.Rank, e.Op, round(e.Elapsed), who)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Is reports a match with ErrTimeout and context.DeadlineExceeded.
func (e *TimeoutError) Is(t error) bool { return t == ErrTimeout || t == context.DeadlineExceeded }

// PeerLostError says that a peer died, or left, while it was needed.
type PeerLostError struct {
	Op    string // the collective that needed the peer, or the barrier, as in TimeoutError
	Rank  int    // who noticed
	Peer  int    // who is lost
	Group string
	Step  uint64 // number of the call in the group, 0 if not known
	Left  bool   // the peer left in order; false: its process ended without a word
	// Detail is what else is known, such as that its host gave no sign of life.
	Detail string
}

// Error implements error.
func (e *PeerLostError) Error() string {
	how := "died"
	if e.Left {
		how = "left the world"
	}
	s := fmt.Sprintf("rank %d: %s: rank %d %s", e.Rank, e.Op, e.Peer, how)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Is reports a match with ErrPeerLost.
func (e *PeerLostError) Is(t error) bool { return t == ErrPeerLost }

// Programs is what a MismatchError says of ranks that are about to run different
// programs. The values are digests.
const Programs = "programs"

// MismatchError says that two ranks disagree on something that must be the same:
// their programs, arena bytes, operands in a collective, the size of the world, or
// who is which rank.
type MismatchError struct {
	Op                   string // the collective, or the barrier, as in TimeoutError
	What                 string // "programs", "arena bytes", "operand bytes", "operations", ...
	Rank, Peer           int    // the two ranks
	RankValue, PeerValue string // their values; digests of programs
	Group                string
	Step                 uint64 // number of the call in the group, 0 if not known

	// Of programs: the first line of Rank's text that differs, from 1, and that line
	// on either rank, empty past the end; 0 if no text was given. Where memory is
	// counts only if nothing else differs.
	Line               int
	RankLine, PeerLine string
}

// Error implements error.
func (e *MismatchError) Error() string {
	s := fmt.Sprintf("rank %d: %s: %s differ: %.300s on rank %d, %.300s on rank %d",
		e.Rank, e.Op, e.What, e.RankValue, e.Rank, e.PeerValue, e.Peer)
	if e.What == Programs {
		s = fmt.Sprintf("rank %d: %s: ranks %d and %d run different programs: digests %.16s and %.16s",
			e.Rank, e.Op, e.Rank, e.Peer, e.RankValue, e.PeerValue)
	}
	if e.Line > 0 {
		s += fmt.Sprintf("; first difference at line %d: %q on rank %d, %q on rank %d",
			e.Line, strings.TrimSpace(e.RankLine), e.Rank, strings.TrimSpace(e.PeerLine), e.Peer)
	}
	return s
}

// Is reports a match with ErrMismatch.
func (e *MismatchError) Is(t error) bool { return t == ErrMismatch }

// CanceledError says that this rank stopped because another rank, or its own caller,
// canceled a barrier or broke the world. Err is the origin's error when it is known, so
// that errors.Is and errors.As see it.
type CanceledError struct {
	Op     string // what this rank was doing; empty if nothing
	Rank   int    // who reports
	Origin int    // who canceled, -1 if not known
	Group  string
	Step   uint64 // number of the call in the group, 0 if not known
	Err    error
}

// Error implements error.
func (e *CanceledError) Error() string {
	s := fmt.Sprintf("rank %d: ", e.Rank)
	if e.Op != "" {
		s += e.Op + ": "
	}
	if e.Origin < 0 {
		s += "canceled by another rank"
	} else {
		s += fmt.Sprintf("canceled by rank %d", e.Origin)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the origin's error.
func (e *CanceledError) Unwrap() error { return e.Err }

// Is reports a match with ErrCanceled.
func (e *CanceledError) Is(t error) bool { return t == ErrCanceled }

// remoteError is an error of another rank of which only the text is known.
type remoteError struct{ text string }

func (e *remoteError) Error() string { return e.text }

// wireError is how an error travels to other ranks.
type wireError struct {
	Timeout  *TimeoutError  `json:"timeout,omitempty"`
	Lost     *PeerLostError `json:"lost,omitempty"`
	Mismatch *MismatchError `json:"mismatch,omitempty"`
	Text     string         `json:"text,omitempty"`
	Canceled bool           `json:"canceled,omitempty"`
	Origin   *int           `json:"origin,omitempty"` // of a CanceledError around it
}

// EncodeError turns err into bytes of at most max that DecodeError of another
// rank turns into an error of the same type. An error that does not fit is cut
// down to its text.
func EncodeError(err error, max int) []byte {
	var w wireError
	if from, ok := err.(*CanceledError); ok && from.Origin >= 0 {
		w.Origin = &from.Origin
		if from.Err != nil {
			err = from.Err
		}
	}
	if err != nil && !errors.As(err, &w.Timeout) && !errors.As(err, &w.Lost) && !errors.As(err, &w.Mismatch) {
		w.Text, w.Canceled = err.Error(), errors.Is(err, context.Canceled)
	}
	b, jerr := json.Marshal(w)
	if jerr == nil && len(b) <= max {
		return b
	}
	// Quotes and control characters grow sixfold at most.
	text := err.Error()
	if keep := (max - 40) / 6; len(text) > keep {
		text = strings.ToValidUTF8(text[:keep], "")
	}
	b, _ = json.Marshal(wireError{Text: text, Origin: w.Origin})
	return b
}

// DecodeError is EncodeError's inverse. Bytes that it cannot read give an error
// that says so.
func DecodeError(b []byte) error {
	var w wireError
	if err := json.Unmarshal(b, &w); err != nil {
		return &remoteError{"unreadable report of a failure"}
	}
	if w.Origin != nil {
		return &CanceledError{Rank: *w.Origin, Origin: *w.Origin, Err: w.decode()}
	}
	return w.decode()
}

func (w *wireError) decode() error {
	switch {
	case w.Timeout != nil:
		return w.Timeout
	case w.Lost != nil:
		return w.Lost
	case w.Mismatch != nil:
		return w.Mismatch
	case w.Canceled:
		return fmt.Errorf("%w (%s)", context.Canceled, w.Text)
	}
	return &remoteError{w.Text}
}

// Where says which rank an error is of, and what it was in, where that is known.
type Where struct {
	Op    string // the collective, or the barrier, as in TimeoutError
	Rank  int
	Group string
	Step  uint64
}

// Adopt turns the failure that rank origin reported into the error of another. What the
// rank has found itself, which another reports back to it, is its own error again. A lost
// peer is lost to everyone, so it becomes the rank's own PeerLostError; anything else is
// wrapped in a CanceledError.
func (w Where) Adopt(err error, origin int) error {
	if from, ok := err.(*CanceledError); ok && from.Origin == w.Rank && w.found(from.Err) {
		return from.Err
	}
	var l *PeerLostError
	if errors.As(err, &l) && !l.Left && l.Peer != w.Rank {
		own := *l
		own.Rank = w.Rank
		if w.Op != "" {
			own.Op, own.Step = w.Op, w.Step
		}
		if w.Group != "" {
			own.Group = w.Group
		}
		return &own
	}
	if from, ok := err.(*CanceledError); ok {
		if err = from.Err; from.Origin >= 0 {
			origin = from.Origin
		}
	}
	return &CanceledError{Op: w.Op, Rank: w.Rank, Origin: origin, Group: w.Group, Step: w.Step, Err: err}
}

// found reports whether err is what this rank says of other ranks.
func (w Where) found(err error) bool {
	var t *TimeoutError
	var l *PeerLostError
	var m *MismatchError
	return errors.As(err, &t) && t.Rank == w.Rank || errors.As(err, &l) && l.Rank == w.Rank || errors.As(err, &m) && m.Rank == w.Rank
}

// Own is the error of a rank that breaks a group, or its world, because of err: err if it
// is one of this package, which says what it is about, else a *CanceledError.
func (w Where) Own(err error) error {
	if Known(err) {
		return err
	}
	return &CanceledError{Op: w.Op, Rank: w.Rank, Origin: w.Rank, Group: w.Group, Step: w.Step, Err: err}
}

// Known reports whether err is of ranks with each other: a timeout, a lost peer, a mismatch
// or a cancellation.
func Known(err error) bool {
	return slices.ContainsFunc([]error{ErrTimeout, ErrPeerLost, ErrMismatch, ErrCanceled}, func(kind error) bool { return errors.Is(err, kind) })
}

func listRanks(r []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Clone(r)), " ", ", "), "[]")
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

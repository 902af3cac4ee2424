package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What errors.Is finds in the errors of this package.
var (
	ErrTimeout        = errors.New("timeout")
	ErrPeerLost       = errors.New("peer lost")
	ErrDigestMismatch = errors.New("ranks run different programs")
	ErrSizeMismatch   = errors.New("ranks disagree on a size")
	ErrAborted        = errors.New("aborted")
	ErrClosed         = errors.New("closed")
	ErrUnsupported    = errors.New("not supported")
)

// TimeoutError says that a peer did not do its part of a collective, or did not
// come to the rendezvous, before the deadline.
type TimeoutError struct {
	Op      string        // what was waiting, such as `all_reduce on "tp" (%17)` or `rendezvous before all_reduce on "tp" (%17)`
	Rank    int           // who waited
	Peer    int           // the first peer that was missing
	Missing []int         // all peers that were missing, Peer among them
	Group   string        // the group's name; empty at rendezvous
	Elapsed time.Duration // how long it waited
	Detail  string        // what else is known, such as what the peer did last
}

// Error implements error.
func (e *TimeoutError) Error() string {
	who := fmt.Sprintf("rank %d", e.Peer)
	if len(e.Missing) > 1 {
		who = "ranks " + listRanks(e.Missing)
	}
	s := fmt.Sprintf("rank %d: %s: timed out after %v waiting for %s", e.Rank, e.Op, round(e.Elapsed), who)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Is reports a match with ErrTimeout and context.DeadlineExceeded.
func (e *TimeoutError) Is(t error) bool { return t == ErrTimeout || t == context.DeadlineExceeded }

// PeerLostError says that a peer died, or left the world, while it was needed.
type PeerLostError struct {
	Op    string // the collective that needed the peer, or the rendezvous, as in TimeoutError
	Rank  int    // who noticed
	Peer  int    // who is lost
	Group string
	Left  bool // the peer closed its device; false: its process ended without a word
}

// Error implements error.
func (e *PeerLostError) Error() string {
	how := "died"
	if e.Left {
		how = "left the world"
	}
	return fmt.Sprintf("rank %d: %s: rank %d %s", e.Rank, e.Op, e.Peer, how)
}

// Is reports a match with ErrPeerLost.
func (e *PeerLostError) Is(t error) bool { return t == ErrPeerLost }

// DigestMismatchError says that two ranks are about to run different programs.
type DigestMismatchError struct {
	Op                     string // the rendezvous, as in TimeoutError
	Rank, Peer             int    // the two ranks; Rank is who reports
	RankDigest, PeerDigest string // their digests
	Line                   int    // first line of Rank's program text that differs, from 1; 0 if no text was given. Where memory lies counts only if nothing else differs
	RankLine, PeerLine     string // that line on either rank; empty past the end of the text
}

// Error implements error.
func (e *DigestMismatchError) Error() string {
	s := fmt.Sprintf("rank %d: %s: ranks %d and %d run different programs: digests %.16s and %.16s",
		e.Rank, e.Op, e.Rank, e.Peer, e.RankDigest, e.PeerDigest)
	if e.Line > 0 {
		s += fmt.Sprintf("; first difference at line %d: %q on rank %d, %q on rank %d",
			e.Line, strings.TrimSpace(e.RankLine), e.Rank, strings.TrimSpace(e.PeerLine), e.Peer)
	}
	return s
}

// Is reports a match with ErrDigestMismatch.
func (e *DigestMismatchError) Is(t error) bool { return t == ErrDigestMismatch }

// SizeMismatchError says that two ranks disagree on a size or another property
// that must agree: arena bytes at rendezvous, operands in a collective.
type SizeMismatchError struct {
	Op                 string // the collective, or the rendezvous, as in TimeoutError
	What               string // "arena bytes", "operand bytes", "operation", ...
	Rank, Peer         int    // the two ranks; Rank is who reports
	RankValue, PeerVal string // their values
	Group              string
}

// Error implements error.
func (e *SizeMismatchError) Error() string {
	return fmt.Sprintf("rank %d: %s: %s differ: %s on rank %d, %s on rank %d",
		e.Rank, e.Op, e.What, e.RankValue, e.Rank, e.PeerVal, e.Peer)
}

// Is reports a match with ErrSizeMismatch.
func (e *SizeMismatchError) Is(t error) bool { return t == ErrSizeMismatch }

// AbortedError says that this rank stopped because another rank, or its own
// caller, broke the world. Err is the origin's error when it is known, so that
// errors.Is and errors.As see it.
type AbortedError struct {
	Op     string // what this rank was doing; empty if nothing
	Rank   int    // who reports
	Origin int    // who broke the world first
	Err    error
}

// Error implements error.
func (e *AbortedError) Error() string {
	s := fmt.Sprintf("rank %d: ", e.Rank)
	if e.Op != "" {
		s += e.Op + ": "
	}
	s += fmt.Sprintf("aborted by rank %d", e.Origin)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the origin's error.
func (e *AbortedError) Unwrap() error { return e.Err }

// Is reports a match with ErrAborted.
func (e *AbortedError) Is(t error) bool { return t == ErrAborted }

// RendezvousError says that the ranks met but cannot form a world: two claim one
// rank, or they speak different versions, or they sit on different hosts where
// the device needs one.
type RendezvousError struct {
	Rank   int
	Reason string
	Err    error
}

// Error implements error.
func (e *RendezvousError) Error() string {
	s := fmt.Sprintf("rank %d: rendezvous: %s", e.Rank, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *RendezvousError) Unwrap() error { return e.Err }

// CallError says that one call of a program is malformed or failed by itself.
type CallError struct {
	Rank int
	Op   string // the call, with its IR op if known
	Err  error
}

// Error implements error.
func (e *CallError) Error() string { return fmt.Sprintf("rank %d: %s: %v", e.Rank, e.Op, e.Err) }

// Unwrap gives the cause.
func (e *CallError) Unwrap() error { return e.Err }

// remoteError is an error of another rank of which only the text is known.
type remoteError struct{ text string }

func (e *remoteError) Error() string { return e.text }

// wireError is how an error travels to other ranks.
type wireError struct {
	Kind     string               `json:"k"`
	Timeout  *TimeoutError        `json:"t,omitempty"`
	Lost     *PeerLostError       `json:"l,omitempty"`
	Digest   *DigestMismatchError `json:"d,omitempty"`
	Size     *SizeMismatchError   `json:"s,omitempty"`
	Text     string               `json:"x,omitempty"`
	Canceled bool                 `json:"c,omitempty"`
}

// EncodeError turns err into bytes of at most max that DecodeError of another
// rank turns into an error of the same type. An error that does not fit is cut
// down to its text.
func EncodeError(err error, max int) []byte {
	var w wireError
	var t *TimeoutError
	var l *PeerLostError
	var d *DigestMismatchError
	var s *SizeMismatchError
	switch {
	case errors.As(err, &t):
		w = wireError{Kind: "timeout", Timeout: t}
	case errors.As(err, &l):
		w = wireError{Kind: "lost", Lost: l}
	case errors.As(err, &d):
		w = wireError{Kind: "digest", Digest: d}
	case errors.As(err, &s):
		w = wireError{Kind: "size", Size: s}
	case err != nil:
		w = wireError{Kind: "text", Text: err.Error(), Canceled: errors.Is(err, context.Canceled)}
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
	b, _ = json.Marshal(wireError{Kind: "text", Text: text})
	return b
}

// DecodeError is EncodeError's inverse. Bytes that it cannot read give an error
// that says so.
func DecodeError(b []byte) error {
	var w wireError
	if err := json.Unmarshal(b, &w); err != nil {
		return &remoteError{"unreadable report of a failure"}
	}
	switch {
	case w.Timeout != nil:
		return w.Timeout
	case w.Lost != nil:
		return w.Lost
	case w.Digest != nil:
		return w.Digest
	case w.Size != nil:
		return w.Size
	case w.Canceled:
		return fmt.Errorf("%w (%s)", context.Canceled, w.Text)
	}
	return &remoteError{w.Text}
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

// AdoptError turns the failure that rank origin reported into the error that
// rank returns for op, which it was in. A lost peer is lost to everyone, so it
// becomes rank's own PeerLostError; anything else is wrapped in an AbortedError.
func AdoptError(err error, op string, rank, origin int) error {
	var l *PeerLostError
	if errors.As(err, &l) && !l.Left && l.Peer != rank {
		own := *l
		own.Rank = rank
		if op != "" {
			own.Op = op
		}
		return &own
	}
	return &AbortedError{Op: op, Rank: rank, Origin: origin, Err: err}
}

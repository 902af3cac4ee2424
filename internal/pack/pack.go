// Package pack assigns static offsets to buffers with known lifetimes so that
// they share one arena of the smallest height it can find.
//
// Two buffers conflict, and so may not share a byte, when their lifetimes
// intersect. A lifetime is the half-open interval [Lower, Upper) of any integer clock.
//
// [Solve] starts from best fit, which answers in nearly linear time and is what large
// graphs need, and then searches; that is meant for tight pools of up to a few
// thousand buffers, stops at a node count rather than a time, and can
// be cancelled at any moment without losing what it has found. [LowerBound]
// bounds the optimum, and [Verify] checks an answer without
// trusting the code that produced it.
//
// Nothing here reads a clock, and equal problems give equal answers.
package pack

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// MaxExtent is the largest total of aligned buffer sizes (and the largest end
// of a pinned buffer) that a problem may have: 2^56 bytes. It keeps every sum
// of the package clear of overflow.
const MaxExtent = 1 << 56

// A Buffer is one rectangle to place: a lifetime and a size.
type Buffer struct {
	// Lower and Upper bound the lifetime [Lower, Upper). A buffer with
	// Lower == Upper conflicts with nothing by lifetime.
	Lower, Upper int64
	// Size is in bytes. A buffer of size 0 occupies nothing.
	Size int64
	// Align is the required alignment of the offset in bytes; 0 means 1.
	Align int64
	// Pinned fixes the buffer at Offset. Offset is ignored otherwise.
	Pinned bool
	Offset int64
}

// align returns the alignment with the default filled in.
func (b *Buffer) align() int64 { return max(b.Align, 1) }

// A Problem is a set of buffers.
type Problem struct {
	// Buffers are named by their index everywhere in this package.
	Buffers []Buffer
}

// ErrProblem is the base of every error about a problem that is malformed
// (as opposed to one that does not fit).
var ErrProblem = errors.New("invalid packing problem")

// A BufferError reports what is wrong with one buffer of a problem. It
// unwraps to [ErrProblem].
type BufferError struct {
	Buffer int    // index into Problem.Buffers
	Reason string // what is wrong
}

// Error implements error.
func (e *BufferError) Error() string {
	return fmt.Sprintf("%v: buffer %d: %s", ErrProblem, e.Buffer, e.Reason)
}

// Unwrap returns [ErrProblem].
func (e *BufferError) Unwrap() error { return ErrProblem }

// An OverlapError reports two conflicting buffers that share bytes.
type OverlapError struct {
	A, B int // indices into Problem.Buffers, A < B
	// OffsetA and OffsetB are the offsets given to them, SizeA and SizeB
	// their sizes, all in bytes.
	OffsetA, OffsetB, SizeA, SizeB int64
}

// Error implements error.
func (e *OverlapError) Error() string {
	return fmt.Sprintf("buffers %d at [%d,%d) and %d at [%d,%d) conflict but share bytes",
		e.A, e.OffsetA, e.OffsetA+e.SizeA, e.B, e.OffsetB, e.OffsetB+e.SizeB)
}

// A CapacityError reports that no placement within the capacity was found.
type CapacityError struct {
	// Capacity is what was allowed, Height the best that was found, and
	// LowerBound what every placement needs, in bytes.
	Capacity, Height, LowerBound int64
	// Proved says that no placement within the capacity exists.
	Proved bool
	// Peak lists the buffers that are live together where the lower bound
	// is attained, largest first.
	Peak []int
	// PeakTime is a point of the buffers' clock at which they all live, and
	// PeakBytes the sum of their sizes.
	PeakTime, PeakBytes int64
}

// Error implements error.
func (e *CapacityError) Error() string {
	what := "was not reached"
	if e.Proved {
		what = "cannot be reached"
	}
	return fmt.Sprintf("capacity of %d bytes %s: the best placement needs %d, every placement at least %d, and the %d buffers live at time %d have %d",
		e.Capacity, what, e.Height, e.LowerBound, len(e.Peak), e.PeakTime, e.PeakBytes)
}

// Check reports the first reason why p is not a well-formed problem, as an
// error that unwraps to [ErrProblem]: a lifetime that ends before it starts, a
// negative size, alignment or pinned offset, a pinned offset that breaks the
// buffer's own alignment, sizes beyond [MaxExtent] in total.
func (p *Problem) Check() error {
	total := int64(0)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		bad := func(format string, args ...any) error {
			return &BufferError{Buffer: i, Reason: fmt.Sprintf(format, args...)}
		}
		switch {
		case b.Upper < b.Lower:
			return bad("lifetime [%d,%d) ends before it starts", b.Lower, b.Upper)
		case b.Size < 0:
			return bad("size %d is negative", b.Size)
		case b.Align < 0:
			return bad("alignment %d is negative", b.Align)
		case b.Size > MaxExtent || b.Align > MaxExtent:
			return bad("size %d or alignment %d exceeds %d", b.Size, b.Align, int64(MaxExtent))
		case b.Pinned && b.Offset < 0:
			return bad("pinned offset %d is negative", b.Offset)
		case b.Pinned && b.Offset > MaxExtent-b.Size:
			return bad("pinned range [%d, +%d) ends beyond %d", b.Offset, b.Size, int64(MaxExtent))
		case b.Pinned && b.Offset%b.align() != 0:
			return bad("pinned offset %d is not a multiple of its alignment %d", b.Offset, b.Align)
		}
		// The sum of size plus padding bounds every height built below.
		if total += b.Size + b.align() - 1; total > MaxExtent {
			return bad("sizes and alignments up to here exceed %d in total", int64(MaxExtent))
		}
	}
	return nil
}

// Height returns the largest end of a buffer of nonzero size under the given
// offsets, in bytes.
func (p *Problem) Height(offsets []int64) int64 {
	h := int64(0)
	for i, b := range p.Buffers {
		if b.Size > 0 {
			h = max(h, offsets[i]+b.Size)
		}
	}
	return h
}

// Verify reports the first way in which offsets is not a correct placement of
// p within height bytes: a wrong length, an offset that is negative,
// misaligned or not the pinned one, an end above height, or two conflicting
// buffers that share bytes (an [*OverlapError]). It sweeps the lifetimes with
// a set of live address ranges, so it costs O(n log n), and it
// shares no code with the packers.
func Verify(p Problem, offsets []int64, height int64) error {
	if err := p.Check(); err != nil {
		return err
	}
	if len(offsets) != len(p.Buffers) {
		return fmt.Errorf("%d offsets for %d buffers", len(offsets), len(p.Buffers))
	}
	for i := range p.Buffers {
		b, o := &p.Buffers[i], offsets[i]
		switch {
		case o < 0:
			return fmt.Errorf("buffer %d: offset %d is negative", i, o)
		case o%b.align() != 0:
			return fmt.Errorf("buffer %d: offset %d is not a multiple of its alignment %d", i, o, b.Align)
		case b.Pinned && o != b.Offset:
			return fmt.Errorf("buffer %d: offset %d is not its pinned offset %d", i, o, b.Offset)
		case b.Size > 0 && o > height-b.Size:
			return fmt.Errorf("buffer %d: [%d, +%d) ends above the height %d", i, o, b.Size, height)
		}
	}
	return verifySweep(p, offsets)
}

// overlap returns an *OverlapError if buffers i and j share bytes.
func overlap(p Problem, offsets []int64, i, j int) error {
	if i > j {
		i, j = j, i
	}
	a, b := &p.Buffers[i], &p.Buffers[j]
	if a.Size > 0 && b.Size > 0 && offsets[i] < offsets[j]+b.Size && offsets[j] < offsets[i]+a.Size {
		return &OverlapError{A: i, B: j, OffsetA: offsets[i], OffsetB: offsets[j], SizeA: a.Size, SizeB: b.Size}
	}
	return nil
}

// verifySweep checks that no two buffers with intersecting lifetimes share
// bytes. Live ranges are disjoint as long as no error has been found, so
// ordered by offset only the two neighbours of a new range can overlap it.
func verifySweep(p Problem, offsets []int64) error {
	events := make([]event, 0, 2*len(p.Buffers))
	ids := make([]int, 0, len(p.Buffers))
	for i, b := range p.Buffers {
		if b.Size > 0 && b.Lower < b.Upper {
			events = append(events, event{b.Lower, 0, int32(i), true}, event{b.Upper, 0, int32(i), false})
			ids = append(ids, i)
		}
	}
	slices.SortFunc(events, inTime)
	// rank orders all buffers by offset; live ones are marked in a bitmap
	// with a summary tree, which gives neighbours in O(log n).
	slices.SortFunc(ids, func(a, b int) int {
		if c := cmp.Compare(offsets[a], offsets[b]); c != 0 {
			return c
		}
		return a - b
	})
	rank := make([]int, len(p.Buffers))
	for r, i := range ids {
		rank[i] = r
	}
	live := newRankSet(len(ids))
	for _, e := range events {
		r := rank[e.id]
		if !e.start {
			live.remove(r)
			continue
		}
		if q := live.before(r); q >= 0 {
			if err := overlap(p, offsets, ids[q], int(e.id)); err != nil {
				return err
			}
		}
		if q := live.after(r); q >= 0 {
			if err := overlap(p, offsets, ids[q], int(e.id)); err != nil {
				return err
			}
		}
		live.add(r)
	}
	return nil
}

// event is the begin or the end of a buffer's lifetime.
type event struct {
	time, need int64 // need: bytes, of sweeps
	id         int32
	start      bool
}

// inTime orders events: at one time ends first, since lifetimes are half-open, and then
// what needs more.
func inTime(a, b event) int {
	if a.time == b.time && a.start != b.start {
		if b.start {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(b.need, a.need), cmp.Compare(a.id, b.id))
}

// LowerBound returns the section bound: a height below which no placement of
// p exists, in bytes. At every point of the clock the live buffers are
// stacked in some order, so the height is at least the sum of their sizes;
// when every alignment is a multiple of some a, all but the topmost take up
// whole multiples of a. Pinned buffers also bound it by their ends. O(n log n).
func LowerBound(p Problem) (int64, error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	return newBound(&p).height, nil
}

// bound is the section bound with a witness.
type bound struct {
	height int64
	time   int64 // a time at which the sum of live sizes attains the maximum
	live   []int // the buffers live then, largest first
}

func newBound(p *Problem) bound {
	type event struct {
		time  int64
		delta int64 // size rounded up to the common alignment, signed
	}
	common := int64(0)
	for i := range p.Buffers {
		if p.Buffers[i].Size > 0 {
			common = intmath.GCD(common, p.Buffers[i].align())
		}
	}
	var bd bound
	var events []event
	for _, b := range p.Buffers {
		if b.Size == 0 {
			continue
		}
		bd.height = max(bd.height, b.Size)
		if b.Pinned {
			bd.height = max(bd.height, b.Offset+b.Size)
		}
		if b.Lower < b.Upper {
			s := alignUp(b.Size, common)
			events = append(events, event{b.Lower, s}, event{b.Upper, -s})
		}
	}
	slices.SortFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.time, b.time); c != 0 {
			return c
		}
		return cmp.Compare(a.delta, b.delta)
	})
	// Only the section with the largest padded sum is examined: taking its
	// own largest padding off that sum gives a valid bound.
	sum, best := int64(0), int64(0)
	for _, e := range events {
		if sum += e.delta; sum > best {
			best, bd.time = sum, e.time
		}
	}
	topPad := int64(0)
	for i, b := range p.Buffers {
		if b.Size > 0 && b.Lower <= bd.time && bd.time < b.Upper {
			bd.live = append(bd.live, i)
			topPad = max(topPad, alignUp(b.Size, common)-b.Size)
		}
	}
	slices.SortStableFunc(bd.live, func(i, j int) int { return cmp.Compare(p.Buffers[j].Size, p.Buffers[i].Size) })
	bd.height = max(bd.height, best-topPad)
	return bd
}

// alignUp rounds v up to a multiple of a; both are nonnegative, a positive.
func alignUp(v, a int64) int64 {
	if a <= 1 {
		return v
	}
	if r := v % a; r != 0 {
		return v + a - r
	}
	return v
}

// infinity is above every offset and height, with room to add to it.
const infinity = math.MaxInt64 / 4

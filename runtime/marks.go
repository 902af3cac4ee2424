package runtime

import (
	"context"
	"errors"
	"fmt"
)

// Marker is a Capturer whose steps can tell when replays came past marks in them.
type Marker interface {
	// Mark puts a mark into a stream of the step that is being collected.
	Mark(s Stream) error
}

// Marked is a Captured that may have marks.
type Marked interface {
	// Marks tells when the last replay, which has ended, came past each mark, in the
	// order in which they were put: milliseconds since the first.
	Marks() ([]float64, error)
}

// Mark puts a mark into a stream of a step that is being prepared: Step.Marks tells
// when a replay came past it, that is, when everything before it in the stream had
// ended. Calls on both sides of a mark are not made one, and what is behind it begins
// when it has been passed: marks cost a microsecond or two each.
func (x *Exec) Mark(stream string) {
	op := opName("mark")
	if _, ok := x.take(); !ok {
		return
	}
	s, ok := x.stream(op, stream)
	if !ok {
		return
	}
	dev, ok := x.r.dev.(Marker)
	if !ok {
		x.fail(op, fmt.Errorf("a %s device has no marks: %w", x.r.dev.Info().Kind, ErrUnsupported))
		return
	}
	x.done(dev.Mark(s))
}

// Marks tells when the last replay came past each mark of the step, in the order in
// which Exec.Mark put them: milliseconds since the first. It is an error before the
// first replay.
func (s *Step) Marks(ctx context.Context) ([]float64, error) {
	c, ok := s.cap.(Marked)
	if !ok {
		return nil, &CallError{Rank: s.r.env.Rank, Op: "marks of module " + s.m.Name, Err: fmt.Errorf("a %s device has no marks: %w", s.r.dev.Info().Kind, ErrUnsupported)}
	}
	var ms []float64
	err := s.replay(ctx, func() (err error) {
		ms, err = c.Marks()
		return err
	})
	return ms, err
}

// ErrNotReplayed says that a step was never replayed, so that there is nothing to tell.
var ErrNotReplayed = errors.New("the step was never replayed")

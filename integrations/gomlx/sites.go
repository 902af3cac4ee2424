package gomlx

import (
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// Values have numbers for names, %v12, which is what passes and devices say of them. For people
// a value is the operation that made it and the line of their program that asked for it.

// sites are where the values of a computation come from.
type sites struct {
	of    []stack // by value, the first is %v1
	at    stack   // of the operation that is being built of several values, or nil
	began stack   // of the computation
}

// Most of the time that a computation takes to be built is that of walking stacks. Between an
// operation and the line of the program there are some 20 frames of GoMLX, but in gradients and
// optimizers: beyond near frames, the line is the one that began the computation.
const near, far = 32, 256

// stack is what is called, which is looked up when somebody asks.
type stack []uintptr

// callers is the stack of the caller's caller, of that many frames at most.
func callers(frames int) stack {
	pcs := make(stack, frames)
	return pcs[:runtime.Callers(3, pcs)]
}

// add adds a value.
func (s *sites) add() {
	at := s.at
	if at == nil {
		at = callers(near)
	}
	s.of = append(s.of, at)
}

// once makes one site of those of all values until end is called.
func (s *sites) once() (end func()) {
	if s.at != nil {
		return func() {}
	}
	s.at = callers(near)
	return func() { s.at = nil }
}

// where are the operation of a value and the line outside of GoMLX that called for it.
func (s *sites) where(value int) (op, file string, line int) {
	op, file, line = s.of[value-1].where()
	if file == "" {
		_, file, line = s.began.where()
	}
	return op, file, line
}

// location is a value's site as a location of MLIR.
func (s *sites) location(value int) string {
	op, file, line := s.where(value)
	if file == "" {
		return ""
	}
	return fmt.Sprintf(" loc(%q(%q:%d:1))", op, file, line)
}

const ourPackage = "github.com/seed-ee968945/concert/integrations/gomlx."

// where are the backend's operation and the line outside of GoMLX that called for it, if it is there.
func (s stack) where() (op, file string, line int) {
	frames := runtime.CallersFrames(s)
	for {
		f, more := frames.Next()
		name, ours := strings.CutPrefix(f.Function, ourPackage)
		if _, method, ok := strings.Cut(name, "(*function)."); ok && ours {
			op = method
		}
		if strings.HasSuffix(f.File, "_test.go") || !ours && !theirs(f) {
			return op, f.File, f.Line
		}
		if !more {
			return op, "", 0
		}
	}
}

// theirs reports whether a frame is GoMLX's. Closures of a function that the compiler inlines have
// the name of whoever calls it.
func theirs(f runtime.Frame) bool {
	const gomlx, examples = "github.com/gomlx/", "github.com/gomlx/gomlx/examples"
	if strings.HasPrefix(f.Function, examples) || strings.Contains(f.File, examples) {
		return false
	}
	return strings.HasPrefix(f.Function, gomlx) || strings.Contains(f.File, gomlx)
}

var namedValue = regexp.MustCompile(`(?:^|[^\w.])v(\d+)\b(?:[^.\d]|$)`)

// explain adds to an error what the first values are that it names.
func (s *sites) explain(err error) error {
	if err == nil {
		return nil
	}
	var says []string
	for _, m := range namedValue.FindAllStringSubmatch(err.Error(), -1) {
		i, _ := strconv.Atoi(m[1])
		if i < 1 || i > len(s.of) {
			continue
		}
		op, file, line := s.where(i)
		text := fmt.Sprintf("%%v%d is %s of %s:%d", i, op, file, line)
		if len(says) < 3 && !strings.Contains(strings.Join(says, "\n"), text) {
			says = append(says, text)
		}
	}
	if len(says) == 0 {
		return err
	}
	return errors.WithMessage(err, strings.Join(says, ", "))
}

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

// site is the stack of an operation's call, which is looked up when somebody asks.
type site []uintptr

// here is the site of the operation that is being built.
func here() site {
	var pcs [48]uintptr
	return append(site(nil), pcs[:runtime.Callers(3, pcs[:])]...)
}

const (
	ourPackage = "github.com/seed-ee968945/concert/integrations/gomlx."
	theirs     = "github.com/gomlx/"
	examplesOf = "github.com/gomlx/gomlx/examples/"
)

// where are the backend's operation and the line outside of GoMLX that called for it.
func (s site) where() (op, file string, line int) {
	frames := runtime.CallersFrames(s)
	for {
		f, more := frames.Next()
		name, ours := strings.CutPrefix(f.Function, ourPackage)
		switch {
		case ours:
			if _, method, ok := strings.Cut(name, "(*function)."); ok {
				op = method
			}
			if !strings.HasSuffix(f.File, "_test.go") {
				break
			}
			return op, f.File, f.Line
		case !strings.HasPrefix(f.Function, theirs) || strings.HasPrefix(f.Function, examplesOf):
			return op, f.File, f.Line
		}
		if !more {
			return op, "", 0
		}
	}
}

// location is the site as a location of MLIR.
func (s site) location() string {
	op, file, line := s.where()
	if file == "" {
		return ""
	}
	return fmt.Sprintf(" loc(%q(%q:%d:1))", op, file, line)
}

var namedValue = regexp.MustCompile(`(?:^|[^\w.])v(\d+)\b(?:[^.\d]|$)`)

// explain adds to an error what the first values are that it names.
func explain(err error, sites []site) error {
	if err == nil {
		return nil
	}
	var says []string
	for _, m := range namedValue.FindAllStringSubmatch(err.Error(), -1) {
		i, _ := strconv.Atoi(m[1])
		if i < 1 || i > len(sites) {
			continue
		}
		op, file, line := sites[i-1].where()
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

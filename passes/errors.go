package passes

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
)

// PassError says that a pass failed: it returned an error, panicked, or left a
// broken module. Before and After reproduce it: write Before to the file named
// InName and run the command of Rerun.
type PassError struct {
	Pass   string
	Spec   string // pass with options
	Number int    // from 1
	Of     int    // passes in the pipeline
	Input  string // what the module's text is called
	InName string // name of the text before the pass, which Rerun reads
	Before []byte // module text before the pass
	After  []byte // and after, as far as it can be printed
	Err    error  // the cause; positions point into a text named like InName with .out
}

// Rerun is the command that runs the pass alone.
func (e *PassError) Rerun() string {
	return fmt.Sprintf("lowerdump opt -passes='%s' %s", e.Spec, e.InName)
}

// Error implements error.
func (e *PassError) Error() string {
	on := ""
	if e.Input != "" {
		on = " on " + e.Input
	}
	return fmt.Sprintf("%v\nnote: after pass %s (%d of %d)%s; rerun: %s", e.Err, e.Pass, e.Number, e.Of, on, e.Rerun())
}

// Unwrap gives the cause.
func (e *PassError) Unwrap() error { return e.Err }

// PanicError is a panic of a pass.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("the pass panicked: %v\n%s", e.Value, e.Stack)
}

// DeterminismError says that a pass gave two results for one input.
type DeterminismError struct {
	Pass          string
	First, Second []byte // module texts
}

// Error implements error.
func (e *DeterminismError) Error() string {
	a, b := strings.Split(string(e.First), "\n"), strings.Split(string(e.Second), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%s is not deterministic: line %d is\n  %s\nin one run and\n  %s\nin the other", e.Pass, i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%s is not deterministic: one run gives %d lines, the other %d", e.Pass, len(a), len(b))
}

// failure builds the error of a step. Findings about a module that a pass built
// have no text to point into, so the text that the pass left is parsed and
// verified again under the name of a dump.
func (r *run) failure(i int, before, after []byte, cause error) error {
	e := &PassError{
		Pass: r.p.Pass(i).Name, Spec: r.p.Spec(i), Number: i + 1, Of: r.p.Len(), Input: r.Input,
		InName: fmt.Sprintf("%02d-%s.in.ir", i+1, r.p.Pass(i).Name), Before: before, After: after, Err: cause,
	}
	var findings *diag.Error
	if !errors.As(cause, &findings) {
		return e
	}
	name := fmt.Sprintf("%02d-%s.out.ir", i+1, e.Pass)
	m, err := ir.Parse(name, string(after))
	if err == nil {
		err = m.Verify()
	}
	if err != nil { // else the text is fine and the finding is about what text does not show
		e.Err = err
	}
	return e
}

// Dump is the module after a pass.
type Dump struct {
	Step *StepReport
	Of   int // passes in the pipeline
	Text []byte
}

// WriteDumps returns a function for Manager.Dump that writes every dump to w,
// each under a comment line, so that a dump is itself a text that can be parsed.
func WriteDumps(w io.Writer) func(Dump) error {
	return func(d Dump) error {
		state := "unchanged"
		if d.Step.Changed {
			state = "changed"
		}
		_, err := fmt.Fprintf(w, "// after %s (%d of %d): %s, digest %.12s\n%s\n", d.Step.Spec, d.Step.Number, d.Of, state, d.Step.Digest, d.Text)
		return err
	}
}

package interp

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
)

// Error says which operation failed where. The cause is seen by errors.Is and
// errors.As: a kernel's error, a context's, a user's call's.
type Error struct {
	Op     string   // name of the operation; "input" for a bad input
	Node   string   // name of the node, without the percent sign
	Source string   // name of the module's text, empty if it was built in Go
	Pos    diag.Pos // place in that text, unknown if it was built in Go
	Rank   int      // the rank, -1 if the fault is not one rank's
	Err    error    // the cause
}

// Error formats as "interp: FILE:LINE:COL: OP %NODE on rank R: cause".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("interp: ")
	if e.Pos.Known() {
		fmt.Fprintf(&b, "%s:%d:%d: ", e.Source, e.Pos.Line, e.Pos.Col)
	}
	fmt.Fprintf(&b, "%s %%%s", e.Op, e.Node)
	if e.Rank >= 0 {
		fmt.Fprintf(&b, " on rank %d", e.Rank)
	}
	return b.String() + ": " + strings.TrimPrefix(e.Err.Error(), "interp: ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// nodeError wraps the cause; an *Error stays as it is.
func nodeError(n *ir.Node, rank int, err error) error {
	if _, ok := err.(*Error); ok || err == nil {
		return err
	}
	if r, ok := err.(*rankError); ok {
		rank, err = r.rank, r.err
	}
	e := &Error{Op: n.Op().Name(), Node: n.Name(), Pos: n.Pos(), Rank: rank, Err: err}
	if s := n.Func().Module().Source(); s != nil {
		e.Source = s.Name
	} else {
		e.Pos = diag.Pos{}
	}
	return e
}

// rankError is the cause of a failure that one rank of many is to blame for.
type rankError struct {
	rank int
	err  error
}

func (e *rankError) Error() string { return e.err.Error() }
func (e *rankError) Unwrap() error { return e.err }

func onRank(rank int, format string, args ...any) error {
	return &rankError{rank, fmt.Errorf(format, args...)}
}

// SymbolError says that the value of a symbol is not in Min..Max, on that rank.
type SymbolError struct {
	Rank            int
	Symbol          string
	Value, Min, Max int64
}

// Error implements error.
func (e *SymbolError) Error() string {
	return fmt.Sprintf("interp: symbol %s is %d on rank %d, outside %d..%d", e.Symbol, e.Value, e.Rank, e.Min, e.Max)
}

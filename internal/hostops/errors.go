package hostops

import (
	"errors"
	"fmt"
)

// The kinds of failure; test with errors.Is.
var (
	ErrUnknownOp   = errors.New("unknown operation")
	ErrArity       = errors.New("wrong number of operands or results")
	ErrDType       = errors.New("element type not accepted")
	ErrShape       = errors.New("shapes do not fit")
	ErrBounds      = errors.New("access outside the buffer")
	ErrIndex       = errors.New("index value out of range")
	ErrAttr        = errors.New("bad attribute")
	ErrUnsupported = errors.New("not supported on the host")
)

// Error is what every function of this package returns on failure.
type Error struct {
	Op      string // the operation
	Kind    error  // one of the Err values above; errors.Is sees it
	Operand int    // the operand to blame, -1 if none
	Result  int    // the result to blame, -1 if none
	Msg     string // what is wrong, with the values involved
}

// Error formats as "hostops: OP: operand N: kind: message".
func (e *Error) Error() string {
	where := ""
	switch {
	case e.Operand >= 0:
		where = fmt.Sprintf("operand %d: ", e.Operand)
	case e.Result >= 0:
		where = fmt.Sprintf("result %d: ", e.Result)
	}
	return fmt.Sprintf("hostops: %s: %s%v: %s", e.Op, where, e.Kind, e.Msg)
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func (c *call) fail(kind error, format string, args ...any) error {
	return &Error{Op: c.op, Kind: kind, Operand: -1, Result: -1, Msg: fmt.Sprintf(format, args...)}
}

func (c *call) inErr(i int, kind error, format string, args ...any) error {
	return &Error{Op: c.op, Kind: kind, Operand: i, Result: -1, Msg: fmt.Sprintf(format, args...)}
}

func (c *call) outErr(i int, kind error, format string, args ...any) error {
	return &Error{Op: c.op, Kind: kind, Operand: -1, Result: i, Msg: fmt.Sprintf(format, args...)}
}

func arityText(what string, got, lo, hi int) string {
	switch {
	case lo == hi:
		return fmt.Sprintf("got %d %ss, want %d", got, what, lo)
	case hi < 0:
		return fmt.Sprintf("got %d %ss, want at least %d", got, what, lo)
	}
	return fmt.Sprintf("got %d %ss, want %d to %d", got, what, lo, hi)
}

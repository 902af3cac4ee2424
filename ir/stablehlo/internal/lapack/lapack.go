// Package lapack has the functions of LAPACK and cuSOLVER that JAX's linear algebra calls by
// name, as operations of the IR. Names, arguments and flags are those of jaxlib's FFI targets.
package lapack

import (
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Flags gives a setting of a call: a letter of LAPACK's, or 0 and 1 for false and true.
type Flags func(name string) (int64, bool)

// Function appends what a call computes to a function, and gives its results.
type Function func(to decompose.Emitter, flags Flags, in []*ir.Value) ([]*ir.Value, error)

// functions by the names of LAPACK, without the letter of the type, with their operands.
var functions = map[string]struct {
	operands int
	run      Function
}{
	"potrf": {1, cholesky},
	"trsm":  {2, triangularSolve},
	"getrf": {1, lu},
	"geqrf": {1, qr},
	"orgqr": {2, product},
	"ormqr": {3, multiply},
}

// Find is the function of a call's target, with its number of operands; nil if there is none.
func Find(target string) (Function, int) {
	name, isFFI := strings.CutSuffix(target, "_ffi")
	lapack, ok := strings.CutPrefix(name, "lapack_")
	if ok && (strings.HasPrefix(lapack, "s") || strings.HasPrefix(lapack, "d")) {
		name = lapack[1:]
	} else if name, ok = strings.CutPrefix(name, "cusolver_"); !ok {
		return nil, 0
	}
	f := functions[name]
	if !isFFI {
		return nil, 0
	}
	return f.run, f.operands
}

// is reports whether a flag is a letter, in either case, or true; def if it is not there.
func (f Flags) is(name string, letter byte, def bool) bool {
	v, ok := f(name)
	if !ok {
		return def
	}
	return v == 1 || byte(v)&^0x20 == letter
}

func cholesky(to decompose.Emitter, flags Flags, in []*ir.Value) ([]*ir.Value, error) {
	l, err := decompose.Cholesky(to, in[0], flags.is("uplo", 'L', flags.is("lower", 'L', true)))
	if err != nil {
		return nil, err
	}
	return []*ir.Value{l, decompose.AnyNaN(to, l)}, nil
}

func triangularSolve(to decompose.Emitter, flags Flags, in []*ir.Value) ([]*ir.Value, error) {
	x, err := decompose.TriangularSolve(to, in[0], in[1], flags.is("side", 'L', true), flags.is("uplo", 'L', true), flags.is("diag", 'U', false), !flags.is("trans_x", 'N', true))
	return []*ir.Value{x}, err
}

// lu never fails: a pivot that is zero stays in the factor.
func lu(to decompose.Emitter, _ Flags, in []*ir.Value) ([]*ir.Value, error) {
	f, err := decompose.LU(to, in[0])
	if err != nil {
		return nil, err
	}
	info := to.Op(ir.OpFull, nil, ir.A("value", 0.0), nil, ir.TensorOf(ir.I32, f.Sign.Type().Shape()))
	return append([]*ir.Value{f.LU, f.Pivots}, info...), nil
}

func qr(to decompose.Emitter, _ Flags, in []*ir.Value) ([]*ir.Value, error) {
	packed, tau, err := decompose.Reflections(to, in[0])
	return []*ir.Value{packed, tau}, err
}

func product(to decompose.Emitter, _ Flags, in []*ir.Value) ([]*ir.Value, error) {
	q, err := decompose.Reflected(to, in[0], in[1])
	return []*ir.Value{q}, err
}

func multiply(to decompose.Emitter, flags Flags, in []*ir.Value) ([]*ir.Value, error) {
	transpose := flags.is("transpose", 'T', !flags.is("trans", 'N', true))
	y, err := decompose.Reflect(to, in[0], in[1], in[2], flags.is("side", 'L', flags.is("left", 'L', true)), transpose)
	return []*ir.Value{y}, err
}

// Package lapack has the functions of LAPACK, cuSOLVER, cuSPARSE and XLA that JAX's linear algebra calls
// by name, as operations of the IR. Names, arguments and flags are those of jaxlib's FFI targets.
package lapack

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Flags gives a setting of a call: a letter of LAPACK's, or 0 and 1 for false and true.
type Flags func(name string) (int64, bool)

// Function appends what a call computes to a function, and gives its results, of which the types are
// declared.
type Function func(to decompose.Looper, flags Flags, in []*ir.Value, declared []ir.Type) ([]*ir.Value, error)

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
	"syevd": {1, eigh},
	"gtsv":  {4, tridiagonal},

	"gesdd":  {1, svd},
	"gesvd":  {1, svd},
	"gesvdj": {1, columnwise(svd)},
	"gesvdp": {1, columnwise(svd)},
}

// Find is the function of a call's target, with its number of operands; nil if there is none.
func Find(target string) (Function, int) {
	switch target {
	case "cu_lu_pivots_to_permutation":
		return permutation, 1
	case "cusparse_gtsv2_ffi":
		return tridiagonal, 4
	case "Qr": // these three are XLA's own names
		return qr, 1
	case "ProductOfElementaryHouseholderReflectors":
		return product, 2
	case "LuDecomposition":
		return ordered, 1
	}
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

func cholesky(to decompose.Looper, flags Flags, in []*ir.Value, _ []ir.Type) ([]*ir.Value, error) {
	l, err := decompose.Cholesky(to, in[0], flags.is("uplo", 'L', flags.is("lower", 'L', true)))
	if err != nil {
		return nil, err
	}
	return []*ir.Value{l, decompose.AnyNaN(to, l, 2)}, nil
}

func triangularSolve(to decompose.Looper, flags Flags, in []*ir.Value, _ []ir.Type) ([]*ir.Value, error) {
	x, err := decompose.TriangularSolve(to, in[0], in[1], flags.is("side", 'L', true), flags.is("uplo", 'L', true), flags.is("diag", 'U', false), !flags.is("trans_x", 'N', true))
	return []*ir.Value{x}, err
}

// lu never fails: a pivot that is zero stays in the factor.
func lu(to decompose.Looper, _ Flags, in []*ir.Value, _ []ir.Type) ([]*ir.Value, error) {
	f, err := decompose.LU(to, in[0])
	if err != nil {
		return nil, err
	}
	info := to.Op(ir.OpFull, nil, ir.A("value", 0.0), nil, ir.TensorOf(ir.I32, f.Sign.Type().Shape()))
	return append([]*ir.Value{f.LU, f.Pivots}, info...), nil
}

// ordered are factors, exchanges of rows, counted from 0, and the order of rows that they make.
func ordered(to decompose.Looper, _ Flags, in []*ir.Value, declared []ir.Type) ([]*ir.Value, error) {
	if len(declared) != 3 {
		return nil, fmt.Errorf("a decomposition of %d results, want 3: factors, pivots and a permutation", len(declared))
	}
	f, err := decompose.LU(to, in[0])
	if err != nil {
		return nil, err
	}
	pivots := to.Op(ir.OpSub, nil, ir.A("scalar", int64(1)), []*ir.Value{f.Pivots})[0]
	order, err := decompose.Permutation(to, pivots, declared[2])
	return []*ir.Value{f.LU, pivots, order}, err
}

func qr(to decompose.Looper, _ Flags, in []*ir.Value, _ []ir.Type) ([]*ir.Value, error) {
	packed, tau, err := decompose.Reflections(to, in[0])
	return []*ir.Value{packed, tau}, err
}

func product(to decompose.Looper, _ Flags, in []*ir.Value, _ []ir.Type) ([]*ir.Value, error) {
	q, err := decompose.Reflected(to, in[0], in[1])
	return []*ir.Value{q}, err
}

func multiply(to decompose.Looper, flags Flags, in []*ir.Value, _ []ir.Type) ([]*ir.Value, error) {
	transpose := flags.is("transpose", 'T', !flags.is("trans", 'N', true))
	y, err := decompose.Reflect(to, in[0], in[1], in[2], flags.is("side", 'L', flags.is("left", 'L', true)), transpose)
	return []*ir.Value{y}, err
}

// permutation is what exchanges of rows, counted from 0, make of their order.
func permutation(to decompose.Looper, _ Flags, in []*ir.Value, declared []ir.Type) ([]*ir.Value, error) {
	if len(declared) != 1 {
		return nil, fmt.Errorf("a permutation is one result, not %d", len(declared))
	}
	order, err := decompose.Permutation(to, in[0], declared[0])
	return []*ir.Value{order}, err
}

// tridiagonal gives the operands, solutions and whether there is one, or solutions alone.
func tridiagonal(to decompose.Looper, _ Flags, in []*ir.Value, declared []ir.Type) ([]*ir.Value, error) {
	x, singular, err := decompose.Tridiagonal(to, in[0], in[1], in[2], in[3])
	if len(declared) == 1 {
		return []*ir.Value{x}, err
	}
	return []*ir.Value{in[0], in[1], in[2], x, singular}, err
}

// eigh gives vectors even where they are not asked for.
func eigh(to decompose.Looper, flags Flags, in []*ir.Value, _ []ir.Type) ([]*ir.Value, error) {
	values, vectors, err := decompose.Eigh(to, in[0], flags.is("uplo", 'L', flags.is("lower", 'L', true)))
	if err != nil {
		return nil, err
	}
	return []*ir.Value{vectors, values, decompose.AnyNaN(to, values, 1)}, nil
}

// svd gives the matrix, the values, u and the transpose of v, which stand the other way round for
// matrices that are stored as their transposes. LAPACK says in one letter what cuSOLVER says in two flags.
func svd(to decompose.Looper, flags Flags, in []*ir.Value, declared []ir.Type) ([]*ir.Value, error) {
	if len(declared) != 5 {
		return nil, fmt.Errorf("a singular value decomposition of %d results, want 5", len(declared))
	}
	vectors, full := !flags.is("mode", 'N', !flags.is("compute_uv", 'T', true)), flags.is("mode", 'A', flags.is("full_matrices", 'T', false))
	u, values, vt, err := decompose.SVD(to, in[0], vectors, full)
	if err != nil {
		return nil, err
	}
	if !vectors { // what is there in their place means nothing
		zero := func(t ir.Type) *ir.Value { return to.Op(ir.OpFull, nil, ir.A("value", 0.0), nil, t)[0] }
		u, vt = zero(declared[2]), zero(declared[3])
	} else if flags.is("transposed", 'T', false) {
		u, vt = vt, u
	}
	return []*ir.Value{in[0], values, u, vt, decompose.AnyNaN(to, values, 1)}, nil
}

// columnwise is a decomposition that gives v, and not its transpose.
func columnwise(f Function) Function {
	return func(to decompose.Looper, flags Flags, in []*ir.Value, declared []ir.Type) ([]*ir.Value, error) {
		out, err := f(to, flags, in, declared)
		if err != nil || !flags.is("compute_uv", 'T', true) {
			return out, err
		}
		out[3] = decompose.Transposed(to, out[3])
		return out, nil
	}
}

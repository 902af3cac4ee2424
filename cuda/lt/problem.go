package lt

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Operand is a strided view of device memory without its address.
type Operand struct {
	Type    dtype.DType
	Shape   []int64 // batch dimensions, rows, columns
	Strides []int64 // elements, one per dimension
	// Align is what the address of element (0, ..., 0) is a multiple of, in bytes: a
	// power of two. Zero stands for 256. Less excludes fast algorithms.
	Align int
}

const maxAlign = 256 // bytes; what is better counts as this

// Config is what a matmul may ask for beyond its operands.
type Config struct {
	TF32 bool // let matmuls of f32 be rounded to TF32's 10 bits of mantissa first
	// SMs is the number of multiprocessors that the choice of an algorithm should
	// plan for, for matmuls that overlap with other work; zero stands for all.
	SMs int
}

// Matrix is one matrix of a Problem as it is in memory: columns of contiguous
// elements, LD elements apart.
type Matrix struct {
	Trans  bool  // the problem reads the transposed matrix
	LD     int64 // elements from one column to the next
	Stride int64 // elements from one matmul of the batch to the next
	Align  int   // bytes, as in Operand
}

// Problem is a batch of matmuls D = X Y in the library's terms: D is M x N, its
// columns contiguous. A row-major result is the transposed matmul, so the operands
// trade places (Swapped). Problems are comparable.
type Problem struct {
	Type    dtype.DType // of X and Y
	Out     dtype.DType // of D
	TF32    bool
	SMs     int
	M, N, K int64
	Batch   int64
	X, Y, D Matrix
	Swapped bool // X is operand b and Y is operand a
	// Bias is the address of M numbers of type Out, one for each row of D, that are added before D is
	// rounded; 0 for none. Only a Swapped problem has one: a number for each column of the matmul's result.
	Bias driver.Ptr
}

// ErrLayout is wrapped by errors about a view that no descriptor can express. A
// row-major copy of the operand can be used instead.
var ErrLayout = errors.New("the view needs a copy")

// ErrUnsupported is wrapped by errors about a matmul that this package cannot do.
var ErrUnsupported = errors.New("unsupported matmul")

// LayoutError names the operand that must be copied. It wraps ErrLayout.
type LayoutError struct {
	Operand int // 0 and 1 are the operands, 2 is the result
	Shape   []int64
	Strides []int64
}

// Error names the operand and its strides.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("%s of the matmul, shape %v and strides %v: %v", [...]string{"operand a", "operand b", "the result"}[e.Operand], e.Shape, e.Strides, ErrLayout)
}

// Unwrap gives ErrLayout.
func (e *LayoutError) Unwrap() error { return ErrLayout }

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

// ProblemOf describes out = a b over the last two dimensions of the operands; the
// leading ones are a batch and equal. Errors wrap ErrLayout or ErrUnsupported.
func ProblemOf(a, b, out Operand, c Config) (Problem, error) {
	ops := [3]Operand{a, b, out}
	r := len(a.Shape)
	for i, o := range ops {
		if len(o.Shape) != r || len(o.Strides) != r || r < 2 {
			return Problem{}, unsupported("operand %d has shape %v and strides %v, operand 0 shape %v", i, o.Shape, o.Strides, a.Shape)
		}
		if o.Align < 0 || o.Align&(o.Align-1) != 0 {
			return Problem{}, unsupported("alignment %d of operand %d is no power of two", o.Align, i)
		}
		for j, d := range o.Shape {
			if d < 0 || d > math.MaxInt32 {
				return Problem{}, unsupported("dimension %d of operand %d is %d", j, i, d)
			}
		}
	}
	m, k, n := a.Shape[r-2], a.Shape[r-1], b.Shape[r-1]
	if b.Shape[r-2] != k || out.Shape[r-2] != m || out.Shape[r-1] != n ||
		!slices.Equal(a.Shape[:r-2], b.Shape[:r-2]) || !slices.Equal(a.Shape[:r-2], out.Shape[:r-2]) {
		return Problem{}, unsupported("shapes %v x %v -> %v do not match", a.Shape, b.Shape, out.Shape)
	}
	if err := checkTypes(a.Type, b.Type, out.Type, c); err != nil {
		return Problem{}, err
	}
	p := Problem{Type: a.Type, Out: out.Type, TF32: c.TF32 && a.Type == dtype.F32, SMs: c.SMs, K: k}
	if v, ok := fold(ops, m); ok {
		if q := p; q.place(ops, v, n, k) == nil {
			return q, nil
		}
	}
	v, err := collapse(ops, m)
	if err != nil {
		return Problem{}, err
	}
	return p, p.place(ops, v, n, k)
}

func checkTypes(a, b, out dtype.DType, c Config) error {
	ok := a == b
	switch a {
	case dtype.BF16, dtype.F16:
		ok = ok && (out == a || out == dtype.F32)
	case dtype.F32, dtype.F64:
		ok = ok && out == a
	default:
		ok = false
	}
	if !ok {
		return unsupported("types %v x %v -> %v", a, b, out)
	}
	if c.SMs < 0 || c.SMs > math.MaxInt32 {
		return unsupported("%d multiprocessors", c.SMs)
	}
	return nil
}

// views are three operands whose batch dimensions are one.
type views struct {
	batch, rows int64
	step        [3]int64 // from one matmul to the next
	row         [3]int64 // stride of rows of each operand
}

// fold makes the batch rows of one matmul if b is the same for the whole batch and
// the strides of the others allow it.
func fold(ops [3]Operand, m int64) (views, bool) {
	r := len(ops[0].Shape)
	v := views{batch: 1, rows: m}
	for j, d := range ops[0].Shape[:r-2] {
		if d > 1 && ops[1].Strides[j] != 0 || d == 0 {
			return v, false
		}
		v.rows *= d
	}
	v.row[1] = ops[1].Strides[r-2]
	ok := r > 2 && m > 0 && v.rows <= math.MaxInt32
	for _, i := range []int{0, 2} {
		var merged bool
		v.row[i], merged = merge(ops[i].Shape[:r-1], ops[i].Strides[:r-1])
		ok = ok && merged
	}
	return v, ok
}

// collapse turns the batch dimensions into one.
func collapse(ops [3]Operand, m int64) (views, error) {
	r := len(ops[0].Shape)
	v := views{batch: 1, rows: m}
	for _, d := range ops[0].Shape[:r-2] {
		v.batch *= d
		if v.batch > math.MaxInt32 {
			return v, unsupported("a batch of %v matmuls", ops[0].Shape[:r-2])
		}
	}
	for i, o := range ops {
		v.row[i] = o.Strides[r-2]
		if v.batch <= 1 {
			continue
		}
		var ok bool
		if v.step[i], ok = merge(o.Shape[:r-2], o.Strides[:r-2]); !ok || v.step[i] < 0 || i == 2 && v.step[i] == 0 {
			return v, &LayoutError{Operand: i, Shape: o.Shape, Strides: o.Strides}
		}
	}
	return v, nil
}

// merge gives the stride of a single dimension that visits the same elements in the
// same order. Dimensions of one element are ignored.
func merge(dims, strides []int64) (int64, bool) {
	stride, span, seen := int64(0), int64(1), false
	for j := len(dims) - 1; j >= 0; j-- {
		switch {
		case dims[j] == 1:
			continue
		case !seen:
			stride, seen = strides[j], true
		case strides[j] != stride*span:
			return 0, false
		}
		span *= dims[j]
	}
	return stride, true
}

// place finds the descriptors. A result that is row-major, the usual case, makes a
// swapped problem.
func (p *Problem) place(ops [3]Operand, v views, n, k int64) error {
	r, m := len(ops[0].Shape), v.rows
	p.Batch = v.batch
	col := func(i int) int64 { return ops[i].Strides[r-1] }
	fail := func(i int) error {
		return &LayoutError{Operand: i, Shape: ops[i].Shape, Strides: ops[i].Strides}
	}
	if m == 0 || n == 0 || v.batch == 0 {
		p.M, p.N, p.Batch, p.Swapped = n, m, v.batch, true
		p.X, p.Y, p.D = Matrix{LD: 1}, Matrix{LD: 1}, Matrix{LD: 1}
		return nil
	}
	var ok bool
	var a, b Matrix
	p.M, p.N, p.Swapped = n, m, true
	if p.D, ok = matrixOf(n, m, col(2), v.row[2]); !ok || p.D.Trans {
		p.M, p.N, p.Swapped = m, n, false
		if p.D, ok = matrixOf(m, n, v.row[2], col(2)); !ok || p.D.Trans {
			return fail(2)
		}
	}
	if p.Swapped { // X = b^T is n x k, Y = a^T is k x m
		if b, ok = matrixOf(n, k, col(1), v.row[1]); !ok {
			return fail(1)
		}
		if a, ok = matrixOf(k, m, col(0), v.row[0]); !ok {
			return fail(0)
		}
	} else {
		if a, ok = matrixOf(m, k, v.row[0], col(0)); !ok {
			return fail(0)
		}
		if b, ok = matrixOf(k, n, v.row[1], col(1)); !ok {
			return fail(1)
		}
	}
	for i, t := range [3]*Matrix{&a, &b, &p.D} {
		t.Stride, t.Align = v.step[i], ops[i].Align
		if t.Align == 0 || t.Align > maxAlign {
			t.Align = maxAlign
		}
	}
	if p.X, p.Y = a, b; p.Swapped {
		p.X, p.Y = b, a
	}
	return nil
}

// matrixOf describes rows x cols elements at the given strides. The orientation in
// which the contiguous dimension has more than one element is preferred, because a
// leading dimension of 1 excludes every fast algorithm.
func matrixOf(rows, cols, sr, sc int64) (Matrix, bool) {
	if rows == 0 || cols == 0 {
		return Matrix{LD: max(rows, cols, 1)}, true
	}
	plain, pok := ld(rows, cols, sr, sc)
	trans, tok := ld(cols, rows, sc, sr)
	if pok && !(tok && rows == 1 && cols > 1) {
		return Matrix{LD: plain}, true
	}
	return Matrix{Trans: true, LD: trans}, tok
}

// ld is the leading dimension of n columns of contiguous elements.
func ld(contiguous, n, s, step int64) (int64, bool) {
	if s != 1 && contiguous > 1 {
		return 0, false
	}
	if n == 1 {
		return contiguous, true
	}
	return step, step >= contiguous
}

// Flops is the number of additions and multiplications.
func (p *Problem) Flops() float64 {
	return 2 * float64(p.M) * float64(p.N) * float64(p.K) * float64(p.Batch)
}

// Bytes is the memory traffic if every element is read or written once; operands
// that the batch shares count once.
func (p *Problem) Bytes() float64 {
	part := func(m Matrix, n, size int64) float64 {
		if m.Stride != 0 {
			n *= p.Batch
		}
		return float64(n) * float64(size)
	}
	in, out := int64(p.Type.Size()), int64(p.Out.Size())
	return part(p.X, p.M*p.K, in) + part(p.Y, p.N*p.K, in) + part(p.D, p.M*p.N, out)
}

// empty reports whether there is nothing to compute.
func (p *Problem) empty() bool { return p.M == 0 || p.N == 0 || p.Batch == 0 }

// String is the key of the problem in a tuning: everything that the choice of an
// algorithm depends on. A bias is a matter of the epilogue, which all algorithms of the library have.
func (p *Problem) String() string {
	t := func(m Matrix) byte {
		if m.Trans {
			return 't'
		}
		return 'n'
	}
	s := fmt.Sprintf("%v %v %c%c m=%d n=%d k=%d ldx=%d ldy=%d ldd=%d align=%d,%d,%d", p.Type, p.Out, t(p.X), t(p.Y),
		p.M, p.N, p.K, p.X.LD, p.Y.LD, p.D.LD, p.X.Align, p.Y.Align, p.D.Align)
	if p.Batch != 1 {
		s += fmt.Sprintf(" batch=%d stride=%d,%d,%d", p.Batch, p.X.Stride, p.Y.Stride, p.D.Stride)
	}
	if p.TF32 {
		s += " tf32"
	}
	if p.SMs != 0 {
		s += fmt.Sprintf(" sms=%d", p.SMs)
	}
	return s
}

package normal

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// Tensor is a tensor of one device, or what each rank has of one: a factor times a base, whose
// digits are in the dimensions of the tensor or are the rank's.
type Tensor struct {
	base  *expr
	coef  float64
	Dims  [][]digits.Digit // the digits of each dimension, major first
	Atoms []digits.Digit   // by atom of the mesh: the digit of the base that it is
}

// Mesh has the tensors of one program. Its atoms are the digits of a rank; one device has none.
type Mesh struct {
	t     *Table
	atoms []int64 // their sizes
}

// Mesh is a mesh of such atoms. What tensors of several meshes have in common is one expression.
func (t *Table) Mesh(atoms ...int64) *Mesh { return &Mesh{t, atoms} }

// Expr is an expression, of which nothing is to be seen but what it is made of.
type Expr = *expr

// Expr is the base of a tensor.
func (p *Tensor) Expr() Expr { return p.base }

// ID is the place of an expression in the order in which they were made.
func (e *expr) ID() int { return e.id }

// Operands are the expressions that one is made of.
func (e *expr) Operands() []Expr {
	out := make([]Expr, len(e.args))
	for k, a := range e.args {
		out[k] = a.base
	}
	return out
}

// Scale is a tensor times a number.
func (p *Tensor) Scale(by float64) *Tensor {
	q := *p
	q.coef *= by
	return &q
}

// WithDims is a tensor with its digits in other dimensions.
func (p *Tensor) WithDims(dims [][]digits.Digit) *Tensor {
	q := *p
	q.Dims = dims
	return &q
}

// check panics if the digits of a tensor are not those of its base: then it would not say what
// it is.
func (p *Tensor) check() {
	n, all := int64(1), int64(1)
	for _, l := range append(p.Dims[:len(p.Dims):len(p.Dims)], p.Atoms) {
		for _, d := range l {
			if d.Dim != digits.None {
				n *= d.Size
			}
		}
	}
	for _, size := range p.base.shape {
		all *= size
	}
	if n != all {
		panic(digits.Uneven{})
	}
}

// replicated are the digits of a tensor that is the same on all ranks.
func (m *Mesh) replicated() []digits.Digit {
	out := make([]digits.Digit, len(m.atoms))
	for a, n := range m.atoms {
		out[a] = digits.Repeated(n)
	}
	return out
}

// Leaf is a tensor of which only a name is known, and which is the same on all ranks.
func (m *Mesh) Leaf(name string, sizes ...int64) *Tensor {
	p := &Tensor{coef: 1, Atoms: m.replicated()}
	var shape []int64
	for _, n := range sizes {
		if n == 1 {
			p.Dims = append(p.Dims, nil)
			continue
		}
		p.Dims = append(p.Dims, []digits.Digit{digits.Of(len(shape), 1, n)})
		shape = append(shape, n)
	}
	p.base = m.t.leaf(name, shape...)
	return p
}

// Unknown is a tensor of which nothing is known: every rank has its own.
func (m *Mesh) Unknown(name string, sizes ...int64) *Tensor {
	all := m.Leaf("unknown "+name, slices.Concat(m.atoms, sizes)...)
	for a := range m.atoms {
		all.Atoms[a] = all.Dims[a][0]
	}
	all.Dims = all.Dims[len(m.atoms):]
	return all
}

// Full is the same number in each place of a tensor.
func (m *Mesh) Full(x Operand, sizes ...int64) *Tensor {
	p := &Tensor{base: x.base, coef: x.coef, Atoms: m.replicated()}
	for _, n := range sizes {
		p.Dims = append(p.Dims, digits.Add(nil, digits.Repeated(n)))
	}
	return p
}

// fullLike is a number in the shape of a tensor.
func (m *Mesh) fullLike(like *Tensor, x float64) *Tensor {
	return m.Full(arg{base: m.t.one, coef: x}, like.Sizes()...)
}

// Sizes are those of the dimensions.
func (p *Tensor) Sizes() []int64 {
	out := make([]int64, len(p.Dims))
	for d, l := range p.Dims {
		out[d] = digits.Places(l)
	}
	return out
}

// operand is operand k of what a tensor is, place by place.
func (p *Tensor) operand(k int) *Tensor {
	base := p.base
	all := func(l []digits.Digit) []digits.Digit {
		out := make([]digits.Digit, len(l))
		for i, d := range l {
			out[i] = base.operandDigit(d, k)
		}
		return out
	}
	q := &Tensor{base: base.args[k].base, coef: base.args[k].coef, Atoms: all(p.Atoms)}
	for _, l := range p.Dims {
		q.Dims = append(q.Dims, digits.Joined(all(l)))
	}
	return q
}

// equalUpToRepeats reports whether tensors are the same, but for how often each element is there.
func (p *Tensor) equalUpToRepeats(q *Tensor) bool {
	repeats := func(l []digits.Digit) bool {
		return !slices.ContainsFunc(l, func(d digits.Digit) bool { return d.Dim != digits.None })
	}
	return p.base == q.base && p.coef == q.coef && slices.Equal(p.Atoms, q.Atoms) && slices.EqualFunc(p.Dims, q.Dims, func(a, b []digits.Digit) bool {
		return slices.Equal(a, b) || repeats(a) && repeats(b)
	})
}

// Differs says how a tensor of ranks is not another one that is sharded by the atoms along each of its
// dimensions; empty if it is. What comes after the end of a tensor does not count.
func (m *Mesh) Differs(want, has *Tensor, atoms [][]int) string {
	for _, l := range atoms {
		for _, a := range l {
			if a < len(want.Atoms) && want.Atoms[a].Dim != digits.None {
				return "ranks that should have shards of it already differ in the single-device program"
			}
		}
	}
	if !digits.Attempt(func() bool {
		for d, l := range atoms {
			has = m.AllGather(has, l, d)
		}
		for d, l := range want.Dims {
			if n := digits.Places(l); digits.Places(has.Dims[d]) != n {
				has = m.Slice(has, d, 0, n, 1)
			}
		}
		for d := range atoms {
			if len(atoms[d]) > 0 {
				want, has = m.t.concatWhole(want, d), m.t.concatWhole(has, d)
			}
		}
		return true
	}) {
		return "its shards do not align with what they should be"
	}
	switch {
	case want.base != has.base:
		return "the ranks compute something else"
	case !sameNumber(want.coef, has.coef):
		return fmt.Sprintf("it is %.6g times what it should be", has.coef/want.coef)
	}
	for d := range want.Dims {
		if !slices.Equal(digits.Joined(want.Dims[d]), digits.Joined(has.Dims[d])) {
			return fmt.Sprintf("its elements are in another order along dimension %d", d)
		}
	}
	for a, d := range has.Atoms {
		if a < len(want.Atoms) && d != want.Atoms[a] || a >= len(want.Atoms) && d.Dim != digits.None {
			return "the ranks have other shards of it"
		}
	}
	return ""
}

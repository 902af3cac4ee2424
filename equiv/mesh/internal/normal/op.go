package normal

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// Op is an operation in the making: loops over digits that its operands have in common, and what it
// sees of each operand at each place of the loops.
type Op struct {
	m     *Mesh
	in    []*Tensor
	loops []loop
	atoms []int // by atom: its loop
	text  []byte
	args  []arg
}

// Op is an operation on tensors.
func (m *Mesh) Op(in ...*Tensor) *Op {
	return &Op{m: m, in: in, atoms: make([]int, len(m.atoms))}
}

// Align makes loops of what dimensions of operands have in common: by operand its dimension,
// none where it has none. It returns their numbers, major first.
func (o *Op) Align(dims []int, summed bool) []int {
	lists := make([][]digits.Digit, len(o.in))
	for k, d := range dims {
		if d != digits.None {
			lists[k] = o.in[k].Dims[d]
			if lists[k] == nil {
				lists[k] = []digits.Digit{}
			}
		}
	}
	return o.Loops(lists, summed)
}

// Loops makes loops of digits of the operands, nil where one has none of them.
func (o *Op) Loops(lists [][]digits.Digit, summed bool) []int {
	rows, ok := digits.Align(lists)
	if !ok {
		panic(digits.Uneven{})
	}
	var out []int
	for _, row := range rows {
		out = append(out, len(o.loops))
		o.loops = append(o.loops, loop{size: row[0].Size, summed: summed, at: row})
	}
	return out
}

// Parallel makes loops of a dimension of one operand.
func (o *Op) Parallel(k, d int) []int {
	dims := slices.Repeat([]int{digits.None}, len(o.in))
	dims[k] = d
	return o.Align(dims, false)
}

// Inner is what the operation sees of an operand at each place of its loops.
func (o *Op) Inner(k int, l []digits.Digit) {
	o.text = append(o.text, ' ')
	o.text = strconv.AppendInt(o.text, int64(k), 10)
	o.text = append(o.text, ':')
	o.text = strconv.AppendInt(o.text, digits.Places(l), 10)
	o.operands()[k].inner = append(o.args[k].inner, digits.Joined(l)...)
}

// operands are the operands so far.
func (o *Op) operands() []arg {
	for k := len(o.args); k < len(o.in); k++ {
		o.args = append(o.args, arg{base: o.in[k].base, coef: o.in[k].coef})
	}
	return o.args
}

// ranks makes a loop of each atom that operands hold.
func (o *Op) ranks() {
	for a, n := range o.m.atoms {
		l := loop{size: n, at: make([]digits.Digit, len(o.in))}
		for k, p := range o.in {
			l.at[k] = p.Atoms[a]
		}
		o.atoms[a] = len(o.loops)
		o.loops = append(o.loops, l)
	}
}

// finish is the result whose dimensions are loops; those after the loops are its own sizes.
func (o *Op) finish(coef float64, base *expr, where []digits.Digit, dims [][]int) *Tensor {
	p := &Tensor{base: base, coef: coef, Atoms: make([]digits.Digit, len(o.atoms))}
	if coef == 0 {
		p.base = o.m.t.one
	}
	at := func(i int) digits.Digit {
		if coef == 0 {
			return digits.Repeated(where[i].Size)
		}
		return where[i]
	}
	for _, l := range dims {
		var ds []digits.Digit
		for _, i := range l {
			ds = digits.Add(ds, at(i))
		}
		p.Dims = append(p.Dims, ds)
	}
	for a, i := range o.atoms {
		p.Atoms[a] = at(i)
	}
	p.check()
	return p.unflatten()
}

// made is the result that a maker makes of the operands and the loops.
func (o *Op) made(mk builder, dims [][]int) *Tensor {
	o.ranks()
	coef, base, where := mk(o.operands(), o.loops)
	return o.finish(coef, base, where, dims)
}

// Contract is the product of the operands, summed over the loops that say so. Each dimension of it is
// made of loops.
func (o *Op) Contract(dims [][]int) *Tensor { return o.made(o.m.t.multiply, dims) }

// Own is the place of a result's own size in its dimensions, for Block.
func Own(i int) int { return -1 - i }

// Generic is an operation of which no more is known than its name and what it sees. A dimension of the
// result is made of loops, or is own by its number among the sizes.
func (o *Op) Generic(name string, dims [][]int, sizes []int64) *Tensor {
	o.ranks()
	s := &spec{kind: generic, text: name + " " + string(o.text), args: o.operands(), loops: o.loops, own: sizes}
	coef, base, where := o.m.t.genericOf(s)
	for i := range dims {
		for j, k := range dims[i] {
			if k < 0 {
				dims[i][j] = len(o.loops) - 1 - k
			}
		}
	}
	return o.finish(coef, base, where, dims)
}

// genericOf makes a generic operation, distributed over what its operands are.
func (t *Table) genericOf(s *spec) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.distribute(s.args, s.loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		part := *s
		part.args, part.loops = args, loops
		return t.genericOf(&part)
	}, t.add); ok {
		return c, e, where
	}
	if s.text == Lookup || strings.HasPrefix(s.text, Lookup+" ") {
		if c, e, where, ok := t.lookupView(s); ok {
			return c, e, where
		}
		if c, e, where, ok := t.topKOfTopK(s); ok {
			return c, e, where
		}
	}
	if strings.HasPrefix(s.text, nameTopK+" ") {
		if c, e, where, ok := t.topKUnpadded(s); ok {
			return c, e, where
		}
	}
	return t.makeGeneric(*s)
}

// broadcast makes loops of the dimensions of all operands, counted from the last one.
func (o *Op) broadcast() [][]int {
	rank := 0
	for _, p := range o.in {
		rank = max(rank, len(p.Dims))
	}
	out := make([][]int, rank)
	for d := range out {
		dims, n := make([]int, len(o.in)), int64(1)
		for k, p := range o.in {
			if dims[k] = d - (rank - len(p.Dims)); dims[k] >= 0 {
				n = max(n, digits.Places(p.Dims[dims[k]]))
			}
		}
		for k, p := range o.in {
			if e := dims[k]; e < 0 || digits.Places(p.Dims[e]) != n {
				dims[k] = digits.None
			}
		}
		out[d] = o.Align(dims, false)
	}
	return out
}

// Pointwise is a function of each element of tensors, of which only the name is known.
func (m *Mesh) Pointwise(name string, in ...*Tensor) *Tensor {
	o := m.Op(in...)
	return o.Generic(name, o.broadcast(), nil)
}

// Add is a sum of tensors, each with a factor.
func (m *Mesh) Add(factors []float64, in ...*Tensor) *Tensor {
	o := m.Op(in...)
	dims := o.broadcast()
	for k, a := range o.operands() {
		o.args[k].coef = a.coef * factors[k]
	}
	return o.made(m.t.add, dims)
}

// plus is a sum of two.
func (m *Mesh) plus(a, b *Tensor) *Tensor { return m.Add([]float64{1, 1}, a, b) }

// Mul is the product of tensors, element by element.
func (m *Mesh) Mul(in ...*Tensor) *Tensor {
	o := m.Op(in...)
	return o.Contract(o.broadcast())
}

// Convert is a tensor in another float type.
func (m *Mesh) Convert(to string, p *Tensor) *Tensor {
	o := m.Op(p)
	return o.made(func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		return m.t.convertTo(to, args[0], loops)
	}, o.broadcast())
}

// Select is yes where a condition holds and else no, of an element type.
func (m *Mesh) Select(dt string, condition, yes, no *Tensor) *Tensor {
	o := m.Op(condition, yes, no)
	return o.made(func(args []arg, loops []loop) (float64, *expr, []digits.Digit) { return m.t.choose(dt, args, loops) }, o.broadcast())
}

// Reduce is a tensor without some dimensions, and the same on ranks that differ in some atoms: their sum,
// or the fold of a name.
func (m *Mesh) Reduce(how string, p *Tensor, dims, atoms []int) *Tensor {
	o := m.Op(p)
	var out [][]int
	for d := range p.Dims {
		if slices.Contains(dims, d) {
			o.Align([]int{d}, true)
		} else {
			out = append(out, o.Parallel(0, d))
		}
	}
	return o.made(func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		for _, a := range atoms {
			loops[o.atoms[a]].summed = true
		}
		return m.t.reduce(how, args[0], loops)
	}, out)
}

// Slice is count places of a dimension.
func (m *Mesh) Slice(p *Tensor, d int, start, count, step int64) *Tensor {
	o := m.Op(p)
	dims := make([][]int, len(p.Dims))
	for k := range dims {
		if k != d {
			dims[k] = o.Parallel(0, k)
		}
	}
	o.ranks()
	coef, base, where, along := m.t.slice(o.operands()[0], p.Dims[d], span{start, count, step}, o.loops)
	return o.joined(coef, base, where, along, dims, d)
}

// joined is the result in which dimension d are digits of its own.
func (o *Op) joined(coef float64, base *expr, where, along []digits.Digit, dims [][]int, d int) *Tensor {
	for i := range along {
		dims[d] = append(dims[d], len(where)+i)
	}
	return o.finish(coef, base, append(where[:len(where):len(where)], along...), dims)
}

// Concat is tensors one after the other along a dimension.
func (m *Mesh) Concat(d int, in ...*Tensor) *Tensor {
	o := m.Op(in...)
	dims, lists := make([][]int, len(in[0].Dims)), make([][]digits.Digit, len(in))
	for e := range dims {
		if e != d {
			dims[e] = o.Align(slices.Repeat([]int{e}, len(in)), false)
		}
	}
	for k, p := range in {
		lists[k] = p.Dims[d]
	}
	o.ranks()
	coef, base, where, along := m.t.concat(o.operands(), lists, o.loops)
	return o.joined(coef, base, where, along, dims, d)
}

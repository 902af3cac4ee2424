package sharding

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// factored is how a tensor is sharded along a factor. Its zero value is that of a factor
// that the tensor does not have.
type factored struct {
	in       bool
	axes     []Ref
	overflow []Ref // axes that do not divide the factor, and those behind them
	closed   bool
	minor    bool // the minor factor of its dimension
}

// projected is a tensor's sharding by factor.
type projected struct {
	factors    []factored
	replicated []Ref
	unreduced  []Ref
	reduction  string
	changed    bool // more axes than the sharding that it was made of
}

// set takes a sharding, perhaps nil, from dimensions to factors, in the memory of another
// tensor's projection. A dimension's axes go to its factors from the major one: a factor that
// is full, or that divides no more, hands the rest on; the minor one takes all of it.
func (p *projected) set(t Tensor, s *Sharding, r *Rule, m *Mesh) {
	*p = projected{factors: slices.Grow(p.factors[:0], len(r.Factors))[:len(r.Factors)]}
	clear(p.factors)
	for d, l := range t {
		var axes []Ref
		closed := false
		if s != nil {
			axes, closed = s.Dims[d].Axes, !s.Dims[d].Open
		}
		rest := cursor{m: m, axes: axes}
		over := false
		for i, f := range l {
			p.factors[f] = factored{in: true, closed: closed || over, minor: i == len(l)-1}
			switch {
			case over:
			case i == len(l)-1:
				p.factors[f].axes = rest.all()
			default:
				var left int64
				if p.factors[f].axes, left = rest.take(r.Factors[f].Size); left > 1 && rest.some() {
					p.factors[f].overflow, over = rest.all(), true
				}
			}
		}
	}
	if s != nil {
		p.replicated, p.unreduced, p.reduction = s.Replicated, s.Unreduced, s.Reduction
	}
}

// cursor hands out axes, splitting them.
type cursor struct {
	m    *Mesh
	axes []Ref
	head *Ref // what is left of axes[0]; nil: all
}

func (c *cursor) some() bool { return len(c.axes) > 0 }

func (c *cursor) first() Ref {
	if c.head != nil {
		return *c.head
	}
	return c.axes[0]
}

func (c *cursor) skip() { c.axes, c.head = c.axes[1:], nil }

// all hands out the rest, which shares memory with the axes where none was split.
func (c *cursor) all() []Ref {
	if c.head == nil && !mergeable(c.axes) {
		out := c.axes[:len(c.axes):len(c.axes)]
		c.axes = nil
		return out
	}
	var out []Ref
	for c.some() {
		out = c.m.add(out, c.first())
		c.skip()
	}
	return out
}

// mergeable reports whether an axis may be joined with the one before it.
func mergeable(l []Ref) bool {
	for i := 1; i < len(l); i++ {
		if l[i].Name == l[i-1].Name {
			return true
		}
	}
	return false
}

// take hands out axes that divide a size, and what of the size is left.
func (c *cursor) take(n int64) ([]Ref, int64) {
	var out []Ref
	for c.some() {
		a := c.first()
		g := intmath.GCD(n, a.Size)
		switch {
		case a.Size == 1 || g == a.Size && g > 1:
			n /= a.Size
			c.skip()
		case g > 1:
			c.head = &Ref{a.Name, a.Pre * g, a.Size / g, false}
			a = Ref{a.Name, a.Pre, g, false}
			n /= g
		default:
			return out, n
		}
		out = append(out, a)
	}
	return out, n
}

// sharding takes a tensor from factors back to dimensions. A factor that is not full ends
// its dimension: more would make strided pieces.
func (p *projected) sharding(t Tensor, r *Rule, m *Mesh) *Sharding {
	s := &Sharding{Mesh: m, Dims: make([]Dim, len(t)), Replicated: p.replicated, Unreduced: p.unreduced, Reduction: p.reduction}
	for d, l := range t {
		dim := Dim{Open: true, Priority: -1}
		for _, f := range l {
			x := &p.factors[f]
			dim.Open = dim.Open && !x.closed
			dim.Axes = m.join(m.join(dim.Axes, x.axes), x.overflow)
			if len(x.overflow) > 0 || size(x.axes) < r.Factors[f].Size {
				break
			}
		}
		s.Dims[d] = dim
	}
	return s
}

// join appends axes of a factor, joined where factors split an axis.
func (m *Mesh) join(l, more []Ref) []Ref {
	if len(more) == 0 {
		return l
	}
	return append(m.add(l, more[0]), more[1:]...)
}

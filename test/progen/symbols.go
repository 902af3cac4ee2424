package progen

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// symbol is a size known at run time.
type symbol struct {
	name    string
	min     int64
	max     int64
	varying bool
	values  [][]int64 // by assignment and rank; nil if a tensor holds it
}

// symbol declares a symbol and gives it values: the smallest on all ranks, the largest, and
// others; the same on all ranks unless it varies.
func (g *gen) symbol(limit int64, varying bool) *symbol {
	s := &symbol{name: fmt.Sprintf("s%d", len(g.syms)), max: limit, varying: varying}
	if !varying && g.r.IntN(3) == 0 {
		s.min = 1 + g.r.Int64N(limit)
	}
	g.assigns = max(g.assigns, 4)
	for a := range 4 {
		by := make([]int64, g.world)
		one := []int64{s.min, limit, s.min + g.r.Int64N(limit-s.min+1), s.min + g.r.Int64N(limit-s.min+1)}[a]
		for r := range by {
			if by[r] = one; varying && a > 1 {
				by[r] = g.r.Int64N(limit + 1)
			}
		}
		s.values = append(s.values, by)
	}
	g.syms = append(g.syms, s)
	return s
}

// shape is a shape in which some sizes may be symbols.
func (g *gen) shape() ir.Shape {
	out := ir.Dims(g.dims()...)
	var uniform []*symbol
	for _, s := range g.syms {
		if !s.varying {
			uniform = append(uniform, s)
		}
	}
	if len(uniform) == 0 || len(out) == 0 || g.r.IntN(2) == 0 {
		return out
	}
	d := 0 // symbols further in allow little
	if g.r.IntN(4) == 0 {
		d = g.r.IntN(len(out))
	}
	s := uniform[g.r.IntN(len(uniform))]
	other := uniform[g.r.IntN(len(uniform))]
	switch k := g.r.IntN(6); {
	case k == 0:
		out[d] = g.parse(fmt.Sprintf("%d-%s", s.max+int64(g.r.IntN(3)), s.name))
	case k == 1:
		out[d] = g.parse(fmt.Sprintf("%d*%s", g.pickGroup().size(), s.name))
	case k == 2:
		out[d] = g.parse(fmt.Sprintf("%s+%d", s.name, g.r.IntN(3)))
	case k == 3:
		out[d] = g.parse(fmt.Sprintf("(%s+%d)//%d", s.name, g.r.IntN(2), 2+g.r.IntN(2)))
	case k == 4:
		out[d] = g.parse(s.name + []string{"*", "+"}[g.r.IntN(2)] + other.name)
	default:
		out[d] = g.parse(s.name)
	}
	return out
}

// bounds are the smallest and largest value of a size, which grows or falls with each symbol.
func (g *gen) bounds(d ir.Dim) (lo, hi int64) {
	first := true
	for corner := range 1 << len(g.syms) {
		n, ok := d.Eval(func(name string) (int64, bool) {
			for i, s := range g.syms {
				if s.name == name {
					return s.min + (s.max-s.min)*int64(corner>>i&1), true
				}
			}
			return 0, false
		})
		if !ok {
			return -1, 0
		}
		if first || n < lo {
			lo = n
		}
		if first || n > hi {
			hi = n
		}
		first = false
	}
	return lo, hi
}

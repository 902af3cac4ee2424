package sharding

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// Direction says which way shardings are propagated through an operation.
type Direction uint8

// The directions.
const (
	NoDirection Direction = iota
	Forward               // from operands to results
	Backward
	Both
)

// or allows what d or e allows.
func (d Direction) or(e Direction) Direction {
	if d != e && d != NoDirection && e != NoDirection {
		return Both
	}
	return max(d, e)
}

// projection is an operation's tensors by factor.
type projection struct {
	rule        *Rule
	mesh        *Mesh
	operands    []projected
	results     []projected
	elementwise bool
	conserve    bool // axes are not split
	quiet       bool // no tensor has less than a factor's axes
}

func (p *projection) each(yield func(*projected) bool) {
	for i := range p.operands {
		if !yield(&p.operands[i]) {
			return
		}
	}
	for i := range p.results {
		if !yield(&p.results[i]) {
			return
		}
	}
}

// major is the longest list of axes that the tensors which may say something along a
// factor agree on, conflicts with other factors aside.
func (p *projection) major(f int, dir Direction) []Ref {
	first, second := p.operands, p.results
	switch dir {
	case NoDirection:
		return nil
	case Backward:
		first, second = second, first
	}
	var out []Ref
	expand := true
	for i := range first {
		if x := &first[i].factors[f]; x.in {
			out, expand = compatible(out, x.axes, expand)
		}
	}
	expand = expand && dir == Both
	for i := range second {
		if x := &second[i].factors[f]; x.in {
			out, expand = compatible(out, x.axes, expand)
		}
	}
	return out
}

// compatible joins two lists of axes: what both start with, and what the longer one has
// behind it. Without expand the result is no longer than old. It reports whether the result
// may grow. It shares memory with the lists.
func compatible(old, more []Ref, expand bool) ([]Ref, bool) {
	if n := min(len(old), len(more)); slices.Equal(old[:n], more[:n]) {
		if expand && len(more) > n {
			return more, expand
		}
		return old, expand
	}
	var out []Ref
	for len(old) > 0 && len(more) > 0 {
		a, b := old[0], more[0]
		old, more = old[1:], more[1:]
		switch {
		case a == b:
			out = append(out, a)
		case b.PrefixOf(a):
			if len(more) > 0 { // what follows in the part's place is something else
				return append(out, b), false
			}
			out = append(out, a)
		case a.PrefixOf(b):
			if !expand || len(old) > 0 {
				return append(out, a), false
			}
			out = append(out, b)
		default:
			return out, false
		}
	}
	out = append(out, old...)
	if expand {
		out = append(out, more...)
	}
	return out, expand
}

// across is the largest prefix of an axis that no other factor of a tensor uses.
func (t *projected) across(a Ref, f int) (Ref, bool) {
	ok := true
	for g := range t.factors {
		if x := &t.factors[g]; g != f && x.in && ok {
			if a, ok = a.withoutAll(x.overflow); ok {
				a, ok = a.withoutAll(x.axes)
			}
		}
	}
	return a, ok
}

// within is the largest prefix of an axis by which a tensor's factor may be sharded, behind
// axes that make done pieces.
func (t *projected) within(a Ref, f int, done, factorSize int64) (Ref, bool) {
	a, ok := a.withoutAll(t.replicated)
	if ok {
		a, ok = a.withoutAll(t.unreduced)
	}
	if !ok {
		return a, false
	}
	x := &t.factors[f]
	if slices.ContainsFunc(x.axes, func(b Ref) bool { return b.Contains(a) }) {
		return a, true
	}
	if !x.closed && len(x.overflow) == 0 {
		if x.minor {
			return a, true
		}
		if factorSize%done == 0 {
			switch g := intmath.GCD(factorSize/done, a.Size); g {
			case a.Size:
				return a, true
			case 1:
			default:
				return Ref{a.Name, a.Pre, g, false}, true
			}
		}
	}
	if n := len(x.axes); n > 0 && x.axes[n-1].PrefixOf(a) {
		return x.axes[n-1], true
	}
	return a, false
}

// truncate cuts a list of axes at the first that fit does not leave whole.
func (p *projection) truncate(l []Ref, fit func(a Ref, done int64) (Ref, bool)) []Ref {
	done := int64(1)
	for i, a := range l {
		b, ok := fit(a, done)
		if !ok || p.conserve && !b.Whole {
			return l[:i:i]
		}
		if b != a {
			return append(l[:i:i], b)
		}
		done *= b.Size
	}
	return l
}

// grows reports whether a tensor has less than the axes of a factor, and nothing else.
func (p *projection) grows(f int, axes []Ref) bool {
	less := false
	if len(axes) > 0 {
		p.each(func(t *projected) bool {
			x := &t.factors[f]
			less = x.in && strictPrefix(x.axes, axes)
			return !less
		})
	}
	p.quiet = p.quiet && !less
	return less
}

// basic gives each factor the axes that suit all tensors.
func (p *projection) basic(dir func(f int) Direction) {
	for f := range p.rule.Factors {
		major := p.major(f, dir(f))
		if !p.grows(f, major) {
			continue
		}
		axes := p.truncate(major, func(a Ref, done int64) (Ref, bool) {
			ok := true
			p.each(func(t *projected) bool {
				if a, ok = t.across(a, f); ok && t.factors[f].in {
					a, ok = t.within(a, f, done, p.rule.Factors[f].Size)
				}
				return ok
			})
			return a, ok
		})
		p.each(func(t *projected) bool {
			t.expand(f, axes)
			return true
		})
	}
}

// aggressive resolves conflicts within a factor and within a tensor each by itself: where
// two factors want an axis, the one that comes from the larger tensor gets it.
func (p *projection) aggressive(dir func(f int) Direction) {
	axes := make([][]Ref, len(p.rule.Factors))
	some := false
	for f := range axes {
		axes[f] = p.major(f, dir(f))
		some = some || p.grows(f, axes[f])
	}
	if !some {
		return
	}
	order := p.order(axes)
	for i := range p.results {
		for _, f := range order {
			t := &p.results[i]
			t.expand(f, p.fit(t, f, axes[f]))
		}
	}
	for i := range p.operands {
		for _, f := range order {
			t := &p.operands[i]
			more := p.fit(t, f, axes[f])
			if len(more) > 0 && p.elementwise { // sideways no further than the results
				for j := range p.results {
					if x := &p.results[j].factors[f]; x.in && strictPrefix(x.axes, more) {
						more = x.axes
					}
				}
			}
			t.expand(f, more)
		}
	}
}

// expand gives a factor more axes.
func (t *projected) expand(f int, axes []Ref) {
	if x := &t.factors[f]; x.in && strictPrefix(x.axes, axes) {
		x.axes, t.changed = axes, true
	}
}

// fit is what of the axes of a factor one tensor can take; none if that is not more than it has.
func (p *projection) fit(t *projected, f int, axes []Ref) []Ref {
	x := &t.factors[f]
	if !x.in {
		return nil
	}
	axes = p.truncate(axes, func(a Ref, done int64) (Ref, bool) { return t.within(a, f, done, p.rule.Factors[f].Size) })
	if !strictPrefix(x.axes, axes) {
		return nil
	}
	return p.truncate(axes, func(a Ref, _ int64) (Ref, bool) { return t.across(a, f) })
}

// order is the order in which factors are served: by the size of the largest tensor that
// their axes come from, in elementwise operations then by pieces, then by that tensor's place.
func (p *projection) order(axes [][]Ref) []int {
	type source struct{ size, pieces, index int64 }
	from := make([]source, len(axes))
	order := make([]int, len(axes))
	for f := range from {
		from[f], order[f] = source{size: -1, index: -1}, f
		if p.elementwise {
			from[f].pieces = size(axes[f])
		}
	}
	index := int64(0)
	p.each(func(t *projected) bool {
		n := int64(1)
		for f := range t.factors {
			if t.factors[f].in {
				n *= p.rule.Factors[f].Size
			}
		}
		for f := range t.factors {
			if x := &t.factors[f]; x.in && len(axes[f]) > 0 && prefix(axes[f], x.axes) && n > from[f].size {
				from[f].size, from[f].index = n, index
			}
		}
		index++
		return true
	})
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := from[a], from[b]
		for _, d := range []int64{y.size - x.size, y.pieces - x.pieces, x.index - y.index} {
			if d != 0 {
				return int(min(max(d, -1), 1))
			}
		}
		return a - b
	})
	return order
}

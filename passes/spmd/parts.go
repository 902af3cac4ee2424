package spmd

import "slices"

// This file has tensors of which a dimension is cut in parts, such as rows and heads that a
// product of batches has in one: between layouts they go as tensors of more dimensions.

// hop is a way from a layout to another of a tensor that is seen under another shape.
type hop struct {
	tensor
	from, to layout
}

// hops lead from a layout to another where one of them has parts: as they lie if both agree on
// the parts, else by way of the layout whose dimensions in parts nobody has cut.
func (g *grid) hops(t tensor, from, to layout) []hop {
	if h, ok := g.seen(t, from, to); ok {
		return []hop{h}
	}
	mid := from.reduced()
	mid.sum, mid.reduce = from.sum&to.sum, from.reduce
	for d, n := range t.shape {
		if from.of(d) != nil || to.of(d) != nil {
			mid = g.with(mid, d, n, nil)
		}
	}
	a, _ := g.seen(t, from, mid)
	b, _ := g.seen(t, mid, to)
	return []hop{a, b}
}

// seen is a tensor with its parts as dimensions.
func (g *grid) seen(t tensor, from, to layout) (hop, bool) {
	h := hop{tensor: tensor{bytes: t.bytes}}
	h.from.sum, h.from.reduce, h.to.sum, h.to.reduce = from.sum, from.reduce, to.sum, to.reduce
	for d, n := range t.shape {
		parts := from.of(d)
		if parts == nil {
			parts = to.of(d)
		}
		if parts == nil {
			h.shape = append(h.shape, n)
			h.from.dims, h.from.pad = append(h.from.dims, from.dims[d]), append(h.from.pad, from.pad[d])
			h.to.dims, h.to.pad = append(h.to.dims, to.dims[d]), append(h.to.pad, to.pad[d])
			continue
		}
		for _, p := range parts {
			h.shape = append(h.shape, p.size)
			h.from.pad, h.to.pad = append(h.from.pad, p.size), append(h.to.pad, p.size)
		}
		a, okA := g.spread(from, d, n, parts)
		b, okB := g.spread(to, d, n, parts)
		if !okA || !okB {
			return h, false
		}
		h.from.dims, h.to.dims = append(h.from.dims, a...), append(h.to.dims, b...)
	}
	return h, true
}

// spread gives parts their atoms of a dimension of n, if it can be seen so.
func (g *grid) spread(l layout, d int, n int64, parts []part) ([][]int8, bool) {
	if own := l.of(d); own != nil && !slices.Equal(own, parts) || l.uneven(d, n) {
		return nil, false
	}
	out := make([][]int8, len(parts))
	atoms := l.dims[d]
	if l.of(d) != nil {
		for i, p := range parts {
			out[i], atoms = atoms[:p.n], atoms[p.n:]
		}
		return out, true
	}
	for i, p := range parts {
		left := p.size
		for len(atoms) > 0 && left%g.atoms[atoms[0]].size == 0 {
			left /= g.atoms[atoms[0]].size
			out[i], atoms = append(out[i], atoms[0]), atoms[1:]
		}
		if left > 1 && len(atoms) > 0 {
			return nil, false
		}
	}
	return out, len(atoms) == 0
}

// joined are parts in a row in their shortest form: what is not cut belongs to the part before
// it, and so does what follows one that is cut into single places. It is nil of a dimension
// that is cut as a whole.
func (g *grid) joined(parts []part, atoms []int8) []part {
	var out []part
	full, at := false, 0
	for _, p := range parts {
		if p.size == 1 {
			continue
		}
		if last := len(out) - 1; last >= 0 && (full || p.n == 0) {
			out[last].size, out[last].n = out[last].size*p.size, out[last].n+p.n
		} else {
			at += sumOf(out[max(last, 0):])
			out = append(out, p)
		}
		q := out[len(out)-1]
		full = g.size(atoms[at:at+q.n]) == q.size
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

func sumOf(parts []part) int {
	n := 0
	for _, p := range parts {
		n += p.n
	}
	return n
}

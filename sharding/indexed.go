package sharding

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// This file has the rules of operations that read or write at places that tensors say.

// places are the dimensions that index tensors of a node's operands, from the first on, say
// the places of; what the tensors broadcast to; and where that stands among the others.
func (x *node) places(first int) (dims, shape []int64, front int) {
	dims = x.n.Attrs().Ints("dims")
	for _, s := range x.ins[first:] {
		for len(shape) < len(s) {
			shape = append([]int64{1}, shape...)
		}
		for i, n := range s {
			if d := len(shape) - len(s) + i; n != 1 {
				shape[d] = n
			}
		}
	}
	sorted := slices.Sorted(slices.Values(dims))
	if n := len(sorted); n > 0 && slices.Equal(sorted, dims) && sorted[n-1]-sorted[0] == int64(n-1) {
		front = int(sorted[0])
	}
	return dims, shape, front
}

// others are the dimensions of a shape that are not among some, and where they stand when
// what takes the place of those has n dimensions from front on.
func others(shape, dims []int64, front, n int) (from, to []int) {
	for d := range shape {
		if !slices.Contains(dims, int64(d)) {
			k := len(from)
			from = append(from, d)
			if k >= front {
				k += n
			}
			to = append(to, k)
		}
	}
	return from, to
}

// index reads at places: a device that has not what is read gives nothing to a sum.
func index(x *node) *Rule {
	r := x.rule()
	dims, shape, front := x.places(1)
	if len(dims) == 1 && x.counts(dims[0]) {
		return x.counted(r, int(dims[0]))
	}
	for i, n := range shape {
		r.Add(Factor{Size: n}, x.aligned(1, shape, i, n), []int{front + i})
	}
	from, to := others(x.ins[0], dims, front, len(shape))
	for i, d := range from {
		r.Add(Factor{Size: x.ins[0][d]}, []int{d}, []int{to[i]})
	}
	for _, d := range dims {
		r.Add(Factor{Size: x.ins[0][d], Kind: Reduction}, []int{int(d)}, nil)
	}
	return r.Done()
}

// counts reports whether the places that a node reads along a dimension are an iota's.
func (x *node) counts(d int64) bool {
	at := x.n.Arg(1).Def()
	if at.Op() != ir.OpIota || x.n.Arg(1).Type().DType().Size() < 4 {
		return false
	}
	n, count := x.ins[0][d], x.ins[1][0]
	first, step := at.Attrs().Int("start", 0), at.Attrs().Int("step", 1)
	last := float64(first) + float64(step)*float64(count-1)
	return count > 0 && step != 0 && first >= 0 && first < n && last >= 0 && last < float64(n)
}

// counted reads places that follow each other along a dimension, such as all from the last one on.
func (x *node) counted(r *Rule, along int) *Rule {
	for d, n := range x.ins[0] {
		f := Factor{Size: n}
		if d == along {
			f.Kind = Permutation
		}
		r.Add(f, []int{d}, []int{d})
	}
	return r.Add(Factor{Size: x.ins[1][0], Kind: NeedReplication}, []int{None, 0}, nil).Done()
}

// aligned is dimension i of a shape to which the operands from first on broadcast.
func (x *node) aligned(first int, shape []int64, i int, n int64) []int {
	out := slices.Repeat([]int{None}, len(x.ins))
	for t := first; t < len(x.ins); t++ {
		if d := i - (len(shape) - len(x.ins[t])); d >= 0 && x.ins[t][d] == n {
			out[t] = d
		}
	}
	return out
}

// indexPut writes at places: each device writes what is its own, if it has all of it; sums
// may be partial.
func indexPut(x *node) *Rule {
	r := x.rule()
	dims, shape, front := x.places(2)
	rank := len(x.ins[0]) - len(dims) + len(shape)
	value := func(o int, n int64) int { // the second operand broadcasts
		if d := o - (rank - len(x.ins[1])); d >= 0 && x.ins[1][d] == n {
			return d
		}
		return None
	}
	kind := NeedReplication
	if x.n.Attrs().Bool("accumulate", false) {
		kind = Reduction
	}
	for i, n := range shape {
		l := x.aligned(2, shape, i, n)
		l[1] = value(front+i, n)
		r.Add(Factor{Size: n, Kind: kind}, l, nil)
	}
	from, to := others(x.ins[0], dims, front, len(shape))
	for i, d := range from {
		n := x.ins[0][d]
		r.Add(Factor{Size: n}, []int{d, value(to[i], n)}, []int{d})
	}
	for _, d := range dims {
		r.Add(Factor{Size: x.ins[0][d]}, []int{int(d)}, []int{int(d)})
	}
	return r.Done()
}

func indexAdd(x *node) *Rule {
	r := x.rule()
	for d, n := range x.ins[0] {
		if d != x.dim() {
			r.Add(Factor{Size: n}, []int{d, None, d}, []int{d})
			continue
		}
		r.Add(Factor{Size: n}, []int{d}, []int{d})
		r.Add(Factor{Size: x.ins[2][d], Kind: Reduction}, []int{None, 0, d}, nil)
	}
	return r.Done()
}

// gather reads, or scatter writes, along a dimension; others pass where they have one size.
func gather(x *node) *Rule {
	r := x.rule()
	writes := slices.Equal(x.ins[0], x.outs[0]) && len(x.ins) > 2 || x.n.Op().Name() == "scatter"
	tail := slices.Repeat([]int{None}, len(x.ins)) // the indices, and what is written
	for d, n := range x.ins[0] {
		for t := 1; t < len(x.ins); t++ {
			tail[t] = d
		}
		m := x.ins[1][d]
		one := m == n && (len(x.ins) < 3 || x.ins[2][d] == n)
		switch {
		case d != x.dim() && one:
			r.Along(d, Factor{Size: n})
		case writes:
			f := Factor{Size: m, Kind: NeedReplication}
			if d == x.dim() && x.n.Attrs().Str("reduce", "") == "add" {
				f.Kind = Reduction
			}
			r.Add(Factor{Size: n}, []int{d}, []int{d})
			r.Add(f, []int{None, d}, nil)
			if len(x.ins) > 2 && x.ins[2][d] == m {
				last := &r.Operands[2][d]
				*last = append(*last, r.Operands[1][d]...)
			}
		default:
			kind := NeedReplication
			if d == x.dim() {
				kind = Reduction
			}
			r.Add(Factor{Size: n, Kind: kind}, []int{d}, nil)
			r.Add(Factor{Size: m}, []int{None, d}, []int{d})
		}
	}
	return r.Done()
}

func embedding(x *node) *Rule {
	r := x.rule()
	for d, n := range x.ins[1] {
		r.Add(Factor{Size: n}, []int{None, d}, []int{d})
	}
	r.Add(Factor{Size: x.ins[0][1]}, []int{1}, []int{len(x.outs[0]) - 1})
	return r.Add(Factor{Size: x.ins[0][0], Kind: Reduction}, []int{0}, nil).Done()
}

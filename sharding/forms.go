package sharding

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
)

// This file has the shapes of rules that many operations share.

// Differing relates tensors dimension by dimension: sizes that differ between in and out
// are of a factor of their own kind, with in's size.
func (r *Rule) Differing(in, out []int64, f Factor) *Rule {
	for d, n := range in {
		g := Factor{}
		if n != out[d] {
			g = f
		}
		g.Size = n
		r.Along(d, g)
	}
	return r
}

// Own adds for a dimension a factor of the operands alone and one of the results alone.
func (r *Rule) Own(d int, in, out int64, kind Kind) *Rule {
	r.Add(Factor{Size: in, Kind: kind}, r.all(r.Operands, d), nil)
	return r.Add(Factor{Size: out, Kind: kind}, nil, r.all(r.Results, d))
}

// Product is the rule of a product of two tensors: the result has the batch, and what is
// free in the first and then in the second operand.
func Product(a, b, out []int64, batch, contracting [2][]int64) *Rule {
	r := NewRule([][]int64{a, b}, [][]int64{out})
	o := 0
	for i, d := range batch[0] {
		r.Add(Factor{Size: a[d]}, []int{int(d), int(batch[1][i])}, []int{o})
		o++
	}
	for side, shape := range [][]int64{a, b} {
		for d, n := range shape {
			if slices.Contains(batch[side], int64(d)) || slices.Contains(contracting[side], int64(d)) {
				continue
			}
			dims := []int{None, None}
			dims[side] = d
			r.Add(Factor{Size: n}, dims, []int{o})
			o++
		}
	}
	for i, d := range contracting[0] {
		r.Add(Factor{Size: a[d], Kind: Reduction}, []int{int(d), int(contracting[1][i])}, nil)
	}
	return r.Done()
}

// Reduce is the rule of a reduction of n tensors over some dimensions. Behind the operands
// may stand initial values; the results keep reduced dimensions if they have the rank.
func Reduce(operands, results [][]int64, n int, dims []int64) *Rule {
	r := NewRule(operands, results)
	keep := len(results) > 0 && len(results[0]) == len(operands[0])
	out := 0
	for d, size := range operands[0] {
		in := slices.Repeat([]int{d}, n)
		reduced := slices.Contains(dims, int64(d))
		switch {
		case reduced:
			r.Add(Factor{Size: size, Kind: Reduction}, in, nil)
		default:
			r.Add(Factor{Size: size}, in, slices.Repeat([]int{out}, len(results)))
		}
		if !reduced || keep {
			out++
		}
	}
	return r.Done()
}

// Expand is the rule of a broadcast: dimension d of the operand is to[d] of the result.
func Expand(in, out []int64, to []int64) *Rule {
	r := NewRule([][]int64{in}, [][]int64{out})
	for o, n := range out {
		d := slices.Index(to, int64(o))
		if d >= 0 && in[d] == 1 && n != 1 {
			r.Add(Factor{Size: 1}, []int{d}, nil)
			d = None
		}
		r.Add(Factor{Size: n}, []int{d}, []int{o})
	}
	return r.Done()
}

// Transpose is the rule of dimensions in another order.
func Transpose(in, out []int64, from []int64) *Rule {
	r := NewRule([][]int64{in}, [][]int64{out})
	for o, d := range from {
		r.Add(Factor{Size: in[d]}, []int{int(d)}, []int{o})
	}
	return r.Done()
}

// Reshape is the rule of another shape for the same elements: runs of dimensions with one
// product are cut into factors that both sides have as long as their sizes divide. It is
// nil where there are no elements.
func Reshape(in, out []int64) *Rule {
	if slices.Contains(in, 0) || slices.Contains(out, 0) {
		return nil
	}
	r := NewRule([][]int64{in}, [][]int64{out})
	i, o := side{shape: in, dims: 1, factors: 1}, side{shape: out, dims: 1, factors: 1}
	for i.more() || o.more() {
		if i.more() && in[i.at] == 1 {
			r.Add(Factor{Size: 1}, []int{i.at}, nil)
			i.at++
			continue
		}
		if o.more() && out[o.at] == 1 {
			r.Add(Factor{Size: 1}, nil, []int{o.at})
			o.at++
			continue
		}
		i.open()
		o.open()
		ni, no := i.dims/i.factors, o.dims/o.factors
		g := intmath.GCD(ni, no)
		switch {
		case i.factors == o.factors && g > 1:
			r.Add(Factor{Size: g}, []int{i.at}, []int{o.at})
			i.factors, o.factors = i.factors*g, o.factors*g
		case i.factors == o.factors:
			r.Add(Factor{Size: ni}, []int{i.at}, nil)
			r.Add(Factor{Size: no}, nil, []int{o.at})
			i.factors, o.factors = i.factors*ni, o.factors*no
		case i.factors < o.factors:
			n := behind(ni, g, i.factors, o.factors)
			r.Add(Factor{Size: n}, []int{i.at}, nil)
			i.factors *= n
		default:
			n := behind(no, g, o.factors, i.factors)
			r.Add(Factor{Size: n}, nil, []int{o.at})
			o.factors *= n
		}
		i.close()
		o.close()
	}
	return r.Done()
}

// side is one side of a reshape: products of the dimensions that were opened and of the
// factors that were cut.
type side struct {
	shape   []int64
	at      int
	dims    int64
	factors int64
}

func (s *side) more() bool { return s.at < len(s.shape) }

func (s *side) open() {
	if s.more() && s.dims == s.factors {
		s.dims *= s.shape[s.at]
	}
}

func (s *side) close() {
	if s.more() && s.dims == s.factors {
		s.at++
	}
}

// behind is the next factor of the side whose factors make less: one that closes the gap,
// or leaves what both sides have in common for later.
func behind(next, common, less, more int64) int64 {
	if more%less == 0 && next%(more/less) == 0 {
		return more / less
	}
	if next > common {
		return next / common
	}
	return next
}

// Convolution is the rule of a convolution: it is sharded by batch, by features, and, if
// spatial, by windows or places in them, the more numerous of the two first. Layouts say
// where the dimensions of both operands and the result are: batch (of the second what comes
// out), feature, and those of the window; groups are those of the batch and of the features.
func Convolution(lhs, rhs, out []int64, l [3][]int64, groups [2]int64, spatial bool) *Rule {
	at := func(operand, k int) int { return int(l[operand][k]) }
	r := NewRule([][]int64{lhs, rhs}, [][]int64{out})
	if groups[0] > 1 {
		r.Add(Factor{Size: groups[0]}, []int{at(0, 0), at(1, 0)}, []int{at(2, 1)})
	}
	r.Add(Factor{Size: out[at(2, 0)]}, []int{at(0, 0)}, []int{at(2, 0)})
	for k := 2; k < len(out) && spatial; k++ {
		left := lhs[at(0, k)]
		add := func(n int64, window bool) {
			if n = min(left, n); n <= 1 {
				return
			}
			left /= n
			if window {
				r.Add(Factor{Size: n, Kind: Reduction}, []int{at(0, k), at(1, k)}, nil)
			} else {
				r.Add(Factor{Size: n, Kind: Permutation}, []int{at(0, k)}, []int{at(2, k)})
			}
		}
		windows, places := out[at(2, k)], rhs[at(1, k)]
		if windows >= places {
			add(windows, false)
			add(places, true)
		} else {
			add(places, true)
			add(windows, false)
		}
	}
	if groups[1] > 1 {
		r.Add(Factor{Size: groups[1]}, []int{at(0, 1), at(1, 0)}, []int{at(2, 1)})
	}
	r.Add(Factor{Size: rhs[at(1, 1)], Kind: Reduction}, []int{at(0, 1), at(1, 1)}, nil)
	if n := out[at(2, 1)] / (groups[0] * groups[1]); n > 1 {
		r.Add(Factor{Size: n}, []int{None, at(1, 0)}, []int{at(2, 1)})
	}
	return r.Done()
}

package cost

import (
	"math"
	"slices"
)

// Slowdown is one observation of launches that ran overlapped with collectives: over[k] units
// of time of the kind k of being disturbed (what was launched, beside which
// collective), which made them last lost units of time longer than alone.
type Slowdown struct {
	Over []float64 // by kind, at least 0; kinds that it does not reach count 0
	Lost float64
}

// The bounds of what a fit of slowdowns gives.
const (
	mostLost  = 0.9  // the part of its speed that anything loses at most
	leastOver = 1e-9 // of the largest diagonal: below, a kind was not seen apart from others
	mostKinds = 16   // that are told apart: the time doubles with each
)

// FitSlowdowns finds the part of its speed that each of kinds loses, between 0 and
// 0.9, so that the squares of what observations then differ by are least. Of kinds
// that were never observed the part is 0, and seen is false. It tries which of the
// kinds lose nothing, which is exact and for the few kinds there are cheap: O(2^kinds).
// Kinds that cannot be told apart, because they were only observed together or are
// more than 16, get the part that they lose in common.
func FitSlowdowns(kinds int, obs []Slowdown) (lost []float64, seen []bool) {
	obs = slices.Clone(obs)
	for i := range obs {
		over := make([]float64, kinds)
		copy(over, obs[i].Over)
		obs[i].Over = over
	}
	seen = make([]bool, kinds)
	var list []int
	for k := range seen {
		for _, o := range obs {
			seen[k] = seen[k] || o.Over[k] > 0
		}
		if seen[k] {
			list = append(list, k)
		}
	}
	best, least := make([]float64, kinds), math.Inf(1)
	consider := func(x []float64) {
		sum := 0.0
		for _, o := range obs {
			r := o.Lost
			for k, over := range o.Over {
				r -= x[k] * over
			}
			sum += r * r
		}
		if sum < least {
			best, least = x, sum
		}
	}
	consider(inCommon(kinds, seen, obs))
	if len(list) > mostKinds {
		return best, seen
	}
	for set := 0; set < 1<<len(list); set++ {
		var free []int
		for i, k := range list {
			if set>>i&1 != 0 {
				free = append(free, k)
			}
		}
		if x, ok := solveFor(kinds, free, obs); ok {
			consider(x)
		}
	}
	return best, seen
}

// inCommon is the fit with one part for all kinds.
func inCommon(kinds int, seen []bool, obs []Slowdown) []float64 {
	lost, over := 0.0, 0.0
	for _, o := range obs {
		sum := 0.0
		for _, x := range o.Over {
			sum += x
		}
		lost, over = lost+o.Lost*sum, over+sum*sum
	}
	x := make([]float64, kinds)
	for k := range x {
		if seen[k] && over > 0 {
			x[k] = min(max(lost/over, 0), mostLost)
		}
	}
	return x
}

// solveFor solves the normal equations of the kinds in free, the others losing
// nothing; ok is false if they do not determine a solution within the bounds.
func solveFor(kinds int, free []int, obs []Slowdown) (x []float64, ok bool) {
	n := len(free)
	a := make([][]float64, n) // with the right side as the last column
	scale := 0.0
	for i, p := range free {
		a[i] = make([]float64, n+1)
		for _, o := range obs {
			for j, q := range free {
				a[i][j] += o.Over[p] * o.Over[q]
			}
			a[i][n] += o.Over[p] * o.Lost
		}
		scale = max(scale, a[i][i])
	}
	for i := range n { // symmetric and not negative: pivots on the diagonal are good enough
		if a[i][i] <= leastOver*scale {
			return nil, false
		}
		for k := i + 1; k < n; k++ {
			f := a[k][i] / a[i][i]
			for j := i; j <= n; j++ {
				a[k][j] -= f * a[i][j]
			}
		}
	}
	x = make([]float64, kinds)
	for i := n - 1; i >= 0; i-- {
		v := a[i][n]
		for j := i + 1; j < n; j++ {
			v -= a[i][j] * x[free[j]]
		}
		v /= a[i][i]
		if !(v >= 0 && v <= mostLost) {
			return nil, false
		}
		x[free[i]] = v
	}
	return x, true
}

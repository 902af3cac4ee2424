package progen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/passes"
)

// Named are the pipelines with names.
var Named = []string{"default", "cuda", "arena"}

// Pipeline draws a legal sequence of passes of the table with random options.
func Pipeline(table *passes.Table, r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return Named[r.IntN(len(Named))]
	}
	keep := 2 + r.IntN(8)
	var specs []string
	for _, p := range table.Passes() {
		if r.IntN(10) < keep && !p.Partitions { // those make programs that others compare nothing of
			specs = append(specs, spec(p, r))
		}
	}
	if len(specs) == 0 {
		return "canonicalize"
	}
	// Neighbours that nothing holds in order change places, and passes run twice.
	for range 4 {
		i, j := r.IntN(len(specs)), r.IntN(len(specs))
		other := append([]string(nil), specs...)
		if r.IntN(3) == 0 {
			other = append(other[:i+1], append([]string{other[j]}, other[i+1:]...)...)
		} else {
			other[i], other[j] = other[j], other[i]
		}
		if _, err := table.Parse(strings.Join(other, ",")); err == nil {
			specs = other
		}
	}
	return strings.Join(specs, ",")
}

// Rewriting draws a sequence of the passes whose work takes equations to prove.
func Rewriting(table *passes.Table, r *rand.Rand) string {
	var specs []string
	for _, p := range table.Passes() {
		switch p.Name {
		case "unroll", "canonicalize", "simplify-collectives", "fuse-collectives", "narrow-matmuls", "widen-reductions", "dense-collectives", "hierarchy", "pipeline-collectives":
			if r.IntN(4) > 0 || p.Name == "simplify-collectives" {
				specs = append(specs, spec(p, r))
			}
		}
	}
	return strings.Join(specs, ",")
}

// spec is a pass with some options set. Limits of memory are tight now and then: a pass
// may then refuse the program.
func spec(p *passes.Pass, r *rand.Rand) string {
	var opts []string
	for _, o := range p.Options {
		limit := o.Name == "capacity" || o.Name == "cap"
		if r.IntN(4) > 0 && !slices.Contains([]string{"hierarchy", "pipeline-collectives", "dense-collectives"}, p.Name) || limit && r.IntN(3) > 0 {
			continue
		}
		switch o.Kind {
		case passes.KindBool:
			opts = append(opts, fmt.Sprintf("%s=%v", o.Name, r.IntN(2) == 0))
		case passes.KindInt:
			opts = append(opts, fmt.Sprintf("%s=%d", o.Name, r.IntN(6)))
		case passes.KindFloat:
			v := []string{"0", "0.5", "1"}[r.IntN(3)]
			if o.Name == "percent" {
				v = []string{"90", "100", "110", "150"}[r.IntN(4)]
			}
			opts = append(opts, o.Name+"="+v)
		case passes.KindBytes:
			opts = append(opts, fmt.Sprintf("%s=%d", o.Name, []int{0, 64, 1 << 20, 256 << r.IntN(6)}[r.IntN(4)]))
		case passes.KindString:
			if len(o.Choices) > 0 {
				opts = append(opts, o.Name+"="+o.Choices[r.IntN(len(o.Choices))])
			}
		}
	}
	if opts == nil {
		return p.Name
	}
	return p.Name + "{" + strings.Join(opts, ",") + "}"
}

package standard

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// narrowMatmuls is what canonicalize does to matmuls of 16-bit floats that were widened to f32, once
// more: a program that was written with collectives may gather a weight behind its conversion, and only
// when simplify-collectives has moved the conversion behind the gather does the matmul see it. (The
// partitioner converts behind the gather by itself.) Units for 16-bit floats are many times as fast as
// those for f32. Linear.
func narrowMatmuls() passes.Pass {
	return passes.Pass{
		Name:         "narrow-matmuls",
		Doc:          "Lets matmuls read 16-bit floats that were widened to f32 as they are, where communication stood between.",
		FunctionPass: true,
		Stats:        []passes.Stat{{Name: "narrowed", Doc: "matmuls that read 16-bit floats and not what was converted from them"}},
		Run: func(ctx *passes.Context, f *ir.Func) error {
			c := &canonicalizer{ctx: ctx, f: f, writes: ir.FindWrites(f)}
			for _, n := range slices.Clone(f.Order()) {
				if f.NodeByID(n.ID()) == n && n.Op() == ir.OpMatmul {
					args := slices.Clone(n.Args())
					c.narrowMatmul(n)
					for _, a := range args {
						f.RemoveDead(a.Def())
					}
				}
			}
			return nil
		},
	}
}

package stablehlo

import (
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Plan is a module in the form that concert runs: stages one after the other, and what is
// expected of their results.
type Plan struct {
	Stages []*Stage
	Checks []Check
	Outs   []Source // the function's results; on every rank of the last stage
}

// Stage is one function on all ranks of a world.
type Stage struct {
	Module *ir.Module
	Func   *ir.Func
	Feeds  []Feed // by input
}

// Feed says where the tensors of an input come from.
type Feed struct {
	Arg   int      // number of an argument of the function; -1: none
	Ranks []Source // by rank, where it is not an argument; one stands for all ranks
}

// Source is a tensor: a literal, or a result of an earlier stage.
type Source struct {
	Literal     *mlir.Literal
	Stage, Rank int
	Output      int
}

// Check is an expectation.
type Check struct {
	Kind             string // what stands behind "expect_"
	Actual, Expected Source
	Tolerance        float64 // of almost_eq and almost_eq_const: absolute
	Relative         float64 // and what is added of the expected value
	MinULP, MaxULP   uint64  // of close
	ID               string  // of serialized_eq
	Line, Col        int32
}

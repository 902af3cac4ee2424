// Package stablehlo imports StableHLO programs, whose text package
// mlir reads: the dialects stablehlo, chlo, func, sdy, check and interpreter, and constants, casts and
// barriers of arith, tensor, flow and util. Errors name what an unsupported operation lacks, and the
// size of inlined code is bounded.
package stablehlo

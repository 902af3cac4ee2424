// Package stablehlo imports StableHLO programs, whose text package
// mlir reads: the dialects stablehlo, chlo, func, sdy, check and interpreter. Errors name what an
// unsupported operation lacks, and the size of inlined code is bounded.
package stablehlo

// Package stablehlo makes functions of package ir of StableHLO programs, whose text package
// mlir reads: of the dialects stablehlo, chlo, func, sdy, check and interpreter. The importer
// says what an operation lacks, and what inlining makes is bounded.
package stablehlo

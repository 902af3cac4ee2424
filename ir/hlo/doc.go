// Package hlo reads HLO modules in the text that XLA prints before and after its passes.
// scan.go and parse.go read the text; convert.go and its neighbours translate instructions to
// StableHLO operations, which package ir/stablehlo imports.
//
// The order of instructions is kept; in a scheduled module it is the schedule. Fused
// and called computations are inlined, reducers become regions of operations,
// and asynchronous pairs (start, done) stay asynchronous. Layouts have no
// meaning except for bitcasts. Custom calls that are attention become attention;
// others become opaque calls.
package hlo

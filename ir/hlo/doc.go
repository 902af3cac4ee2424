// Package hlo reads HLO modules in the text that XLA prints before and after its passes:
// scan.go and parse.go read the text, convert.go and its neighbours say its instructions as
// operations of StableHLO, which package ir/stablehlo makes functions of package ir of.
//
// The order of instructions is kept: where the module is scheduled it is the schedule. Fused
// and called computations become part of the function, reducers the regions of operations,
// and what is started and awaited is in flight between the two. Layouts say where elements
// lie and mean nothing, but for bitcasts. Custom calls that are attention become attention;
// others are calls of what concert does not know.
package hlo

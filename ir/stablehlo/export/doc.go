// Package export writes functions of package ir as StableHLO text, which ir/stablehlo and
// JAX read. An operation that StableHLO has becomes that one, another what it means in
// operations that StableHLO has; what neither says is an error that names the node.
//
// A rank is a replica: groups are replica groups, and the order of the text is the
// schedule. Tensors have no layout there, so that views become reshapes, transposes and
// slices, and a collective stands where it is started.
package export

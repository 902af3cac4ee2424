// Package export writes functions of package ir as StableHLO text, which ir/stablehlo and
// JAX read. An operation that StableHLO has is exported as such, any other is composed of
// StableHLO operations; where neither is possible, an error names the node.
//
// A rank is a replica: groups are replica groups, and the order of the text is the
// schedule. Tensors have no layout there, so views become reshapes, transposes and
// slices, and a collective is written where it starts.
package export

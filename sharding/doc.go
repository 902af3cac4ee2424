// Package sharding says how tensors lie on a mesh of devices, and carries what a program says
// of a few of its tensors to all of them. The meaning is Shardy's.
//
// axis.go has meshes and the algebra of their axes and sub-axes, sharding.go shardings,
// text.go both in the text of the sdy dialect. rule.go relates the dimensions of an
// operation's operands and results by factors, and ops.go and indexed.go are the table of
// concert's operations. project.go takes shardings from dimensions to factors and back, factor.go
// decides which axes a factor takes where tensors disagree, and propagate.go runs a graph to
// its fixpoint. Package sharding/sdy makes graphs of StableHLO text.
//
// function.go reads the annotations of package ir's functions. Package passes/spmd partitions
// them, and package compile/suggest searches for some.
//
// What is not here yet: rules for sizes that are symbols, and prices for the conflicts that Shardy
// leaves.
package sharding

// Package sharding describes how tensors are sharded on a mesh of devices, and propagates
// shardings from a few annotated tensors to all of them. Semantics are Shardy's.
//
// axis.go has meshes and the algebra of their axes and sub-axes, sharding.go shardings,
// text.go both in the text of the sdy dialect. rule.go relates the dimensions of an
// operation's operands and results by factors, and ops.go and indexed.go are the table of
// concert's operations. project.go converts shardings between dimensions and factors, factor.go
// decides which axes a factor takes where tensors conflict, and propagate.go runs a graph to
// its fixpoint. Package sharding/sdy makes graphs of StableHLO text.
//
// function.go reads the annotations of package ir's functions. Package passes/spmd partitions
// them, and package compile/suggest searches for shardings.
//
// Not implemented: rules for dynamic dimensions, and costs of the conflicts that Shardy
// leaves open.
package sharding

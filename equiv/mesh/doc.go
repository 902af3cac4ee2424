// Package mesh proves that a single-device program and a program of many ranks on a mesh
// compute the same: that the second is the first, partitioned, by whatever partitioner. It shares no code
// with package sharding or the partitioner.
//
// Every value of either program is read as a tensor in normal form (package internal/normal): an
// exact expression over the whole mesh, in which a rank is one more dimension. What the operations
// make of tensors is said in rules.go, pointwise.go, indexed.go and windows.go, what collectives make of
// them in collectives.go. Nothing is guessed about how the program was partitioned: a result is proved
// if it is the same expression as the single-device program's, in the placement that it is
// declared to have (check.go).
//
// Equality is over the real numbers: sums may be reordered, and rounding to a
// float type may happen before or after a sum. An operation without a rule is an unknown tensor
// that differs on every rank, and is listed; nothing that depends on it is proved equal.
//
// The cost is linear in the nodes and in the ranks of groups; no rank is examined individually.
// All work counts against one budget (Options.Budget).
package mesh

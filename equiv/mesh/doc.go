// Package mesh proves that a single-device program and a program of many ranks on a mesh
// compute the same: that the second is the first, partitioned, by whatever partitioner. It shares no code
// with package sharding or the partitioner; what it knows about operations is in rules.go.
//
// # How a proof works
//
// Every axis of the mesh is factored into atoms of prime size, so that a rank is a list of digits.
// A tensor of either program is represented by a factor, a base and an arrangement: each digit of
// an index of the base lies either in a dimension of the tensor or on an atom, where it is a digit
// of the rank. Views, gathers, exchanges and shards only rearrange digits. An operation that
// computes makes a new base, whose loops relate the digits of its operands: digits on the same atom
// go together, and so do those in the same place of the tensors. Nothing is guessed: the program of
// the ranks is an exact expression over the whole mesh.
//
// A sum over ranks is then a sum over a digit like any other, and a product whose operands
// share a summed digit is a contraction: a matmul of shards followed by an all_reduce is the
// matmul of the whole, by the normal form alone (algebra.go). Bases are hash-consed with those
// of the single-device program, and a result is proved if it is the same expression in the
// arrangement that it is declared to have.
//
// Slices, windows, iotas and halos are tensors read at indices that are affine in digits (view.go),
// including the rank's; nested reads compose into one.
//
// A tensor that does not divide evenly is concatenated with padding of unknown content.
// Operations on such a concatenation are concatenations of operations on the parts (seams.go), so
// that the padding disappears when it is sliced off, or when it was masked before a sum.
//
// Equality is over the real numbers: sums may be reordered, and rounding to a
// float type may happen before or after a sum. An operation without a rule is an opaque base
// that differs on every rank, and is listed; nothing that depends on it is proved equal.
//
// The cost is linear in the nodes and in the ranks of groups; no rank is examined individually.
// Lookups are memoised, found or not, and all work counts against one budget (Options.Budget).
package mesh

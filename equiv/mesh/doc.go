// Package mesh proves that a program of one device and a program of many ranks on a mesh
// compute the same: that the second is the first, partitioned, by whomever. It shares no code
// with package sharding or with what partitions; what it knows of an operation stands in
// rules.go.
//
// # How a proof goes
//
// Every axis of the mesh is cut into atoms of prime size, so that a rank is a list of digits.
// A tensor of either program is stated as a factor, a base and an arrangement: each digit of
// an index of the base lies either in a dimension of the tensor or on an atom, whose digit of
// the rank it is then. Views, gathers, exchanges and shards only rearrange digits. What
// computes makes a base of its own, whose loops say which digits of its operands go together:
// digits on one atom do, and so do those in one place of the tensors. Nothing is decided by
// this, and nothing guessed: a rank's program is an expression over the whole mesh, exactly.
//
// A sum over ranks is then a sum over a digit like any other, and a product whose operands
// share a digit that is summed is a contraction: a matmul of pieces and an all_reduce is the
// matmul of the whole, by the normal form alone (algebra.go). Bases are hash-consed with those
// of the program of one device, and a result is proved if it is the same expression, arranged
// as it is stated to be.
//
// Slices, windows, indices that count and rows of other ranks are tensors read at places that are
// affine in digits (view.go), the rank's among them; readings of readings are one.
//
// A tensor that does not divide is joined with what lies behind its end, of which nothing is
// known. Operations on what is joined are joined of operations on the parts (seams.go), so that
// what is behind the end goes when it is cut off, or when it was masked before a sum.
//
// Equal means over the real numbers: sums may be taken in another order, and rounding to a
// float type may happen before or behind a sum. What a step does that no rule tells is a base of
// its own that differs on every rank, and is listed; nothing that depends on it is proved equal.
//
// Linear in the nodes and the ranks of groups; no rank is looked at by itself. What is looked for
// once is not looked for again, found or not, and all work is of one budget (Options.Budget).
package mesh

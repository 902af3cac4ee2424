// Package normal brings tensors that are computed on a mesh to a normal form: two that are equal over
// the real numbers are the same expression in the same arrangement.
//
// # Tensors
//
// Every axis of the mesh is factored into atoms of prime size, so that a rank is a list of digits.
// A Tensor is a factor, a base (an expression) and an arrangement: each digit of
// an index of the base lies either in a dimension of the tensor or on an atom, where it is a digit
// of the rank. Views, gathers, exchanges and shards only rearrange digits (ranks.go). An operation that
// computes (op.go) makes a new base, whose loops relate the digits of its operands: digits on the same atom
// go together, and so do those in the same place of the tensors. Bases are hash-consed (expr.go).
//
// # Sums and products
//
// A sum over ranks is a sum over a digit like any other, and a product whose operands
// share a summed digit is a contraction: a matmul of shards followed by an all_reduce is the
// matmul of the whole (algebra.go). Sums move into what is linear in its operands (generic.go), reductions such
// as a maximum into reductions (reductions.go); of exponentials the sum is a product (exponents.go).
//
// # Views
//
// Slices, windows, iotas and halos are tensors read at indices that are affine in digits (view.go, viewform.go),
// including the rank's; views of views compose (compose.go), and a slice of what is computed of views is
// computed of slices (elementwise.go). Conditions on an iota say where they hold (affine.go): so masks, and
// lookups by a rank in its own rows (shardedlookup.go), are views and sums, too. Scans (scans.go) are sums
// of windows. Lookups of topk compose (topk.go).
//
// # Concatenations and flat dimensions
//
// A tensor that does not divide evenly is concatenated with padding of unknown content.
// Operations on such a concatenation are concatenations of operations on the parts (concat.go,
// concatviews.go), so that the padding disappears when it is sliced off, or when it was masked before a sum.
// Where shards are cut within a part, the parts are concatenated whole (concatwhole.go), and where they are cut
// within a digit, it is flat with others (flat.go).
//
// Where digits are cut so that neither is a part of the other, or nothing is known of an operation, a
// tensor is unknown, and Try says why. Lookups are memoised, found or not, and work is bounded by a
// budget.
package normal

// Package equiv proves that two functions compute the same on every rank: that a
// pass preserved the meaning of the program. It shares no code with the passes; all it
// knows about operations comes from package ir's op table.
//
// # How a proof works
//
// Every tensor of both functions gets a value number: equal numbers for equal
// operations on equal numbers. Order, names, aliases, buckets (a collective of several
// operands is as many single ones) and repeated pure operations therefore do not
// matter. A read names the version of its storage: what it reads
// after an in-place write is another value than before. The functions are
// compared at what is visible from outside: their results, the final contents of inputs
// that are written, and the sequence of effects with what each of them reads.
//
// Where two numbers differ, both are normalised by the equations
// of the table [Equations], each of which is exact or states what it preserves
// (internal/terms). Tensors whose normal forms differ are compared element by element,
// or range by range.
//
// A loop with a known trip count is unrolled, a longer one proved by induction
// (induction.go): the values that one loop carries after any number of iterations are values in
// the other's body.
//
// What cannot be proved is a [Finding] that names a node of each function and the
// equations that were tried. It says that no proof was found, not that the
// functions differ.
package equiv

// Package equiv proves that two functions compute the same on every rank: that a
// pass kept what the program means. It shares no code with the passes; what it
// knows of the operations follows from package ir's op table alone.
//
// # How a proof goes
//
// Every tensor of both functions gets a value number: equal numbers for equal
// operations on equal numbers, so that order, names, views under other names,
// buckets (a collective of several operands is as many of one) and repeated pure
// operations do not matter. A read names the version of its storage: what it reads
// behind an in-place write is another value than before it. The functions are
// compared at what can be seen from outside: their results, what is left in inputs
// that are written, and the sequence of effects with what each of them reads.
//
// Where two numbers differ, both are brought into a normal form by the equations
// of the table [Equations], each of which is exact or says what it keeps. The form
// rests on one idea: a tensor, on all ranks at once, is a function of a rank and a
// flat row-major index. Views, gathers, exchanges, broadcasts and shards only say from which
// rank and which index an element comes; they are one kind of term, a move, whose
// layout is a list of strided digits and, for what depends on the rank, a table.
// Two moves in a row are one, a move goes in front of elementwise operations, and
// a reduction over ranks lets moves out. A reduce_scatter is a shard of an
// all_reduce. Most identities between collectives then hold by composing layouts.
// Which moves come out of which reductions depends on the order of steps:
// tensors whose normal forms differ are compared element by element, or run by run.
//
// A loop whose length is known is read round by round, a longer one by induction
// (induction.go): another loop carries, after any number of rounds, values of its body.
//
// What cannot be proved is a [Finding] that names a node of each function and the
// equations that were tried; it says that no proof was found, not that the
// functions differ.
package equiv

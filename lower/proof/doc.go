// Package proof proves that a program computes what its function does: what lowering
// made, and whatever has rewritten the program since. It shares no code with lowering.
//
// # How a proof goes
//
// The program is run over an arena whose bytes are terms instead of numbers. A term
// stands for a tensor on every rank, of any size that symbols allow: an input, an
// operation on terms, a window on what lies in memory, or what is left where a call has
// written in place. The function is run the same way over its storages, one after the
// other in its order. Terms are numbered, so that equal terms have one number. Then what
// can be seen from outside has to be equal: results, inputs that belong to the caller, what
// communicates in each group, in order, and what else has effects.
//
// A tensor that is read is the term of whoever wrote its bytes last, seen through the
// distance and the layouts of both. In the function the same comes of the views between
// them. So an operand off by one element, with other strides, or from a buffer that
// holds something else by now, is another term. Bytes that no single writer has left are a
// term that equals nothing.
//
// # What it relies on
//
// Instructions are taken in list order. That is one of the orders that streams and
// events allow, and package program's checker proves that all of them give the same bytes:
// a program has to pass both. The checker also judges what a single instruction may do with
// operands and results that share bytes, and what is in flight.
//
// Layouts over symbols are compared as expressions and ranges at the bounds of sizes, so
// that a proof holds for all values of symbols. Kernels are the operations of
// their bodies; whether their source computes the same, tests decide by running it.
//
// # Loops and branches
//
// A body is run once, on terms that stand for what any round begins with, and on what was there
// in front of the loop but for what rounds write: see control.go. Nothing is assumed of how often
// a loop goes round.
//
// # Equations
//
// Lowering moves no arithmetic, so few terms need more than their number. A kernel does not
// load an operand of which no element reaches a result, so its terms have to agree on the
// elements that are asked for (demand.go). Nothing else that the function does not compute may be
// computed, read or not.
package proof

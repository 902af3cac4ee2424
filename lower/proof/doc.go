// Package proof proves that a program computes what its function does: what lowering
// made, and whatever has rewritten the program since. It shares no code with lowering.
//
// # How a proof works
//
// The program is executed symbolically, over an arena whose bytes hold terms instead of numbers. A
// term stands for a tensor on every rank, for all symbol values: an input, an
// operation on terms, a window on memory, or the contents after an in-place
// write by a call. The function is executed in the same way over its storages, in its order. Terms are
// hash-consed, so equal terms have one number. Then everything
// visible from outside must be equal: results, inputs owned by the caller, the
// communication of each group, in order, and all other effects.
//
// A tensor that is read is the term of the last writer of its bytes, seen through the
// offset and layouts of both. In the function the same results from the views between
// them. So an operand off by one element, with other strides, or from a buffer that has been
// overwritten, is another term. Bytes without a single last writer are a
// term that equals nothing.
//
// # What it relies on
//
// Instructions are taken in list order. That is one of the orders that streams and
// events allow, and package program's checker proves that all of them give the same bytes:
// a program must pass both. The checker also judges whether operands and results of a single
// instruction may share bytes, and what is in flight.
//
// Layouts over symbols are compared as expressions and ranges at the bounds of sizes, so
// a proof holds for all values of symbols. Kernels are represented by the operations of
// their bodies; whether their source computes the same is tested by running it.
//
// # Loops and branches
//
// A body is executed once, on terms that stand for what any iteration begins with, and on what was
// there before the loop except for what iterations write: see control.go. Nothing is assumed about
// the number of iterations.
//
// # Equations
//
// Lowering moves no arithmetic, so few terms need more than their number. A kernel does not
// load an operand of which no element reaches a result, so its terms have to agree only on the
// elements that are used (demand.go). Nothing else may be
// computed that the function does not compute, read or not.
package proof

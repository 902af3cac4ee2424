// Package progen makes random SPMD programs and holds everything that handles
// programs against the reference interpreter. It is a second opinion: it knows the
// IR by its text and its type rules only, and shares nothing with the generators and
// checks that the authors of passes wrote beside them.
//
// # Programs
//
// [New] gives the text of a program: operations of the whole op table, views of
// views, calls that write in place, alias or communicate, on any value that nothing
// in flight reads; several and overlapping groups, of one rank too; buckets, uneven
// exchanges, symbols, empty and scalar tensors, any dense layout, all element types;
// async inputs and outputs, values returned twice, inputs returned, dead code, second
// waits; joint functions with tangents and checkpointed regions, order-only edges. A quarter
// is mostly about tensors that are spread over ranks: what rewrites of collectives look for.
// Which opaque calls they use, [Calls] and [Funcs] implement.
//
// # Oracles
//
// [Case.Check] runs one program through one pipeline: the text reads back as
// itself; the verifier accepts every step; package equiv proves every pass; two runs of
// the pipeline give the same bytes; the interpreter gives the same bits before and after,
// on all ranks, with what is in flight poisoned (within the rules of [step.Pair.Bounds] where the
// pipeline reassociates); the result lowers; the checker of programs accepts that; and the
// host device, and on request the CUDA device on the fake driver, give the bits of
// the interpreter.
//
// # Reduction
//
// [Reduce] shrinks a failing case: it works on lines of text, so that it needs no
// more than that the failure stays the same kind of failure.
package progen

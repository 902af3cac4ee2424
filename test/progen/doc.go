// Package progen generates random SPMD programs and checks everything that handles
// programs against the reference interpreter. It is independent: it knows the
// IR only by its text and its type rules, and shares nothing with the generators and
// checks that the authors of passes wrote alongside them.
//
// # Programs
//
// [New] gives the text of a program: operations of the whole op table, views of
// views, calls that write in place, alias or communicate, on any value that nothing
// in flight reads; several and overlapping groups, including groups of one rank; buckets, uneven
// exchanges, symbols, empty and scalar tensors, any dense layout, all element types;
// async inputs and outputs, values returned twice, inputs returned, dead code, second
// waits; joint functions with tangents and checkpointed regions, order-only edges. A quarter
// of the programs is mostly about sharded tensors, the target of collective rewrites.
// [Calls] and [Funcs] implement the opaque calls in them.
//
// # Oracles
//
// [Case.Check] runs one program through one pipeline: the text round-trips;
// the verifier accepts every step; package equiv proves every pass; two runs of
// the pipeline give the same bytes; the interpreter gives the same bits before and after,
// on all ranks, with results in flight poisoned (within the rules of [step.Pair.Bounds] where the
// pipeline reassociates); the result lowers; the program checker accepts it; and the
// host device, and on request the CUDA device on the fake driver, give the bits of
// the interpreter. The tests of package lower/cudagen run the kernels that are generated for
// such programs.
//
// # Reduction
//
// [Reduce] shrinks a failing case line by line. It only requires
// that the failure stays the same kind of failure.
package progen

// Package terms numbers the tensors that functions compute, brings them into normal form by a
// table of equations, and compares what differs there element by element.
//
// The normal form rests on one idea: a tensor, on all ranks at once, is a function of a rank and a
// flat row-major index. Views, gathers, exchanges, broadcasts and shards only determine from which
// rank and which index an element comes; they are one kind of term, a move, whose
// layout is a list of strided digits and, for what depends on the rank, a table.
// Two consecutive moves compose into one, a move commutes with elementwise operations, and
// moves are hoisted out of reductions over ranks. A reduce_scatter is a shard of an
// all_reduce. Most identities between collectives then hold by composing layouts.
// Which moves can be hoisted out of which reductions depends on the order of steps:
// that is why elements have the last word.
package terms

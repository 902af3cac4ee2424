// Package interp is the reference interpreter: it runs one function of the IR on
// N simulated ranks in lockstep with real numbers. It defines what a program
// means; lowered programs, emitted code and devices are compared with it.
//
//	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
//	out, err := interp.Run(ctx, f, in, interp.Options{})
//
// # Values
//
// A value of a rank is a storage and a layout on it. Views and waits share their
// operand's storage with the offset and strides that the IR gives them; every
// other result gets a fresh storage in its declared layout. A storage is dropped
// after the last use of its last alias, the operands of a collective at the
// earliest at its wait.
//
// # Ranks
//
// All ranks execute a node before any executes the next. Ranks differ in their
// inputs, in the values of symbols and in their random numbers. Nothing depends
// on time, on goroutine scheduling or on map order: equal inputs and options give
// equal bytes.
//
// # Collectives
//
// A collective reads its operands at its start; its results are defined at its
// wait. Reductions combine the ranks of a subgroup in the order of their group
// rank, in float32 for bf16 and f16, rounded once, so that every rank holds the
// same bytes. Options.Poison makes the time in between visible: until the wait
// the results hold garbage, and a write to an operand or result in flight is an
// error.
package interp

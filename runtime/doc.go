// Package runtime joins the ranks of a job and runs lowered programs on them.
//
// # From start to finish
//
// [Join] reads the environment (or explicit settings), performs the rendezvous, compares
// the programs of all ranks, and opens a [Device] whose arena every rank can address. The
// world lasts as long as the job: [Rank.Add] and [Rank.Drop] load and unload programs,
// [Rank.NewBuffer] allocates buffers. [Run] interprets a lowered program; [RunModule] runs
// Go code printed by the emitter. Both call the methods of [Exec], once per instruction.
//
// # Memory
//
// Every rank has one arena in symmetric memory. A [Tensor] is an offset in it, the same on
// every rank, so a peer's tensor is at base + peer's world rank x stride and is never
// copied to make it reachable. Each module and each [Buffer] has a region of the arena. A
// device reserves a range of addresses for each rank, up to [Stride] bytes, and maps memory
// for regions on demand, at the same offset on every rank.
//
// Programs share buffers: parameters, which the optimizer step donates (program.Donation),
// or activations saved for backward. Inputs and outputs bound to a buffer use its memory, so
// nothing is copied between programs. [Buffer.View] is a tensor that programs and
// collectives use in place; [Rank.Upload] and [Rank.Download] copy between host and buffer.
//
// # Order
//
// Calls on one stream run in order; only events order streams, with CUDA's semantics:
// [Exec.Wait] waits for the work captured by the latest preceding [Exec.Record] of its event.
// The ranks of a group must issue the group's collectives in the same order.
//
// # Failure
//
// Every wait has a deadline. A rank that dies, leaves or never joins, ranks with
// different programs or sizes, and a cancelled context result in a typed error of this
// package on every remaining rank. The first failure breaks the whole world: work in flight
// is cancelled and later calls return the error. To recover, close the [Rank] and join again.
package runtime

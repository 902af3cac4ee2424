// Package runtime joins the ranks of a job and runs lowered programs on them.
//
// # From start to finish
//
// [Join] reads the environment (or explicit settings), meets the other ranks,
// compares what each is about to run, and opens a [Device] whose arena the whole
// world can address. The world lives as long as the job: [Rank.Add] and [Rank.Drop]
// change what it runs, [Rank.NewBuffer] what it holds. [Run] interprets a lowered program;
// [RunModule] runs Go code that the emitter printed. Both go through the methods
// of [Exec], one call per instruction, so they cannot disagree.
//
// # Memory
//
// Every rank owns one arena. A [Tensor] is an offset in it, and the same offset
// means the same tensor on every rank, so a collective needs no addresses: a
// subgroup reaches a peer as base + peer's world rank x stride. Nothing is copied
// to make it reachable. Each module and each [Buffer] has a region of it. A device
// reserves addresses for each rank, up to [Stride] bytes, and turns regions into memory
// as they come, at the same offset on every rank.
//
// What programs share lies in buffers: a step's parameters, which the step that updates
// them has donated (program.Donation), or what forward saves for backward. Inputs and
// outputs that are bound to a buffer lie there, and nothing is copied from one program to
// the next. Host and device each have views of it: [Buffer.View] is a place that programs and
// collectives work on, [Rank.Upload] and [Rank.Download] copy it from and to the host.
//
// # Order
//
// Calls on one stream run in order; streams are ordered against each other by
// events only, with the meaning they have on a GPU: [Exec.Wait] waits for what
// the latest [Exec.Record] of that event, before it in program order, captured.
// The ranks of a group must issue the group's collectives in the same order.
//
// # Failure
//
// Every wait has a deadline. A rank that dies, leaves or never comes, ranks with
// different programs or sizes, and a cancelled context end in one of the typed
// errors of this package on every rank that is left. The first failure breaks
// the whole world: what it has in flight ends, later calls return the error, and
// the way on is to close the [Rank] and join anew.
package runtime

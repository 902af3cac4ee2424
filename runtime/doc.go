// Package runtime joins the ranks of a job and runs lowered programs on them.
//
// # From start to finish
//
// [Join] reads the environment (or explicit settings), meets the other ranks in
// a [store.Store], compares what each is about to run, and opens a [Device] whose
// arena the whole world can address. [Run] interprets a lowered program;
// [RunModule] runs Go code that the emitter printed. Both go through the methods
// of [Exec], one call per instruction, so they cannot disagree.
//
// # Memory
//
// Every rank owns one arena. A [Tensor] is an offset in it, and the same offset
// means the same tensor on every rank, so a collective needs no addresses: a
// subgroup reaches a peer as base + peer's world rank x stride. Nothing is copied
// to make it reachable. The arenas of several modules (forward and backward of a
// step) are stacked in one.
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

// Package device runs programs on GPUs: it is the runtime's Device on package cuda.
//
// A rank is a process with a GPU of its own (Opener), or a goroutine of a process
// that drives several GPUs (Local). Modules, buffers and groups have regions of symmetric
// memory at one offset on all ranks, so every value of a program can be the operand of a
// kernel that reads peers, where GPUs allow that. Each rank has addresses for several times
// the memory of its device, and memory is mapped there when a module, a buffer or a group
// comes, and given back when it goes (grow.go, group.go).
//
// # Calls
//
// A launch, copy or collective is planned once for its arguments: kernel, grid,
// parameters, or a library's algorithm, as commands for the driver. The plan is kept,
// and the same call later costs a look-up and one crossing. Between BeginCapture and
// EndCapture the commands are collected instead, into one buffer or one graph. Plans are
// many at most; what libraries hold for those that nobody has any more goes back to them
// while the streams are idle (held.go).
//
// # Forward progress
//
// A kernel that waits for a peer must not keep that peer from coming. What may block
// a device is therefore done while nothing of any rank runs: loading, mapping and
// allocating when the world changes, between meetings of all ranks, one rank of a process
// for all of it where it concerns all (internal/domain); planning, which may
// load a library's code and let workspaces grow, in a pass over the whole step before
// it first runs, after a meeting. In one process this matters twice: the driver loads
// code under a lock that all ranks' calls need. EndCapture, which instantiates, ends
// with a meeting of all ranks. Before that the ranks of each group compare what they have
// collected, since steps that differ would wait for each other (agree.go).
//
// # Transport
//
// When the ranks meet they tell each other their machines (Options.Machine, or what the
// driver shows), what plans depend on, and nothing goes on if these do not fit together: a
// *runtime.MismatchError or *topo.SharedGPUError. Every group whose ranks reach each other's
// memory goes over symmetric memory. The others, on several
// hosts or on GPUs without access to each other, go over NCCL (cuda/nccl), which is loaded
// only then; Options.Transport asks for one or the other, and a *TransportError says which
// group cannot be served and why. Both may serve one program: ranks are parted into domains
// that share memory: as large as memory reaches from every rank to every other, so that
// groups that come later find them.
//
// NCCL's collectives have other bits than ours where sums of more than two ranks round, the
// same on all ranks of a group. All groups that NCCL serves take turns on a rank, in the
// order of the program: kernels of several communicators that wait for peers at once could
// wait in a circle. Stages have different orders, so a group in which they meet has a
// communicator of its own, of few blocks, and takes turns with no other. What a step does over
// NCCL is rehearsed before it first runs, on memory of its own and by group where stages meet,
// because NCCL connects ranks when something is first done. Counters (signal,
// wait_signal) need memory that all ranks reach.
//
// Ranks that share no memory hear of each other by notes in a store that lives as long as
// the world, in one process or hosted by rank 0, and by a connection to rank 0 that ends
// with its process. NCCL knows no deadlines: a rank whose wait takes longer than
// Spec.Timeout asks the others what they have enqueued, names those that lack something and
// what, and aborts the communicators on all ranks.
//
// # Loops and branches
//
// A step that becomes a graph goes round its loops and chooses its branches by itself: they are
// conditional nodes (conditional.go). What cannot be one on some rank is chosen by the host on
// all, in replays that enqueue the step anew.
//
// Sizes that tensors hold, the kernels of a captured step read from memory (sizes.go, late.go). Where one
// has no kernel that does, the host reads them in replays, on all ranks.
//
// # Failure
//
// Waiting polls, so that a rank hears of timeouts, lost peers and aborts while it
// waits, and reports them as the runtime's typed errors. A broken world stays broken:
// the survivors join another.
//
// On the fake driver of package cuda, launches run the host's kernels in stream
// order, and NCCL is a double (nccl.Host); everything else is the same.
package device

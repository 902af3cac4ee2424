// Package device runs programs on GPUs: it is the runtime's Device on package cuda.
//
// A rank is a process with a GPU of its own (Opener), or a goroutine of a process
// that drives several GPUs (Local). The modules' arenas are one allocation of
// symmetric memory at one offset on all ranks, so every value of a program can be the
// operand of a kernel that reads peers.
//
// # Calls
//
// A launch, copy or collective is planned once for its arguments: kernel, grid,
// parameters, or a library's algorithm, as commands for the driver. The plan is kept,
// and the same call later costs a look-up and one crossing. Between BeginCapture and
// EndCapture the commands are collected instead, into one buffer or one graph.
//
// # Forward progress
//
// A kernel that waits for a peer must not keep that peer from coming. What may block
// a device is therefore done while nothing of this rank waits: compiling, loading and
// allocating in opening, before the ranks meet for the last time; planning, which may
// load a library's code and let workspaces grow, in a pass over the whole step before
// it first runs, after a meeting. In one process this matters twice: the driver loads
// code under a lock that all ranks' calls need. EndCapture, which instantiates, ends
// with a meeting of all ranks.
//
// # Transport
//
// When the ranks meet they tell each other their machines (Options.Machine, or what the
// driver shows), what plans depend on, and nothing goes on if these do not fit together: a
// *topo.MismatchError, *topo.SharedGPUError or *runtime.SizeMismatchError. Groups on
// several hosts, or on GPUs without access to each other, need NCCL, which this device
// does not speak: a *TransportError says which and why.
//
// # Failure
//
// Waiting polls, so that a rank hears of timeouts, lost peers and aborts while it
// waits, and reports them as the runtime's typed errors. A broken world stays broken:
// the survivors join another.
//
// On the fake driver of package cuda, launches run the host's kernels in stream
// order; everything else is the same.
package device

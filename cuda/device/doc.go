// Package device runs programs on GPUs: it implements the runtime's Device on package cuda.
//
// A rank is a process with its own GPU (Opener), or a goroutine of a process
// that drives several GPUs (Local). Modules, buffers and groups have regions of symmetric
// memory at the same offset on all ranks, so any value of a program can be the operand of a
// kernel that reads peers, where GPUs allow that. Each rank reserves addresses for several times
// the memory of its device; memory is mapped there when a module, a buffer or a group is
// added, and freed when it is dropped (grow.go, group.go).
//
// # Calls
//
// A launch, copy or collective is planned once for its arguments: kernel, grid,
// parameters, or a library's algorithm, as commands for the driver. The plan is cached,
// and the same call later costs a look-up and one cgo call. Between BeginCapture and
// EndCapture the commands are collected instead, into one buffer or one graph. The number of
// cached plans is bounded; what libraries hold for evicted plans is released
// while the streams are idle (held.go).
//
// # Forward progress
//
// A kernel that waits for a peer must not block that peer. Operations that may block
// a device therefore happen while nothing of any rank runs. Loading, mapping and
// allocating happen when the world changes, between barriers of all ranks; work that concerns all
// ranks of a process is done by one of them (internal/domain). Planning, which may
// load a library's code and grow workspaces, is a pass over the whole step before
// it first runs, after a barrier. In one process this matters twice: the driver loads
// code under a lock that all ranks' calls need. EndCapture, which instantiates, ends
// with a barrier. Before that the ranks of each group compare what they have
// captured, since steps that differ would deadlock (agree.go).
//
// One case is left to the deadline of waits: worlds of one process that share GPUs know nothing of each
// other. While one opens, plans or closes, the driver may wait for a kernel of another, whose peer
// waits for the driver. Give each a process, or run one at a time.
//
// # Transport
//
// When the ranks join they exchange their machines (Options.Machine, or what the
// driver reports) and whatever else plans depend on. Inconsistencies end the join: a
// *runtime.MismatchError or *topo.SharedGPUError. Every group with P2P access
// uses symmetric memory. The others, on several
// hosts or on GPUs without P2P access, use NCCL (cuda/nccl), which is loaded
// only then. Options.Transport forces one or the other, and a *TransportError says which
// group cannot be served and why. One program may use both. Ranks are divided into domains
// that share memory, each as large as mutual P2P access permits, so that groups created later
// find them.
//
// NCCL's collectives give other bits than ours where sums of more than two ranks round, but the
// same on all ranks of a group, and its min and max of floats give the number where one of two is
// NaN, of which ours give NaN. All NCCL groups of a rank take turns, in program
// order: kernels of several communicators that wait for peers at the same time could
// deadlock. Pipeline stages have different orders, so a group between stages has a
// communicator of its own, with few blocks, and takes turns with no other. NCCL work of a step is
// warmed up before it first runs, on separate memory, and by group between stages,
// because NCCL connects ranks at first use. Counters (signal,
// wait_signal) need memory that all ranks can access.
//
// Ranks that share no memory exchange records through a store that lives as long as
// the world, in one process or hosted by rank 0, and through a connection to rank 0 that ends
// with its process. NCCL has no timeouts: a rank whose wait takes longer than
// Spec.Timeout asks the others what they have enqueued, names the ranks that are behind and
// what they lack, and aborts the communicators on all ranks.
//
// # Loops and branches
//
// A captured step executes its loops and branches by itself: they are
// conditional nodes (conditional.go). Where one is not possible on some rank, the host decides on
// all ranks, in replays that enqueue the step anew.
//
// The kernels of a captured step read dynamic sizes from memory (sizes.go, dynamic.go). Where an
// operation has no such kernel, the host reads them in replays, on all ranks.
//
// # Failure
//
// Waits poll, so that a rank hears of timeouts, lost peers and aborts while it
// waits, and reports them as the runtime's typed errors. A broken world stays broken:
// the survivors join another.
//
// On the fake driver of package cuda, launches run the host's kernels in stream
// order, and NCCL is a test double (nccl.Host); everything else is the same.
package device

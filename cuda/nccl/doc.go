// Package nccl is the transport of groups that symmetric memory cannot serve:
// groups that span hosts, or whose GPUs have no P2P access.
// Package topo says which groups those are, and why.
//
// NCCL is loaded at run time (Open); a build needs nothing of it. Library is
// the table of the functions that this package uses. NewHost gives the same table over a
// driver on host memory, in stream order and for ranks that are processes, so
// that everything above it can be tested without a GPU.
//
// A Comm is one rank's membership of one group. The ranks of a group join through the control
// plane (runtime/rendezvous), where rank 0 publishes NCCL's unique id. All ranks of a group run the
// same operations in the same order. An Op may have many tensors; they are one NCCL group call, which the
// library launches together.
//
// # Results
//
// Reductions run in NCCL's order, which depends on the group, the size and the
// library's version. Results agree on all ranks of one call, but are not the
// bits of the kernels of package kernels. The average is NCCL's: the
// operands are scaled before they are added.
//
// # Failures
//
// Communicators are non-blocking: no NCCL call blocks for a peer inside
// this package, so joining, running, waiting and leaving all end at
// their deadline or with their context. A failure breaks the whole group
// permanently: the rank that sees it first tells all others; each aborts its communicator, which ends the kernels
// that are waiting for a peer, and every later call returns the same error. To
// continue, the surviving ranks join anew.
//
// # Registration
//
// Memory that is registered with a communicator (Register) is what network adapters send from and receive
// into, where they can; else NCCL copies through its own buffers. Ranks agree when they join whether they
// register at all, and Registers says why not. The library's own registration of captured memory is turned off
// (Open): it outlives the memory.
//
// # Graph capture
//
// Run may be captured into a CUDA graph. NCCL connects ranks on first use, which cannot be
// captured, so each kind of operation must have run once before,
// outside capture; package cuda/device ensures that for programs. Graphs of a broken group
// must not be replayed. The library frees a communicator only after the graphs that hold its
// work: an abort ends kernels at once and continues in the background until then, and Close
// waits for it.
package nccl

// Package nccl is the transport of groups that symmetric memory cannot serve:
// groups that span hosts, or whose GPUs have no access to each other's memory.
// Package topo says which groups those are, and why.
//
// NCCL is loaded at run time (Open); nothing of it is needed to build. Library is
// the table of the functions that this package uses. NewHost gives the same table over a
// driver whose memory is the host's, in stream order and for ranks that are processes, so
// that everything above it can be tested without a GPU.
//
// A Comm is one rank's membership of one group. The ranks of a group join by the control
// plane (runtime/rendezvous): rank 0 brings NCCL's unique id. All ranks of a group run the same operations in the same
// order. An Op may have many tensors; they travel in one NCCL group, which the
// library launches together.
//
// # Results
//
// Reductions run in NCCL's order, which depends on the group, the size and the
// library's version: results agree on all ranks of one call, but they are not the
// bits that the kernels of package kernels give. The average is that of NCCL: the
// operands are scaled before they are added.
//
// # Failures
//
// Communicators are non-blocking: no call of the library waits for a peer while
// this package is in it, so joining, running, waiting and leaving all end at
// their deadline or with their context. A failure breaks the whole group, and
// stays: the rank that sees it first tells all others; each aborts its communicator, which ends the kernels
// that are waiting for a peer, and every later call returns the same error. To go
// on, the surviving ranks join anew.
//
// # Graph capture
//
// Run may be captured into a CUDA graph. NCCL connects ranks on first use, which a
// capture cannot hold, so each kind of operation must have run once before,
// outside capture; package cuda/device sees to that for programs. A broken group's graphs
// must not be replayed. The library frees a communicator after the graphs that hold its
// work: an abort ends kernels at once and goes on in the background until then, and Close
// waits for it.
package nccl

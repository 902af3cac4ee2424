// Accesses through a multicast address, one instruction for the memory of all ranks: a
// store reaches every rank's copy, a load gives the sum of all copies, made by the
// switches of NVLink on the way (PTX: multimem, sm_90).
//
// NEVER RUN. Nothing that includes this file has run on a GPU: it is compiled to PTX, and
// its Go forms run on the fake driver. WorldOptions.Multicast, which is off, is the only
// way here.
//
// a.scratch is the multicast address of the group's symmetric memory, for what is
// a.peer[0] in our own. These kernels need no scratch.
//
// Memory model. A multicast address is an alias of the memory that the peers' addresses
// name, and accesses through aliases are ordered by fence.proxy.alias only:
//
//   begin: behind enter(), which acquired what the peers' earlier kernels wrote by plain
//          addresses, every thread fences before its first access to all.
//   end:   before leave(), whose release announces them, every thread fences its
//          accesses to all. Kernels that follow read by plain addresses; they start
//          after this one has ended.
//
// Accesses are relaxed at system scope. Within a kernel no byte is accessed both ways:
// whole and aligned units go through multicast, the rest by plain addresses.
#pragma once
#include "direct.h"

// toAll turns an address of ours into the one that means all ranks.
DEV u64 toAll(const Args &a, u64 addr) { return addr - a.peer[0] + a.scratch; }

DEV void fenceAlias() { asm volatile("fence.proxy.alias;" ::: "memory"); }

// stAll stores sixteen bytes in every rank's memory. The type of the elements is that of
// the instruction's form; nothing is computed with them.
DEV void stAll(u64 at, V4 v) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(at), "f"(asF(v.x)), "f"(asF(v.y)),
               "f"(asF(v.z)), "f"(asF(v.w))
               : "memory");
}

// Bulk copies between shared and global memory (sm_90). One thread issues them;
// loads complete on an mbarrier, stores in groups of the issuing thread.
//
// Bulk stores go through the async proxy: before a flag may announce them, the
// issuing thread waits for their completion (not only for the reads of shared
// memory) and fences across the proxies.
#pragma once
#include "direct.h"

DEV u32 sharedAddr(const void *p) { return (u32)(u64)(__attribute__((address_space(3))) const void *)p; }
DEV void mbarInit(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
DEV void mbarExpect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEV bool mbarTest(u32 bar, u32 parity) {
  u32 ok;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(ok)
               : "r"(bar), "r"(parity)
               : "memory");
  return ok != 0;
}
DEV void bulkLoad(u32 shared, u64 from, u32 bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(from), "r"(bytes), "r"(bar)
               : "memory");
}
DEV void bulkStore(u64 to, u32 shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared), "r"(bytes) : "memory");
}
DEV void bulkCommit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int LEFT> DEV void bulkWaitRead() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory"); }
DEV void bulkWaitAll() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
DEV void fenceProxy() { asm volatile("fence.proxy.async;" ::: "memory"); }

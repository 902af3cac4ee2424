// Hopper's tensor cores and the copies that feed them (sm_90a): tiles come into shared
// memory by tensor maps and complete on an mbarrier, wgmma multiplies them there, and tiles
// of results leave by tensor maps.
#pragma once
#include "bulk.h"

// TensorMap is the driver's CUtensorMap.
struct __attribute__((aligned(64))) TensorMap {
  u64 word[16];
};
// PARAM gives the address of a kernel's i-th parameter where it lies: a copy unit reads a
// tensor map from there. (Taken by &, a parameter is copied to local memory first.)
#define PARAM(KERNEL, I) \
  ({ \
    u64 at; \
    asm("{.reg .b64 p; mov.b64 p, " #KERNEL "_param_" #I "; cvta.param.u64 %0, p;}" : "=l"(at)); \
    (const TensorMap *)at; \
  })

// Named barriers of a block; 0 is the whole block's.
DEV void syncNamed(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

template <int N> DEV void registersLess() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEV void registersMore() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

DEV void syncWarp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
DEV u32 clusterRank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
DEV void syncCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// mbarArriveAt counts one arrival at the same barrier of block rank of the cluster, if that is so. It is
// no branch: ptxas lets no wgmma run on behind one that it does not follow.
DEV void mbarArriveAt(u32 bar, u32 rank, u32 so) {
  asm volatile("{.reg .b32 a; .reg .pred p; setp.ne.b32 p, %2, 0; @p mapa.shared::cluster.u32 a, %0, %1; @p mbarrier.arrive.shared::cluster.b64 _, [a];}" ::"r"(bar),
               "r"(rank), "r"(so)
               : "memory");
}
// sharedAt is the address of block rank's shared memory, as this block has it at shared.
DEV u32 sharedAt(u32 shared, u32 rank) {
  u32 a;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(shared), "r"(rank));
  return a;
}
DEV void ldCluster4(u32 a, float *f) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3]) : "r"(a) : "memory");
}
DEV void stShared4(u32 a, const float *f) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(a), "f"(f[0]), "f"(f[1]), "f"(f[2]), "f"(f[3]) : "memory");
}
// waitEarlier waits for what comes before a kernel that was launched early. letNext lets the next
// such kernel begin when all blocks have said so. All blocks wait before they say so: the next kernel waits for
// the end of this one alone, and would else overtake what comes before it.
DEV void waitEarlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void letNext() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEV void mbarArrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
DEV void mbarWait(u32 bar, u32 parity) {
  while (!mbarTest(bar, parity))
    ;
}

// tileLoad brings the box of map at (x, y, z), x innermost, into shared memory; with CAST, into that
// of each block of the cluster that blocks has a bit for, at the same address and barrier.
template <bool CAST> DEV void tileLoad(u32 shared, const TensorMap *map, u32 bar, u32 x, u32 y, u32 z, u32 blocks) {
  if constexpr (!CAST)
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                     shared),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z)
                 : "memory");
  else
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, "
                 "%5}], [%2], %6;" ::"r"(shared),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "h"((u16)blocks)
                 : "memory");
}
DEV void tileStore(const TensorMap *map, u32 shared, u32 x, u32 y, u32 z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(shared), "r"(x),
               "r"(y), "r"(z)
               : "memory");
}
DEV void tilePrefetch(const TensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// A matrix descriptor of wgmma for tiles of 128-byte rows in the swizzle of that width:
// address and strides in units of 16 bytes. stride goes from 8 rows to the next 8; lead, for
// operands whose rows run along M or N, from 64 of them to the next 64.
DEV u64 wgmmaDesc(u32 shared, u32 lead, u32 stride) {
  return (u64)((shared & 0x3ffff) >> 4) | (u64)(lead >> 4) << 16 | (u64)(stride >> 4) << 32 | 1ull << 62;
}
DEV void fenceProxyShared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEV void wgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> DEV void wgmmaWait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

DEV void stmatrix4(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
DEV void stmatrix2(u32 shared, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%0], {%1, %2};" ::"r"(shared), "r"(a), "r"(b) : "memory");
}

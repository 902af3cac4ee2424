// all_gather of tensors whose destinations lie in symmetric memory, through multicast
// (multicast.h): every rank stores its shard once and the switches bring it to all, its
// owner included. Wire, for S bytes of result: S/n out of and S into every rank, where the
// direct kernel moves (n-1)/n S either way.
//
// Units that are cut off or not aligned go to one rank after the other.
#include "multicast.h"

template <class A> DEV void allGather(const A &p) {
  constexpr int U = 4;
  const Args &a = p.a;
  u32 e;
  if (!enter(a, e))
    return;
  fenceAlias();
  u32 tile = nthreads() * U;
  for (u32 base = bid() * tile; base < a.units; base += nblocks() * tile) {
    Piece<16> u;
    if (base + tile <= a.units && whole(p, base, tile, u)) {
      V4 v[U];
      u64 src = u.s->src + u.off + tid() * 16;
      u64 dst = toAll(a, u.s->dst + a.rank * u.s->bytes) + u.off + tid() * 16;
#pragma unroll
      for (int j = 0; j < U; j++)
        v[j] = ld4(src + j * nthreads() * 16);
#pragma unroll
      for (int j = 0; j < U; j++)
        stAll(dst + j * nthreads() * 16, v[j]);
      continue;
    }
#pragma unroll 1
    for (u32 i = base + tid(); i < base + tile && i < a.units; i += nthreads()) {
      u = find<16>(p, i);
      V4 v = load4(u, u.s->src);
      u64 dst = u.s->dst + a.rank * u.s->bytes;
      if (u.all) {
        stAll(toAll(a, dst) + u.off, v);
        continue;
      }
#pragma unroll 1
      for (u32 k = 0; k < a.n; k++)
        store4(u, toPeer(a, k, dst), v);
    }
  }
  fenceAlias();
  leave(a, e);
}

GLOBAL void BOUNDS(512, 1) all_gather_multicast(const Args1 p) { allGather(p); }
GLOBAL void BOUNDS(512, 1) all_gather_multicast_segs(const ArgsN p) { allGather(p); }

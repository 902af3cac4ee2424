// all_gather of large tensors whose destinations lie in symmetric memory: every
// rank writes its shard to all ranks (direct.h). Wire: (n-1)/n S out of and into
// every rank. Several loads are in flight before the first store.
#include "direct.h"

template <int N, class A> DEV void allGather(const A &p) {
  constexpr int U = 4;
  const Args &a = p.a;
  const u32 n = N ? N : a.n;
  u32 e;
  if (!enter(a, e))
    return;
  u32 tile = nthreads() * U;
  for (u32 base = bid() * tile; base < a.units; base += nblocks() * tile) {
    Piece<16> u;
    if (base + tile <= a.units && whole(p, base, tile, u)) {
      V4 v[U];
      u64 src = u.s->src + u.off + tid() * 16;
      u64 dst = u.s->dst + a.rank * u.s->bytes - a.peer[0] + u.off + tid() * 16;
#pragma unroll
      for (int j = 0; j < U; j++)
        v[j] = ld4(src + j * nthreads() * 16);
      if (N) {
#pragma unroll
        for (int k = 0; k < N; k++) {
#pragma unroll
          for (int j = 0; j < U; j++)
            st4(a.peer[k] + dst + j * nthreads() * 16, v[j]);
        }
      } else {
        for (u32 k = 0; k < n; k++) {
#pragma unroll
          for (int j = 0; j < U; j++)
            st4(a.peer[k] + dst + j * nthreads() * 16, v[j]);
        }
      }
      continue;
    }
#pragma unroll 1
    for (u32 i = base + tid(); i < base + tile && i < a.units; i += nthreads()) {
      u = find<16>(p, i);
      V4 v = load4(u, u.s->src);
#pragma unroll 1
      for (u32 k = 0; k < n; k++)
        store4(u, toPeer(a, k, u.s->dst + a.rank * u.s->bytes), v);
    }
  }
  leave(a, e);
}

#define KERNEL(N, suffix)                                                                         \
  GLOBAL void BOUNDS(512, 1) all_gather_direct##suffix(const Args1 p) { allGather<N>(p); }        \
  GLOBAL void BOUNDS(512, 1) all_gather_direct##suffix##_segs(const ArgsN p) { allGather<N>(p); }
KERNEL(0, )
KERNEL(2, _n2)
KERNEL(4, _n4)
KERNEL(8, _n8)

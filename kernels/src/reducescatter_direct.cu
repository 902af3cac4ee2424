// reduce_scatter of large tensors whose sources lie in symmetric memory: every
// rank reads its slice from all ranks and adds in rank order (direct.h). Wire:
// (n-1)/n S in and out of every rank.
#include "direct.h"

template <int T, int N, int U, class A> DEV void reduceScatter(const A &p) {
  const Args &a = p.a;
  u32 e;
  if (!enter(a, e))
    return;
  u32 tile = nthreads() * U;
  for (u32 base = bid() * tile; base < a.units; base += nblocks() * tile) {
    Piece<16> u;
    if (base + tile <= a.units && whole(p, base, tile, u)) {
      V4 v[U][N];
      u64 src = u.s->src + a.rank * u.s->bytes - a.peer[0] + u.off + tid() * 16;
      u64 dst = u.s->dst + u.off + tid() * 16;
#pragma unroll
      for (int j = 0; j < U; j++) {
#pragma unroll
        for (int k = 0; k < N; k++)
          v[j][k] = ld4sys(a.peer[k] + src + j * nthreads() * 16);
      }
#pragma unroll
      for (int j = 0; j < U; j++)
        st4(dst + j * nthreads() * 16, sumRotated<T, N>(a, v[j]));
      continue;
    }
#pragma unroll 1
    for (u32 i = base + tid(); i < base + tile && i < a.units; i += nthreads()) {
      u = find<16>(p, i);
      store4(u, u.s->dst, anySum<T>(a, u, u.s->src + a.rank * u.s->bytes));
    }
  }
  leave(a, e);
}

template <class A> DEV void reduceScatterAny(const A &p) {
  const Args &a = p.a;
  u32 e;
  if (!enter(a, e))
    return;
  for (u32 i = bid() * nthreads() + tid(); i < a.units; i += nblocks() * nthreads()) {
    Piece<16> u = find<16>(p, i);
    store4(u, u.s->dst, anySum<0>(a, u, u.s->src + a.rank * u.s->bytes));
  }
  leave(a, e);
}

#define KERNEL(T, name, N, U)                                                                                         \
  GLOBAL void BOUNDS(512, 1) reduce_scatter_direct_##name##_n##N(const Args1 p) { reduceScatter<T, N, U>(p); }        \
  GLOBAL void BOUNDS(512, 1) reduce_scatter_direct_##name##_n##N##_segs(const ArgsN p) { reduceScatter<T, N, U>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2, 4) KERNEL(T, name, 4, 4) KERNEL(T, name, 8, 2)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)
GLOBAL void BOUNDS(512, 1) reduce_scatter_direct(const Args1 p) { reduceScatterAny(p); }
GLOBAL void BOUNDS(512, 1) reduce_scatter_direct_segs(const ArgsN p) { reduceScatterAny(p); }

// all_reduce of large tensors in symmetric memory, in place or not: every rank
// reads its slice of the units from all ranks, adds in rank order, and writes the
// sum to all ranks (direct.h). Wire: 2 (n-1)/n S in and out of every rank, reads
// and writes mixed so that both directions of the links stay busy.
//
// In place is safe: unit u of every rank is read and written by one thread only.
#include "direct.h"

template <int T, int N, int U, class A> DEV void allReduce(const A &p) {
  const Args &a = p.a;
  u32 e;
  if (!enter(a, e))
    return;
  u32 lo = a.rank * a.per, hi = lo + a.per < a.units ? lo + a.per : a.units, tile = nthreads() * U;
  for (u32 base = lo + bid() * tile; base < hi; base += nblocks() * tile) {
    Piece<16> u;
    if (base + tile <= hi && whole(p, base, tile, u)) {
      V4 v[U][N];
      u64 src = u.s->src - a.peer[0] + u.off + tid() * 16, dst = u.s->dst - a.peer[0] + u.off + tid() * 16;
#pragma unroll
      for (int j = 0; j < U; j++) {
#pragma unroll
        for (int k = 0; k < N; k++)
          v[j][k] = ld4sys(a.peer[k] + src + j * nthreads() * 16);
      }
#pragma unroll
      for (int j = 0; j < U; j++) {
        V4 s = sumRotated<T, N>(a, v[j]);
#pragma unroll
        for (int k = 0; k < N; k++)
          st4(a.peer[k] + dst + j * nthreads() * 16, s);
      }
      continue;
    }
#pragma unroll 1
    for (u32 i = base + tid(); i < base + tile && i < hi; i += nthreads()) {
      u = find<16>(p, i);
      V4 s = anySum<T>(a, u, u.s->src);
#pragma unroll 1
      for (u32 k = 0; k < N; k++)
        store4(u, toPeer(a, k, u.s->dst), s);
    }
  }
  leave(a, e);
}

template <class A> DEV void allReduceAny(const A &p) {
  const Args &a = p.a;
  u32 e;
  if (!enter(a, e))
    return;
  u32 lo = a.rank * a.per, hi = lo + a.per < a.units ? lo + a.per : a.units;
  for (u32 i = lo + bid() * nthreads() + tid(); i < hi; i += nblocks() * nthreads()) {
    Piece<16> u = find<16>(p, i);
    V4 s = anySum<0>(a, u, u.s->src);
    for (u32 k = 0; k < a.n; k++)
      store4(u, toPeer(a, k, u.s->dst), s);
  }
  leave(a, e);
}

#define KERNEL(T, name, N, U)                                                                                  \
  GLOBAL void BOUNDS(512, 1) all_reduce_direct_##name##_n##N(const Args1 p) { allReduce<T, N, U>(p); }         \
  GLOBAL void BOUNDS(512, 1) all_reduce_direct_##name##_n##N##_segs(const ArgsN p) { allReduce<T, N, U>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2, 4) KERNEL(T, name, 4, 2) KERNEL(T, name, 8, 1)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)
GLOBAL void BOUNDS(512, 1) all_reduce_direct(const Args1 p) { allReduceAny(p); }
GLOBAL void BOUNDS(512, 1) all_reduce_direct_segs(const ArgsN p) { allReduceAny(p); }

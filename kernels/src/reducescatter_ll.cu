// Low-latency reduce_scatter in one hop. Slice d of every source goes to rank d,
// which adds what arrives in rank order. Sum and average of f32, bf16 and f16 on
// 2, 4 and 8 ranks use packets that are their own flags (poison.h); the general
// form uses flagged packets (flagged.h). A unit is 16 or 8 bytes of one slice.
#include "flagged.h"
#include "poison.h"

template <int T, int N, class A> DEV void reduceScatter(const A &p) {
  const Args &a = p.a;
  u32 e = readEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  u64 half = 0;
  for (u32 i = first; i < a.units; i += stride) {
    Piece<16> u = find<16>(p, i);
    V4 v[N];
#pragma unroll
    for (int k = 1; k < N; k++) {
      u32 d = a.rank + k;
      v[k] = load4(u, u.s->src + (d >= N ? d - N : d) * u.s->bytes);
    }
    if (gone)
      return;
    half = a.scratch + ((e & 1) ? a.half : 0);
    u64 at = half + a.rank * a.slot + (u64)i * 16;
#pragma unroll
    for (int k = 1; k < N; k++)
      st4sys(a.peer[k] + at, cure4(v[k]));
  }
  for (u32 i = first; i < a.units; i += stride) {
    Piece<16> u = find<16>(p, i);
    V4 mine = load4(u, u.s->src + a.rank * u.s->bytes), v[N];
#pragma unroll
    for (int r = 0; r < N; r++)
      v[r] = mine;
    u64 at = a.peer[0] + half + (u64)i * 16;
    if (!receive<N>(a, at, v))
      return;
    store4(u, u.s->dst, sumAll<T, N>(v, a.op));
    poisonAgain<N>(a, at);
  }
  writeEpoch(a, CTL_EPOCH, e);
}

template <class A> DEV void reduceScatterAny(const A &p) {
  const Args &a = p.a;
  u32 e = readEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (gone)
    return;
  u64 half = a.scratch + ((e & 1) ? a.half : 0);
  for (u32 i = first; i < a.units; i += stride) {
    Piece<8> u = find<8>(p, i);
    u64 at = half + a.rank * a.slot + (u64)i * 16;
    for (u32 k = 1; k < a.n; k++) {
      u32 d = a.rank + k;
      u64 v = load8(u, u.s->src + (d >= a.n ? d - a.n : d) * u.s->bytes);
      st2x8sys(a.peer[k] + at, flagged(v, e));
    }
  }
  for (u32 i = first; i < a.units; i += stride) {
    Piece<8> u = find<8>(p, i);
    u64 mine = load8(u, u.s->src + a.rank * u.s->bytes);
    u64 at = a.peer[0] + half + (u64)i * 16;
    Any s;
    for (u32 r = 0; r < a.n; r++) {
      u64 d = mine;
      if (r != a.rank && !receiveOne(a, at + r * a.slot, e, r, d))
        return;
      if (r == 0)
        anySet(s, a.dtype, d);
      else
        anyFold(s, a.dtype, a.op, d);
    }
    store8(u, u.s->dst, anyGet(s, a.dtype, a.op, a.n));
  }
  writeEpoch(a, CTL_EPOCH, e);
}

#define KERNEL(T, name, N)                                                                                       \
  GLOBAL void BOUNDS(512, 1) reduce_scatter_oneshot_##name##_n##N(const Args1 p) { reduceScatter<T, N>(p); }     \
  GLOBAL void BOUNDS(512, 1) reduce_scatter_oneshot_##name##_n##N##_segs(const ArgsN p) { reduceScatter<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)
GLOBAL void BOUNDS(512, 1) reduce_scatter_ll(const Args1 p) { reduceScatterAny(p); }
GLOBAL void BOUNDS(512, 1) reduce_scatter_ll_segs(const ArgsN p) { reduceScatterAny(p); }

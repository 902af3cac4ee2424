// Low-latency reduce_scatter in one hop. Slice d of every source goes to rank d,
// which adds what arrives in rank order. Sum and average of f32, bf16 and f16 on
// 2, 4 and 8 ranks use packets that are their own flags (poison.h); the general
// form uses flagged packets (flagged.h). A unit is 16 or 8 bytes of one slice.
#include "flagged.h"
#include "poison.h"

// loadSlices loads unit i of every peer's slice, where it is whole and aligned: v[k]
// goes to group rank rank+k.
template <int N, class A> DEV void loadSlices(const A &p, u32 i, V4 (&v)[N]) {
  Piece<16> u = find<16>(p, i);
  if (!__builtin_expect(u.all, 1))
    return;
#pragma unroll
  for (int k = 1; k < N; k++) {
    v[k] = ld4(u.s->src + u.off + nth<N>(p.a, k) * u.s->bytes);
  }
}

// sendAny sends unit u of any alignment.
DEV void sendAny(const Args &a, const Piece<16> &u, u64 at) {
#pragma unroll 1
  for (u32 k = 1; k < a.n; k++) {
    u32 d = a.rank + k;
    st4sys(a.peer[k] + at, cure4(load4(u, u.s->src + (d >= a.n ? d - a.n : d) * u.s->bytes)));
  }
}

template <int T, int N, class A> DEV void reduceScatter(const A &p) {
  const Args &a = p.a;
  u32 done = lastEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (first < a.units) {
    u32 i = first;
    V4 v[N];
    loadSlices<N>(p, i, v); // in flight together with the epoch
    u32 e = nextEpoch(opaque(done));
    if (gone)
      quit();
    u64 half = a.scratch + ((e & 1) ? a.half : 0);
    for (;;) {
      u64 at = half + a.rank * a.slot + (u64)i * 16;
      Piece<16> u = find<16>(p, i);
      if (__builtin_expect(u.all, 1)) {
#pragma unroll
        for (int k = 1; k < N; k++)
          st4sys(a.peer[k] + at, cure4(v[k]));
      } else {
        sendAny(a, u, at);
      }
      i += stride;
      if (i >= a.units)
        break;
      loadSlices<N>(p, i, v);
    }
    i = first;
    do {
      Piece<16> u = find<16>(p, i);
      V4 mine = load4(u, u.s->src + a.rank * u.s->bytes), all[N];
      u64 at = a.peer[0] + half + (u64)i * 16;
      receive<N>(a, at, mine, all);
      store4(u, u.s->dst, sumAll<T, N>(all, a.op));
      poisonAgain<N>(a, at);
      i += stride;
    } while (i < a.units);
  }
  writeEpoch(a, CTL_EPOCH, nextEpoch(done));
}

template <class A> DEV void reduceScatterAny(const A &p) {
  const Args &a = p.a;
  u32 e = readEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (gone)
    quit();
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
      u64 d = r == a.rank ? mine : receiveOne(a, at + r * a.slot, e, r);
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

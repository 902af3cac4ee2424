// Low-latency all_reduce in two hops, for the middle sizes: sum and average of
// f32, bf16 and f16 on 2, 4 and 8 ranks.
//
// The units are cut into n slices of a.per. Every rank pushes slice d of its
// operand to rank d (first region of the scratch), adds what it received for its
// own slice in rank order, and pushes the rounded sum to every peer (second
// region). Wire: 2 (n-1)/n S out of every rank, two hops. The packets are those
// of poison.h, so neither hop needs a barrier.
//
// The caller makes every slice non-empty, so that a call receives from every peer.
#include "poison.h"

template <int T, int N, class A> DEV void twoshot(const A &p) {
  const Args &a = p.a;
  u32 e = readEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  u64 half = a.scratch + ((e & 1) ? a.half : 0);
  for (u32 i = first; i < a.per; i += stride) {
    V4 v[N];
#pragma unroll
    for (int k = 1; k < N; k++) { // slice of rank+k, so that ranks spread over the links
      u32 d = a.rank + k;
      u32 unit = (d >= N ? d - N : d) * a.per + i;
      if (unit < a.units) {
        Piece<16> u = find<16>(p, unit);
        v[k] = load4(u, u.s->src);
      }
    }
    if (gone)
      return;
    u64 at = half + a.rank * a.slot + (u64)i * 16;
#pragma unroll
    for (int k = 1; k < N; k++) {
      u32 d = a.rank + k;
      u32 unit = (d >= N ? d - N : d) * a.per + i;
      if (unit < a.units)
        st4sys(a.peer[k] + at, cure4(v[k]));
    }
  }
  for (u32 i = first; i < a.per; i += stride) {
    u32 unit = a.rank * a.per + i;
    if (unit >= a.units)
      break;
    Piece<16> u = find<16>(p, unit);
    V4 v[N];
    V4 mine = load4(u, u.s->src);
#pragma unroll
    for (int r = 0; r < N; r++)
      v[r] = mine;
    u64 in = a.peer[0] + half + (u64)i * 16;
    if (!receive<N>(a, in, v))
      return;
    V4 s = cure4(sumAll<T, N>(v, a.op));
    u64 at = half + a.region + a.rank * a.slot + (u64)i * 16;
#pragma unroll
    for (int k = 1; k < N; k++)
      st4sys(a.peer[k] + at, s);
    store4(u, u.s->dst, s);
    poisonAgain<N>(a, in);
  }
  for (u32 i = first; i < a.per; i += stride) {
    u64 in = a.peer[0] + half + a.region + (u64)i * 16;
    Wait w = {0, 0};
    u32 left = 0; // bit r: slice r has this unit and it has not arrived
#pragma unroll
    for (int r = 0; r < N; r++)
      if (r != (int)a.rank && r * a.per + i < a.units)
        left |= 1u << r;
    while (left) {
      V4 v[N];
#pragma unroll
      for (int r = 0; r < N; r++)
        if (left >> r & 1)
          v[r] = ld4sys(in + r * a.slot);
#pragma unroll
      for (int r = 0; r < N; r++)
        if ((left >> r & 1) && arrived(v[r])) {
          Piece<16> u = find<16>(p, r * a.per + i);
          store4(u, u.s->dst, v[r]);
          st4(in + r * a.slot, V4{POISON, POISON, POISON, POISON});
          left &= ~(1u << r);
        }
      if (left && stuck(a, w, __builtin_ctz(left), 0, 0))
        return;
    }
  }
  writeEpoch(a, CTL_EPOCH, e);
}

#define KERNEL(T, name, N)                                                                                  \
  GLOBAL void BOUNDS(512, 1) all_reduce_twoshot_##name##_n##N(const Args1 p) { twoshot<T, N>(p); }          \
  GLOBAL void BOUNDS(512, 1) all_reduce_twoshot_##name##_n##N##_segs(const ArgsN p) { twoshot<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

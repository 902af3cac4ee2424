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

// loadSlices loads unit i of every peer's slice, v[k] of group rank rank+k, so that
// ranks spread over the links. False where one of them is not whole and aligned, and
// then nothing is loaded. A slice may be too short to have the unit.
template <int N, class A> DEV bool loadSlices(const A &p, u32 i, V4 (&v)[N]) {
  const Args &a = p.a;
  bool all = true;
#pragma unroll
  for (int k = 1; k < N; k++) {
    u32 unit = nth<N>(a, k) * a.per + i;
    all = all && (unit >= a.units || find<16>(p, unit).all);
  }
  if (!__builtin_expect(all, 1))
    return false;
#pragma unroll
  for (int k = 1; k < N; k++) {
    u32 unit = nth<N>(a, k) * a.per + i;
    if (unit < a.units) {
      Piece<16> u = find<16>(p, unit);
      v[k] = ld4(u.s->src + u.off);
    }
  }
  return true;
}

// sendAny sends unit i of every peer's slice, however it is aligned.
template <class A> DEV void sendAny(const A &p, u32 i, u64 at) {
  const Args &a = p.a;
#pragma unroll 1
  for (u32 k = 1; k < a.n; k++) {
    u32 d = a.rank + k;
    u32 unit = (d >= a.n ? d - a.n : d) * a.per + i;
    if (unit < a.units) {
      Piece<16> u = find<16>(p, unit);
      st4sys(a.peer[k] + at, cure4(load4(u, u.s->src)));
    }
  }
}

// settle writes unit i of every peer's slice, which arrives at in + r*slot, into the
// result, and readies the packets for the call after next.
template <int N, class A> DEV void settle(const A &p, u32 i, u64 in) {
  const Args &a = p.a;
  V4 v[N];
  Wait w = {0, 0};
  for (;;) {
#pragma unroll
    for (int k = 1; k < N; k++)
      if (nth<N>(a, k) * a.per + i < a.units)
        v[k] = ld4sys(in + nth<N>(a, k) * a.slot);
    bool all = true;
#pragma unroll
    for (int k = 1; k < N; k++)
      all = all && (nth<N>(a, k) * a.per + i >= a.units || arrived(v[k]));
    if (all)
      break;
    if (patient(w))
      continue;
    u32 missing = 0;
#pragma unroll
    for (int k = 1; k < N; k++)
      missing = nth<N>(a, k) * a.per + i >= a.units || arrived(v[k]) ? missing : k;
    look<true>(a, w, nth<N>(a, missing), 0, 0);
  }
  bool all = true;
#pragma unroll
  for (int k = 1; k < N; k++) {
    u32 unit = nth<N>(a, k) * a.per + i;
    all = all && (unit >= a.units || find<16>(p, unit).all);
  }
  if (__builtin_expect(all, 1)) {
#pragma unroll
    for (int k = 1; k < N; k++) {
      u32 unit = nth<N>(a, k) * a.per + i;
      if (unit < a.units) {
        Piece<16> u = find<16>(p, unit);
        st4(u.s->dst + u.off, v[k]);
        st4(in + nth<N>(a, k) * a.slot, V4{POISON, POISON, POISON, POISON});
      }
    }
    return;
  }
#pragma unroll 1
  for (u32 r = 0; r < N; r++) { // the packets are still there: no register is indexed
    u32 unit = r * a.per + i;
    if (r == a.rank || unit >= a.units)
      continue;
    Piece<16> u = find<16>(p, unit);
    store4(u, u.s->dst, ld4sys(in + r * a.slot));
    st4(in + r * a.slot, V4{POISON, POISON, POISON, POISON});
  }
}

template <int T, int N, class A> DEV void twoshot(const A &p) {
  const Args &a = p.a;
  u32 done = lastEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (first < a.per) {
    u32 i = first;
    V4 v[N];
    bool quick = loadSlices<N>(p, i, v); // in flight together with the epoch
    u32 e = nextEpoch(opaque(done));
    if (gone)
      quit();
    u64 half = a.scratch + ((e & 1) ? a.half : 0);
    for (;;) {
      u64 at = half + a.rank * a.slot + (u64)i * 16;
      if (__builtin_expect(quick, 1)) {
#pragma unroll
        for (int k = 1; k < N; k++)
          if (nth<N>(a, k) * a.per + i < a.units)
            st4sys(a.peer[k] + at, cure4(v[k]));
      } else {
        sendAny(p, i, at);
      }
      i += stride;
      if (i >= a.per)
        break;
      quick = loadSlices<N>(p, i, v);
    }
    for (i = first; i < a.per; i += stride) {
      u32 unit = a.rank * a.per + i;
      if (unit >= a.units)
        break;
      Piece<16> u = find<16>(p, unit);
      V4 mine = load4(u, u.s->src), all[N];
      u64 in = a.peer[0] + half + (u64)i * 16;
      receive<N>(a, in, mine, all);
      V4 s = cure4(sumAll<T, N>(all, a.op));
      u64 at = half + a.region + a.rank * a.slot + (u64)i * 16;
#pragma unroll
      for (int k = 1; k < N; k++)
        st4sys(a.peer[k] + at, s);
      store4(u, u.s->dst, s);
      poisonAgain<N>(a, in);
    }
    i = first;
    do {
      settle<N>(p, i, a.peer[0] + half + a.region + (u64)i * 16);
      i += stride;
    } while (i < a.per);
  }
  writeEpoch(a, CTL_EPOCH, nextEpoch(done));
}

#define KERNEL(T, name, N)                                                                                  \
  GLOBAL void BOUNDS(512, 1) all_reduce_twoshot_##name##_n##N(const Args1 p) { twoshot<T, N>(p); }          \
  GLOBAL void BOUNDS(512, 1) all_reduce_twoshot_##name##_n##N##_segs(const ArgsN p) { twoshot<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

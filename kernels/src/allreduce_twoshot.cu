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
#include "packet.h"
#include "poison.h"

// Slices is one unit of every peer's slice: v[k] of group rank rank+k, so that ranks
// spread over the links. quick is false where one of them is not whole and aligned,
// and then nothing is loaded.
template <int N> struct Slices {
  V4 v[N];
  bool quick;
};

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

template <int T, int N> struct TwoShot : Way {
  typedef Slices<N> Unit;

  // load loads unit i of every peer's slice. A slice may be too short to have it.
  template <class A> DEV Unit load(const A &p, u32 i) {
    const Args &a = p.a;
    Unit s;
    s.quick = true;
#pragma unroll
    for (int k = 1; k < N; k++) {
      u32 unit = nth<N>(a, k) * a.per + i;
      s.quick = s.quick && (unit >= a.units || find<16>(p, unit).all);
    }
    if (__builtin_expect(s.quick, 1)) {
#pragma unroll
      for (int k = 1; k < N; k++) {
        u32 unit = nth<N>(a, k) * a.per + i;
        if (unit < a.units) {
          Piece<16> u = find<16>(p, unit);
          s.v[k] = ld4(u.s->src + u.off);
        }
      }
    }
    return s;
  }

  template <class A> DEV void send(const A &p, u32 i, const Unit &s, u64 at, u32) {
    const Args &a = p.a;
    if (__builtin_expect(s.quick, 1)) {
#pragma unroll
      for (int k = 1; k < N; k++)
        if (nth<N>(a, k) * a.per + i < a.units)
          st4sys(a.peer[k] + at, cure4(s.v[k]));
      return;
    }
#pragma unroll 1
    for (u32 k = 1; k < N; k++) { // however it is aligned
      u32 unit = nth<N>(a, k) * a.per + i;
      if (unit < a.units) {
        Piece<16> u = find<16>(p, unit);
        st4sys(a.peer[k] + at, cure4(load4(u, u.s->src)));
      }
    }
  }

  // forward adds what arrives for the own slice and pushes the sum to every peer.
  template <class A> DEV void forward(const A &p, u32 first, u32 stride, u64 half, u32) {
    const Args &a = p.a;
    for (u32 i = first; i < a.per; i += stride) {
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
  }

  template <class A> DEV void take(const A &p, u32 i, u64 in, u32) { settle<N>(p, i, in + p.a.region); }
};

#define KERNEL(T, name, N)                                                                                  \
  GLOBAL void BOUNDS(512, 1) all_reduce_twoshot_##name##_n##N(const Args1 p) { packets<TwoShot<T, N>>(p, p.a.per); }          \
  GLOBAL void BOUNDS(512, 1) all_reduce_twoshot_##name##_n##N##_segs(const ArgsN p) { packets<TwoShot<T, N>>(p, p.a.per); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

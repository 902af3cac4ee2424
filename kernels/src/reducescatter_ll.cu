// Low-latency reduce_scatter in one hop. Slice d of every source goes to rank d,
// which adds what arrives in rank order. Sum and average of f32, bf16 and f16 on
// 2, 4 and 8 ranks use packets that are their own flags (poison.h); the general
// form uses flagged packets (flagged.h). A unit is 16 or 8 bytes of one slice.
#include "flagged.h"
#include "packet.h"
#include "poison.h"

template <int T, int N> struct Scatter : OneHop {
  struct Unit {
    V4 v[N]; // v[k] goes to group rank rank+k
  };

  // load loads unit i of every peer's slice, where it is whole and aligned.
  template <class A> DEV Unit load(const A &p, u32 i) {
    Unit s;
    Piece<16> u = find<16>(p, i);
    if (__builtin_expect(u.all, 1)) {
#pragma unroll
      for (int k = 1; k < N; k++)
        s.v[k] = ld4(u.s->src + u.off + nth<N>(p.a, k) * u.s->bytes);
    }
    return s;
  }

  template <class A> DEV void send(const A &p, u32 i, const Unit &s, u64 at, u32) {
    const Args &a = p.a;
    Piece<16> u = find<16>(p, i);
    if (__builtin_expect(u.all, 1)) {
#pragma unroll
      for (int k = 1; k < N; k++)
        st4sys(a.peer[k] + at, cure4(s.v[k]));
      return;
    }
#pragma unroll 1
    for (u32 k = 1; k < N; k++)
      st4sys(a.peer[k] + at, cure4(load4(u, u.s->src + nth<N>(a, k) * u.s->bytes)));
  }

  template <class A> DEV void take(const A &p, u32 i, u64 in, u32) {
    Piece<16> u = find<16>(p, i);
    takeSum<T, N>(p.a, u, u.s->src + p.a.rank * u.s->bytes, in);
  }
};

// ScatterAny loads slice by slice, because the size of the group is not known.
struct ScatterAny : Flagged {
  struct Unit {};
  template <class A> DEV Unit load(const A &, u32) { return Unit(); }
  template <class A> DEV void send(const A &p, u32 i, Unit, u64 at, u32 e) {
    const Args &a = p.a;
    Piece<8> u = find<8>(p, i);
    for (u32 k = 1; k < a.n; k++)
      st2x8sys(a.peer[k] + at, flagged(load8(u, u.s->src + peerAt(a, k) * u.s->bytes), e));
  }
  template <class A> DEV void take(const A &p, u32 i, u64 in, u32 e) {
    Piece<8> u = find<8>(p, i);
    takeAny(p.a, u, u.s->src + p.a.rank * u.s->bytes, in, e);
  }
};

#define KERNEL(T, name, N)                                                                                       \
  GLOBAL void BOUNDS(512, 1) reduce_scatter_oneshot_##name##_n##N(const Args1 p) { packets<Scatter<T, N>>(p, p.a.units); }     \
  GLOBAL void BOUNDS(512, 1) reduce_scatter_oneshot_##name##_n##N##_segs(const ArgsN p) { packets<Scatter<T, N>>(p, p.a.units); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)
GLOBAL void BOUNDS(512, 1) reduce_scatter_ll(const Args1 p) { packets<ScatterAny>(p, p.a.units); }
GLOBAL void BOUNDS(512, 1) reduce_scatter_ll_segs(const ArgsN p) { packets<ScatterAny>(p, p.a.units); }

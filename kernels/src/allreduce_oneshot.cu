// Low-latency all_reduce in one hop: sum and average of f32, bf16 and f16 on 2, 4
// and 8 ranks; anything else goes through allreduce_ll.cu.
//
// Every rank pushes its whole operand into a slot of its own in every peer's
// scratch, polls the slots of its own scratch and adds them in rank order. The
// data are their own flags (poison.h). Wire: (n-1) S out of every rank, one hop.
//
// Scratch: two halves by the parity of the epoch, each n slots of a.slot bytes.
// A call receives from every peer because its unit 0 does.
#include "packet.h"
#include "poison.h"

template <int T, int N> struct OneShot : OneHop {
  typedef V4 Unit;
  template <class A> DEV V4 load(const A &p, u32 i) {
    Piece<16> u = find<16>(p, i);
    return load4(u, u.s->src);
  }
  template <class A> DEV void send(const A &p, u32, V4 v, u64 at, u32) {
    V4 c = cure4(v);
#pragma unroll
    for (int k = 1; k < N; k++)
      st4sys(p.a.peer[k] + at, c);
  }
  template <class A> DEV void take(const A &p, u32 i, u64 in, u32) {
    Piece<16> u = find<16>(p, i);
    takeSum<T, N>(p.a, u, u.s->src, in);
  }
};

#define KERNEL(T, name, N)                                                                                  \
  GLOBAL void BOUNDS(512, 1) all_reduce_oneshot_##name##_n##N(const Args1 p) { packets<OneShot<T, N>>(p, p.a.units); }          \
  GLOBAL void BOUNDS(512, 1) all_reduce_oneshot_##name##_n##N##_segs(const ArgsN p) { packets<OneShot<T, N>>(p, p.a.units); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

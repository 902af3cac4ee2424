// Low-latency all_reduce in one hop: sum and average of f32, bf16 and f16 on 2, 4
// and 8 ranks; anything else goes through allreduce_ll.cu.
//
// Every rank pushes its whole operand into a slot of its own in every peer's
// scratch, polls the slots of its own scratch and adds them in rank order. The
// data are their own flags (poison.h). Wire: (n-1) S out of every rank, one hop.
//
// Scratch: two halves by the parity of the epoch, each n slots of a.slot bytes.
// A call receives from every peer because its unit 0 does.
#include "poison.h"

// loadOwn loads unit i of our operand.
template <class A> DEV V4 loadOwn(const A &p, u32 i) {
  Piece<16> u = find<16>(p, i);
  return load4(u, u.s->src);
}

template <int T, int N, class A> DEV void oneshot(const A &p) {
  const Args &a = p.a;
  u32 done = lastEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (first < a.units) {
    u32 i = first;
    V4 v = loadOwn(p, i); // in flight together with the epoch
    u32 e = nextEpoch(opaque(done));
    if (gone)
      quit();
    u64 half = a.scratch + ((e & 1) ? a.half : 0);
    for (;;) {
      u64 at = half + a.rank * a.slot + (u64)i * 16;
      V4 c = cure4(v);
#pragma unroll
      for (int k = 1; k < N; k++)
        st4sys(a.peer[k] + at, c);
      i += stride;
      if (i >= a.units)
        break;
      v = loadOwn(p, i);
    }
    i = first;
    do {
      Piece<16> u = find<16>(p, i);
      V4 mine = load4(u, u.s->src), all[N];
      u64 at = a.peer[0] + half + (u64)i * 16;
      receive<N>(a, at, mine, all);
      store4(u, u.s->dst, sumAll<T, N>(all, a.op));
      poisonAgain<N>(a, at);
      i += stride;
    } while (i < a.units);
  }
  writeEpoch(a, CTL_EPOCH, nextEpoch(done));
}

#define KERNEL(T, name, N)                                                                                  \
  GLOBAL void BOUNDS(512, 1) all_reduce_oneshot_##name##_n##N(const Args1 p) { oneshot<T, N>(p); }          \
  GLOBAL void BOUNDS(512, 1) all_reduce_oneshot_##name##_n##N##_segs(const ArgsN p) { oneshot<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

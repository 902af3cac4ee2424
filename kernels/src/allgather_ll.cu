// Low-latency all_gather in one hop: every rank pushes its shard, as flagged
// packets (flagged.h), to every peer and copies what arrives into place.
#include "flagged.h"

// loadOwn loads unit i of our shard.
template <class A> DEV u64 loadOwn(const A &p, u32 i) {
  Piece<8> u = find<8>(p, i);
  return load8(u, u.s->src);
}

template <int N, class A> DEV void allGather(const A &p) {
  const Args &a = p.a;
  u32 done = lastEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (first < a.units) {
    u32 i = first;
    u64 v = loadOwn(p, i); // in flight together with the epoch
    u32 e = nextEpoch(opaque(done));
    if (gone)
      quit();
    u64 half = a.scratch + ((e & 1) ? a.half : 0);
    for (;;) {
      u64 at = half + a.rank * a.slot + (u64)i * 16;
      V2 pk = flagged(v, e);
      if (N) {
#pragma unroll
        for (int k = 1; k < N; k++)
          st2x8sys(a.peer[k] + at, pk);
      } else {
        for (u32 k = 1; k < a.n; k++)
          st2x8sys(a.peer[k] + at, pk);
      }
      Piece<8> u = find<8>(p, i);
      store8(u, u.s->dst + a.rank * u.s->bytes, v);
      i += stride;
      if (i >= a.units)
        break;
      v = loadOwn(p, i);
    }
    i = first;
    do {
      settle<N>(a, find<8>(p, i), a.peer[0] + half + (u64)i * 16, e);
      i += stride;
    } while (i < a.units);
  }
  writeEpoch(a, CTL_EPOCH, nextEpoch(done));
}

#define KERNEL(N, suffix)                                                                     \
  GLOBAL void BOUNDS(512, 1) all_gather_ll##suffix(const Args1 p) { allGather<N>(p); }        \
  GLOBAL void BOUNDS(512, 1) all_gather_ll##suffix##_segs(const ArgsN p) { allGather<N>(p); }
KERNEL(0, )
KERNEL(2, _n2)
KERNEL(4, _n4)
KERNEL(8, _n8)

// Low-latency all_gather in one hop: every rank pushes its shard, as flagged
// packets (flagged.h), to every peer and copies what arrives into place.
#include "flagged.h"

template <int N, class A> DEV void allGather(const A &p) {
  const Args &a = p.a;
  const u32 n = N ? N : a.n;
  u32 e = readEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  u64 half = 0;
  for (u32 i = first; i < a.units; i += stride) {
    Piece<8> u = find<8>(p, i);
    u64 v = load8(u, u.s->src);
    if (gone)
      return;
    half = a.scratch + ((e & 1) ? a.half : 0);
    u64 at = half + a.rank * a.slot + (u64)i * 16;
    V2 pk = flagged(v, e);
    if (N) {
#pragma unroll
      for (int k = 1; k < N; k++)
        st2x8sys(a.peer[k] + at, pk);
    } else {
      for (u32 k = 1; k < n; k++)
        st2x8sys(a.peer[k] + at, pk);
    }
    store8(u, u.s->dst + a.rank * u.s->bytes, v);
  }
  for (u32 i = first; i < a.units; i += stride) {
    Piece<8> u = find<8>(p, i);
    u64 at = a.peer[0] + half + (u64)i * 16;
    if (N == 0) {
      for (u32 r = 0; r < n; r++) {
        u64 d;
        if (r == a.rank)
          continue;
        if (!receiveOne(a, at + r * a.slot, e, r, d))
          return;
        store8(u, u.s->dst + r * u.s->bytes, d);
      }
      continue;
    }
    V2 v[N ? N : 1];
    if (!receiveAll<N ? N : 1>(a, at, e, v))
      return;
    u64 to = u.s->dst + u.off;
    if (__builtin_expect(u.all, 1)) {
#pragma unroll
      for (int r = 0; r < N; r++)
        if (r != (int)a.rank)
          st8(to + r * u.s->bytes, content(v[r]));
      continue;
    }
#pragma unroll 1
    for (u32 r = 0; r < n; r++) // the packets are still there: no register is indexed
      if (r != a.rank)
        st8any(to + r * u.s->bytes, u.s->bytes - u.off, content(ld2x8sys(at + r * a.slot)));
  }
  writeEpoch(a, CTL_EPOCH, e);
}

#define KERNEL(N, suffix)                                                                     \
  GLOBAL void BOUNDS(512, 1) all_gather_ll##suffix(const Args1 p) { allGather<N>(p); }        \
  GLOBAL void BOUNDS(512, 1) all_gather_ll##suffix##_segs(const ArgsN p) { allGather<N>(p); }
KERNEL(0, )
KERNEL(2, _n2)
KERNEL(4, _n4)
KERNEL(8, _n8)

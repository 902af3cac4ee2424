// all_reduce in one hop for every element type, reduction and group size: the
// general form of allreduce_oneshot.cu, with flagged packets (flagged.h). One
// rank after the other is folded, so it needs no registers per rank.
#include "flagged.h"

template <class A> DEV void allReduce(const A &p) {
  const Args &a = p.a;
  u32 e = readEpoch(a, CTL_EPOCH);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  if (gone)
    quit();
  u64 half = a.scratch + ((e & 1) ? a.half : 0);
  for (u32 i = first; i < a.units; i += stride) {
    Piece<8> u = find<8>(p, i);
    u64 v = load8(u, u.s->src);
    u64 at = half + a.rank * a.slot + (u64)i * 16;
    for (u32 k = 1; k < a.n; k++)
      st2x8sys(a.peer[k] + at, flagged(v, e));
  }
  for (u32 i = first; i < a.units; i += stride) {
    Piece<8> u = find<8>(p, i);
    u64 mine = load8(u, u.s->src);
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

GLOBAL void BOUNDS(512, 1) all_reduce_ll(const Args1 p) { allReduce(p); }
GLOBAL void BOUNDS(512, 1) all_reduce_ll_segs(const ArgsN p) { allReduce(p); }

// all_reduce in one hop for every element type, reduction and group size: the
// general form of allreduce_oneshot.cu, with flagged packets (flagged.h). One
// rank after the other is folded, so it needs no registers per rank.
#include "flagged.h"
#include "packet.h"

struct ReduceAny : Flagged {
  typedef u64 Unit;
  template <class A> DEV u64 load(const A &p, u32 i) {
    Piece<8> u = find<8>(p, i);
    return load8(u, u.s->src);
  }
  template <class A> DEV void send(const A &p, u32, u64 v, u64 at, u32 e) {
    V2 pk = flagged(v, e);
    for (u32 k = 1; k < p.a.n; k++)
      st2x8sys(p.a.peer[k] + at, pk);
  }
  template <class A> DEV void take(const A &p, u32 i, u64 in, u32 e) {
    Piece<8> u = find<8>(p, i);
    takeAny(p.a, u, u.s->src, in, e);
  }
};

GLOBAL void BOUNDS(512, 1) all_reduce_ll(const Args1 p) { packets<ReduceAny>(p, p.a.units); }
GLOBAL void BOUNDS(512, 1) all_reduce_ll_segs(const ArgsN p) { packets<ReduceAny>(p, p.a.units); }

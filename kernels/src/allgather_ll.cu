// Low-latency all_gather in one hop: every rank pushes its shard, as flagged
// packets (flagged.h), to every peer and copies what arrives into place.
#include "flagged.h"
#include "packet.h"

template <int N> struct Gather : Flagged {
  typedef u64 Unit;
  template <class A> DEV u64 load(const A &p, u32 i) {
    Piece<8> u = find<8>(p, i);
    return load8(u, u.s->src);
  }
  template <class A> DEV void send(const A &p, u32 i, u64 v, u64 at, u32 e) {
    const Args &a = p.a;
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
    store8(u, u.s->dst + opaque(a.rank) * u.s->bytes, v);
  }
  template <class A> DEV void take(const A &p, u32 i, u64 in, u32 e) { settle<N>(p.a, find<8>(p, i), in, e); }
};

#define KERNEL(N, suffix)                                                                     \
  GLOBAL void BOUNDS(512, 1) all_gather_ll##suffix(const Args1 p) { packets<Gather<N>>(p, p.a.units); }        \
  GLOBAL void BOUNDS(512, 1) all_gather_ll##suffix##_segs(const ArgsN p) { packets<Gather<N>>(p, p.a.units); }
KERNEL(0, )
KERNEL(2, _n2)
KERNEL(4, _n4)
KERNEL(8, _n8)

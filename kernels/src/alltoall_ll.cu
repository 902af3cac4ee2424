// Low-latency all_to_all in one hop, with flagged packets (flagged.h). Slice d of
// the source goes to rank d; slice r of the destination comes from rank r. The
// even form has equal slices of bytes each; the uneven form (uneven.h) has a table.
// broadcast and permute are uneven all_to_alls.
#include "uneven.h"

// N is the size of the group, or 0 for any.
template <int N> struct Exchange : Flagged {
  struct Unit {
    u64 v[N ? N : 1]; // v[k] goes to group rank rank+k
  };

  // load loads unit i of every slice, where it is whole and aligned and N is known.
  template <class A> DEV Unit load(const A &p, u32 i) {
    Unit s;
    Piece<8> u = find<8>(p, i);
    if (N && __builtin_expect(u.all, 1)) {
#pragma unroll
      for (int k = 0; k < N; k++)
        s.v[k] = ld8(u.s->src + u.off + nth<N>(p.a, k) * u.s->bytes);
    }
    return s;
  }

  template <class A> DEV void send(const A &p, u32 i, const Unit &s, u64 at, u32 e) {
    const Args &a = p.a;
    Piece<8> u = find<8>(p, i);
    if (N && __builtin_expect(u.all, 1)) {
#pragma unroll
      for (int k = 1; k < N; k++)
        st2x8sys(a.peer[k] + at, flagged(s.v[k], e));
      st8(u.s->dst + u.off + a.rank * u.s->bytes, s.v[0]);
      return;
    }
#pragma unroll 1
    for (u32 k = 0; k < a.n; k++) {
      u64 v = load8(u, u.s->src + peerAt(a, k) * u.s->bytes);
      if (k == 0)
        store8(u, u.s->dst + a.rank * u.s->bytes, v);
      else
        st2x8sys(a.peer[k] + at, flagged(v, e));
    }
  }

  template <class A> DEV void take(const A &p, u32 i, u64 in, u32 e) { settle<N>(p.a, find<8>(p, i), in, e); }
};

#define KERNEL(N, suffix)                                                                    \
  GLOBAL void BOUNDS(512, 1) all_to_all_ll##suffix(const Args1 p) { packets<Exchange<N>>(p, p.a.units); }        \
  GLOBAL void BOUNDS(512, 1) all_to_all_ll##suffix##_segs(const ArgsN p) { packets<Exchange<N>>(p, p.a.units); }
KERNEL(0, )
KERNEL(2, _n2)
KERNEL(4, _n4)
KERNEL(8, _n8)

GLOBAL void BOUNDS(512, 1) all_to_all_uneven_ll(const ArgsV p) { uneven<false>(p); }
GLOBAL void BOUNDS(512, 1) all_to_all_uneven_chunks(const ArgsV p) { uneven<true>(p); }

// Low-latency all_to_all in one hop, with flagged packets (flagged.h). Slice d of
// the source goes to rank d; slice r of the destination comes from rank r. The
// even form has equal slices of bytes each; the uneven form has a table, and
// sends at least one packet to every peer, so that the protocol's rule holds for
// peers that exchange nothing. broadcast and permute are uneven all_to_alls.
#include "flagged.h"
#include "packet.h"

// N is the size of the group, or 0 for any.
template <int N> struct Exchange : OneHop {
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

// Row d of the table: what goes to rank d and what comes from it.
struct ArgsV {
  Args a;
  u64 src[MAXRANKS], dst[MAXRANKS], send[MAXRANKS], recv[MAXRANKS]; // addresses and bytes
};

DEV bool aligned8(u64 x) { return (x & 7) == 0; }

GLOBAL void BOUNDS(512, 1) all_to_all_uneven_ll(const ArgsV p) {
  const Args &a = p.a;
  u32 e = readEpoch(a, CTL_EPOCH);
  quitIf(a, ldsys(a.ctl + CTL_ABORT));
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  u64 half = a.scratch + ((e & 1) ? a.half : 0);
  for (u32 k = 0; k < a.n; k++) {
    u32 d = peerAt(a, k);
    u64 src = p.src[d], bytes = p.send[d];
    for (u64 i = first; i * 8 < bytes || i == 0; i += stride) {
      u64 left = bytes - i * 8;
      u64 v = bytes == 0 ? 0 : (aligned8(src) && left >= 8 ? ld8(src + i * 8) : ld8any(src + i * 8, left));
      if (k != 0)
        st2x8sys(a.peer[k] + half + a.rank * a.slot + i * 16, flagged(v, e));
      else if (aligned8(p.dst[d]) && left >= 8 && bytes != 0)
        st8(p.dst[d] + i * 8, v);
      else
        st8any(p.dst[d] + i * 8, left, v);
    }
  }
  for (u32 k = 1; k < a.n; k++) {
    u32 r = peerAt(a, k);
    u64 dst = p.dst[r], bytes = p.recv[r];
    for (u64 i = first; i * 8 < bytes || i == 0; i += stride) {
      u64 left = bytes - i * 8, d;
      d = receiveOne(a, a.peer[0] + half + r * a.slot + i * 16, e, r);
      if (aligned8(dst) && left >= 8 && bytes != 0)
        st8(dst + i * 8, d);
      else
        st8any(dst + i * 8, left, d);
    }
  }
  writeEpoch(a, CTL_EPOCH, e);
}

// Packets with flags: 8 bytes of data travel as two 64-bit words, each holding 4
// bytes of data and the epoch of the call. A word is written and read as one
// piece (64-bit accesses are single-copy atomic, also as elements of a vector),
// so a word with the right epoch holds the right data. Any bit pattern of data
// passes unchanged; the price is half of the wire.
//
// Two halves of the scratch alternate by the parity of the epoch: a rank enters
// call k+2 only after it received from every peer in call k+1, and a peer sends
// in call k+1 only after its call k ended, so nobody still reads what call k+2
// overwrites. Every call receives at least one packet from every peer.
//
// A packet stays until another one comes to its place, and epochs begin anew after
// 2^32 calls: a large call would take what a large call of the same epoch left. So the
// last four epochs wipe. A call with one of them clears all places of its half that it
// gets no packets at. Nobody else touches those during the call: packets of two calls
// ago have come, and those of two calls later wait for ours of the next call, as packets
// without flags do for the reader's marks (poison.h). After the call its half holds
// packets of that epoch or none. Each half is wiped twice, and so also what the last
// wiping call itself left is gone when its epoch comes again: the call before has
// cleared it or put a packet of its own there. Calls by packets without flags have
// another epoch, lest they take the last ones.
#pragma once
#include "packet.h"
#include "reduce.h"

enum { WIPES = 0xfffffffcu };

// wipe clears every stride-th packet of the slot at addr from packet i to the end.
DEV void wipe(u64 addr, u64 i, u64 to, u64 stride) {
#pragma unroll 1
  for (; i < to; i += stride)
    st4(addr + i * 16, V4{0, 0, 0, 0});
}

// Flagged is the base of ways by packets with flags.
struct Flagged : OneHop {
  enum { EPOCH = CTL_FLAGGED };
  // What wiping needs is read once, with what the call needs: were there more places that
  // read arguments, the compiler would give up on proving that stores leave them alone,
  // and read them again behind every packet.
  struct Half {
    u64 at, in, slot, bytes;
  };
  DEV Half half(const Args &a, u32 e) {
    u64 bytes = a.half, at = a.scratch + ((e & 1) ? bytes : 0);
    return Half{at, a.peer[0] + at, a.slot, bytes};
  }
  DEV u64 slot(const Args &, const Half &h) { return h.slot; }
  DEV u64 in(const Args &, const Half &h) { return h.in; }
  DEV void end(const Half &h, u32 first, u32 stride, u32 count, u32 e) {
    if (__builtin_expect(e >= WIPES, 0)) {
#pragma unroll 1
      for (u64 slot = 0; slot + h.slot <= h.bytes; slot += h.slot)
        wipe(h.in + slot, count + first, h.slot / 16, count < stride ? count : stride);
    }
  }
};

DEV V2 flagged(u64 d, u32 e) { return V2{(d & 0xffffffffu) | (u64)e << 32, (d >> 32) | (u64)e << 32}; }
DEV bool current(V2 p, u32 e) { return (u32)(p.x >> 32) == e && (u32)(p.y >> 32) == e; }
DEV u64 content(V2 p) { return (p.x & 0xffffffffu) | p.y << 32; }

// receiveOne polls one packet.
DEV u64 receiveOne(const Args &a, u64 addr, u32 e, u32 peer) {
  Wait w = {0, 0};
  for (;;) {
    V2 p = ld2x8sys(addr);
    if (current(p, e))
      return content(p);
    if (!patient(w))
      look<true>(a, w, peer, e, (u32)(p.x >> 32));
  }
}

// receiveAll polls the packets of all peers at addr + r*slot together: v[k] comes
// from group rank rank+k, so every load is made and no register is chosen by rank.
template <int N> DEV void receiveAll(const Args &a, u64 addr, u32 e, V2 (&v)[N]) {
  Wait w = {0, 0};
  u64 from[N];
#pragma unroll
  for (int k = 1; k < N; k++)
    from[k] = addr + nth<N>(a, k) * a.slot;
  for (;;) {
#pragma unroll
    for (int k = 1; k < N; k++)
      v[k] = ld2x8sys(from[k]);
    bool all = true;
#pragma unroll
    for (int k = 1; k < N; k++)
      all = all && current(v[k], e);
    if (all)
      return;
    if (patient(w))
      continue;
    u32 missing = 0;
#pragma unroll
    for (int k = 1; k < N; k++)
      missing = current(v[k], e) ? missing : k;
    look<true>(a, w, nth<N>(a, missing), e, 0);
  }
}

// takeAny receives a unit from all peers, one after the other, folds it with ours,
// which lies at src, in rank order, and stores the result.
DEV void takeAny(const Args &a, const Piece<8> &u, u64 src, u64 in, u32 e) {
  u64 mine = load8(u, src);
  Any s;
  for (u32 r = 0; r < a.n; r++) {
    u64 d = r == a.rank ? mine : receiveOne(a, in + r * a.slot, e, r);
    if (r == 0)
      anySet(s, a.dtype, d);
    else
      anyFold(s, a.dtype, a.op, d);
  }
  store8(u, u.s->dst, anyGet(s, a.dtype, a.op, a.n));
}

// settle writes unit u of every peer, whose packets arrive at at + r*slot, into that
// peer's slice of the result. N is the size of the group, or 0 for any.
template <int N> DEV void settle(const Args &a, const Piece<8> &u, u64 at, u32 e) {
  if constexpr (N == 0) {
    for (u32 r = 0; r < a.n; r++)
      if (r != a.rank)
        store8(u, u.s->dst + r * u.s->bytes, receiveOne(a, at + r * a.slot, e, r));
  } else {
    V2 v[N];
    receiveAll<N>(a, at, e, v);
    u64 to = u.s->dst + u.off;
    if (__builtin_expect(u.all, 1)) {
#pragma unroll
      for (int k = 1; k < N; k++)
        st8(to + nth<N>(a, k) * u.s->bytes, content(v[k]));
    } else {
#pragma unroll 1
      for (u32 r = 0; r < N; r++) // the packets are still there: no register is indexed
        if (r != a.rank)
          st8any(to + r * u.s->bytes, u.s->bytes - u.off, content(ld2x8sys(at + r * a.slot)));
    }
  }
}

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
#pragma once
#include "reduce.h"

DEV V2 flagged(u64 d, u32 e) { return V2{(d & 0xffffffffu) | (u64)e << 32, (d >> 32) | (u64)e << 32}; }
DEV bool current(V2 p, u32 e) { return (u32)(p.x >> 32) == e && (u32)(p.y >> 32) == e; }
DEV u64 content(V2 p) { return (p.x & 0xffffffffu) | p.y << 32; }

// receiveOne polls one packet. False means give up.
DEV bool receiveOne(const Args &a, u64 addr, u32 e, u32 peer, u64 &d) {
  Wait w = {0, 0};
  for (;;) {
    V2 p = ld2x8sys(addr);
    if (current(p, e)) {
      d = content(p);
      return true;
    }
    if (stuck(a, w, peer, e, (u32)(p.x >> 32)))
      return false;
  }
}

// receiveAll polls the packets of all peers at addr + r*slot together.
template <int N> DEV bool receiveAll(const Args &a, u64 addr, u32 e, V2 (&v)[N]) {
  Wait w = {0, 0};
  for (;;) {
    u32 missing = N;
#pragma unroll
    for (int r = 0; r < N; r++)
      if (r != (int)a.rank)
        v[r] = ld2x8sys(addr + r * a.slot);
#pragma unroll
    for (int r = 0; r < N; r++)
      if (r != (int)a.rank && !current(v[r], e))
        missing = r;
    if (missing == N)
      return true;
    if (stuck(a, w, missing, e, 0))
      return false;
  }
}

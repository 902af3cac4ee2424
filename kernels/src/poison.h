// Packets without flags: a 32-bit word that holds POISON has not arrived yet.
//
// POISON is a NaN of f32, and a pair of NaNs of bf16 and of f16, so a sender may
// replace it by another NaN: sums of floats do not depend on which NaN they meet.
// Each word proves its own arrival, so no access wider than 32 bits need be one
// piece. The reader puts POISON back before its kernel ends; the next kernel of
// that rank sends its packets after that, and a peer writes the same half of the
// scratch again only after it has received those. Hence two halves suffice, as
// long as every call receives at least one packet from every peer.
#pragma once
#include "reduce.h"

enum { POISON = 0xffffffffu };

DEV u32 cure(u32 w) { return w == POISON ? 0x7fff7fffu : w; }
DEV V4 cure4(V4 v) { return V4{cure(v.x), cure(v.y), cure(v.z), cure(v.w)}; }
DEV bool arrived(V4 v) { return v.x != POISON && v.y != POISON && v.z != POISON && v.w != POISON; }

// receive polls the packets of all peers at addr + r*slot, one for each rank r
// but our own, whose value is mine. It reloads all of them at once so that the
// polls overlap. v[r] is rank r's; of two ranks, whose sum has no order, v[0] is ours.
template <int N> DEV void receive(const Args &a, u64 addr, V4 mine, V4 (&v)[N]) {
  Wait w = {0, 0};
  if constexpr (N == 2) {
    v[0] = mine;
    addr += (a.rank ^ 1) * a.slot;
    for (;;) {
      v[1] = ld4sys(addr);
      if (arrived(v[1]))
        return;
      if (!patient(w))
        look<true>(a, w, a.rank ^ 1, 0, 0);
    }
  } else {
#pragma unroll
    for (int r = 0; r < N; r++)
      v[r] = mine;
    for (;;) {
      u32 missing = N;
#pragma unroll
      for (int r = 0; r < N; r++)
        if (r != (int)a.rank)
          v[r] = ld4sys(addr + r * a.slot);
#pragma unroll
      for (int r = 0; r < N; r++)
        if (r != (int)a.rank && !arrived(v[r]))
          missing = r;
      if (missing == N)
        return;
      if (!patient(w))
        look<true>(a, w, missing, 0, 0);
    }
  }
}

// poisonAgain readies the packets that receive has read for the call after next.
template <int N> DEV void poisonAgain(const Args &a, u64 addr) {
  const V4 none = {POISON, POISON, POISON, POISON};
  if constexpr (N == 2) {
    st4(addr + (a.rank ^ 1) * a.slot, none);
  } else {
#pragma unroll
    for (int r = 0; r < N; r++)
      if (r != (int)a.rank)
        st4(addr + r * a.slot, none);
  }
}

// sumAll folds v in rank order.
template <int T, int N> DEV V4 sumAll(const V4 (&v)[N], u32 op) {
  Acc<T> s;
  accSet<T>(s, v[0]);
#pragma unroll
  for (int r = 1; r < N; r++)
    accAdd<T>(s, v[r]);
  return accGet<T>(s, op, N);
}

// takeSum receives a unit from all peers, folds it with ours, which lies at src, stores
// the result and readies the packets.
template <int T, int N> DEV void takeSum(const Args &a, const Piece<16> &u, u64 src, u64 in) {
  V4 mine = load4(u, src), all[N];
  receive<N>(a, in, mine, all);
  store4(u, u.s->dst, sumAll<T, N>(all, a.op));
  poisonAgain<N>(a, in);
}

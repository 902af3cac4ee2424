// A fold of pieces that lie in this rank's staging memory with the own piece, in rank order.
//
// Segment: src is the own piece, dst the result, bytes the size of a piece. Peer
// r's piece is at base + scratch + r*slot; those of several segments lie one behind
// the other, each on a multiple of the unit of the kernel. One kernel for all tensors of
// a bucket matters beside compute, where each may have to wait for the end of whatever
// holds the multiprocessors.
//
// What matmuls have SENT (reducescatter_sent.cu) is read by strong loads, in whole units.
#pragma once
#include "direct.h"

// before is where the segment of u begins among the pieces of a rank.
template <int UNIT> DEV u64 before(const Args1 &, const Piece<UNIT> &) { return 0; }
template <int UNIT> DEV u64 before(const ArgsN &, const Piece<UNIT> &u) { return (u64)u.s->unit0 * UNIT; }

template <int T, int N, bool SENT, class A> DEV void staged(const A &p) {
  constexpr int U = N == 2 ? 4 : N == 4 ? 4 : 2;
  const Args &a = p.a;
  u32 tile = nthreads() * U;
  u64 at = a.peer[0] + a.scratch;
  for (u32 base = bid() * tile; base < a.units; base += nblocks() * tile) {
    Piece<16> u;
    if (base + tile <= a.units && whole(p, base, tile, u)) {
      V4 v[U][N];
      u64 off = u.off + tid() * 16, from = at + before(p, u);
#pragma unroll
      for (int j = 0; j < U; j++) {
#pragma unroll
        for (int r = 0; r < N; r++) {
          u64 piece = (r == (int)a.rank ? u.s->src : from + r * a.slot) + off + j * nthreads() * 16;
          v[j][r] = SENT ? ld4sys(piece) : ld4(piece);
        }
      }
#pragma unroll
      for (int j = 0; j < U; j++) {
        Acc<T> s;
        accSet<T>(s, v[j][0]);
#pragma unroll
        for (int r = 1; r < N; r++)
          accAdd<T>(s, v[j][r]);
        st4(u.s->dst + off + j * nthreads() * 16, accGet<T>(s, a.op, N));
      }
      continue;
    }
#pragma unroll 1
    for (u32 i = base + tid(); i < base + tile && i < a.units; i += nthreads()) {
      u = find<16>(p, i);
      u64 from = at + before(p, u);
      V4 v[N];
#pragma unroll
      for (int r = 0; r < N; r++) {
        u64 piece = r == (int)a.rank ? u.s->src : from + r * a.slot;
        v[r] = SENT ? ld4sys(piece + u.off) : load4(u, piece);
      }
      Acc<T> s;
      accSet<T>(s, v[0]);
#pragma unroll
      for (int r = 1; r < N; r++)
        accAdd<T>(s, v[r]);
      store4(u, u.s->dst, accGet<T>(s, a.op, N));
    }
  }
}

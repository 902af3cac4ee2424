// The arithmetic of collectives whose bytes the copy engines move: the pieces of
// all peers lie in this rank's staging memory, and one kernel folds them with the
// own piece in rank order. It waits for nobody; waits and signals are kernels of
// their own (barrier.cu) before and after it in the stream.
//
// Segment: src is the own piece, dst the result, bytes the size of a piece. Peer
// r's piece is at base + scratch + r*slot; those of several segments lie one behind
// the other, each on a multiple of the unit of the kernel. One kernel for all tensors of
// a bucket matters beside compute, where each may have to wait for the end of whatever
// holds the multiprocessors.
#include "direct.h"

// before is where the segment of u begins among the pieces of a rank.
template <int UNIT> DEV u64 before(const Args1 &, const Piece<UNIT> &) { return 0; }
template <int UNIT> DEV u64 before(const ArgsN &, const Piece<UNIT> &u) { return (u64)u.s->unit0 * UNIT; }

template <int T, int N, class A> DEV void staged(const A &p) {
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
        for (int r = 0; r < N; r++)
          v[j][r] = ld4((r == (int)a.rank ? u.s->src : from + r * a.slot) + off + j * nthreads() * 16);
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
      for (int r = 0; r < N; r++)
        v[r] = load4(u, r == (int)a.rank ? u.s->src : from + r * a.slot);
      Acc<T> s;
      accSet<T>(s, v[0]);
#pragma unroll
      for (int r = 1; r < N; r++)
        accAdd<T>(s, v[r]);
      store4(u, u.s->dst, accGet<T>(s, a.op, N));
    }
  }
}

template <class A> DEV void stagedAny(const A &p) {
  const Args &a = p.a;
  u64 at = a.peer[0] + a.scratch;
  for (u32 i = bid() * nthreads() + tid(); i < a.units; i += nblocks() * nthreads()) {
    Piece<8> u = find<8>(p, i);
    u64 from = at + before(p, u);
    Any s;
    for (u32 r = 0; r < a.n; r++) {
      u64 d = load8(u, r == a.rank ? u.s->src : from + r * a.slot);
      if (r == 0)
        anySet(s, a.dtype, d);
      else
        anyFold(s, a.dtype, a.op, d);
    }
    store8(u, u.s->dst, anyGet(s, a.dtype, a.op, a.n));
  }
}

GLOBAL void BOUNDS(512, 1) staged_any(const Args1 p) { stagedAny(p); }
GLOBAL void BOUNDS(512, 1) staged_any_segs(const ArgsN p) { stagedAny(p); }

#define KERNEL(T, name, N) \
  GLOBAL void BOUNDS(512, 1) staged_##name##_n##N(const Args1 p) { staged<T, N>(p); } \
  GLOBAL void BOUNDS(512, 1) staged_##name##_n##N##_segs(const ArgsN p) { staged<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

// all_to_all of large tensors whose destinations lie in symmetric memory: every
// rank writes slice d of its source to rank d (direct.h). Blocks deal tiles out
// to the peers in turn, so all links are busy at once. Wire: (n-1)/n S out of and
// into every rank.
#include "direct.h"

template <class A> DEV void allToAll(const A &p) {
  constexpr int U = 4;
  const Args &a = p.a;
  u32 e;
  if (!enter(a, e))
    return;
  u32 tile = nthreads() * U, tiles = (a.units + tile - 1) / tile;
  for (u32 t = bid(); t < tiles * a.n; t += nblocks()) {
    u32 k = t % a.n, base = t / a.n * tile, d = peerAt(a, k);
    Piece<16> u;
    if (base + tile <= a.units && whole(p, base, tile, u)) {
      V4 v[U];
      u64 src = u.s->src + d * u.s->bytes + u.off + tid() * 16;
      u64 dst = toPeer(a, k, u.s->dst + a.rank * u.s->bytes) + u.off + tid() * 16;
#pragma unroll
      for (int j = 0; j < U; j++)
        v[j] = ld4(src + j * nthreads() * 16);
#pragma unroll
      for (int j = 0; j < U; j++)
        st4(dst + j * nthreads() * 16, v[j]);
      continue;
    }
#pragma unroll 1
    for (u32 i = base + tid(); i < base + tile && i < a.units; i += nthreads()) {
      u = find<16>(p, i);
      store4(u, toPeer(a, k, u.s->dst + a.rank * u.s->bytes), load4(u, u.s->src + d * u.s->bytes));
    }
  }
  leave(a, e);
}

GLOBAL void BOUNDS(512, 1) all_to_all_direct(const Args1 p) { allToAll(p); }
GLOBAL void BOUNDS(512, 1) all_to_all_direct_segs(const ArgsN p) { allToAll(p); }

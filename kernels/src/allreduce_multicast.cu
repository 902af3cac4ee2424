// all_reduce by sum of tensors in symmetric memory, in place or not, through multicast
// (multicast.h): every rank loads its slice of the units once, as the sum of all ranks
// that the switches make, and stores it once, to all. Wire: S out of every rank and S/n into
// it for the sums, S/n out and S in for the results. That is (n+1)/n S either way, where
// the direct kernel moves 2 (n-1)/n S: less from four ranks on, more with two.
//
// The sum. Order and grouping of the additions are the switch's, and so may be the width
// of what is between: f32 is asked for where the elements are narrower. So bits may differ
// from the sum in rank order that all other kernels give, and between machines. They are
// equal on all ranks, because one rank alone has each unit summed and stores it. Units
// that are cut off or not aligned are summed from the peers, in rank order.
//
// In place is safe: unit u of every rank is read and written by one thread only.
#include "multicast.h"

// sumAll loads sixteen bytes of T, each element the sum of all ranks'.
template <int T> DEV V4 sumAll(u64 at) {
  V4 v;
  if (T == F32) {
    float x, y, z, w;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                 : "l"(at)
                 : "memory");
    return V4{asU(x), asU(y), asU(z), asU(w)};
  }
  if (T == BF16)
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
  else
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
  return v;
}

template <int T, class A> DEV void allReduce(const A &p) {
  constexpr int U = 4;
  const Args &a = p.a;
  u32 e;
  if (!enter(a, e))
    return;
  fenceAlias();
  u32 lo = a.rank * a.per, hi = lo + a.per < a.units ? lo + a.per : a.units, tile = nthreads() * U;
  for (u32 base = lo + bid() * tile; base < hi; base += nblocks() * tile) {
    Piece<16> u;
    if (base + tile <= hi && whole(p, base, tile, u)) {
      V4 v[U];
      u64 src = toAll(a, u.s->src) + u.off + tid() * 16, dst = toAll(a, u.s->dst) + u.off + tid() * 16;
#pragma unroll
      for (int j = 0; j < U; j++)
        v[j] = sumAll<T>(src + j * nthreads() * 16);
#pragma unroll
      for (int j = 0; j < U; j++)
        stAll(dst + j * nthreads() * 16, v[j]);
      continue;
    }
#pragma unroll 1
    for (u32 i = base + tid(); i < base + tile && i < hi; i += nthreads()) {
      u = find<16>(p, i);
      if (u.all) {
        stAll(toAll(a, u.s->dst) + u.off, sumAll<T>(toAll(a, u.s->src) + u.off));
        continue;
      }
      V4 s = anySum<T>(a, u, u.s->src);
#pragma unroll 1
      for (u32 k = 0; k < a.n; k++)
        store4(u, toPeer(a, k, u.s->dst), s);
    }
  }
  fenceAlias();
  leave(a, e);
}

#define KERNEL(T, name)                                                                               \
  GLOBAL void BOUNDS(512, 1) all_reduce_multicast_##name(const Args1 p) { allReduce<T>(p); }          \
  GLOBAL void BOUNDS(512, 1) all_reduce_multicast_##name##_segs(const ArgsN p) { allReduce<T>(p); }
KERNEL(F32, f32)
KERNEL(BF16, bf16)
KERNEL(F16, f16)

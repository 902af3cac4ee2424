// The arithmetic of collectives whose bytes the copy engines move (staged.h). It waits for
// nobody; waits and signals are kernels of their own (barrier.cu) before and after it in the stream.
#include "staged.h"

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
  GLOBAL void BOUNDS(512, 1) staged_##name##_n##N(const Args1 p) { staged<T, N, false>(p); } \
  GLOBAL void BOUNDS(512, 1) staged_##name##_n##N##_segs(const ArgsN p) { staged<T, N, false>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

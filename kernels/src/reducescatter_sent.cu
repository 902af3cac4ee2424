// The end of a reduce_scatter whose pieces matmuls have sent (matmul.h), each into the staging memory
// of the rank that owns its rows. Ranks meet before and after the fold as in direct.h: the entry announces
// what a matmul sent, and when all have left staging is free again. Entry and exit are all that orders a
// matmul's stores. They go out by the copy unit, to peers: the kernel that issued them can end while they are
// under way, at the first touch of a page by microseconds, and a relaxed message overtakes them. So the entry
// releases.
#include "staged.h"

template <int T, int N> DEV void sent(const Args1 &p) {
  u32 e;
  if (!enter<true>(p.a, e))
    return;
  staged<T, N, true>(p);
  leave(p.a, e);
}

#define KERNEL(T, name, N) GLOBAL void BOUNDS(512, 1) reduce_scatter_sent_##name##_n##N(const Args1 p) { sent<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

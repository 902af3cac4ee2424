// Large all_reduce by writes only (push.h). Wire: 2(n-1)/n S out of and into every rank.
//
// All threads of a block push a window of two chunks and then fold the window before,
// so that the links have the next window to carry while the adds run. One release
// announces a window: it waits until the links have carried all of it, and two would
// leave them idle twice. Of 64 MiB on four ranks a block has just two chunks: all ranks
// push in the same order of peers, then all fold.
#include "push.h"

enum { WINDOW = 2, CHUNK = 2048, DEPTH = 2 * WINDOW };

template <int T, int N, class A> DEV void allReduce(const A &p) {
  typedef Push<true, T, N, 512, CHUNK, DEPTH> P;
  const Args &a = p.a;
  u32 e, done, mine = P::chunks(a);
  P::enter(a, e, done);
  const Team<512> team = {0, tid()};
#pragma unroll 1
  for (u32 w = 0; w < mine + WINDOW; w += WINDOW) {
    u32 end = w + WINDOW < mine ? w + WINDOW : mine;
    if (w < mine) {
      if (end > DEPTH && !await(a, team, CTL_CREDIT, done + end - DEPTH)) {
        left(a);
        return;
      }
#pragma unroll 1
      for (u32 k = 1; k < N; k++) {
#pragma unroll 1
        for (u32 i = w; i < end; i++)
          P::push(p, team.t, i, done, k);
      }
      raise(a, team, CTL_PUSHED, done + end);
    }
    if (w >= WINDOW) {
      u32 from = w - WINDOW, to = w < mine ? w : mine;
      if (!await(a, team, CTL_PUSHED, done + to)) {
        left(a);
        return;
      }
#pragma unroll 1
      for (u32 i = from; i < to; i++)
        P::fold(p, team.t, i, done);
      if (from + DEPTH < mine)
        raise(a, team, CTL_CREDIT, done + to);
    }
  }
  P::leave(a, e, done + mine);
}

#define KERNEL(T, name, N)                                                                                             \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) all_reduce_push_##name##_n##N(const Args1 p) { allReduce<T, N>(p); }          \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) all_reduce_push_##name##_n##N##_segs(const ArgsN p) { allReduce<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

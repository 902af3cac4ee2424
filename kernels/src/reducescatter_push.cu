// Large reduce_scatter by writes only (push.h). Wire: (n-1)/n S out of and into every rank.
//
// Half of a block's threads push, the other half folds. Folds take time that the links
// do not: they read n pieces for each that travels, and were one team to do both, the
// folds of the last chunks would all come after the last push.
//
// Where a block has few chunks, all of them go to the first peer, then to the next. A peer
// is told of them together, but the last one of each by itself, so that folds begin before
// the last has come. Where a block has more, the folds would wait too long, and each chunk
// goes to all peers at once.
#include "push.h"

enum { TEAM = 256, CHUNK = 1024, DEPTH = 8, FEW = 4 };

template <int T, int N, class A> DEV void reduceScatter(const A &p) {
  typedef Push<false, T, N, TEAM, CHUNK, DEPTH> P;
  const Args &a = p.a;
  u32 e, done, mine = P::chunks(a);
  P::enter(a, e, done);
  const bool pushes = tid() < TEAM;
  const Team<TEAM> team = {pushes ? 1u : 2u, tid() % TEAM};
  bool bad = false;
  if (pushes) {
    const bool few = mine <= FEW;
    const u32 window = few ? FEW : 1;
#pragma unroll 1
    for (u32 w = 0; w < mine && !bad; w += window) {
      u32 end = w + window < mine ? w + window : mine;
      bad = end > DEPTH && !await(a, team, CTL_CREDIT, done + end - DEPTH);
#pragma unroll 1
      for (u32 k = 1; k < N && !bad; k++) {
#pragma unroll 1
        for (u32 i = w; i < end; i++) {
          P::push(p, team.t, i, done, k);
          if (k == N - 1 || (few && i + 1 == end))
            raise(a, team, CTL_PUSHED, done + i + 1, few ? k : 1, k);
        }
      }
    }
  } else {
#pragma unroll 1
    for (u32 i = 0; i < mine && !bad; i++) {
      bad = !await(a, team, CTL_PUSHED, done + i + 1);
      if (bad)
        break;
      P::fold(p, team.t, i, done);
      if (i + DEPTH < mine)
        raise(a, team, CTL_CREDIT, done + i + 1);
    }
  }
  if (__nvvm_bar0_or(bad)) {
    left(a);
    return;
  }
  P::leave(a, e, done + mine);
}

#define KERNEL(T, name, N)                                                                                                  \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) reduce_scatter_push_##name##_n##N(const Args1 p) { reduceScatter<T, N>(p); }       \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) reduce_scatter_push_##name##_n##N##_segs(const ArgsN p) { reduceScatter<T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

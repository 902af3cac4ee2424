// Large all_reduce and reduce_scatter by writes only. Links carry writes faster
// than reads (gpubench -mode links), so no rank reads a peer's memory.
//
// The units are cut into n slices of a.per (all_reduce) or lie in n slices already
// (reduce_scatter); a slice is cut into chunks of CHUNK units, dealt out to the
// blocks. For each of its chunks block b
//
//   push: writes the chunk of every other slice into that slice's owner's staging,
//         which has DEPTH slots for every block and source, and raises the owner's
//         PUSHED counter for (b, this rank);
//   fold: waits for all peers' PUSHED, adds the staged chunks and its own in rank
//         order, writes the sum to its own result and, in all_reduce, to every
//         peer's, and raises the CREDIT counter of (b, this rank) on every peer.
//
// push runs AHEAD chunks ahead of fold, so that the links never wait for the adds. It
// waits for the CREDIT of the chunk DEPTH before, whose slot it fills again. The first
// DEPTH chunks of a call need none, and so the last DEPTH folds give none: when the call
// before has ended on this rank, all peers have folded what it staged (the exit barrier).
// Credits cost a release each, which waits until the links have carried the sums.
// Chunks are numbered per block over all calls, in device memory, so counters are
// never reset and compare wrap-safe, and slots carry over from call to call.
//
// Order: after the block barrier one thread per peer releases the counter, which
// by cumulativity covers the writes of the whole block; the waiter acquires and
// passes it on through a block barrier. Staged data are read by strong loads, which
// no stale line can serve.
//
// No entry barrier: a rank writes another's result only after it received from
// that rank in this call, so that rank's kernel has started; and it writes only
// chunks that the other has already pushed, so a result may lie over its source.
// The exit barrier of direct.h ends the call for the writes into results.
//
// Up to four ranks two blocks share a multiprocessor, so that one sends while the
// other waits; eight need the registers.
#include "direct.h"

enum { UNITS = 4, CHUNK = 512 * UNITS, DEPTH = 4, AHEAD = 1 };

DEV u64 counter(u64 ctl, u32 which, u32 src) { return ctl + which + 4 * (bid() * MAXRANKS + src); }

// raise announces count on the same block of every peer.
DEV void raise(const Args &a, u32 which, u32 count) {
  u32 t = tid();
  syncBlock();
  if (t > 0 && t < a.n)
    stRelease(counter(a.peer[t] + (a.ctl - a.peer[0]), which, a.rank), count);
}

// await waits until every peer has raised at least count. The whole block returns
// the same answer.
DEV bool await(const Args &a, u32 which, u32 count) {
  u32 t = tid();
  bool bad = false;
  if (t > 0 && t < a.n) {
    u32 src = peerAt(a, t);
    bad = !waitCounter(a, counter(a.ctl, which, src), count, src);
  }
  if (__nvvm_bar0_or(bad) == 0)
    return true;
  left(a);
  return false;
}

// Where chunk j of slice d lies: unit index in the segments, units in it, and the
// offset added to a source address.
struct Part {
  u32 unit, count;
  u64 shift;
};
template <bool GATHER, class A> DEV Part part(const A &p, u32 j, u32 d) {
  const Args &a = p.a;
  u32 from = j * CHUNK, all = GATHER ? a.per : a.units, count = all - from < CHUNK ? all - from : CHUNK;
  if (!GATHER)
    return Part{from, count, d};
  from += d * a.per;
  if (from >= a.units)
    return Part{from, 0, 0};
  return Part{from, a.units - from < count ? a.units - from : count, 0};
}

template <bool GATHER, int N, class A> DEV void push(const A &p, u32 j, u32 slot) {
  const Args &a = p.a;
  u64 at = a.scratch + ((u64)(bid() * DEPTH + slot) * N + a.rank) * (CHUNK * 16) + tid() * 16;
#pragma unroll 1
  for (u32 i = 1; i < N; i++) {
    // Blocks start at different peers, so that all links are busy at any time.
    u32 k = 1 + (i - 1 + bid()) % (N - 1);
    Part c = part<GATHER>(p, j, peerAt(a, k));
    u64 to = a.peer[k] + at;
    Piece<16> u;
    if (c.count == CHUNK && whole(p, c.unit, CHUNK, u)) {
      V4 v[UNITS];
      u64 src = u.s->src + c.shift * u.s->bytes + u.off + tid() * 16;
#pragma unroll
      for (int i = 0; i < UNITS; i++)
        v[i] = ld4(src + i * 512 * 16);
#pragma unroll
      for (int i = 0; i < UNITS; i++)
        st4(to + i * 512 * 16, v[i]);
      continue;
    }
#pragma unroll 1
    for (u32 i = tid(); i < c.count; i += 512) {
      u = find<16>(p, c.unit + i);
      st4(to + (i - tid()) * 16, load4(u, u.s->src + c.shift * u.s->bytes));
    }
  }
}

template <bool GATHER, int T, int N, class A> DEV void fold(const A &p, u32 j, u32 slot) {
  const Args &a = p.a;
  Part c = part<GATHER>(p, j, a.rank);
  u64 at = a.peer[0] + a.scratch + (u64)(bid() * DEPTH + slot) * N * (CHUNK * 16) + tid() * 16;
  Piece<16> u;
  if (c.count == CHUNK && whole(p, c.unit, CHUNK, u)) {
    constexpr int U = N > 4 ? 1 : 2;
    u64 src = u.s->src + c.shift * u.s->bytes + u.off + tid() * 16, dst = u.s->dst + u.off + tid() * 16;
#pragma unroll
    for (int h = 0; h < UNITS; h += U) {
      V4 v[U][N];
#pragma unroll
      for (int i = 0; i < U; i++) {
#pragma unroll
        for (int r = 0; r < N; r++) {
          u64 from = r == (int)a.rank ? src : at + r * (CHUNK * 16);
          v[i][r] = ld4sys(from + (h + i) * 512 * 16);
        }
      }
#pragma unroll
      for (int i = 0; i < U; i++) {
        Acc<T> s;
        accSet<T>(s, v[i][0]);
#pragma unroll
        for (int r = 1; r < N; r++)
          accAdd<T>(s, v[i][r]);
        V4 w = accGet<T>(s, a.op, N);
        u64 off = dst + (h + i) * 512 * 16;
        if (GATHER) {
#pragma unroll
          for (int k = 1; k < N; k++)
            st4(toPeer(a, k, off), w);
        }
        st4(off, w);
      }
    }
    return;
  }
#pragma unroll 1
  for (u32 i = tid(); i < c.count; i += 512) {
    u = find<16>(p, c.unit + i);
    Acc<T> s;
#pragma unroll
    for (int r = 0; r < N; r++) {
      V4 v = r == (int)a.rank ? load4(u, u.s->src + c.shift * u.s->bytes) : ld4sys(at + r * (CHUNK * 16) + (i - tid()) * 16);
      if (r == 0)
        accSet<T>(s, v);
      else
        accAdd<T>(s, v);
    }
    V4 w = accGet<T>(s, a.op, N);
#pragma unroll 1
    for (u32 k = 0; k < (GATHER ? N : 1); k++)
      store4(u, toPeer(a, k, u.s->dst), w);
  }
}

template <bool GATHER, int T, int N, class A> DEV void pushAll(const A &p) {
  const Args &a = p.a;
  u32 e = ld1(a.ctl + CTL_LEPOCH + 4 * bid()) + 1;
  u32 done = ld1(a.ctl + CTL_CHUNKS + 4 * bid()); // chunks of this block in earlier calls
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  quitIf(a, __nvvm_bar0_or(gone != 0));
  if (bid() == 0 && tid() < a.n) // keeps the count of direct collectives that others wait for
    addRelaxed(a.peer[tid()] + (a.ctl - a.peer[0]) + CTL_ENTRY + 4 * a.rank, 1);
  u32 all = GATHER ? a.per : a.units, chunks = (all + CHUNK - 1) / CHUNK;
  u32 mine = bid() < chunks ? (chunks - bid() + nblocks() - 1) / nblocks() : 0;
  for (u32 t = 0; t < mine + AHEAD; t++) {
    if (t < mine) {
      if (t >= DEPTH && !await(a, CTL_CREDIT, done + t - DEPTH + 1))
        return;
      push<GATHER, N>(p, bid() + t * nblocks(), (done + t) % DEPTH);
      raise(a, CTL_PUSHED, done + t + 1);
    }
    if (t >= AHEAD) {
      u32 f = t - AHEAD;
      if (!await(a, CTL_PUSHED, done + f + 1))
        return;
      fold<GATHER, T, N>(p, bid() + f * nblocks(), (done + f) % DEPTH);
      if (f + DEPTH < mine)
        raise(a, CTL_CREDIT, done + f + 1);
    }
  }
  if (tid() == 0)
    st1(a.ctl + CTL_CHUNKS + 4 * bid(), done + mine);
  leave(a, e);
}

#define KERNEL(T, name, N)                                                                                             \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) all_reduce_push_##name##_n##N(const Args1 p) { pushAll<true, T, N>(p); }                  \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) all_reduce_push_##name##_n##N##_segs(const ArgsN p) { pushAll<true, T, N>(p); }           \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) reduce_scatter_push_##name##_n##N(const Args1 p) { pushAll<false, T, N>(p); }             \
  GLOBAL void BOUNDS(512, N > 4 ? 1 : 2) reduce_scatter_push_##name##_n##N##_segs(const ArgsN p) { pushAll<false, T, N>(p); }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

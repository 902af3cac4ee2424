// Large all_reduce and reduce_scatter by writes only. Links carry writes faster
// than reads (gpubench -mode links), so no rank reads a peer's memory.
//
// The units are cut into n slices of a.per (all_reduce) or lie in n slices already
// (reduce_scatter); a slice is cut into chunks, dealt out to the blocks. For each of
// its chunks block b
//
//   pushes: writes the chunk of every other slice into that slice's owner's staging,
//           which has DEPTH slots for every block and source, and raises the owner's
//           PUSHED counter for (b, this rank);
//   folds:  waits for all peers' PUSHED, adds the staged chunks and its own in rank
//           order, writes the sum to its own result and, in all_reduce, to every
//           peer's, and raises the CREDIT counter of (b, this rank) on every peer.
//
// A push waits for the CREDIT of the chunk DEPTH before, whose slot it fills again. The
// first DEPTH chunks of a call need none, and so the last DEPTH folds give none: when the
// call before has ended on this rank, all peers have folded what it staged (the exit
// barrier). Credits cost a release each, which waits until the links have carried the
// sums. Chunks are numbered per block over all calls of both kinds, in device memory, so
// counters are never reset and compare wrap-safe, and slots carry over from call to call.
//
// Several chunks at a time go to one peer, then as many to the next, beginning with the
// rank behind the own one: as all ranks begin together, each then has one peer that
// writes to it, and the links carry up to 3% more than when all write to all at random.
// Nothing holds the ranks to that order. They drift apart after some tens of
// microseconds, where longer turns lose more than they gain.
//
// Order: after a barrier of the threads that wrote, one thread per peer releases the
// counter, which by cumulativity covers the writes of them all; the waiter acquires and
// passes it on through a barrier likewise. Staged data are read by strong loads, which
// no stale line can serve.
//
// No entry barrier: a rank writes another's result only after it received from
// that rank in this call, so that rank's kernel has started; and it writes only
// chunks that the other has already pushed, so a result may lie over its source.
// The exit barrier of direct.h ends the call for the writes into results.
//
// Up to four ranks two blocks share a multiprocessor, so that one sends while the
// other waits; eight need the registers.
#pragma once
#include "direct.h"

// Team is W threads of a block that work through chunks together: all of them, or one of
// several teams, each with a barrier of its own (0 is the whole block's).
template <int W> struct Team {
  u32 barrier, t; // t counts the team's threads
};
template <int W> DEV void sync(const Team<W> &m) { asm volatile("bar.sync %0, %1;" ::"r"(m.barrier), "n"(W) : "memory"); }
template <int W> DEV bool any(const Team<W> &m, bool is) {
  u32 r;
  asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, %2, %3, p; selp.u32 %0, 1, 0, q;}"
               : "=r"(r)
               : "r"((u32)is), "r"(m.barrier), "n"(W)
               : "memory");
  return r != 0;
}

DEV u64 counter(u64 ctl, u32 which, u32 src) { return ctl + which + 4 * (bid() * MAXRANKS + src); }

// raise announces count on the same block of peers from to to.
template <int W> DEV void raise(const Args &a, const Team<W> &m, u32 which, u32 count, u32 from, u32 to) {
  sync(m);
  if (m.t >= from && m.t <= to)
    stRelease(counter(a.peer[m.t] + (a.ctl - a.peer[0]), which, a.rank), count);
}
template <int W> DEV void raise(const Args &a, const Team<W> &m, u32 which, u32 count) {
  raise(a, m, which, count, 1, a.n - 1);
}

// await waits until every peer has raised at least count. All threads of the team return
// the same answer; false means abort.
template <int W> DEV bool await(const Args &a, const Team<W> &m, u32 which, u32 count) {
  bool bad = false;
  if (m.t > 0 && m.t < a.n) {
    u32 src = peerAt(a, m.t);
    bad = !waitCounter(a, counter(a.ctl, which, src), count, src);
  }
  return !any(m, bad);
}

// Push is a kernel's way: whether results go to all ranks (GATHER), the element type,
// ranks, threads of a team, units of a chunk and slots.
template <bool GATHER, int T, int N, int W, int CHUNK, int DEPTH> struct Push {
  enum { ROUNDS = CHUNK / W };

  // Part is where chunk j of slice d lies: unit index in the segments, units in it, and
  // the slice whose bytes are to be added to a source address.
  struct Part {
    u32 unit, count;
    u64 slice;
  };
  DEV Part part(const Args &a, u32 j, u32 d) {
    u32 from = j * CHUNK, all = GATHER ? a.per : a.units, count = all - from < CHUNK ? all - from : CHUNK;
    if (!GATHER)
      return Part{from, count, d};
    from += d * a.per;
    if (from >= a.units)
      return Part{from, 0, 0};
    return Part{from, a.units - from < count ? a.units - from : count, 0};
  }

  // chunks gives the number of this block's.
  DEV u32 chunks(const Args &a) {
    u32 all = GATHER ? a.per : a.units, n = (all + CHUNK - 1) / CHUNK;
    return bid() < n ? (n - bid() + nblocks() - 1) / nblocks() : 0;
  }

  // stage is where slot holds what rank src sent to this block, from the staging's begin.
  // The blocks' chunks of a source lie side by side, so that few pages are in use at once.
  DEV u64 stage(u32 slot, u32 src) { return ((u64)(slot * N + src) * nblocks() + bid()) * (CHUNK * 16); }

  // push sends this block's chunk i, the done+i-th of all calls, to peer k.
  template <class A> DEV void push(const A &p, u32 t, u32 i, u32 done, u32 k) {
    const Args &a = p.a;
    Part c = part(a, bid() + i * nblocks(), peerAt(a, k));
    u64 to = a.peer[k] + a.scratch + stage((done + i) % DEPTH, a.rank) + t * 16;
    Piece<16> u;
    if (c.count == CHUNK && whole(p, c.unit, CHUNK, u)) {
      V4 v[ROUNDS];
      u64 src = u.s->src + c.slice * u.s->bytes + u.off + t * 16;
#pragma unroll
      for (int h = 0; h < ROUNDS; h++)
        v[h] = ld4(src + h * W * 16);
#pragma unroll
      for (int h = 0; h < ROUNDS; h++)
        st4(to + h * W * 16, v[h]);
      return;
    }
#pragma unroll 1
    for (u32 i = t; i < c.count; i += W) {
      u = find<16>(p, c.unit + i);
      st4(to + (i - t) * 16, load4(u, u.s->src + c.slice * u.s->bytes));
    }
  }

  // fold adds this block's chunk i of all ranks.
  template <class A> DEV void fold(const A &p, u32 t, u32 i, u32 done) {
    const Args &a = p.a;
    Part c = part(a, bid() + i * nblocks(), a.rank);
    const u64 at = a.peer[0] + a.scratch + stage((done + i) % DEPTH, 0) + t * 16, step = stage(0, 1) - stage(0, 0);
    Piece<16> u;
    if (c.count == CHUNK && whole(p, c.unit, CHUNK, u)) {
      constexpr int U = N > 4 ? 1 : 2;
      u64 src = u.s->src + c.slice * u.s->bytes + u.off + t * 16, dst = u.s->dst + u.off + t * 16;
#pragma unroll 1
      for (int h = 0; h < ROUNDS; h += U) {
        V4 v[U][N];
#pragma unroll
        for (int i = 0; i < U; i++) {
#pragma unroll
          for (int r = 0; r < N; r++) {
            u64 from = r == (int)a.rank ? src : at + r * step;
            v[i][r] = ld4sys(from + (h + i) * W * 16);
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
          u64 off = dst + (h + i) * W * 16;
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
    for (u32 i = t; i < c.count; i += W) {
      u = find<16>(p, c.unit + i);
      Acc<T> s;
#pragma unroll
      for (int r = 0; r < N; r++) {
        V4 v = r == (int)a.rank ? load4(u, u.s->src + c.slice * u.s->bytes) : ld4sys(at + r * step + (i - t) * 16);
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

  // enter begins a call: e is its number among direct collectives, done the chunks of
  // this block in earlier ones. It ends the kernel of an aborted group.
  DEV void enter(const Args &a, u32 &e, u32 &done) {
    e = ld1(a.ctl + CTL_LEPOCH + 4 * bid()) + 1;
    done = ld1(a.ctl + CTL_CHUNKS + 4 * bid());
    u32 gone = ldsys(a.ctl + CTL_ABORT);
    quitIf(a, __nvvm_bar0_or(gone != 0));
    if (bid() == 0 && tid() < a.n) // keeps the count of direct collectives that others wait for
      addRelaxed(a.peer[tid()] + (a.ctl - a.peer[0]) + CTL_ENTRY + 4 * a.rank, 1);
  }

  // leave ends it after done chunks of all calls. Credits that were not given count as
  // given, else a counter that short calls leave alone would look ahead of the chunks
  // once they are 2^31 further. A credit that comes later only says less.
  DEV void leave(const Args &a, u32 e, u32 done) {
    u32 t = tid();
    if (t > 0 && t < a.n)
      stsys(counter(a.ctl, CTL_CREDIT, peerAt(a, t)), done);
    if (t == 0)
      st1(a.ctl + CTL_CHUNKS + 4 * bid(), done);
    ::leave(a, e);
  }
};

// Direct collectives read or write the peers' tensors in symmetric memory with no
// scratch between. They are framed by two barriers of the group's kernels:
//
//   enter: block 0 tells every peer that this rank's kernel has started, so its
//          earlier work is done and its tensors are ready; every block waits for
//          all peers. The message is relaxed: it announces writes of earlier kernels
//          of the stream to this rank's memory, which their end made visible (see
//          barrier.cu). It releases what the copy unit wrote to peers' memory
//          (reducescatter_sent.cu). The wait acquires, because this kernel goes on
//          to read.
//   leave: every block tells the same block of every peer that it is done with
//          the peer's memory, and waits for it; when a rank's kernel has ended,
//          all blocks of all peers are done with its memory.
//
// All ranks launch the same number of blocks. A counter of direct calls per rank
// is the value both barriers wait for, compared wrap-safe; the entry counters
// are added to, so that the message leaves before the own count has been read.
//
// Exit counters of blocks that no grid has for half of all counts would seem to be
// ahead. So in every REFRESH-th call the rank itself sets those of blocks that the call
// has not, before its exit message: a peer writes them again in a later call only.
#pragma once
#include "reduce.h"

enum { REFRESH = 1 << 30 };

// enter gives the call's number, or false when the group is aborted.
template <bool RELEASE = false> DEV bool enter(const Args &a, u32 &e) {
  u32 t = tid();
  e = ld1(a.ctl + CTL_LEPOCH + 4 * bid()) + 1;
  bool bad = ldsys(a.ctl + CTL_ABORT) != 0;
  if (t < a.n && !bad) {
    if (bid() == 0) {
      u64 to = a.peer[t] + (a.ctl - a.peer[0]) + CTL_ENTRY + 4 * a.rank;
      if constexpr (RELEASE)
        addRelease(to, 1);
      else
        addRelaxed(to, 1);
    }
    u32 src = peerAt(a, t);
    bad = !waitCounter(a, a.ctl + CTL_ENTRY + 4 * src, e, src);
  }
  if (__nvvm_bar0_or(bad) == 0)
    return true;
  left(a);
  return false;
}

DEV void leave(const Args &a, u32 e) {
  u32 t = tid();
  syncBlock();
  if (t < a.n) {
    u32 src = peerAt(a, t);
    if (__builtin_expect(e % REFRESH == 0 && bid() == 0, 0)) {
#pragma unroll 1
      for (u32 b = nblocks(); b < MAXBLOCKS; b++)
        stsys(a.ctl + CTL_EXIT + 4 * (b * MAXRANKS + src), e);
    }
    stRelease(a.peer[t] + (a.ctl - a.peer[0]) + CTL_EXIT + 4 * (bid() * MAXRANKS + a.rank), e);
    if (!waitCounter(a, a.ctl + CTL_EXIT + 4 * (bid() * MAXRANKS + src), e, src)) {
      left(a);
      return;
    }
  }
  writeEpoch(a, CTL_LEPOCH, e);
}

// toPeer turns an address of ours into peer k's.
DEV u64 toPeer(const Args &a, u32 k, u64 addr) { return addr - a.peer[0] + a.peer[k]; }

// inRankOrder turns v[k], the value of group rank rank+k, into v[r] of rank r.
template <int N> DEV void inRankOrder(u32 rank, V4 (&v)[N]) {
#pragma unroll
  for (int b = 1; b < N; b *= 2) {
    bool turn = (rank & b) != 0;
    V4 o[N];
#pragma unroll
    for (int j = 0; j < N; j++)
      o[j] = v[j];
#pragma unroll
    for (int j = 0; j < N; j++) {
      V4 f = o[(j + N - b) % N];
      v[j].x = turn ? f.x : o[j].x;
      v[j].y = turn ? f.y : o[j].y;
      v[j].z = turn ? f.z : o[j].z;
      v[j].w = turn ? f.w : o[j].w;
    }
  }
}
template <int T, int N> DEV V4 sumRotated(const Args &a, V4 (&v)[N]) {
  inRankOrder<N>(a.rank, v);
  Acc<T> s;
  accSet<T>(s, v[0]);
#pragma unroll
  for (int r = 1; r < N; r++)
    accAdd<T>(s, v[r]);
  return accGet<T>(s, a.op, N);
}

// whole says whether units [i, i+count) lie in one segment, whole and aligned,
// and gives the segment.
template <class A> DEV bool whole(const A &p, u32 i, u32 count, Piece<16> &u) {
  u = find<16>(p, i);
  return u.all && u.off + (u64)count * 16 <= u.s->bytes;
}

// anySum folds unit u of all ranks, read at base in each rank's memory, in rank
// order, for any type and reduction; T is the type when it is known, and then the
// reduction is a sum or an average. The two halves of a unit are folded apart.
template <int T> DEV V4 anySum(const Args &a, const Piece<16> &u, u64 base) {
  const u32 type = T ? T : a.dtype, op = T && a.op != AVG ? SUM : (T ? AVG : a.op);
  Any s[2];
#pragma unroll 1
  for (u32 r = 0; r < a.n; r++) {
    u32 k = r >= a.rank ? r - a.rank : r + a.n - a.rank;
    V4 v = u.all ? ld4sys(toPeer(a, k, base) + u.off) : load4(u, toPeer(a, k, base));
    u64 h[2] = {v.x | (u64)v.y << 32, v.z | (u64)v.w << 32};
#pragma unroll
    for (int j = 0; j < 2; j++) {
      if (r == 0)
        anySet(s[j], type, h[j]);
      else
        anyFold(s[j], type, T ? SUM : op, h[j]);
    }
  }
  u64 lo = anyGet(s[0], type, op, a.n), hi = anyGet(s[1], type, op, a.n);
  return V4{(u32)lo, (u32)(lo >> 32), (u32)hi, (u32)(hi >> 32)};
}

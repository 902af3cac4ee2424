// The protocol of a matmul that gathers its left operand: every rank has rows of it and multiplies
// those of all, its own first, while the others' come.
//
//   enter: block 0 tells every peer that this rank's kernel has begun, so that its gathered rows
//          may be written. As in direct.h the message is relaxed: it announces earlier kernels.
//   send:  the warps of the producer's warpgroup that load nothing write the own rows to the peers,
//          first to the one that takes them first. Pieces are dealt out by a ticket: blocks that run
//          send them all, even if others have to wait for room on the device, so that what a peer
//          waits for never depends on a block that waits for a peer.
//   flag:  the block that sends the last piece to a peer has acquired what the others sent, and
//          releases the flag of this rank there.
//   take:  a producer acquires a rank's flag before it loads the first of its rows, and fences
//          the proxies, since the copy unit reads what threads wrote.
//
// Nobody waits at the end: all that a kernel is sent has come when it has taken it, and it takes
// the rows of all. Epochs count these matmuls, each block has a copy (prelude.h).
//
// Who aborts in a wait sends no more, or multiplies what lies there: warpgroups and clusters
// that wait for each other's tiles go on to the end as always, and the host is told.
#pragma once
#include "bulk.h"

// Gather is the last parameter of such a kernel. The segment is the own rows, and where those of
// rank 0 lie, in pieces of a.per units of 16 bytes.
struct Gather {
  static constexpr bool gathers = true, scatters = false;
  Args a;
  Seg seg;
};

enum { SENDERS = 96 }; // threads of a block that send

DEV u32 addAcqRel(u64 a, u32 v) { // gives the old value
  u32 o;
  asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;" : "=r"(o) : "l"(a), "r"(v) : "memory");
  return o;
}
DEV void syncSenders() { asm volatile("bar.sync 4, 96;" ::: "memory"); }

// take waits for the rows of rank src. Who aborts goes on.
DEV void take(const Args &a, u32 e, u32 src) {
  if (!waitCounter(a, a.ctl + CTL_GATHERED + 4 * src, e, src))
    left(a);
  fenceProxy();
}

// Sending is what a block sends next, in shared memory. Producers have few registers: so one thread
// finds out, and nothing of that is held while all copy (cold).
struct Sending {
  u64 to, from;
  u32 units; // or one of these
};
enum { NOTHING = 0, GIVE_UP = 0xffffffff };

// deal takes a ticket and fills s. It gives the peer that takes these rows as its k-th; n is this rank
// itself, the last of all, unless the rows are in their place. entered is the last peer that has begun.
DEV u32 deal(const Gather &p, u32 e, u32 &entered, volatile Sending *s) {
  const Args &a = p.a;
  u64 ctl = cold(a.ctl), place = cold(p.seg.dst) + a.rank * p.seg.bytes;
  u32 pieces = (a.units + a.per - 1) / a.per, ticket = addAcqRel(ctl + CTL_TICKET, 1), k = 1 + ticket / pieces;
  if (k > a.n || (k == a.n && place == p.seg.src)) {
    s->units = NOTHING;
    return k;
  }
  if (k > entered && k < a.n) {
    entered = k;
    u32 to = peerAt(a, a.n - k);
    if (ldsys(ctl + CTL_ABORT) != 0 || !waitCounter(a, ctl + CTL_CAME + 4 * to, e, to)) {
      left(a);
      s->units = GIVE_UP;
      return k;
    }
  }
  u32 first = (ticket - (k - 1) * pieces) * a.per, rest = a.units - first;
  s->to = toPeer(a, k < a.n ? a.n - k : 0, place) + (u64)first * 16;
  s->from = p.seg.src + (u64)first * 16;
  s->units = rest < a.per ? rest : a.per;
  return k;
}

// copyUnits is what thread t of the senders copies.
DEV void copyUnits(u64 to, u64 from, u32 units, u32 t) {
  constexpr u32 U = 4, STRIDE = SENDERS * 16;
  to += t * 16, from += t * 16;
#pragma unroll 1
  for (; t + (U - 1) * SENDERS < units; t += U * SENDERS, to += U * STRIDE, from += U * STRIDE) {
    V4 v[U];
#pragma unroll
    for (u32 j = 0; j < U; j++)
      v[j] = ld4(from + j * STRIDE);
#pragma unroll
    for (u32 j = 0; j < U; j++)
      st4(to + j * STRIDE, v[j]);
  }
#pragma unroll 1
  for (; t < units; t += SENDERS, to += STRIDE, from += STRIDE)
    st4(to, ld4(from));
}

// sent counts a piece for peer k, and raises the flag there behind the last.
DEV void sent(const Args &a, u32 e, u32 k) {
  u64 ctl = cold(a.ctl), count = ctl + CTL_SENT + 4 * k;
  if (addAcqRel(count, 1) != (a.units + a.per - 1) / a.per - 1)
    return;
  stsys(count, 0);
  stRelease(toPeer(a, a.n - k, ctl) + CTL_GATHERED + 4 * a.rank, e);
}

// send is what the threads of a block that send do; t numbers them.
DEV void send(const Gather &p, u32 e, u32 t, volatile Sending *s) {
  const Args &a = p.a;
  u32 entered = 0, k = 0;
  if (bid() == 0 && t > 0 && t < a.n)
    addRelaxed(toPeer(a, t, a.ctl) + CTL_CAME + 4 * a.rank, 1);
  for (;;) {
    if (t == 0)
      k = deal(p, e, entered, s);
    syncSenders();
    u32 units = s->units;
    if (units == GIVE_UP)
      return;
    if (units == NOTHING)
      break;
    copyUnits(s->to, s->from, units, t);
    syncSenders();
    if (t == 0 && k < a.n)
      sent(a, e, k);
  }
  // The last block that has seen that no ticket is left puts them back.
  if (t == 0 && addAcqRel(a.ctl + CTL_SENDERS, 1) == nblocks() - 1) {
    stsys(a.ctl + CTL_TICKET, 0);
    stsys(a.ctl + CTL_SENDERS, 0);
  }
#pragma unroll 1
  for (u32 c = bid() + t * nblocks(); c < MAXBLOCKS; c += SENDERS * nblocks())
    st1(a.ctl + CTL_GATHERS + 4 * c, e);
}

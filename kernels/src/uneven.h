// The uneven all_to_all: pieces of any size, each pair of ranks its own. It sends every peer
// the size of its piece, so that the protocol's rule holds for peers that exchange nothing,
// and so that ranks that disagree on a size end with an error.
#pragma once
#include "flagged.h"
#include "packet.h"

// Row d of the table: what goes to rank d and what comes from it.
struct ArgsV {
  Args a; // per, region and units as below
  u64 src[MAXRANKS], dst[MAXRANKS], send[MAXRANKS], recv[MAXRANKS]; // addresses and bytes
};

// ---- uneven, pieces of any size ---------------------------------------------------
//
// A rank knows the sizes of its own pieces only, so the two ranks of a piece decide how
// it travels: up to a.region bytes by packets, and what is larger by chunks of a.per
// bytes, through the same slot. Chunks are dealt out to the blocks in turn, and each
// block has DEPTH places for them in a slot. The sender fills one and raises the count
// of chunks staged, the receiver takes it and raises the count of those taken. Both are
// packets, words of count and epoch, so they need no reset; block b's pair of a slot is
// b-th of the packets at its end, staged first. A slot is written by one peer: what it
// staged, and what it took of ours. Its last packet is the size of the piece.
//
// Staged bytes may look like packets of any epoch, so the receiver leaves zeros in the
// place of what it takes. It does before it says that it took it, or before its kernel
// ends, and so before the place is written again.
//
// a.units is the rounds of chunks that this rank takes part in. Where it takes part in
// none, all_to_all_uneven_ll does, whatever the peers run: the grid is the same.
enum { DEPTH = 4 };

DEV bool aligned16(u64 x) { return (x & 15) == 0; }

// carry copies bytes, dealt out to stride threads of which this is number first. FILL
// writes to staging and TAKE reads from there, where there is room for whole units; TAKE
// leaves zeros.
enum { OWN, FILL, TAKE };
template <int WAY> DEV void carry(u64 to, u64 from, u64 bytes, u64 first, u64 stride) {
  constexpr int U = 4;
  u64 units = (bytes + 15) / 16, i = first;
  u64 whole = (WAY == FILL || aligned16(to)) && (WAY == TAKE || aligned16(from)) ? bytes / 16 : 0;
#pragma unroll 1
  for (; i + (U - 1) * stride < whole; i += U * stride) {
    V4 v[U];
#pragma unroll
    for (int j = 0; j < U; j++)
      v[j] = WAY == TAKE ? ld4sys(from + (i + j * stride) * 16) : ld4(from + (i + j * stride) * 16);
#pragma unroll
    for (int j = 0; j < U; j++) {
      st4(to + (i + j * stride) * 16, v[j]);
      if (WAY == TAKE)
        st4(from + (i + j * stride) * 16, V4{0, 0, 0, 0});
    }
  }
#pragma unroll 1
  for (; i < units; i += stride) {
    u64 left = bytes - i * 16;
    V4 v;
    if (WAY == TAKE)
      v = ld4sys(from + i * 16);
    else
      v = i < whole ? ld4(from + i * 16) : ld4any(from + i * 16, left, (from & 3) == 0 ? 2 : 0);
    if (WAY == FILL || i < whole)
      st4(to + i * 16, v);
    else
      st4any(to + i * 16, left, (to & 3) == 0 ? 2 : 0, v);
    if (WAY == TAKE)
      st4(from + i * 16, V4{0, 0, 0, 0});
  }
}

// Chunk is this block's t-th of a piece of so many bytes: none if it has no bytes.
struct Chunk {
  u64 off;
  u32 bytes;
};
DEV Chunk chunk(const Args &a, u64 bytes, u32 t) {
  u64 off = ((u64)t * nblocks() + bid()) * a.per;
  if (bytes <= a.region || off >= bytes)
    return Chunk{0, 0};
  return Chunk{off, bytes - off < a.per ? (u32)(bytes - off) : a.per};
}

// place is where chunk t of this block lies in a slot, and counts where its two counts do.
DEV u64 place(const Args &a, u64 slot, u32 t) { return slot + (u64)(bid() * DEPTH + t % DEPTH) * a.per; }
DEV u64 size(const Args &a, u64 slot) { return slot + a.slot - 16; }
DEV u64 counts(const Args &a, u64 slot) { return size(a, slot) - (nblocks() - bid()) * 16; }
enum { STAGED = 0, TAKEN = 8 };

DEV void say(u64 addr, u32 count, u32 e) {
  asm volatile("st.release.sys.global.b64 [%0], %1;" ::"l"(addr), "l"((u64)e << 32 | count) : "memory");
}
DEV bool heard(const Args &a, u64 addr, u32 count, u32 e, u32 peer) {
  Wait w = {0, 0};
  for (;;) {
    u64 v;
    asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(v) : "l"(addr) : "memory");
    if ((u32)(v >> 32) == e && (u32)v >= count)
      return true;
    if (stuck(a, w, peer, count, (u32)v))
      return false;
  }
}

// chunks moves the large pieces. It pushes a round ahead of what it takes. False means
// abort.
DEV bool chunks(const ArgsV &p, u64 half, u32 e) {
  const Args &a = p.a;
  const u32 d = peerAt(a, tid() < a.n ? tid() : 0); // the peer that this thread talks to
  const bool talks = tid() > 0 && tid() < a.n;
  const u64 there = a.peer[tid() < a.n ? tid() : 0] + half + a.rank * a.slot, here = a.peer[0] + half + d * a.slot;
#pragma unroll 1
  for (u32 t = 0; t <= a.units; t++) {
    if (t < a.units) {
      bool bad = t >= DEPTH && talks && chunk(a, p.send[d], t).bytes != 0 && !heard(a, counts(a, here) + TAKEN, t - DEPTH + 1, e, d);
      if (__nvvm_bar0_or(bad))
        return false;
#pragma unroll 1
      for (u32 k = 1; k < a.n; k++) {
        u32 r = peerAt(a, k);
        Chunk c = chunk(a, p.send[r], t);
        carry<FILL>(place(a, a.peer[k] + half + a.rank * a.slot, t), p.src[r] + c.off, c.bytes, tid(), nthreads());
      }
      syncBlock();
      if (talks && chunk(a, p.send[d], t).bytes != 0)
        say(counts(a, there) + STAGED, t + 1, e);
    }
    if (t > 0) {
      bool bad = talks && chunk(a, p.recv[d], t - 1).bytes != 0 && !heard(a, counts(a, here) + STAGED, t, e, d);
      if (__nvvm_bar0_or(bad))
        return false;
#pragma unroll 1
      for (u32 k = 1; k < a.n; k++) {
        u32 r = peerAt(a, k);
        Chunk c = chunk(a, p.recv[r], t - 1);
        carry<TAKE>(p.dst[r] + c.off, place(a, a.peer[0] + half + r * a.slot, t - 1), c.bytes, tid(), nthreads());
      }
      syncBlock();
      if (talks && chunk(a, p.recv[d], t - 1 + DEPTH).bytes != 0)
        say(counts(a, there) + TAKEN, t, e);
    }
  }
  return true;
}

// wipeSlots is Flagged::end. Blocks of chunks clear their own places and counts: others
// are not done with theirs, nor are packets and chunks of one slot both ways.
template <bool LARGE> DEV void wipeSlots(const ArgsV &p, u64 half) {
  const Args &a = p.a;
#pragma unroll 1
  for (u32 r = 0; r < a.n; r++) {
    u64 slot = a.peer[0] + half + r * a.slot, end = a.slot / 16 - 1 - (LARGE ? nblocks() : 0), own = DEPTH * a.per / 16;
    if (LARGE && tid() == 0)
      st4(counts(a, slot), V4{0, 0, 0, 0});
    if (LARGE && p.recv[r] > a.region)
      wipe(slot, bid() * own + tid(), bid() + 1 == nblocks() ? end : (bid() + 1) * own, nthreads());
    else
      wipe(slot, (p.recv[r] + 7) / 8 + bid() * nthreads() + tid(), end, nblocks() * nthreads());
  }
}

// agreed waits for the size of the piece from a rank and ends the group if this one expects another.
DEV void agreed(const ArgsV &p, u64 half, u32 e, u32 r) {
  u64 want = p.recv[r];
  u64 sent = r == p.a.rank ? p.send[r] : receiveOne(p.a, size(p.a, p.a.peer[0] + half + r * p.a.slot), e, r);
  if (sent == want)
    return;
  report(p.a, CODE_MISMATCH, r, (u32)want, (u32)sent, want >> 32 | (sent >> 32) << 32);
  quit(p.a);
}

DEV bool aligned8(u64 x) { return (x & 7) == 0; }

template <bool LARGE> DEV void uneven(const ArgsV &p) {
  const Args &a = p.a;
  u32 e = readEpoch(a, CTL_FLAGGED);
  u32 gone = ldsys(a.ctl + CTL_ABORT);
  if (LARGE)
    gone = __nvvm_bar0_or(gone != 0);
  quitIf(a, gone);
  u32 stride = nblocks() * nthreads(), first = bid() * nthreads() + tid();
  u64 half = a.scratch + ((e & 1) ? a.half : 0);
  const u32 about = stride - 1 - first; // the last threads, which have least to do, exchange sizes
  if (about > 0 && about < a.n)
    st2x8sys(size(a, a.peer[about] + half + a.rank * a.slot), flagged(p.send[peerAt(a, about)], e));
  for (u32 k = 0; k < a.n; k++) {
    u32 d = peerAt(a, k);
    u64 src = p.src[d], bytes = p.send[d];
    if (k == 0 && p.recv[d] < bytes)
      bytes = p.recv[d];
    if (LARGE && bytes > a.region) {
      if (k == 0)
        carry<OWN>(p.dst[d], src, bytes, first, stride);
      continue;
    }
    for (u64 i = first; i * 8 < bytes; i += stride) {
      u64 left = bytes - i * 8;
      u64 v = aligned8(src) && left >= 8 ? ld8(src + i * 8) : ld8any(src + i * 8, left);
      if (k != 0)
        st2x8sys(a.peer[k] + half + a.rank * a.slot + i * 16, flagged(v, e));
      else if (aligned8(p.dst[d]) && left >= 8)
        st8(p.dst[d] + i * 8, v);
      else
        st8any(p.dst[d] + i * 8, left, v);
    }
  }
  if (about < a.n)
    agreed(p, half, e, peerAt(a, about));
  if (LARGE && !chunks(p, half, e)) {
    left(a);
    return;
  }
  for (u32 k = 1; k < a.n; k++) {
    u32 r = peerAt(a, k);
    u64 dst = p.dst[r], bytes = p.recv[r];
    if (LARGE && bytes > a.region)
      continue;
    for (u64 i = first; i * 8 < bytes; i += stride) {
      u64 left = bytes - i * 8, d;
      d = receiveOne(a, a.peer[0] + half + r * a.slot + i * 16, e, r);
      if (aligned8(dst) && left >= 8)
        st8(dst + i * 8, d);
      else
        st8any(dst + i * 8, left, d);
    }
  }
  if (!LARGE) // a warp of this block that has not read the epoch yet must not find the next one
    syncBlock();
  writeEpoch(a, CTL_FLAGGED, e);
  if (__builtin_expect(e >= WIPES, 0))
    wipeSlots<LARGE>(p, half);
}

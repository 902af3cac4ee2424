// Co-resident kernels run on multiprocessors that matmuls occupy. A matmul keeps a
// multiprocessor for one block and leaves of it what its tile does not need.
// On H200s that is room for two blocks of one warp with 32 registers a lane, not for
// one block of two warps, and 6 KB of shared memory at the least, of which every block
// takes one for itself. Such a block begins at once; any larger one waits until a
// block of the matmul ends, which for matmuls with one block on each multiprocessor
// is the matmul's end. The room seems to be given out once: after two such blocks a
// third waits, though the first have ended. So grids are small (kernels/coresident.go).
//
// So few registers hold too few loads in flight. Bytes come by asynchronous copies
// into a ring in shared memory; every lane copies, reads and refills slots of its
// own, so lanes never wait for each other, and a slot is read before it is refilled
// in the order of one thread.
//
// They wait for nobody. What they read was complete before they began: own
// operands by the order of the stream, staged pieces by flags that the stream waits
// for before it; so weak accesses serve. Any grid does.
#pragma once
#include "reduce.h"

// The compiler may not use more than 32 registers: two blocks of 1024 threads have
// to fit a multiprocessor.
#define CORESIDENT GLOBAL void BOUNDS(1024, 2)

enum { LANES = 32 };

DEV u32 sharedAt(const void *p) { return (u32)(u64)(__attribute__((address_space(3))) const void *)p; }

// fetch copies a unit of 16 bytes to a slot; both ends are aligned to it.
DEV void fetch(u32 slot, u64 from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(slot), "l"(from) : "memory");
}
// fetched ends a group of fetches; there are groups of none.
DEV void fetched() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// arrived waits until all but the last LATER groups of this lane have come.
template <int LATER> DEV void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory"); }

DEV V4 ldSlot(u32 slot) {
  V4 v;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(slot) : "memory");
  return v;
}

DEV u32 ldHalf(u64 a) {
  u32 v;
  asm volatile("{.reg .b16 h; ld.global.b16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(v) : "l"(a));
  return v;
}
DEV void stHalf(u64 a, u32 v) {
  asm volatile("{.reg .b16 h; cvt.u16.u32 h, %1; st.global.b16 [%0], h;}" ::"l"(a), "r"(v) : "memory");
}

// mine is this lane's first unit of those dealt out to blocks from block first on,
// stride the distance to its next.
DEV u32 mine(u32 first) { return first * LANES + tid(); }
DEV u32 stride() { return nblocks() * LANES; }

// ---- copies -------------------------------------------------------------------

DEV void copyBytes(u64 dst, u64 src, u32 bytes) { // fewer than a warp has lanes
  if (tid() < bytes)
    stByte(dst + tid(), ldByte(src + tid()));
}

// ringCopy copies units of 16 bytes between aligned addresses.
template <int SLOTS> DEV void ringCopy(u32 ring, u64 dst, u64 src, u32 units, u32 first) {
  constexpr u32 ROW = LANES * 16;
  const u32 step = stride();
  u32 i = mine(first), slot = 0;
  ring += tid() * 16;
#pragma unroll 1
  for (u32 k = 0; k < SLOTS; k++) {
    u32 next = i + k * step;
    if (next < units)
      fetch(ring + k * ROW, src + (u64)next * 16);
    fetched();
  }
#pragma unroll 1
  for (; i < units; i += step) {
    arrived<SLOTS - 1>();
    st4(dst + (u64)i * 16, ldSlot(ring + slot));
    u32 next = i + SLOTS * step;
    if (next < units)
      fetch(ring + slot, src + (u64)next * 16);
    fetched();
    slot = slot == (SLOTS - 1) * ROW ? 0 : slot + ROW;
  }
}

// shiftCopy copies words of 4 bytes to an aligned address from any: a word of the
// result is made of the two that hold its bytes. LOADS words of a lane are under way.
template <int LOADS> DEV void shiftCopy(u64 dst, u64 src, u64 words, u32 first) {
  const u32 step = stride(), turn = ((u32)src & 3) * 8;
  src &= ~3ull;
#pragma unroll 1
  for (u64 i = mine(first); i < words; i += LOADS * step) {
    u32 lo[LOADS], hi[LOADS];
#pragma unroll
    for (u32 j = 0; j < LOADS; j++) {
      u64 at = src + 4 * (i + j * step);
      lo[j] = hi[j] = 0;
      if (i + j * step < words) {
        lo[j] = ld1(at);
        if (turn != 0)
          hi[j] = ld1(at + 4);
      }
    }
#pragma unroll
    for (u32 j = 0; j < LOADS; j++) {
      if (i + j * step < words)
        st1(dst + 4 * (i + j * step), (u32)((lo[j] | (u64)hi[j] << 32) >> turn));
    }
  }
}

// coresidentCopy copies the segments one after the other. Addresses of EVEN ones are equal
// modulo 16.
template <bool EVEN, int SLOTS, class A> DEV void coresidentCopy(const A &p, u32 ring) {
  constexpr u32 UNIT = EVEN ? 16 : 4;
#pragma unroll 1
  for (u32 i = 0; i < (sizeof(A) == sizeof(Args1) ? 1 : p.a.nseg); i++) {
    u64 dst = p.seg[i].dst, src = p.seg[i].src, bytes = p.seg[i].bytes;
    // What lies before the first aligned byte and after the last whole unit goes
    // byte by byte.
    u32 head = (0 - (u32)dst) & (UNIT - 1);
    if (head > bytes)
      head = (u32)bytes;
    // Segments begin at different blocks, so that short ones spread.
    u32 first = (bid() + nblocks() - p.seg[i].unit0 / LANES % nblocks()) % nblocks();
    if (first == 0)
      copyBytes(dst, src, head);
    dst += head, src += head, bytes -= head;
    u32 tail = (u32)bytes & (UNIT - 1);
    if (first == 0)
      copyBytes(dst + (bytes - tail), src + (bytes - tail), tail);
    if (EVEN)
      ringCopy<SLOTS>(ring, dst, src, (u32)(bytes / UNIT), first);
    else
      shiftCopy<sizeof(A) == sizeof(Args1) ? 4 : 2>(dst, src, bytes / UNIT, first);
  }
}

// ---- reductions ---------------------------------------------------------------

// Pieces walks over the ranks' pieces at one offset: the own one is in the operand,
// others are in staging. Few registers hold it, so the compiler must not work out the
// addresses of all ranks ahead of time.
struct Pieces {
  u64 own, staged;
};
DEV Pieces piecesAt(const Args1 &p, u64 off) { return Pieces{p.seg[0].src + off, p.a.peer[0] + p.a.scratch + off}; }
DEV u64 piece(const Args1 &p, Pieces &w, u32 r) { // of ranks 0, 1, ... in turn
  u64 from = r == p.a.rank ? w.own : w.staged;
  w.staged = cold(w.staged) + p.a.slot;
  return from;
}

// reduceLast reduces the elements after the last whole unit, a lane each.
template <int T, int N> DEV void reduceLast(const Args1 &p) {
  constexpr u32 SIZE = T == F32 ? 4 : 2;
  u64 at = (p.seg[0].bytes & ~15ull) + tid() * SIZE;
  if (at >= p.seg[0].bytes)
    return;
  Pieces w = piecesAt(p, at);
  float s = 0;
#pragma unroll
  for (u32 r = 0; r < N; r++) {
    u64 from = piece(p, w, r);
    float f = T == F32 ? asF(ld1(from)) : lowF<T>(ldHalf(from));
    s = r == 0 ? f : addF(s, f);
  }
  if (p.a.op == AVG)
    s = meanF(s, N);
  if (T == F32)
    st1(p.seg[0].dst + at, asU(s));
  else
    stHalf(p.seg[0].dst + at, packF<T>(s, s));
}

// coresidentReduce reduces pieces of N ranks; all addresses are aligned to 16. Pieces go
// through SLOTS slots, a multiple of N, in the order of units and, within each, of
// ranks; each is waited for by itself and its slot refilled at once.
template <int T, int N, int SLOTS> DEV void coresidentReduce(const Args1 &p, u32 ring) {
  constexpr u32 ROW = LANES * 16, UNITS = SLOTS / N;
  const u32 step = stride(), units = (u32)(p.seg[0].bytes / 16);
  u32 i = mine(bid()), unit = 0;
  ring += tid() * 16;
#pragma unroll 1
  for (u32 k = 0; k < UNITS; k++) {
    u32 next = i + k * step;
    Pieces w = piecesAt(p, (u64)next * 16);
#pragma unroll
    for (u32 r = 0; r < N; r++) {
      u64 from = piece(p, w, r);
      if (next < units)
        fetch(ring + (k * N + r) * ROW, from);
      fetched();
    }
  }
#pragma unroll 1
  for (; i < units; i += step) {
    u32 next = i + UNITS * step, slot = ring + unit;
    Pieces w = piecesAt(p, (u64)next * 16);
    Acc<T> s;
#pragma unroll
    for (u32 r = 0; r < N; r++) {
      arrived<SLOTS - 1>();
      V4 v = ldSlot(slot + r * ROW);
      if (r == 0)
        accSet<T>(s, v);
      else
        accAdd<T>(s, v);
      u64 from = piece(p, w, r);
      if (next < units)
        fetch(slot + r * ROW, from);
      fetched();
    }
    st4(p.seg[0].dst + (u64)i * 16, accGet<T>(s, p.a.op, N));
    unit = unit == (UNITS - 1) * N * ROW ? 0 : unit + N * ROW;
  }
  if (bid() == units / LANES % nblocks())
    reduceLast<T, N>(p);
}

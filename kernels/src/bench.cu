// Kernels that tests and benchmarks need: a delay, inputs that differ by rank, a
// check of results on the device, and plain transfers that show what the links
// can carry.
#include "direct.h"

GLOBAL void empty() {}

// delay spins for ns nanoseconds.
GLOBAL void delay(u64 ns) {
  u64 t = now();
  while (now() - t < ns)
    ;
}

// set writes count 32-bit words.
GLOBAL void set32(u64 at, u64 count, u32 v) {
  for (u64 i = (u64)bid() * nthreads() + tid(); i < count; i += (u64)nblocks() * nthreads())
    st1(at + 4 * i, v);
}

DEV u32 mix(u64 x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return (u32)x;
}
// value is element i of rank r's input: a small float of either sign with few
// enough bits for every type, whose sums still round.
DEV float value(u32 seed, u32 r, u64 i) {
  u32 h = mix(((u64)seed << 48) ^ ((u64)r << 40) ^ i);
  return (float)((i32)(h & 0xff) - 128) * asF((118 + (h >> 8 & 7)) << 23);
}
DEV u32 roundTo(u32 t, float f) { // bits of f in type t
  if (t == BF16)
    return packF<BF16>(f, 0) & 0xffff;
  if (t == F16)
    return packF<F16>(f, 0) & 0xffff;
  return asU(f);
}
DEV float widen(u32 t, u32 b) { return t == BF16 ? lowF<BF16>(b) : t == F16 ? lowF<F16>(b) : asF(b); }
DEV u32 bitsAt(u32 t, u64 at, u64 i) {
  if (t == F32)
    return ld1(at + 4 * i);
  return ldByte(at + 2 * i) | ldByte(at + 2 * i + 1) << 8;
}

GLOBAL void fill(u64 at, u64 count, u32 type, u32 seed, u32 rank) {
  for (u64 i = (u64)bid() * nthreads() + tid(); i < count; i += (u64)nblocks() * nthreads()) {
    u32 b = roundTo(type, value(seed, rank, i));
    if (type == F32) {
      st1(at + 4 * i, b);
    } else {
      stByte(at + 2 * i, b & 255);
      stByte(at + 2 * i + 1, b >> 8);
    }
  }
}

// check compares count elements at at with what kind should have produced from
// fill's inputs, bit for bit, and counts the wrong ones. shard is the elements of
// one rank's piece. Kinds: 0 all_reduce, 1 all_gather, 2 reduce_scatter, 3
// all_to_all.
GLOBAL void check(u64 at, u64 count, u32 type, u32 seed, u32 rank, u32 n, u32 kind, u64 shard, u64 wrong) {
  u32 bad = 0;
  for (u64 i = (u64)bid() * nthreads() + tid(); i < count; i += (u64)nblocks() * nthreads()) {
    u32 want;
    if (kind == 1) {
      want = roundTo(type, value(seed, i / shard, i % shard));
    } else if (kind == 3) {
      want = roundTo(type, value(seed, i / shard, rank * shard + i % shard));
    } else {
      u64 j = kind == 2 ? rank * shard + i : i;
      float s = widen(type, roundTo(type, value(seed, 0, j)));
      for (u32 r = 1; r < n; r++)
        s = addF(s, widen(type, roundTo(type, value(seed, r, j))));
      want = roundTo(type, s);
    }
    bad += bitsAt(type, at, i) != want;
  }
  if (bad)
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(wrong), "r"(bad) : "memory");
}

// Plain transfers. at and to are offsets of the buffers from a base; every rank
// moves units of 16 bytes to or from each of its n-1 peers. With phases all blocks
// serve one peer after the other, so that the ranks form a permutation at any
// time; without, the tiles of all peers are dealt out in turn.
struct Move {
  u32 k;
  u64 off;
};
DEV Move tileOf(const Args &a, u32 t, u32 tiles, u32 tile, u32 phases) {
  u32 k = phases ? t / tiles : t % (a.n - 1), i = phases ? t % tiles : t / (a.n - 1);
  return Move{1 + k, (u64)i * tile * 16 + tid() * 16};
}
template <int U, bool LOAD, bool STORE> DEV void links(const Args &a, u64 at, u64 to, u32 units, u32 phases) {
  u32 tile = nthreads() * U, tiles = units / tile;
  for (u32 t = bid(); t < tiles * (a.n - 1); t += nblocks()) {
    Move m = tileOf(a, t, tiles, tile, phases);
    V4 v[U];
#pragma unroll
    for (int j = 0; j < U; j++)
      v[j] = LOAD ? ld4sys(a.peer[m.k] + at + m.off + j * nthreads() * 16) : ld4(a.peer[0] + at + m.off + j * nthreads() * 16);
#pragma unroll
    for (int j = 0; j < U; j++)
      st4(a.peer[STORE ? m.k : 0] + to + m.off + j * nthreads() * 16, v[j]);
  }
}
GLOBAL void BOUNDS(512, 1) links_load(const Args1 p, u64 at, u64 to, u32 units, u32 phases) {
  links<8, true, false>(p.a, at, to, units, phases);
}
GLOBAL void BOUNDS(512, 1) links_store(const Args1 p, u64 at, u64 to, u32 units, u32 phases) {
  links<8, false, true>(p.a, at, to, units, phases);
}
// links_both reads from one peer while it writes to it, as all_reduce does.
GLOBAL void BOUNDS(512, 1) links_both(const Args1 p, u64 at, u64 to, u32 units, u32 phases) {
  links<8, true, true>(p.a, at, to, units, phases);
}

// Litmus for barriers between kernels: litmus_write puts the round into words that
// lie apart in the own memory and in every peer's; after a barrier litmus_read
// wants to find it everywhere. The round is counted on the device.
GLOBAL void BOUNDS(512, 1) litmus_write(const Args1 p, u64 at, u64 round) {
  const Args &a = p.a;
  u32 v = ld1(a.peer[0] + round) + 1, i = bid() * nthreads() + tid();
  st1(a.peer[0] + at + 64 * i, v);
  for (u32 k = 1; k < a.n; k++)
    st1(a.peer[k] + at + 64 * i + 4 + 4 * a.rank, v);
}
GLOBAL void BOUNDS(512, 1) litmus_read(const Args1 p, u64 at, u64 round, u64 wrong) {
  const Args &a = p.a;
  u32 v = ld1(a.peer[0] + round) + 1, i = bid() * nthreads() + tid(), bad = 0;
  for (u32 k = 1; k < a.n; k++) {
    bad += ld1(a.peer[k] + at + 64 * i) != v;
    bad += ld1(a.peer[0] + at + 64 * i + 4 + 4 * peerAt(a, k)) != v;
  }
  if (bad)
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(wrong), "r"(bad) : "memory");
}
GLOBAL void litmus_next(u64 round) { st1(round, ld1(round) + 1); }

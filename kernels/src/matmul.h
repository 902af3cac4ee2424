// Matmul on Hopper's tensor cores: D = A B in bfloat16 or float16 with float32 sums.
//
// A block computes tiles of 128 by N. A producer warp brings stages of 64 of K by tensor maps; two
// warpgroups of consumers multiply 64 rows each. Blocks are persistent: the producer is stages
// ahead in the next tile while results leave through 8 KiB slices of shared memory. The two
// blocks of a cluster compute tiles one below the other and share the columns of B: each
// loads half of them for both.
//
// Each sum is taken over K in order, by one thread: results do not depend on the grid.
#pragma once
#include "wgmma.h"

// Matmul is the part of a kernel's parameters behind the maps of A, B and D; kernels/matmul.go
// has the same.
struct Matmul {
  u32 rows, cols, depth; // tiles of M (a cluster's together), of N and of K
  u32 batch;
  u32 band; // rows of tiles that are computed before the next column of tiles, for the cache
};

enum { STEP = 64, ROWS = 128, SLICE = 64 * 128 }; // of K and M in a tile; bytes of 64 rows of 64

template <int N, int STAGES> struct Ring {
  static constexpr u32 a = ROWS * STEP * 2, b = N * STEP * 2, stage = a + b;
  static constexpr u32 out = STAGES * stage, bars = out + 4 * SLICE, bytes = bars + 16 * STAGES;
};

// tileOf finds where the t-th tile lies.
DEV void tileOf(const Matmul &g, u32 t, u32 &m, u32 &n, u32 &z) {
  u32 per = g.rows * g.cols;
  z = t / per;
  t -= z * per;
  u32 band = t / (g.band * g.cols), in = t - band * g.band * g.cols;
  u32 rows = g.rows - band * g.band;
  if (rows > g.band)
    rows = g.band;
  n = in / rows;
  m = band * g.band + in - n * rows;
}

template <bool HALF> DEV u32 pack(float lo, float hi) {
  u32 v;
  if constexpr (HALF)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}

// storeTile sends a warpgroup's 64 rows of the tile, 64 columns at a time through two slices
// in turns; sent counts them over all tiles.
template <int N, bool HALF> DEV void storeTile(const TensorMap *map, const float *d, u32 slices, u32 &sent, u32 group, u32 x, u32 y, u32 z) {
  u32 t = tid() & 127, lane = t & 31;
  u32 row = (t >> 5) * 16 + (lane & 15), half = lane >> 4;
  _Pragma("unroll") for (int c = 0; c < N / 64; c++) {
    u32 slice = slices + (sent++ & 1) * SLICE;
    if (t == 0)
      bulkWaitRead<1>();
    syncNamed(1 + group, 128);
    _Pragma("unroll") for (int j = 0; j < 8; j += 2) {
      const float *f = d + c * 32 + j * 4;
      stmatrix4(slice + row * 128 + (((j + half) ^ (row & 7)) << 4), pack<HALF>(f[0], f[1]), pack<HALF>(f[2], f[3]),
                pack<HALF>(f[4], f[5]), pack<HALF>(f[6], f[7]));
    }
    fenceProxyShared();
    syncNamed(1 + group, 128);
    if (t == 0) {
      tileStore(map, slice, x + c * 64, y, z);
      bulkCommit();
    }
  }
}

template <int N, int STAGES, bool HALF, int TRANSA, int TRANSB, int CLUSTER>
DEV void matmul(const TensorMap *am, const TensorMap *bm, const TensorMap *dm, const Matmul &g) {
  using R = Ring<N, STAGES>;
  extern SHARED __attribute__((aligned(1024))) unsigned char dynamic[];
  u32 ring = sharedAddr(dynamic), full = ring + R::bars, empty = full + 8 * STAGES;
  u32 peer = CLUSTER > 1 ? clusterRank() : 0, group = tid() >> 7;
  if (tid() == 0) {
    tilePrefetch(am);
    tilePrefetch(bm);
    tilePrefetch(dm);
    for (int s = 0; s < STAGES; s++) {
      mbarInit(full + 8 * s, 1);
      mbarInit(empty + 8 * s, 2 * CLUSTER);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (CLUSTER > 1)
    syncCluster();
  else
    syncBlock();
  u32 tiles = g.rows * g.cols * g.batch, m, n, z;
  if (group == 0) {
    registersLess<40>();
    if (tid() == 0) {
      u32 s = 0, phase = 1;
      for (u32 t = bid() / CLUSTER; t < tiles; t += nblocks() / CLUSTER) {
        tileOf(g, t, m, n, z);
        u32 y = (m * CLUSTER + peer) * ROWS, x = n * N;
        for (u32 k = 0; k < g.depth; k++) {
          mbarWait(empty + 8 * s, phase);
          u32 bar = full + 8 * s, a = ring + s * R::stage, b = a + R::a;
          mbarExpect(bar, R::stage);
          if constexpr (TRANSA) {
            tileLoad<0>(a, am, bar, y, k * STEP, z);
            tileLoad<0>(a + R::a / 2, am, bar, y + 64, k * STEP, z);
          } else
            tileLoad<0>(a, am, bar, k * STEP, y, z);
          constexpr u32 part = N / CLUSTER;
          constexpr u32 mask = CLUSTER > 1 ? (1 << CLUSTER) - 1 : 0;
          if constexpr (TRANSB) {
            _Pragma("unroll") for (u32 c = 0; c < N / 64; c++)
              if (c % CLUSTER == peer)
                tileLoad<mask>(b + c * 64 * STEP * 2, bm, bar, x + c * 64, k * STEP, z);
          } else
            tileLoad<mask>(b + peer * part * STEP * 2, bm, bar, k * STEP, x + peer * part, z);
          if (++s == STAGES)
            s = 0, phase ^= 1;
        }
      }
    }
  } else {
    registersMore<232>();
    float d[N / 2];
    u32 s = 0, phase = 0, sent = 0, w = group - 1, t0 = tid() & 127;
    for (u32 t = bid() / CLUSTER; t < tiles; t += nblocks() / CLUSTER) {
      tileOf(g, t, m, n, z);
      u32 last = 0;
      for (u32 k = 0; k < g.depth; k++) {
        mbarWait(full + 8 * s, phase);
        u32 a = ring + s * R::stage + w * (R::a / 2), b = ring + s * R::stage + R::a;
        u64 da = wgmmaDesc(a, TRANSA ? 8192 : 16, 1024), db = wgmmaDesc(b, TRANSB ? 8192 : 16, 1024);
        wgmmaFence();
        _Pragma("unroll") for (int q = 0; q < STEP / 16; q++)
          wgmma<N, HALF, TRANSA, TRANSB>(d, da + q * (TRANSA ? 128 : 2), db + q * (TRANSB ? 128 : 2), k | q);
        wgmmaCommit();
        if (k > 0) {
          wgmmaWait<1>();
          if (t0 < CLUSTER)
            mbarArriveAt(empty + 8 * last, t0);
        }
        last = s;
        if (++s == STAGES)
          s = 0, phase ^= 1;
      }
      wgmmaWait<0>();
      if (t0 < CLUSTER)
        mbarArriveAt(empty + 8 * last, t0);
      storeTile<N, HALF>(dm, d, ring + R::out + w * 2 * SLICE, sent, w, n * N, (m * CLUSTER + peer) * ROWS + w * 64, z);
    }
    if (t0 == 0)
      bulkWaitAll();
  }
  if constexpr (CLUSTER > 1)
    syncCluster(); // a block that is still at work writes into the shared memory of the other
}

#define MATMUL(NAME, N, STAGES, HALF, TRANSA, TRANSB, CLUSTER) \
  GLOBAL void BOUNDS(384, 1) NAME(const TensorMap, const TensorMap, const TensorMap, const Matmul g) { \
    matmul<N, STAGES, HALF, TRANSA, TRANSB, CLUSTER>(PARAM(NAME, 0), PARAM(NAME, 1), PARAM(NAME, 2), g); \
  }
#define MATMUL_(...) MATMUL(__VA_ARGS__)
// MATMULS makes the kernels of a width: A and B each as they lie (n) or transposed (t).
#define MATMULS(TYPE, HALF, N, STAGES, CLUSTER) \
  MATMUL_(matmul_##TYPE##_nn_##N##_##CLUSTER, N, STAGES, HALF, 0, 1, CLUSTER) \
  MATMUL_(matmul_##TYPE##_nt_##N##_##CLUSTER, N, STAGES, HALF, 0, 0, CLUSTER) \
  MATMUL_(matmul_##TYPE##_tn_##N##_##CLUSTER, N, STAGES, HALF, 1, 1, CLUSTER) \
  MATMUL_(matmul_##TYPE##_tt_##N##_##CLUSTER, N, STAGES, HALF, 1, 0, CLUSTER)
// As many stages as shared memory has room for.
#define MATMULS_OF(TYPE, HALF) \
  MATMULS(TYPE, HALF, 256, 4, 2) \
  MATMULS(TYPE, HALF, 256, 4, 1) \
  MATMULS(TYPE, HALF, 128, 6, 2) \
  MATMULS(TYPE, HALF, 128, 6, 1) \
  MATMULS(TYPE, HALF, 64, 8, 1)

// Matmul on Hopper's tensor cores: D = A B in bfloat16 or float16 with float32 sums.
//
// A block computes tiles of 128 by N. A producer warp brings stages of 64 of K by tensor maps; two
// warpgroups of consumers multiply 64 rows each, or 128 of tiles of 256 rows, or, of tiles of 64 rows,
// half of each stage. Blocks are persistent: the producer is stages ahead in the next tile while results
// leave through slices of shared memory, and where half of them have left, their registers take the first
// products of the next tile.
//
// A cluster is CM blocks below each other, that share the columns of B, by CN beside each other,
// that share the rows of A: each loads a part for all. Such groups of blocks, SPLIT of them, sum over
// parts of K, and each then adds up a part of the tile.
//
// Each sum is taken over K in order, by one thread, or by several for parts of K, whose sums are
// added in order: results do not depend on the grid.
//
// A may be rows of several ranks, that come while the kernel computes (gather.h): each rank's are
// a part of the batch, the own ones, which have a map of their own, the first. All have the same B.
//
// D may belong to several ranks: each rank's rows are a part of the batch with a map of their own, which leads
// to its memory, and the own ones are the last. The kernel waits for nobody. A kernel behind it
// releases what this one has sent, and adds up what came (reducescatter_sent.cu).
#pragma once
#include "gather.h"
#include "wgmma.h"

// Matmul is the part of a kernel's parameters behind the maps of A, B and D; kernels/matmul.go
// has the same.
struct Matmul {
  u32 rows, cols, depth; // tiles of M and of N, a cluster's together, and of K
  u32 batch;
  u32 band; // rows of tiles that are computed before the next column of tiles, for the cache
};

// Scatter is the last parameter of a kernel whose results belong to several ranks: whose rows come first.
struct Scatter {
  static constexpr bool gathers = false, scatters = true;
  u32 first;
};
struct Destinations {
  TensorMap of[MAXRANKS]; // in the order in which the kernel computes
};
struct Alone {
  static constexpr bool gathers = false, scatters = false;
};

enum { STEP = 64 }; // of K
enum { WHOLE, FIRST_HALF, SECOND_HALF };

// Tile is a tile's rows and columns, the stages of a block, and the slices through which its results leave:
// so many columns each, so many in turns for each warpgroup.
template <int ROWS, int N, int STAGES, int WIDTH, int TURNS, int TRANSB> struct Tile {
  static constexpr u32 a = ROWS * STEP * 2, b = (TRANSB ? (N + 63) / 64 * 64 : N) * STEP * 2, stage = a + b;
  static constexpr u32 slice = 64 * WIDTH * 2, out = STAGES * stage, bars = out + 2 * TURNS * slice;
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

// ownerOf is whose rows the z-th are.
DEV u32 ownerOf(const Scatter &s, const Matmul &g, u32 z) {
  z += s.first;
  return z >= g.batch ? z - g.batch : z;
}

template <bool HALF> DEV u32 pack(float lo, float hi) {
  u32 v;
  if constexpr (HALF)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}

// storeSlice sends a warpgroup's 64 rows of WIDTH columns through its slices in turns; sent
// counts them over all tiles. Rows of 64 columns are swizzled; those of an odd number of 16
// bytes meet no bank twice as they are. Results that are scattered have a map for each z.
template <int WIDTH, int TURNS, bool HALF, bool SCATTERS> DEV void storeSlice(const TensorMap *map, const float *d, u32 slices, u32 &sent, u32 group, u32 x, u32 y, u32 z) {
  static_assert(WIDTH == 64 || WIDTH / 8 % 2 == 1);
  u32 t = tid() & 127, lane = t & 31;
  u32 row = (t >> 5) * 16 + (lane & 15), half = lane >> 4;
  u32 slice = slices + (TURNS > 1 ? sent++ % TURNS * (64 * WIDTH * 2) : 0);
  if (t == 0)
    bulkWaitRead<TURNS - 1>();
  syncNamed(1 + group, 128);
  _Pragma("unroll") for (int j = 0; j < WIDTH / 8; j += 2) {
    const float *f = d + j * 4;
    u32 at = slice + row * (WIDTH * 2) + ((WIDTH == 64 ? (j + half) ^ (row & 7) : j + half) << 4);
    if (j + 1 < WIDTH / 8)
      stmatrix4(at, pack<HALF>(f[0], f[1]), pack<HALF>(f[2], f[3]), pack<HALF>(f[4], f[5]), pack<HALF>(f[6], f[7]));
    else
      stmatrix2(at, pack<HALF>(f[0], f[1]), pack<HALF>(f[2], f[3]));
  }
  fenceProxyShared();
  syncNamed(1 + group, 128);
  if (t == 0) {
    tileStore(SCATTERS ? map + z : map, slice, x, y, SCATTERS ? 0 : z);
    bulkCommit();
  }
}

// descs are those of a warpgroup's part of a stage.
template <class T, int ROWS, int TRANSA, int TRANSB> DEV void descs(u32 stage, u32 w, u64 &da, u64 &db) {
  da = wgmmaDesc(stage + (ROWS >= 128) * w * (T::a / 2), TRANSA ? 8192 : 16, 1024), db = wgmmaDesc(stage + T::a, TRANSB ? 8192 : 16, 1024);
  if constexpr (ROWS == 64)
    da += w * (TRANSA ? 256 : 4), db += w * (TRANSB ? 256 : 4);
}

// step multiplies a stage: a warpgroup's part of the tile, or of its 128 rows of one of 256 the half which
// PART says. Of a tile's first stage it sets the sums, else it adds to them.
template <int ROWS, int N, bool HALF, int TRANSA, int TRANSB, bool FIRST, int PART> DEV void step(float *d, u64 da, u64 db) {
  constexpr int H0 = PART == SECOND_HALF ? 1 : 0, H1 = ROWS == 256 && PART != FIRST_HALF ? 2 : 1;
  wgmmaFence();
  _Pragma("unroll") for (int q = 0; q < (ROWS == 64 ? 2 : 4); q++)
    _Pragma("unroll") for (int h = H0; h < H1; h++)
      wgmma<N, HALF, TRANSA, TRANSB>(d + h * (N / 2), da + h * 512 + q * (TRANSA ? 128 : 2), db + q * (TRANSB ? 128 : 2), !FIRST || q);
  wgmmaCommit();
}

template <int ROWS, int N, int STAGES, int WIDTH, int TURNS, bool HALF, int TRANSA, int TRANSB, int CM, int CN, int SPLIT, class G>
DEV void matmul(const TensorMap *am, const TensorMap *bm, const TensorMap *dm, const Matmul &g, const TensorMap *gathered, const G &from) {
  static_assert(ROWS == 64 ? CN == 1 && SPLIT == 1 && N * 2 <= TURNS * WIDTH : ROWS == 128 || (ROWS == 256 && SPLIT == 1));
  static_assert(!G::gathers || (!TRANSA && SPLIT == 1));
  using T = Tile<ROWS, N, STAGES, WIDTH, TURNS, TRANSB>;
  constexpr u32 CLUSTER = CM * CN * SPLIT, SLICES = N / WIDTH, BLOCKS = ROWS == 256 ? 2 : 1; // of 64 rows for each warpgroup
  // Whether the next tile begins while half of this one's results leave. (With halves of columns ptxas
  // lets no wgmma run on behind the one before: C7511.)
  constexpr bool AHEAD = ROWS == 256;
  extern SHARED __attribute__((aligned(1024))) unsigned char dynamic[];
  u32 ring = sharedAddr(dynamic), full = ring + T::bars, empty = full + 8 * STAGES;
  u32 rank = CLUSTER > 1 ? clusterRank() : 0, group = tid() >> 7;
  u32 cm = rank % CM, cn = rank / CM % CN, part = rank / (CM * CN), first = part * (CM * CN);
  if (tid() == 0) {
    tilePrefetch(am);
    tilePrefetch(bm);
    tilePrefetch(dm);
    for (int s = 0; s < STAGES; s++) {
      mbarInit(full + 8 * s, 1);
      mbarInit(empty + 8 * s, 2 * (CM + CN - 1));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (CLUSTER > 1)
    syncCluster();
  else
    syncBlock();
  waitEarlier();
  u32 tiles = g.rows * g.cols * g.batch, k0 = g.depth * part / SPLIT, k1 = g.depth * (part + 1) / SPLIT, m, n, z;
  if (group == 0) {
    registersLess<40>();
    u32 s = 0, phase = 1, call = 0, taken = 0;
    if constexpr (G::gathers) {
      call = lastEpoch(from.a, CTL_GATHERS) + 1;
      syncNamed(5, 128); // all have read it before the block writes it
      if (tid() >= 32)
        send(from, call, tid() - 32, (volatile Sending *)(dynamic + T::bars + 16 * STAGES));
    }
    if (tid() == 0 || SPLIT > 1)
      for (u32 t = bid() / CLUSTER; t < tiles; t += nblocks() / CLUSTER) {
        if (tid() == 0) {
          tileOf(g, t, m, n, z);
          const TensorMap *rows = am;
          u32 y = (m * CM + cm) * ROWS, x = (n * CN + cn) * N, zb = z;
          if constexpr (G::gathers) {
            if (z > taken) // tiles come in the order of the ranks
              take(from.a, call, peerAt(from.a, taken = z));
            if (z > 0)
              rows = gathered;
            z = z > 0 ? peerAt(from.a, z) : 0, zb = 0;
          }
          if constexpr (G::scatters)
            z = ownerOf(from, g, z), zb = 0;
          u32 beside = 0, below = ((1 << CM) - 1) << (first + cn * CM);
          _Pragma("unroll") for (u32 i = 0; i < CN; i++) beside |= 1 << (first + i * CM + cm);
          for (u32 k = k0; k < k1; k++) {
            mbarWait(empty + 8 * s, phase);
            u32 bar = full + 8 * s, a = ring + s * T::stage, b = a + T::a;
            mbarExpect(bar, T::stage);
            if constexpr (TRANSA) {
              _Pragma("unroll") for (u32 c = 0; c < ROWS / 64; c++)
                if (c % CN == cn)
                  tileLoad<(CN > 1)>(a + c * 64 * STEP * 2, rows, bar, y + c * 64, k * STEP, z, beside);
            } else
              tileLoad<(CN > 1)>(a + cn * (T::a / CN), rows, bar, k * STEP, y + cn * (ROWS / CN), z, beside);
            if constexpr (TRANSB) {
              _Pragma("unroll") for (u32 c = 0; c < (N + 63) / 64; c++)
                if (c % CM == cm)
                  tileLoad<(CM > 1)>(b + c * 64 * STEP * 2, bm, bar, x + c * 64, k * STEP, zb, below);
            } else
              tileLoad<(CM > 1)>(b + cm * (T::b / CM), bm, bar, k * STEP, x + cm * (N / CM), zb, below);
            if (++s == STAGES)
              s = 0, phase ^= 1;
          }
        }
        if constexpr (SPLIT > 1) {
          syncWarp();
          syncCluster();
          syncCluster();
        }
      }
    // The next kernel's blocks would take multiprocessors that are left to collectives: not before
    // this one is about to end.
    if (tid() == 0)
      letNext();
  } else {
    registersMore<232>();
    float d[BLOCKS * N / 2];
    u32 s = 0, phase = 0, sent = 0, w = group - 1, t0 = tid() & 127;
    u32 giver = first + (t0 < CM ? cn * CM + t0 : (t0 - CM < cn ? t0 - CM : t0 - CM + 1) * CM + cm), gives = t0 < CM + CN - 1;
    u64 da, db;
    if constexpr (AHEAD) {
      mbarWait(full, 0);
      descs<T, ROWS, TRANSA, TRANSB>(ring, w, da, db);
      step<ROWS, N, HALF, TRANSA, TRANSB, true, WHOLE>(d, da, db);
    }
    for (u32 t = bid() / CLUSTER; t < tiles; t += nblocks() / CLUSTER) {
      tileOf(g, t, m, n, z);
      if constexpr (G::gathers)
        z = peerAt(from.a, z);
      if constexpr (!AHEAD) {
        mbarWait(full + 8 * s, phase);
        descs<T, ROWS, TRANSA, TRANSB>(ring + s * T::stage, w, da, db);
        step<ROWS, N, HALF, TRANSA, TRANSB, true, WHOLE>(d, da, db);
      }
      for (u32 k = k0 + 1; k < k1; k++) {
        u32 last = s;
        if (++s == STAGES)
          s = 0, phase ^= 1;
        mbarWait(full + 8 * s, phase);
        descs<T, ROWS, TRANSA, TRANSB>(ring + s * T::stage, w, da, db);
        step<ROWS, N, HALF, TRANSA, TRANSB, false, WHOLE>(d, da, db);
        wgmmaWait<1>();
        mbarArriveAt(empty + 8 * last, giver, gives);
      }
      wgmmaWait<0>();
      mbarArriveAt(empty + 8 * s, giver, gives);
      if (++s == STAGES)
        s = 0, phase ^= 1;
      u32 x = (n * CN + cn) * N, y = (m * CM + cm) * ROWS + (ROWS >= 128) * w * (ROWS / 2), slices = ring + T::out + w * (TURNS * T::slice);
      if constexpr (ROWS == 64) { // the second warpgroup's sums go to the first through its slices
        u32 other = ring + T::out + TURNS * T::slice + t0 * 16;
        if (w == 1)
          _Pragma("unroll") for (int i = 0; i < N / 8; i++) stShared4(other + i * 2048, d + i * 4);
        syncNamed(3, 256);
        if (w == 0) {
          float more[N / 2];
          _Pragma("unroll") for (int i = 0; i < N / 8; i++) ldCluster4(other + i * 2048, more + i * 4);
          _Pragma("unroll") for (int i = 0; i < N / 2; i++) d[i] += more[i];
        }
        syncNamed(3, 256);
        if (w == 1)
          continue;
      }
      if constexpr (SPLIT == 1) {
        _Pragma("unroll") for (u32 c = 0; c < BLOCKS * SLICES; c++) {
          if (AHEAD && c == BLOCKS * SLICES / 2) { // the next tile begins where sums have left
            if (t + nblocks() / CLUSTER < tiles)
              mbarWait(full + 8 * s, phase);
            descs<T, ROWS, TRANSA, TRANSB>(ring + s * T::stage, w, da, db);
            step<ROWS, N, HALF, TRANSA, TRANSB, true, FIRST_HALF>(d, da, db);
          }
          storeSlice<WIDTH, TURNS, HALF, G::scatters>(dm, d + c * (WIDTH / 2), slices, sent, w, x + c % SLICES * WIDTH, y + c / SLICES * 64, z);
        }
        if constexpr (AHEAD)
          step<ROWS, N, HALF, TRANSA, TRANSB, true, SECOND_HALF>(d, da, db);
        continue;
      }
      // Sums of the parts lie in the ring, which the producers leave alone until all are read.
      u32 own = ring + (tid() - 128) * 16;
      syncNamed(3, 256);
      _Pragma("unroll") for (int i = 0; i < N / 8; i++) stShared4(own + i * 4096, d + i * 4);
      syncCluster();
      constexpr u32 EACH = SPLIT <= SLICES ? SLICES / SPLIT : 1;
      if (SPLIT <= SLICES || part / SLICES == w)
        _Pragma("unroll") for (u32 e = 0; e < EACH; e++) {
          u32 c = part % SLICES + e * SPLIT;
          float sum[WIDTH / 2], more[WIDTH / 2];
          _Pragma("unroll") for (u32 p = 0; p < SPLIT; p++) {
            u32 at = sharedAt(own + c * (WIDTH / 8) * 4096, p * (CM * CN) + rank - first);
            _Pragma("unroll") for (int i = 0; i < WIDTH / 8; i++) ldCluster4(at + i * 4096, (p ? more : sum) + i * 4);
            _Pragma("unroll") for (int i = 0; p > 0 && i < WIDTH / 2; i++) sum[i] += more[i];
          }
          storeSlice<WIDTH, TURNS, HALF, G::scatters>(dm, sum, slices, sent, w, x + c * WIDTH, y, z);
        }
      fenceProxy();
      syncCluster();
    }
    if constexpr (AHEAD)
      wgmmaWait<0>(); // of a tile that there is not
    if (t0 == 0)
      bulkWaitAll();
  }
  if constexpr (CLUSTER > 1)
    syncCluster(); // a block that is still at work reaches into the shared memory of others
}

// A kernel's name ends by what it does beside: it is alone, or carries a collective.
#define MATMUL(NAME, ...) \
  GLOBAL void BOUNDS(384, 1) NAME(const TensorMap, const TensorMap, const TensorMap, const Matmul g) { \
    matmul<__VA_ARGS__>(PARAM(NAME, 0), PARAM(NAME, 1), PARAM(NAME, 2), g, nullptr, Alone{}); \
  }
#define GATHERING(NAME, ...) \
  GLOBAL void BOUNDS(384, 1) NAME##_gather(const TensorMap, const TensorMap, const TensorMap, const Matmul g, const TensorMap, const Gather from) { \
    matmul<__VA_ARGS__>(PARAM(NAME##_gather, 0), PARAM(NAME##_gather, 1), PARAM(NAME##_gather, 2), g, PARAM(NAME##_gather, 4), from); \
  }
#define SCATTERING(NAME, ...) \
  GLOBAL void BOUNDS(384, 1) NAME##_scatter(const TensorMap, const TensorMap, const Destinations, const Matmul g, const Scatter to) { \
    matmul<__VA_ARGS__>(PARAM(NAME##_scatter, 0), PARAM(NAME##_scatter, 1), PARAM(NAME##_scatter, 2), g, nullptr, to); \
  }
// AS_IT_LIES makes the kernels of a tile for A that lies as it is, B as it lies (n) or transposed (t);
// TRANSPOSED those of a transposed A.
#define AS_IT_LIES(MAKE, TYPE, HALF, ROWS, N, STAGES, WIDTH, TURNS, CM, CN, SPLIT) \
  MAKE(matmul_##TYPE##_nn_##ROWS##x##N##_##CM##x##CN##x##SPLIT, ROWS, N, STAGES, WIDTH, TURNS, HALF, 0, 1, CM, CN, SPLIT) \
  MAKE(matmul_##TYPE##_nt_##ROWS##x##N##_##CM##x##CN##x##SPLIT, ROWS, N, STAGES, WIDTH, TURNS, HALF, 0, 0, CM, CN, SPLIT)
#define TRANSPOSED(MAKE, TYPE, HALF, ROWS, N, STAGES, WIDTH, TURNS, CM, CN, SPLIT) \
  MAKE(matmul_##TYPE##_tn_##ROWS##x##N##_##CM##x##CN##x##SPLIT, ROWS, N, STAGES, WIDTH, TURNS, HALF, 1, 1, CM, CN, SPLIT) \
  MAKE(matmul_##TYPE##_tt_##ROWS##x##N##_##CM##x##CN##x##SPLIT, ROWS, N, STAGES, WIDTH, TURNS, HALF, 1, 0, CM, CN, SPLIT)
#define EITHER(...) AS_IT_LIES(__VA_ARGS__) TRANSPOSED(__VA_ARGS__)
#define NEITHER(...)
// As many stages as shared memory has room for; kernels/matmul.go has the same. CUT makes those
// that cut sums over blocks.
#define TILES(LIES, CUT, MAKE, TYPE, HALF) \
  LIES(MAKE, TYPE, HALF, 256, 176, 3, 88, 2, 1, 1, 1) \
  LIES(MAKE, TYPE, HALF, 256, 160, 3, 40, 4, 1, 1, 1) \
  LIES(MAKE, TYPE, HALF, 256, 128, 4, 64, 2, 1, 2, 1) \
  LIES(MAKE, TYPE, HALF, 128, 256, 4, 64, 2, 2, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 256, 4, 64, 2, 1, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 224, 4, 56, 2, 2, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 192, 5, 64, 1, 2, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 176, 5, 88, 1, 2, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 160, 5, 40, 2, 2, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 128, 6, 64, 2, 2, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 128, 6, 64, 2, 1, 1, 1) \
  LIES(MAKE, TYPE, HALF, 128, 64, 8, 64, 2, 1, 1, 1) \
  CUT(MAKE, TYPE, HALF, 128, 128, 6, 64, 2, 1, 1, 2) \
  CUT(MAKE, TYPE, HALF, 128, 64, 8, 64, 2, 1, 1, 2) \
  LIES(MAKE, TYPE, HALF, 64, 64, 12, 64, 2, 2, 1, 1) \
  LIES(MAKE, TYPE, HALF, 64, 64, 12, 64, 2, 1, 1, 1)
#define MATMULS_OF(TYPE, HALF) TILES(EITHER, EITHER, MATMUL, TYPE, HALF)
#define GATHERINGS_OF(TYPE, HALF) TILES(AS_IT_LIES, NEITHER, GATHERING, TYPE, HALF)
#define SCATTERINGS_OF(TYPE, HALF) TILES(EITHER, EITHER, SCATTERING, TYPE, HALF)

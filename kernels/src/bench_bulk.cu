// Bulk-copy transfers that show what the links can carry: one thread per block
// streams chunks through a ring in shared memory.
#include "bulk.h"

enum { CHUNK = 24576, STAGES = 8 };

// links_bulk moves units of 16 bytes between this rank and each peer: pull reads
// the peer's memory, else the own memory is read and the peer's written.
template <bool PULL> DEV void links(const Args1 &p, u64 at, u64 to, u32 units, u32 phases) {
  const Args &a = p.a;
  extern SHARED __attribute__((aligned(128))) unsigned char ring[];
  SHARED __attribute__((aligned(8))) u64 full[STAGES];
  if (tid() != 0)
    return;
  for (int i = 0; i < STAGES; i++)
    mbarInit(sharedAddr(&full[i]), 1);
  fenceProxy();
  u32 per = (u32)((u64)units * 16 / CHUNK), chunks = per * (a.n - 1), mine = 0;
  for (u32 t = bid(); t < chunks; t += nblocks())
    mine++;
  u32 loaded = 0;
  for (u32 i = 0; i < mine; i++) {
    for (; loaded < mine && loaded < i + STAGES - 2; loaded++) {
      u32 s = loaded % STAGES, t = bid() + loaded * nblocks(), k = 1 + (phases ? t / per : t % (a.n - 1));
      u64 off = (u64)(phases ? t % per : t / (a.n - 1)) * CHUNK;
      if (loaded >= STAGES)
        bulkWaitRead<1>();
      mbarExpect(sharedAddr(&full[s]), CHUNK);
      bulkLoad(sharedAddr(ring) + s * CHUNK, a.peer[PULL ? k : 0] + at + off, CHUNK, sharedAddr(&full[s]));
    }
    u32 s = i % STAGES, t = bid() + i * nblocks(), k = 1 + (phases ? t / per : t % (a.n - 1));
    u64 off = (u64)(phases ? t % per : t / (a.n - 1)) * CHUNK;
    while (!mbarTest(sharedAddr(&full[s]), i / STAGES & 1))
      ;
    bulkStore(a.peer[PULL ? 0 : k] + to + off, sharedAddr(ring) + s * CHUNK, CHUNK);
    bulkCommit();
  }
  bulkWaitAll();
}
GLOBAL void BOUNDS(32, 1) links_bulk_push(const Args1 p, u64 at, u64 to, u32 units, u32 phases) {
  links<false>(p, at, to, units, phases);
}
GLOBAL void BOUNDS(32, 1) links_bulk_pull(const Args1 p, u64 at, u64 to, u32 units, u32 phases) {
  links<true>(p, at, to, units, phases);
}

// The uneven all_to_all of a step whose sizes tensors hold (uneven.h): the table lies in memory,
// its four columns one behind the other, where a kernel before this one has put it. What the
// host finds out from the sizes, this finds out here.
#include "uneven.h"

struct ArgsR {
  Args a; // as of the others, but for units
  u64 table;
};

GLOBAL void BOUNDS(512, 1) all_to_all_uneven_read(const ArgsR r) {
  SHARED ArgsV p;
  for (u32 i = tid(); i < sizeof(Args) / 8; i += nthreads())
    ((u64 *)&p.a)[i] = ((const u64 *)&r.a)[i];
  for (u32 i = tid(); i < 4 * MAXRANKS; i += nthreads())
    p.src[i] = ld8(r.table + 8 * i);
  syncBlock();
  if (tid() == 0) {
    u64 rounds = 0;
    for (u32 k = 0; k < 2 * r.a.n; k++) {
      u32 rank = k % r.a.n;
      u64 bytes = k < r.a.n ? p.send[rank] : p.recv[rank];
      u64 chunks = rank == r.a.rank || bytes <= r.a.region ? 0 : (bytes - 1) / r.a.per + 1;
      u64 own = (chunks + nblocks() - 1) / nblocks();
      rounds = own > rounds ? own : rounds;
    }
    p.a.units = (u32)rounds;
  }
  syncBlock();
  uneven<true>(p);
}

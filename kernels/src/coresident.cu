// Copies within a device and reductions of staged pieces that run beside matmuls
// without waiting for them; see coresident.h.
//
// coresident_copy: every segment's bytes go from src to dst, whose addresses are equal
// modulo 16; coresident_copy_any is for all others. The ranges do not overlap.
//
// coresident_reduce: as staged.cu. src is the own piece, dst the result, bytes the size of
// a piece; peer r's piece is at base + scratch + r*slot. All but the size are aligned
// to 16.
#include "coresident.h"

enum { SLOTS = 8 }; // of 512 bytes

#define RING SHARED __attribute__((aligned(16))) u8 ring[SLOTS * LANES * 16]

CORESIDENT coresident_copy(const Args1 p) {
  RING;
  coresidentCopy<true, SLOTS>(p, sharedAt(ring));
}
CORESIDENT coresident_copy_segs(const ArgsN p) {
  RING;
  coresidentCopy<true, SLOTS>(p, sharedAt(ring));
}
CORESIDENT coresident_copy_any(const Args1 p) { coresidentCopy<false, SLOTS>(p, 0); }
CORESIDENT coresident_copy_any_segs(const ArgsN p) { coresidentCopy<false, SLOTS>(p, 0); }

#define KERNEL(T, name, N)                                                                                             \
  CORESIDENT coresident_reduce_##name##_n##N(const Args1 p) {                                                          \
    RING;                                                                                                              \
    coresidentReduce<T, N, SLOTS>(p, sharedAt(ring));                                                                  \
  }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

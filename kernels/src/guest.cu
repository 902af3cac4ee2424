// Copies within a device and folds of staged pieces that run beside matrix products
// without waiting for them; see guest.h.
//
// guest_copy: every segment's bytes go from src to dst, whose addresses are equal
// modulo 16; guest_copy_any is for all others. The ranges do not overlap.
//
// guest_fold: as staged.cu. src is the own piece, dst the result, bytes the size of
// a piece; peer r's piece is at base + scratch + r*slot. All but the size are aligned
// to 16.
#include "guest.h"

enum { SLOTS = 8 }; // of 512 bytes

#define RING SHARED __attribute__((aligned(16))) u8 ring[SLOTS * LANES * 16]

GUEST guest_copy(const Args1 p) {
  RING;
  guestCopy<true, SLOTS>(p, sharedAt(ring));
}
GUEST guest_copy_segs(const ArgsN p) {
  RING;
  guestCopy<true, SLOTS>(p, sharedAt(ring));
}
GUEST guest_copy_any(const Args1 p) { guestCopy<false, SLOTS>(p, 0); }
GUEST guest_copy_any_segs(const ArgsN p) { guestCopy<false, SLOTS>(p, 0); }

#define KERNEL(T, name, N)                                                                                             \
  GUEST guest_fold_##name##_n##N(const Args1 p) {                                                                      \
    RING;                                                                                                              \
    guestFold<T, N, SLOTS>(p, sharedAt(ring));                                                                     \
  }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

// Copies within a device and folds of staged pieces that run beside matrix products
// without waiting for them; see guest.h.
//
// guest_copy: every segment's bytes go from src to dst, any alignment. The ranges
// do not overlap.
//
// guest_fold: as staged.cu. src is the own piece, dst the result, bytes the size of
// a piece; peer r's piece is at base + scratch + r*slot. The typed kernels need all
// of these aligned to 16, guest_fold_any needs scratch and slot aligned to 8.
#include "guest.h"

enum { SLOTS = 16 }; // of 512 bytes

#define RING(n) SHARED __attribute__((aligned(16))) u8 ring[(n) * LANES * 16]

GUEST guest_copy(const Args1 p) {
  RING(SLOTS);
  guestCopy<SLOTS>(p, sharedAt(ring));
}
GUEST guest_copy_segs(const ArgsN p) {
  RING(SLOTS);
  guestCopy<SLOTS>(p, sharedAt(ring));
}

#define KERNEL(T, name, N)                                                                                             \
  GUEST guest_fold_##name##_n##N(const Args1 p) {                                                                      \
    RING(SLOTS);                                                                                                       \
    guestFold<T, N, SLOTS / N>(p, sharedAt(ring));                                                                     \
  }
#define KERNELS(T, name) KERNEL(T, name, 2) KERNEL(T, name, 4) KERNEL(T, name, 8)
KERNELS(F32, f32)
KERNELS(BF16, bf16)
KERNELS(F16, f16)

GUEST guest_fold_any(const Args1 p) {
  RING(SLOTS);
  guestFoldAny<2 * SLOTS>(p, sharedAt(ring));
}

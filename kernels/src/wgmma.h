// One wgmma of 64 rows, N columns and 16 of K; both operands in shared memory, float32
// accumulators in registers. The numbers of operands must be written out, so there is one for
// each N.
#pragma once
#include "tensor.h"

#define REGISTERS32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19" \
  ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS56 \
  REGISTERS32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51" \
  ", %52, %53, %54, %55"
#define REGISTERS64 REGISTERS56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS80 REGISTERS64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define REGISTERS88 REGISTERS80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define REGISTERS96 REGISTERS88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define REGISTERS112 REGISTERS96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define REGISTERS128 REGISTERS112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS16(i) SUMS8(i), SUMS8(i + 8)
#define SUMS32 SUMS16(0), SUMS16(16)
#define SUMS56 SUMS32, SUMS16(32), SUMS8(48)
#define SUMS64 SUMS56, SUMS8(56)
#define SUMS80 SUMS64, SUMS16(64)
#define SUMS88 SUMS80, SUMS8(80)
#define SUMS96 SUMS88, SUMS8(88)
#define SUMS112 SUMS96, SUMS16(96)
#define SUMS128 SUMS112, SUMS16(112)
// N columns of a type take R registers, the operands behind which are the five A to E.
#define WGMMA(N, TYPE, R, A, B, C, D, E) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %" #C ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGISTERS##R \
               "}, %" #A ", %" #B ", p, 1, 1, %" #D ", %" #E ";}" \
               : SUMS##R \
               : "l"(a), "l"(b), "r"(keep), "n"(TRANSA), "n"(TRANSB))
#define WGMMA_(N, R, A, B, C, D, E) \
  if constexpr (HALF) \
    WGMMA(N, "f16", R, A, B, C, D, E); \
  else \
    WGMMA(N, "bf16", R, A, B, C, D, E)

// wgmma adds A times B to d, or sets it where keep is 0. A lies with K innermost, or M if TRANSA;
// B with K innermost, or N if TRANSB.
template <int N, bool HALF, int TRANSA, int TRANSB> DEV void wgmma(float *d, u64 a, u64 b, u32 keep) {
  if constexpr (N == 64) {
    WGMMA_(64, 32, 32, 33, 34, 35, 36);
  } else if constexpr (N == 112) {
    WGMMA_(112, 56, 56, 57, 58, 59, 60);
  } else if constexpr (N == 128) {
    WGMMA_(128, 64, 64, 65, 66, 67, 68);
  } else if constexpr (N == 160) {
    WGMMA_(160, 80, 80, 81, 82, 83, 84);
  } else if constexpr (N == 176) {
    WGMMA_(176, 88, 88, 89, 90, 91, 92);
  } else if constexpr (N == 192) {
    WGMMA_(192, 96, 96, 97, 98, 99, 100);
  } else if constexpr (N == 224) {
    WGMMA_(224, 112, 112, 113, 114, 115, 116);
  } else if constexpr (N == 256) {
    WGMMA_(256, 128, 128, 129, 130, 131, 132);
  }
}

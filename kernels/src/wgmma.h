// One wgmma of 64 rows, N columns and 16 of K; both operands in shared memory, float32
// accumulators in registers. The numbers of operands must be written out, so there is one for
// each N.
#pragma once
#include "tensor.h"

#define REGISTERS32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
  "%25, %26, %27, %28, %29, %30, %31"
#define REGISTERS64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
  "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
  "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, " \
  "%71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
  "%94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS32(i) SUMS8(i), SUMS8(i + 8), SUMS8(i + 16), SUMS8(i + 24)
#define SUMS64(i) SUMS32(i), SUMS32(i + 32)

// wgmma adds A times B to d, or sets it where keep is 0. A lies with K innermost, or M if TRANSA;
// B with K innermost, or N if TRANSB.
template <int N, bool HALF, int TRANSA, int TRANSB> DEV void wgmma(float *d, u64 a, u64 b, u32 keep) {
  if constexpr (N == 64 && HALF)
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGISTERS32
                 "}, %32, %33, p, 1, 1, %35, %36;}"
                 : SUMS32(0)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANSA), "n"(TRANSB));
  else if constexpr (N == 64 && !HALF)
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS32
                 "}, %32, %33, p, 1, 1, %35, %36;}"
                 : SUMS32(0)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANSA), "n"(TRANSB));
  else if constexpr (N == 128 && HALF)
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" REGISTERS64
                 "}, %64, %65, p, 1, 1, %67, %68;}"
                 : SUMS64(0)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANSA), "n"(TRANSB));
  else if constexpr (N == 128 && !HALF)
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS64
                 "}, %64, %65, p, 1, 1, %67, %68;}"
                 : SUMS64(0)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANSA), "n"(TRANSB));
  else if constexpr (N == 256 && HALF)
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" REGISTERS128
                 "}, %128, %129, p, 1, 1, %131, %132;}"
                 : SUMS64(0), SUMS64(64)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANSA), "n"(TRANSB));
  else if constexpr (N == 256 && !HALF)
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGISTERS128
                 "}, %128, %129, p, 1, 1, %131, %132;}"
                 : SUMS64(0), SUMS64(64)
                 : "l"(a), "l"(b), "r"(keep), "n"(TRANSA), "n"(TRANSB));
}

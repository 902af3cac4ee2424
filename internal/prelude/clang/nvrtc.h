// What NVRTC has built in, declared for clang without CUDA's headers: enough to check that
// a kernel's text is in order. Functions have no bodies, since nothing is linked.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(n) __attribute__((aligned(n)))
#define __cluster_dims__(...)

typedef decltype(sizeof(0)) size_t;
struct uint3 { unsigned x, y, z; };
#define VECTORS(type, name) struct name##2 { type x, y; }; struct alignas(4 * sizeof(type)) name##4 { type x, y, z, w; };
VECTORS(unsigned, uint) VECTORS(int, int) VECTORS(float, float)
struct dim3 { unsigned x, y, z; };
extern const __device__ uint3 threadIdx, blockIdx;
extern const __device__ dim3 blockDim, gridDim;
extern const __device__ int warpSize;

extern "C" {
#define DECLARE __attribute__((device))
DECLARE void __trap();
DECLARE void __threadfence();
DECLARE void __threadfence_system();
DECLARE void __syncwarp(unsigned = 0xffffffffu);
DECLARE int __any_sync(unsigned, int);
DECLARE int __all_sync(unsigned, int);
DECLARE unsigned __ballot_sync(unsigned, int);
DECLARE unsigned __activemask();
DECLARE int __popc(unsigned);
DECLARE int __popcll(unsigned long long);
DECLARE int __clz(int);
DECLARE int __ffs(int);
DECLARE unsigned __brev(unsigned);
DECLARE unsigned __byte_perm(unsigned, unsigned, unsigned);
DECLARE size_t __cvta_generic_to_shared(const void *);
DECLARE float __fadd_rn(float, float);
DECLARE float __fsub_rn(float, float);
DECLARE float __fmul_rn(float, float);
DECLARE float __fdiv_rn(float, float);
DECLARE double __dadd_rn(double, double);
DECLARE double __dmul_rn(double, double);
DECLARE double __ddiv_rn(double, double);
DECLARE unsigned __float_as_uint(float);
DECLARE int __float_as_int(float);
DECLARE float __uint_as_float(unsigned);
DECLARE float __int_as_float(int);
DECLARE long long __double_as_longlong(double);
DECLARE double __longlong_as_double(long long);
DECLARE double rint(double);
DECLARE void *memcpy(void *, const void *, size_t);
DECLARE void *memset(void *, int, size_t);
#define BOTH(name) DECLARE double name(double); DECLARE float name##f(float);
BOTH(fabs) BOTH(floor) BOTH(ceil) BOTH(trunc) BOTH(sqrt) BOTH(exp) BOTH(exp2) BOTH(expm1) BOTH(log) BOTH(log2) BOTH(log10) BOTH(log1p)
BOTH(sin) BOTH(cos) BOTH(tan) BOTH(asin) BOTH(acos) BOTH(atan) BOTH(sinh) BOTH(cosh) BOTH(tanh) BOTH(asinh) BOTH(acosh) BOTH(atanh)
BOTH(erf) BOTH(erfc) BOTH(cbrt)
DECLARE float rintf(float);
#define TWO(name) DECLARE double name(double, double); DECLARE float name##f(float, float);
TWO(pow) TWO(atan2) TWO(fmod) TWO(copysign) TWO(fmax) TWO(fmin)
DECLARE double fma(double, double, double);
DECLARE float fmaf(float, float, float);
}
template <class T> DECLARE T __shfl_sync(unsigned, T, int, int = 32);
template <class T> DECLARE T __shfl_xor_sync(unsigned, T, int, int = 32);
template <class T> DECLARE T __shfl_up_sync(unsigned, T, unsigned, int = 32);
template <class T> DECLARE T __shfl_down_sync(unsigned, T, unsigned, int = 32);
DECLARE int min(int, int);
DECLARE unsigned min(unsigned, unsigned);
DECLARE long long min(long long, long long);
DECLARE int max(int, int);
DECLARE unsigned max(unsigned, unsigned);
DECLARE long long max(long long, long long);
template <class T> DECLARE T atomicAdd(T *, T);
template <class T> DECLARE T atomicMax(T *, T);
template <class T> DECLARE T atomicOr(T *, T);
template <class T> DECLARE T atomicMin(T *, T);
template <class T> DECLARE T atomicExch(T *, T);
template <class T> DECLARE T atomicCAS(T *, T, T);
#undef DECLARE
#undef BOTH
#undef TWO

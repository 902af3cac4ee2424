// What generated kernels are written in. No header is needed: NVRTC and nvcc know
// the functions of the mathematical library and the intrinsics by themselves.
//
// Every operation of the graph is one function here, with a form for each type in
// which it may be computed. None of them contracts or reassociates: where a
// compiler would be free to fuse a product and a sum, the intrinsics that round
// are called by name.
//
// EXACT_MATH computes transcendental functions, quotients and sums as the host's
// kernels do, in double precision and rounded once: slower, and the same bits. By
// default sums of single precision stay in single precision, each lane's share in
// order and the shares as a tree, and on a device quotients, roots and exponentials
// are a few units in the last place off.
#pragma once

typedef float f32;
typedef double f64;
typedef long long i64;
typedef int i32;
typedef short i16;
typedef signed char i8;
typedef unsigned long long u64;
typedef unsigned u32;
typedef unsigned short u16;
typedef unsigned char u8;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct b8 { unsigned char byte; };

#define FN static __device__ __forceinline__
#define FN_MEMBER __device__ __forceinline__
#define RESTRICT __restrict__ // a result may be an operand where every element is read before it is written
#if defined(__CUDA_ARCH__) && !defined(EXACT_MATH)
#define FAST_MATH // the device's approximations
#endif
#ifndef LANES // threads that share a row; one where a block is run thread after thread
#define LANES(n) n
#endif

// next_may_begin lets the kernel behind this one in its stream begin once all blocks
// have come here, if it was launched so; such a kernel waits for the end of this one by
// itself before it reads what this one writes.
FN void next_may_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Single precision operations that are rounded each by itself.
#ifdef __CUDA_ARCH__
FN f32 add_rn(f32 a, f32 b) { return __fadd_rn(a, b); }
FN f32 sub_rn(f32 a, f32 b) { return __fsub_rn(a, b); }
FN f32 mul_rn(f32 a, f32 b) { return __fmul_rn(a, b); }
FN f32 div_rn(f32 a, f32 b) { return __fdiv_rn(a, b); }
FN f64 add_rn(f64 a, f64 b) { return __dadd_rn(a, b); }
FN f64 sub_rn(f64 a, f64 b) { return __dadd_rn(a, -b); }
FN f64 mul_rn(f64 a, f64 b) { return __dmul_rn(a, b); }
FN f64 div_rn(f64 a, f64 b) { return __ddiv_rn(a, b); }
FN unsigned bits_of(f32 x) { return __float_as_uint(x); }
FN f32 from_bits(unsigned b) { return __uint_as_float(b); }
FN f64 from_bits64(u64 b) { return __longlong_as_double((i64)b); }
#else // one thread, compiled without contraction
FN f32 add_rn(f32 a, f32 b) { return a + b; }
FN f32 sub_rn(f32 a, f32 b) { return a - b; }
FN f32 mul_rn(f32 a, f32 b) { return a * b; }
FN f32 div_rn(f32 a, f32 b) { return a / b; }
FN f64 add_rn(f64 a, f64 b) { return a + b; }
FN f64 sub_rn(f64 a, f64 b) { return a - b; }
FN f64 mul_rn(f64 a, f64 b) { return a * b; }
FN f64 div_rn(f64 a, f64 b) { return a / b; }
FN unsigned bits_of(f32 x) { union { f32 f; unsigned u; } v; v.f = x; return v.u; }
FN f32 from_bits(unsigned b) { union { f32 f; unsigned u; } v; v.u = b; return v.f; }
FN f64 from_bits64(u64 b) { union { f64 f; u64 u; } v; v.u = b; return v.f; }
#endif

template <class T> struct limits;
template <> struct limits<f32> {
  FN_MEMBER static f32 inf() { return from_bits(0x7f800000u); }
  FN_MEMBER static f32 nan() { return from_bits(0x7fc00000u); }
  FN_MEMBER static f32 least() { return -inf(); }
  FN_MEMBER static f32 most() { return inf(); }
};
template <> struct limits<f64> {
  FN_MEMBER static f64 inf() { return from_bits64(0x7ff0000000000000ull); }
  FN_MEMBER static f64 nan() { return from_bits64(0x7ff8000000000000ull); }
  FN_MEMBER static f64 least() { return -inf(); }
  FN_MEMBER static f64 most() { return inf(); }
};
template <> struct limits<i64> {
  FN_MEMBER static i64 least() { return -9223372036854775807LL - 1; }
  FN_MEMBER static i64 most() { return 9223372036854775807LL; }
};
template <> struct limits<u64> {
  FN_MEMBER static u64 least() { return 0; }
  FN_MEMBER static u64 most() { return 0xffffffffffffffffull; }
};
template <class T> FN T inf_of() { return limits<T>::inf(); }
template <class T> FN T nan_of() { return limits<T>::nan(); }
template <class T> FN T least_of() { return limits<T>::least(); }
template <class T> FN T most_of() { return limits<T>::most(); }

// Half precision, to the nearest, ties to even.
FN unsigned short bf16_bits(f32 x) {
  const unsigned b = bits_of(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (unsigned short)(b >> 16 | 0x40u);
  return (unsigned short)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
FN f32 bf16_value(unsigned short h) { return from_bits((unsigned)h << 16); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FN unsigned short bf16_round(f32 x) {
  unsigned short h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
FN unsigned short bf16_round(f32 x) { return bf16_bits(x); }
#endif
#ifdef __CUDA_ARCH__
FN unsigned short f16_bits(f32 x) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
FN f32 f16_value(unsigned short h) {
  f32 x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
#else
FN unsigned short f16_bits(f32 x) {
  unsigned b = bits_of(x);
  const unsigned sign = b >> 16 & 0x8000u;
  b &= 0x7fffffffu;
  if (b > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  if (b >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (b >= 0x38800000u) return (unsigned short)(sign | (b + 0xfffu + (b >> 13 & 1u) - 0x38000000u) >> 13);
  if (b < 0x33000000u) return (unsigned short)sign;
  const unsigned shift = 126u - (b >> 23), m = (b & 0x7fffffu) | 0x800000u, rest = m & ((1u << shift) - 1u), half = 1u << (shift - 1u);
  unsigned r = m >> shift;
  if (rest > half || (rest == half && (r & 1u))) ++r;
  return (unsigned short)(sign | r);
}
FN f32 f16_value(unsigned short h) {
  const unsigned sign = (unsigned)(h & 0x8000u) << 16, e = h >> 10 & 0x1fu, m = h & 0x3ffu;
  if (e == 0x1fu) return from_bits(sign | 0x7f800000u | m << 13);
  if (e) return from_bits(sign | (e + 112u) << 23 | m << 13);
  return from_bits(bits_of((f32)m * (1.0f / 16777216.0f)) | sign);
}
#endif

// Rounding to an element type. The result is held in f32, f64, i64 or u64. A double
// becomes a half by way of a float.
FN f32 to_f32(f32 x) { return x; }
FN f32 to_f32(f64 x) { return (f32)x; }
FN f32 to_f32(i64 x) { return (f32)x; }
FN f32 to_f32(u64 x) { return (f32)x; }
FN f64 to_f64(f64 x) { return x; }
FN f64 to_f64(f32 x) { return x; }
FN f64 to_f64(i64 x) { return (f64)x; }
FN f64 to_f64(u64 x) { return (f64)x; }
FN f32 to_bf16(f32 x) { return bf16_value(bf16_round(x)); }
FN f32 to_bf16(f64 x) { return to_bf16((f32)x); }
FN f32 to_bf16(i64 x) { return to_bf16((f32)x); }
FN f32 to_bf16(u64 x) { return to_bf16((f32)x); }
FN f32 to_f16(f32 x) { return f16_value(f16_bits(x)); }
FN f32 to_f16(f64 x) { return to_f16((f32)x); }
FN f32 to_f16(i64 x) { return to_f16((f32)x); }
FN f32 to_f16(u64 x) { return to_f16((f32)x); }
FN i64 to_i64(f64 x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0) return most_of<i64>();
  if (x < -9223372036854775808.0) return least_of<i64>();
  return (i64)x;
}
FN i64 to_i64(f32 x) { return to_i64((f64)x); }
FN i64 to_i64(i64 x) { return x; }
FN i64 to_i64(u64 x) { return (i64)x; }
FN u64 to_u64(f64 x) { return x > 0 ? x >= 18446744073709551616.0 ? most_of<u64>() : (u64)x : 0; }
FN u64 to_u64(f32 x) { return to_u64((f64)x); }
FN u64 to_u64(i64 x) { return (u64)x; }
FN i64 to_i32(i64 x) { return (i32)x; }
FN i64 to_i32(u64 x) { return (i32)x; }
FN i64 to_i32(f64 x) { const i64 n = to_i64(x); return n < -2147483648LL ? -2147483648LL : n > 2147483647LL ? 2147483647LL : n; }
FN i64 to_i32(f32 x) { return to_i32((f64)x); }
FN i64 to_u32(i64 x) { return (u32)x; }
FN i64 to_u32(u64 x) { return (u32)x; }
FN i64 to_u32(f64 x) { const i64 n = to_i64(x); return n < 0 ? 0 : n > 4294967295LL ? 4294967295LL : n; }
FN i64 to_u32(f32 x) { return to_u32((f64)x); }
template <class T> FN i64 to_i16(T x) { return (i16)to_i64(x); }
template <class T> FN i64 to_u16(T x) { return (u16)to_i64(x); }
template <class T> FN i64 to_i8(T x) { return (i8)to_i64(x); }
template <class T> FN i64 to_u8(T x) { return (u8)to_i64(x); }
template <class T> FN i64 to_b8(T x) { return x != 0; }

// The bits of what is held, in 64 of them or less, and back.
#ifdef __CUDA_ARCH__
FN u64 bits_f64(f64 x) { return (u64)__double_as_longlong(x); }
#else
FN u64 bits_f64(f64 x) { union { f64 f; u64 u; } v; v.f = x; return v.u; }
#endif
FN u64 bits_f32(f32 x) { return bits_of(x); }
FN u64 bits_bf16(f32 x) { return bits_of(x) >> 16; }
FN u64 bits_f16(f32 x) { return f16_bits(x); }
template <class T> FN u64 bits_i64(T x) { return (u64)x; }
template <class T> FN u64 bits_u64(T x) { return (u64)x; }
template <class T> FN u64 bits_i32(T x) { return (u32)x; }
template <class T> FN u64 bits_u32(T x) { return (u32)x; }
template <class T> FN u64 bits_i16(T x) { return (u16)x; }
template <class T> FN u64 bits_u16(T x) { return (u16)x; }
template <class T> FN u64 bits_i8(T x) { return (u8)x; }
template <class T> FN u64 bits_u8(T x) { return (u8)x; }
FN f64 from_bits_f64(u64 b) { return from_bits64(b); }
FN f32 from_bits_f32(u64 b) { return from_bits((unsigned)b); }
FN f32 from_bits_bf16(u64 b) { return bf16_value((unsigned short)b); }
FN f32 from_bits_f16(u64 b) { return f16_value((unsigned short)b); }
FN i64 from_bits_i64(u64 b) { return (i64)b; }
FN u64 from_bits_u64(u64 b) { return b; }
FN i64 from_bits_i32(u64 b) { return (i32)b; }
FN i64 from_bits_u32(u64 b) { return (u32)b; }
FN i64 from_bits_i16(u64 b) { return (i16)b; }
FN i64 from_bits_u16(u64 b) { return (u16)b; }
FN i64 from_bits_i8(u64 b) { return (i8)b; }
FN i64 from_bits_u8(u64 b) { return (u8)b; }

// Memory. A store takes a value that is rounded already.
FN f32 load(const f32* p) { return *p; }
FN f64 load(const f64* p) { return *p; }
FN f32 load(const f16* p) { return f16_value(p->bits); }
FN f32 load(const bf16* p) { return bf16_value(p->bits); }
FN i64 load(const i64* p) { return *p; }
FN i64 load(const i32* p) { return *p; }
FN i64 load(const i16* p) { return *p; }
FN i64 load(const i8* p) { return *p; }
FN u64 load(const u64* p) { return *p; }
FN i64 load(const u32* p) { return *p; }
FN i64 load(const u16* p) { return *p; }
FN i64 load(const u8* p) { return *p; }
FN i64 load(const b8* p) { return p->byte != 0; }
FN void store(f32* p, f32 x) { *p = x; }
FN void store(f64* p, f64 x) { *p = x; }
FN void store(f16* p, f32 x) { p->bits = f16_bits(x); }
FN void store(bf16* p, f32 x) { p->bits = (unsigned short)(bits_of(x) >> 16); }
FN void store(i64* p, i64 x) { *p = x; }
FN void store(i32* p, i64 x) { *p = (i32)x; }
FN void store(i16* p, i64 x) { *p = (i16)x; }
FN void store(i8* p, i64 x) { *p = (i8)x; }
FN void store(u64* p, u64 x) { *p = x; }
FN void store(u32* p, i64 x) { *p = (u32)x; }
FN void store(u16* p, i64 x) { *p = (u16)x; }
FN void store(u8* p, i64 x) { *p = (u8)x; }
FN void store(b8* p, i64 x) { p->byte = (unsigned char)x; }

// n consecutive elements, moved 16 bytes at a time where they are as many.
template <class T, int n> struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) vec { T at[n]; };
template <int n, class T> FN vec<T, n> load_vec(const T* p) { return *(const vec<T, n>*)p; }
template <int n, class T> FN void store_vec(T* p, const vec<T, n>& x) { *(vec<T, n>*)p = x; }
// The first of n elements where a tensor ends behind as many as are left.
template <int n, class T> FN void store_upto(T* p, const vec<T, n>& x, i64 left) {
  if (left >= n) {
    store_vec(p, x);
    return;
  }
  for (int v = 0; v < n; ++v) {
    if (v < left) p[v] = x.at[v];
  }
}

// A position that a tensor holds, negative ones counted from the end. One that
// lies outside stops the kernel before it reads what is not its own.
FN i64 position(i64 i, i64 size, bool wrap) {
  if (wrap && i < 0) i += size;
  if (i < 0 || i >= size) __trap();
  return i;
}
// Where a slice begins: negative counted from the end, and within the size.
FN i64 inside(i64 i, i64 size) {
  if (i < 0) i += size;
  return i < 0 ? 0 : i > size ? size : i;
}

// One operand.
template <class T> FN T same_of(T x) { return x; }
FN f32 neg_of(f32 x) { return -x; }
FN f64 neg_of(f64 x) { return -x; }
FN u64 neg_of(u64 x) { return 0ull - x; }
FN i64 neg_of(i64 x) { return (i64)neg_of((u64)x); }
FN f32 abs_of(f32 x) { return fabsf(x); }
FN f64 abs_of(f64 x) { return fabs(x); }
FN i64 abs_of(i64 x) { return x < 0 ? neg_of(x) : x; }
FN u64 abs_of(u64 x) { return x; }
template <class T> FN T relu_of(T x) { return x < 0 ? (T)0 : x; }
FN f32 floor_of(f32 x) { return floorf(x); }
FN f64 floor_of(f64 x) { return floor(x); }
FN f32 ceil_of(f32 x) { return ceilf(x); }
FN f64 ceil_of(f64 x) { return ceil(x); }
FN f32 round_of(f32 x) { return rintf(x); }
FN f64 round_of(f64 x) { return rint(x); }
FN f32 trunc_of(f32 x) { return truncf(x); }
FN f64 trunc_of(f64 x) { return trunc(x); }
template <class T> FN T floor_of(T x) { return x; } // integers
template <class T> FN T ceil_of(T x) { return x; }
template <class T> FN T round_of(T x) { return x; }
template <class T> FN T trunc_of(T x) { return x; }
template <class T> FN T sign_of(T x) { return (T)((x > 0) - (x < 0)); }
template <class T> FN T bitwise_not_of(T x) { return ~x; }
template <class T> FN T logical_not_of(T x) { return x == 0 ? (T)1 : (T)0; }
template <class T> FN T square_of(T x) { return mul_rn(x, x); }
template <class T> FN T cube_of(T x) { return mul_rn(mul_rn(x, x), x); }
FN f64 reciprocal_of(f64 x) { return div_rn(1.0, x); }
FN f64 sqrt_of(f64 x) { return sqrt(x); }
FN f64 rsqrt_of(f64 x) { return div_rn(1.0, sqrt(x)); }
FN f64 exp_of(f64 x) { return exp(x); }
FN f64 pow_of(f64 x, f64 y) { return pow(x, y); }
FN f64 sigmoid_of(f64 x) { return div_rn(1.0, add_rn(1.0, exp(-x))); }
FN f64 silu_of(f64 x) { return div_rn(x, add_rn(1.0, exp(-x))); }
FN f64 gelu_of(f64 x) { return mul_rn(mul_rn(0.5, x), add_rn(1.0, erf(div_rn(x, 1.4142135623730951)))); }
FN f64 gelu_tanh_of(f64 x) {
  const f64 cubic = mul_rn(mul_rn(mul_rn(0.044715, x), x), x);
  return mul_rn(mul_rn(0.5, x), add_rn(1.0, tanh(mul_rn(0.7978845608028654, add_rn(x, cubic)))));
}
#ifdef EXACT_MATH
FN f32 sqrt_of(f32 x) { return (f32)sqrt_of((f64)x); }
FN f32 rsqrt_of(f32 x) { return (f32)rsqrt_of((f64)x); }
FN f32 exp_of(f32 x) { return (f32)exp_of((f64)x); }
FN f32 pow_of(f32 x, f32 y) { return (f32)pow_of((f64)x, (f64)y); }
FN f32 sigmoid_of(f32 x) { return (f32)sigmoid_of((f64)x); }
FN f32 silu_of(f32 x) { return (f32)silu_of((f64)x); }
FN f32 gelu_of(f32 x) { return (f32)gelu_of((f64)x); }
FN f32 gelu_tanh_of(f32 x) { return (f32)gelu_tanh_of((f64)x); }
FN f32 fma_of(f32 a, f32 b, f32 c) { return (f32)add_rn(mul_rn((f64)a, (f64)b), (f64)c); }
FN f32 reciprocal_of(f32 x) { return div_rn(1.0f, x); }
FN f32 div_of(f32 a, f32 b) { return div_rn(a, b); }
#else
#ifdef FAST_MATH
FN f32 exp2_fast(f32 x) { f32 y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN f32 div_of(f32 a, f32 b) { f32 y; asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
FN f32 reciprocal_of(f32 x) { f32 y; asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN f32 rsqrt_of(f32 x) { f32 y; asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN f32 exp_of(f32 x) { return exp2_fast(x * 1.44269504f); }
#else
FN f32 div_of(f32 a, f32 b) { return div_rn(a, b); }
FN f32 reciprocal_of(f32 x) { return div_rn(1.0f, x); }
FN f32 rsqrt_of(f32 x) { return div_rn(1.0f, sqrtf(x)); }
FN f32 exp_of(f32 x) { return expf(x); }
#endif
FN f32 sqrt_of(f32 x) { return sqrtf(x); }
FN f32 pow_of(f32 x, f32 y) { return powf(x, y); }
FN f32 sigmoid_of(f32 x) { return reciprocal_of(add_rn(1.0f, exp_of(-x))); }
FN f32 silu_of(f32 x) { return div_of(x, add_rn(1.0f, exp_of(-x))); }
FN f32 gelu_of(f32 x) { return mul_rn(mul_rn(0.5f, x), add_rn(1.0f, erff(mul_rn(x, 0.70710678f)))); }
FN f32 gelu_tanh_of(f32 x) {
  const f32 cubic = mul_rn(mul_rn(mul_rn(0.044715f, x), x), x);
  return mul_rn(mul_rn(0.5f, x), add_rn(1.0f, tanhf(mul_rn(0.79788456f, add_rn(x, cubic)))));
}
FN f32 fma_of(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
#endif
// FUNCTION defines a function of the mathematical library.
#ifdef EXACT_MATH
#define FUNCTION(name) \
  FN f64 name##_of(f64 x) { return name(x); } \
  FN f32 name##_of(f32 x) { return (f32)name((f64)x); }
#else
#define FUNCTION(name) \
  FN f64 name##_of(f64 x) { return name(x); } \
  FN f32 name##_of(f32 x) { return name##f(x); }
#endif
FUNCTION(log) FUNCTION(log2) FUNCTION(log10) FUNCTION(log1p) FUNCTION(exp2) FUNCTION(expm1)
FUNCTION(sin) FUNCTION(cos) FUNCTION(tan) FUNCTION(asin) FUNCTION(acos) FUNCTION(atan)
FUNCTION(sinh) FUNCTION(cosh) FUNCTION(tanh) FUNCTION(asinh) FUNCTION(acosh) FUNCTION(atanh)
FUNCTION(erf) FUNCTION(erfc) FUNCTION(cbrt)
FN f64 fma_of(f64 a, f64 b, f64 c) { return fma(a, b, c); }
// A sum of products, each rounded by itself where bits matter.
#ifdef FAST_MATH
FN f32 add_product(f32 a, f32 b, f32 sum) { return fmaf(a, b, sum); }
#else
FN f32 add_product(f32 a, f32 b, f32 sum) { return add_rn(sum, mul_rn(a, b)); }
#endif
FN f64 add_product(f64 a, f64 b, f64 sum) { return add_rn(sum, mul_rn(a, b)); }
FN u64 add_product(u64 a, u64 b, u64 sum) { return sum + a * b; }
FN i64 add_product(i64 a, i64 b, i64 sum) { return (i64)add_product((u64)a, (u64)b, (u64)sum); }
FN u64 fma_of(u64 a, u64 b, u64 c) { return a * b + c; }
FN i64 fma_of(i64 a, i64 b, i64 c) { return (i64)fma_of((u64)a, (u64)b, (u64)c); }

// Two operands. Integers wrap; what is compared with NaN is NaN for maximum and minimum.
template <class T> FN T add_of(T a, T b) { return add_rn(a, b); }
template <class T> FN T sub_of(T a, T b) { return sub_rn(a, b); }
template <class T> FN T mul_of(T a, T b) { return mul_rn(a, b); }
FN f64 div_of(f64 a, f64 b) { return div_rn(a, b); }
FN u64 add_of(u64 a, u64 b) { return a + b; }
FN u64 sub_of(u64 a, u64 b) { return a - b; }
FN u64 mul_of(u64 a, u64 b) { return a * b; }
FN i64 add_of(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
FN i64 sub_of(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
FN i64 mul_of(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
FN u64 pow_of(u64 a, u64 e) {
  u64 r = 1;
  for (; e > 0; e >>= 1, a *= a) {
    if (e & 1) r *= a;
  }
  return r;
}
FN i64 pow_of(i64 a, i64 e) {
  if (e < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (e & 1) : 0;
  return (i64)pow_of((u64)a, (u64)e);
}
#ifdef __CUDA_ARCH__
FN f32 maximum_of(f32 a, f32 b) { f32 y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
FN f32 minimum_of(f32 a, f32 b) { f32 y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
#else
FN f32 maximum_of(f32 a, f32 b) { return a != a ? a : b != b ? b : a > b || (a == b && !(bits_of(a) >> 31)) ? a : b; }
FN f32 minimum_of(f32 a, f32 b) { return a != a ? a : b != b ? b : a < b || (a == b && bits_of(a) >> 31) ? a : b; }
#endif
FN f64 maximum_of(f64 a, f64 b) { return a != a ? a : b != b ? b : a > b || (a == b && 1 / a > 0) ? a : b; }
FN i64 maximum_of(i64 a, i64 b) { return a > b ? a : b; }
FN u64 maximum_of(u64 a, u64 b) { return a > b ? a : b; }
FN f64 minimum_of(f64 a, f64 b) { return a != a ? a : b != b ? b : a < b || (a == b && 1 / a < 0) ? a : b; }
FN i64 minimum_of(i64 a, i64 b) { return a < b ? a : b; }
FN u64 minimum_of(u64 a, u64 b) { return a < b ? a : b; }
template <class T> FN T at_least(T x, T low) { return x < low ? low : x; }
template <class T> FN T at_most(T x, T high) { return x > high ? high : x; }
FN f64 atan2_of(f64 a, f64 b) { return atan2(a, b); }
#ifdef EXACT_MATH
FN f32 atan2_of(f32 a, f32 b) { return (f32)atan2((f64)a, (f64)b); }
#else
FN f32 atan2_of(f32 a, f32 b) { return atan2f(a, b); }
#endif

// Quotients and remainders. Integers divided by 0 give -1 and leave the dividend. Of
// floats every step is rounded, never approximated, since the results jump.
FN f32 fmod_of(f32 a, f32 b) { return fmodf(a, b); }
FN f64 fmod_of(f64 a, f64 b) { return fmod(a, b); }
FN u64 fmod_of(u64 a, u64 b) { return b == 0 ? a : a % b; }
FN i64 fmod_of(i64 a, i64 b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
FN f32 trunc_divide_of(f32 a, f32 b) { return truncf(div_rn(a, b)); }
FN f64 trunc_divide_of(f64 a, f64 b) { return trunc(div_rn(a, b)); }
FN u64 trunc_divide_of(u64 a, u64 b) { return b == 0 ? ~0ull : a / b; }
FN i64 trunc_divide_of(i64 a, i64 b) { return b == 0 ? -1 : b == -1 ? neg_of(a) : a / b; }
template <class T> FN T remainder_of(T a, T b) {
  const T r = fmod_of(a, b);
  return b != 0 && r != 0 && (r < 0) != (b < 0) ? add_of(r, b) : r;
}
template <class T> FN T floor_divide_of(T a, T b) {
  const T q = trunc_divide_of(a, b);
  return b != 0 && fmod_of(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
template <class T> FN T floor_quotient(T a, T b) {
  if (b == 0) return div_rn(a, b);
  const T r = fmod_of(a, b);
  T q = div_rn(sub_rn(a, r), b);
  if (r != 0 && (r < 0) != (b < 0)) q = sub_rn(q, (T)1);
  if (q == 0) return (T)copysign(0.0, (f64)div_rn(a, b));
  const T whole = floor_of(q);
  return sub_rn(q, whole) > (T)0.5 ? add_rn(whole, (T)1) : whole;
}
FN f32 floor_divide_of(f32 a, f32 b) { return floor_quotient(a, b); }
FN f64 floor_divide_of(f64 a, f64 b) { return floor_quotient(a, b); }

template <class T> FN T bitwise_and_of(T a, T b) { return a & b; }
template <class T> FN T bitwise_or_of(T a, T b) { return a | b; }
template <class T> FN T bitwise_xor_of(T a, T b) { return a ^ b; }
FN u64 shift_left_of(u64 a, u64 b) { return b > 63 ? 0 : a << b; }
FN i64 shift_left_of(i64 a, i64 b) { return (i64)shift_left_of((u64)a, (u64)b); }
FN u64 shift_right_of(u64 a, u64 b) { return b > 63 ? 0 : a >> b; }
FN i64 shift_right_of(i64 a, i64 b) { return a >> ((u64)b > 63 ? 63 : b); }

template <class T> FN i64 eq_of(T a, T b) { return a == b; }
template <class T> FN i64 ne_of(T a, T b) { return a != b; }
template <class T> FN i64 lt_of(T a, T b) { return a < b; }
template <class T> FN i64 le_of(T a, T b) { return a <= b; }
template <class T> FN i64 gt_of(T a, T b) { return a > b; }
template <class T> FN i64 ge_of(T a, T b) { return a >= b; }
template <class T> FN i64 and_of(T a, T b) { return a != 0 && b != 0; }
template <class T> FN i64 or_of(T a, T b) { return a != 0 || b != 0; }

// Softmax and sums of single precision are computed in double under EXACT_MATH.
#ifdef EXACT_MATH
typedef f64 soft32;
typedef f64 sum32;
#else
typedef f32 soft32;
typedef f32 sum32;
#endif
FN f64 soft_exp(f64 x) { return exp(x); }
FN f64 soft_log(f64 x) { return log(x); }
FN f32 soft_exp(f32 x) { return exp_of(x); }
FN f32 soft_log(f32 x) { return logf(x); }
FN f32 mean_of(f32 sum, i64 n) { return mul_rn(sum, 1.0f / (f32)n); }
FN f64 mean_of(f64 sum, i64 n) { return div_rn(sum, (f64)n); }

// Reductions. Each lane folds its share in ascending order, then the lanes' shares
// are folded in a fixed order, so that equal inputs give equal bits.
struct Sum { template <class T> FN_MEMBER T operator()(T a, T b) const { return add_of(a, b); } };
struct Product { template <class T> FN_MEMBER T operator()(T a, T b) const { return mul_of(a, b); } };
struct Largest { template <class T> FN_MEMBER T operator()(T a, T b) const { return maximum_of(a, b); } };
struct Smallest { template <class T> FN_MEMBER T operator()(T a, T b) const { return minimum_of(a, b); } };
// The first largest element; NaN counts as largest. at < 0 stands for none yet.
template <class T> struct best { T value; i64 at; };
struct First {
  template <class T> FN_MEMBER best<T> operator()(best<T> a, best<T> b) const {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    const bool na = a.value != a.value, nb = b.value != b.value;
    if (na != nb) return na ? a : b;
    if (!na && a.value != b.value) return a.value > b.value ? a : b;
    return a.at < b.at ? a : b;
  }
};

// The order of topk: best first, of equals the one with the lower position.
template <bool largest, class T> FN bool ahead(best<T> a, best<T> b) {
  const bool na = a.value != a.value, nb = b.value != b.value;
  if (na != nb) return largest ? na : nb;
  if (!na && a.value != b.value) return largest ? a.value > b.value : a.value < b.value;
  return a.at < b.at;
}
template <bool largest> struct Ahead {
  template <class T> FN_MEMBER best<T> operator()(best<T> a, best<T> b) const {
    return a.at < 0 ? b : b.at < 0 ? a : ahead<largest>(a, b) ? a : b;
  }
};

// Numbers as integers that ascend from best to worst. Zeros are equal, and so is all
// that is not a number. None is 0xffffffff.
template <bool largest> FN unsigned rank_key(f32 x) {
  const unsigned b = bits_of(x == 0 ? 0.0f : x);
  const unsigned up = x != x ? 0xff800001u : b >> 31 ? ~b : b | 0x80000000u;
  return largest ? ~up : up;
}

// The largest element so far and the sum of exp(x - largest), which one walk over a
// row finds together: the sum shrinks whenever a larger element comes.
struct online { f32 top, sum; };
FN f32 online_base(f32 top) { return top == -inf_of<f32>() ? 0.0f : top; }
template <int n> FN void online_step(online& o, const f32 (&x)[n]) {
  f32 top = o.top;
  for (int v = 0; v < n; ++v) top = maximum_of(top, x[v]);
  const f32 base = online_base(top);
  f32 sum = o.sum * soft_exp(o.top - base);
  for (int v = 0; v < n; ++v) sum += soft_exp(x[v] - base);
  o.top = top;
  o.sum = sum;
}
FN f32 online_sum(const online& o) { return o.top == -inf_of<f32>() ? nan_of<f32>() : o.sum; }
struct Online {
  FN_MEMBER online operator()(online a, online b) const {
    const f32 top = maximum_of(a.top, b.top), base = online_base(top);
    return online{top, a.sum * soft_exp(a.top - base) + b.sum * soft_exp(b.top - base)};
  }
};

#ifdef __CUDA_ARCH__
template <class T> FN T exchange(T x, int m) { return __shfl_xor_sync(0xffffffffu, x, m); }
template <class T> FN best<T> exchange(best<T> x, int m) { return best<T>{exchange(x.value, m), exchange(x.at, m)}; }
FN online exchange(online x, int m) { return online{exchange(x.top, m), exchange(x.sum, m)}; }
FN void meet() { __syncthreads(); }
FN void latest(int* p, int k) { atomicMax(p, k); }

// fold_lanes gives every lane the fold of its row's lanes, neighbours all of them.
// All threads of the block must call it.
template <int lanes, int rows, class T, class F> FN T fold_lanes(T x, F f) {
#pragma unroll
  for (int m = 1; m < lanes && m < 32; m *= 2) x = f(x, exchange(x, m));
  if (lanes <= 32) return x;
  constexpr int warps = lanes > 32 ? lanes / 32 : 1;
  __shared__ T part[warps * rows];
  __syncthreads(); // a fold before this one may still be read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = part[threadIdx.x / lanes * warps + threadIdx.x % warps];
#pragma unroll
  for (int m = 1; m < warps; m *= 2) x = f(x, exchange(x, m));
  return x;
}

// fold_columns gives every lane the folds of its n columns. Threads next to each
// other have columns next to each other, lanes are cols threads apart.
template <int lanes, int cols, int n, class T, class F> FN void fold_columns(T (&x)[n], F f) {
  if (lanes == 1) return;
#pragma unroll
  for (int m = cols; m < 32; m *= 2) {
#pragma unroll
    for (int v = 0; v < n; ++v) x[v] = f(x[v], exchange(x[v], m));
  }
  constexpr int warps = lanes * cols / 32 > 0 ? lanes * cols / 32 : 1; // of the block
  constexpr int near = cols < 32 ? cols : 32;                          // columns that a warp has
  constexpr int groups = cols / near;                                  // of warps with the same columns: warps / groups
  constexpr int each = warps / groups > 0 ? warps / groups : 1;
  if (each == 1) return;
  __shared__ T part[warps][near * n + 1];
  __syncthreads(); // a fold before this one may still be read
  const int warp = threadIdx.x / 32, seat = threadIdx.x % 32;
  if (seat < near) {
#pragma unroll
    for (int v = 0; v < n; ++v) part[warp][seat * n + v] = x[v];
  }
  __syncthreads();
  // Teams of as many threads as there are shares fold one column each.
  const int team = threadIdx.x / each, k = threadIdx.x % each;
  for (int j0 = 0; j0 < groups * near * n; j0 += warps * 32 / each) {
    const int j = j0 + team, group = j / (near * n), column = j % (near * n);
    const bool some = group < groups;
    T y = T();
    if (some) y = part[k * groups + group][column];
#pragma unroll
    for (int m = 1; m < each; m *= 2) y = f(y, exchange(y, m));
    if (some && k == 0) part[group][column] = y; // only this team reads the shares of the column
  }
  __syncthreads();
#pragma unroll
  for (int v = 0; v < n; ++v) x[v] = part[warp % groups][seat % near * n + v];
}

// A list that a block makes of the positions in index[0..n) that lie between low
// and low + rows, in order: each place in the index times rows, plus the row. If they
// are more than there is room for it makes none, and the answer is -1.
template <int threads, class I>
FN int list_rows(int* list, const I* index, int n, i64 size, bool wrap, i64 low, int rows, int room = 0x7fffffff) {
  constexpr int warps = threads / 32, batch = 16;
  __shared__ int found[warps];
  // Every warp has a run of the index, in which it reads 32 places at a time, and
  // once if they are few.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = (n + warps * 32 - 1) / (warps * 32) * 32, first = warp * share, end = first + share < n ? first + share : n;
  const bool few = share <= batch * 32;
  i64 at[batch];
  int to = 0;
#pragma unroll
  for (int pass = 0; pass < 2; ++pass) {
    for (int k0 = first; k0 < end; k0 += 32 * batch) {
      if (pass == 0 || !few) {
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const int k = k0 + b * 32 + lane;
          at[b] = k < end ? load(index + k) : 0;
        }
#pragma unroll
        for (int b = 0; b < batch; ++b) at[b] = position(at[b], size, wrap) - low;
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int k = k0 + b * 32 + lane;
        const bool mine = k < end && at[b] >= 0 && at[b] < rows;
        const unsigned all = __ballot_sync(0xffffffffu, mine);
        if (pass == 1 && mine) list[to + __popc(all & ((1u << lane) - 1))] = k * rows + (int)at[b];
        to += __popc(all);
      }
    }
    if (pass == 1) break;
    if (lane == 0) found[warp] = to;
    __syncthreads();
    to = 0;
    for (int w = 0; w < warp; ++w) to += found[w];
    int all = 0;
    for (int w = 0; w < warps; ++w) all += found[w];
    if (all > room) return -1; // so for all of the block
  }
  int all = 0;
  for (int w = 0; w < warps; ++w) all += found[w];
  __syncthreads();
  return all;
}
#else
FN void meet() {}
FN void latest(int* p, int k) { *p = k > *p ? k : *p; }
template <int lanes, int rows, class T, class F> FN T fold_lanes(T x, F) { return x; }
template <int lanes, int cols, int n, class T, class F> FN void fold_columns(T (&)[n], F) {}
template <int threads, class I>
FN int list_rows(int* list, const I* index, int n, i64 size, bool wrap, i64 low, int rows, int room = 0x7fffffff) {
  int all = 0;
  for (int k = 0; k < n; ++k) {
    const i64 at = position(load(index + k), size, wrap) - low;
    if (at < 0 || at >= rows) continue;
    if (all == room) return -1;
    list[all++] = k * rows + (int)at;
  }
  return all;
}
#endif

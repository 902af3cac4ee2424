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
template <int exponent, int mantissa, int bias, int form> struct f8 { unsigned char bits; };
typedef f8<5, 2, 15, 0> f8e5m2;
typedef f8<4, 3, 7, 0> f8e4m3;
typedef f8<3, 4, 3, 0> f8e3m4;
typedef f8<4, 3, 7, 1> f8e4m3fn;
typedef f8<5, 2, 16, 2> f8e5m2fnuz;
typedef f8<4, 3, 8, 2> f8e4m3fnuz;
typedef f8<4, 3, 11, 2> f8e4m3b11fnuz;
typedef f8<8, 0, 127, 3> f8e8m0fnu;

#define FN static __device__ __forceinline__
#define FN_MEMBER __device__ __forceinline__
#define RESTRICT __restrict__ // a result may be an operand where every element is read before it is written
#if defined(__CUDA_ARCH__) && !defined(EXACT_MATH)
#define FAST_MATH // the device's approximations
#endif
#ifdef __CUDA_ARCH__
#define AT_ONCE // a block's threads run at once, as they do for whoever defines it without a device
#endif
#ifndef LANES // threads that share a row; one where a block is run thread after thread
#define LANES(n) n
#endif
#ifndef CLUSTER_SIZE // else with sync_cluster and of_block, of whoever runs clusters without a device
#if defined(__CUDACC__) && !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CLUSTER(n) __cluster_dims__(n, 1, 1)
#define CLUSTER_SIZE(n) n // blocks of a thread block cluster; one where a device has none
#else
#define CLUSTER(n)
#define CLUSTER_SIZE(n) 1
#endif
#define DEVICE_CLUSTERS
#endif

// next_may_begin lets the kernel behind this one in its stream begin once all blocks
// have come here, if it was launched so; such a kernel waits for the end of this one by
// itself before it reads what this one writes.
FN void next_may_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// size_of is a size that a kernel is given: a number, or less than 0 where it lies in memory, at
// the address of the other bits.
FN i64 size_of(i64 n) {
  return n < 0 ? *(const i64 *)(n & 0x7fffffffffffffff) : n;
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
FN f32 to_bf16(f32 x) { // the upper of two halves has the bits of the f32
  unsigned h;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(x), "f"(0.0f));
  return from_bits(h);
}
#else
FN f32 to_bf16(f32 x) { return bf16_value(bf16_bits(x)); }
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

// Floats of a byte, to the nearest, ties to even. Form 0 has infinities and NaN where all bits
// of the exponent are set, 1 only a NaN where all bits are, 2 only the one that would be -0, and
// 3 is nothing but an exponent: ties are rounded up, and NaN is all bits set.
template <int exponent, int mantissa, int bias, int form> FN unsigned char f8_round(f32 x) {
  const unsigned char inf = (unsigned char)(form == 0 ? 128 - (1 << mantissa) : form == 1 ? 0x7f : form == 2 ? 0x80 : 0xff);
  unsigned b = bits_of(x);
  const unsigned sign = b >> 24 & 0x80u;
  const unsigned char nan = (unsigned char)(form == 0 ? sign | inf | 1u << (mantissa > 0 ? mantissa - 1 : 0) : form == 1 ? sign | 0x7fu : inf);
  b &= 0x7fffffffu;
  if (b > 0x7f800000u) return nan;
  if (form == 3) return (unsigned char)((sign && b) || b >= 0x7f400000u ? 0xffu : b < 0x00600000u ? 0u : b < 0x00800000u ? 1u : (b + 0x400000u) >> 23);
  const int e = (int)(b >> 23) - 127, shift = 23 - mantissa + (e < 1 - bias ? 1 - bias - e : 0);
  if (shift > 25) return (unsigned char)(form == 2 ? 0u : sign);
  const unsigned m = (b & 0x7fffffu) | 0x800000u, rest = m & ((1u << shift) - 1u), half = 1u << (shift - 1);
  unsigned r = m >> shift;
  if (rest > half || (rest == half && (r & 1u))) ++r;
  const unsigned code = ((unsigned)(e + bias > 1 ? e + bias - 1 : 0) << mantissa) + r;
  if (code >= inf) return form == 0 ? (unsigned char)(sign | inf) : nan;
  return (unsigned char)(form == 2 && code == 0 ? 0u : sign | code);
}
template <int exponent, int mantissa, int bias, int form> FN f32 f8_value(unsigned char b) {
  const unsigned sign = (unsigned)(b & 0x80u) << 24, code = b & 0x7fu, inf = 128u - (1u << mantissa);
  if (form == 3) return from_bits(b == 0xffu ? 0x7fc00000u : b == 0 ? 0x00400000u : (unsigned)b << 23);
  if ((form == 2 && b == 0x80u) || (form == 1 && code == 0x7fu) || (form == 0 && code > inf)) return from_bits(sign | 0x7fc00000u);
  if (form == 0 && code == inf) return from_bits(sign | 0x7f800000u);
  if (code >> mantissa == 0) return from_bits(sign | bits_of((f32)code * from_bits((unsigned)(128 - bias - mantissa) << 23)));
  return from_bits(sign | ((code << (23 - mantissa)) + ((unsigned)(127 - bias) << 23)));
}

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
FN f32 to_bf16(f64 x) { return to_bf16((f32)x); }
FN f32 to_bf16(i64 x) { return to_bf16((f32)x); }
FN f32 to_bf16(u64 x) { return to_bf16((f32)x); }
FN f32 to_f16(f32 x) { return f16_value(f16_bits(x)); }
FN f32 to_f16(f64 x) { return to_f16((f32)x); }
FN f32 to_f16(i64 x) { return to_f16((f32)x); }
FN f32 to_f16(u64 x) { return to_f16((f32)x); }
#define FLOAT8(name, exponent, mantissa, bias, form) \
  FN u64 bits_##name(f32 x) { return f8_round<exponent, mantissa, bias, form>(x); } \
  FN f32 from_bits_##name(u64 b) { return f8_value<exponent, mantissa, bias, form>((unsigned char)b); } \
  template <class T> FN f32 to_##name(T x) { return from_bits_##name(bits_##name((f32)x)); }
FLOAT8(f8e5m2, 5, 2, 15, 0) FLOAT8(f8e4m3, 4, 3, 7, 0) FLOAT8(f8e3m4, 3, 4, 3, 0) FLOAT8(f8e4m3fn, 4, 3, 7, 1)
FLOAT8(f8e5m2fnuz, 5, 2, 16, 2) FLOAT8(f8e4m3fnuz, 4, 3, 8, 2) FLOAT8(f8e4m3b11fnuz, 4, 3, 11, 2) FLOAT8(f8e8m0fnu, 8, 0, 127, 3)
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
template <int e, int m, int b, int f> FN f32 load(const f8<e, m, b, f>* p) { return f8_value<e, m, b, f>(p->bits); }
template <int e, int m, int b, int f> FN void store(f8<e, m, b, f>* p, f32 x) { p->bits = f8_round<e, m, b, f>(x); }
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


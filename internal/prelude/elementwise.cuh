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
// Of results that are rounded to 16 bits, which they miss by less than 2^-16 of them: what erf
// lacks of one is a power of two whose exponent is nearly a polynomial.
#ifdef __CUDA_ARCH__
FN f32 exp2_near(f32 x) { f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#else
FN f32 exp2_near(f32 x) { return exp2f(x); }
#endif
FN f32 erf_near(f32 x) {
  const f32 a = fabsf(x);
  const f32 p = fmaf(fmaf(fmaf(fmaf(0.0029945641f, a, -0.0297909227f), a, 0.148928177f), a, 0.918381194f), a, 1.62790741f);
  const f32 small = x * fmaf(-0.373919264f, a * a, 1.12837375f);
  return a < 0.12f ? small : copysignf(1.0f - exp2_near(-a * p), x);
}
FN f32 gelu_near(f32 x) {
  const f32 a = fabsf(x);
  const f32 p = fmaf(fmaf(fmaf(fmaf(fmaf(fmaf(1.71527358e-6f, a, -5.91219728e-5f), a, 9.10283037e-4f), a, -0.00842526536f), a, 0.0537848741f), a, 0.458645019f), a, 1.15117858f);
  const f32 e = exp2_near(-a * p);
  return 0.5f * x * (x < 0 ? e : 2.0f - e);
}
#ifdef FAST_MATH
FN f32 erf_16(f32 x) { return erf_near(x); }
FN f32 gelu_16(f32 x) { return gelu_near(x); }
#else
FN f32 erf_16(f32 x) { return erf_of(x); }
FN f32 gelu_16(f32 x) { return gelu_of(x); }
#endif
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
// Of bfloat16, rounded: sums and products are exact in single precision, or too far from the
// middle of two neighbours for its rounding to count, so that one rounding gives the same.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BF16_OPERATION(name) \
  FN f32 name##_bf16(f32 a, f32 b) { \
    unsigned short y; \
    asm(#name ".rn.bf16 %0, %1, %2;" : "=h"(y) : "h"((unsigned short)(bits_of(a) >> 16)), "h"((unsigned short)(bits_of(b) >> 16))); \
    return bf16_value(y); \
  }
#else
#define BF16_OPERATION(name) \
  FN f32 name##_bf16(f32 a, f32 b) { return to_bf16(name##_rn(a, b)); }
#endif
BF16_OPERATION(add) BF16_OPERATION(sub) BF16_OPERATION(mul)
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


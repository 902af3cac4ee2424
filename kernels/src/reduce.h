// Reductions on packed words. Narrow floats are accumulated in f32 and rounded
// once; operands are folded in the order the caller presents them, which is
// always group rank 0, 1, ..., n-1, so every rank computes the same bits.
#pragma once
#include "prelude.h"

DEV float asF(u32 b) { return __builtin_bit_cast(float, b); }
DEV u32 asU(float f) { return __builtin_bit_cast(u32, f); }
DEV double asD(u64 b) { return __builtin_bit_cast(double, b); }
DEV u64 asL(double f) { return __builtin_bit_cast(u64, f); }

// Additions and products are kept apart from neighbouring operations, so that no
// compiler contracts them into fused forms on one path and not on another.
DEV float addF(float a, float b) {
  float r;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEV float mulF(float a, float b) {
  float r;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEV float divF(float a, float b) {
  float r;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEV float minF(float a, float b) { // NaN wins
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEV float maxF(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEV float opF(u32 op, float a, float b) {
  switch (op) {
  case PROD:
    return mulF(a, b);
  case MIN:
    return minF(a, b);
  case MAX:
    return maxF(a, b);
  }
  return addF(a, b);
}
DEV double opD(u32 op, double a, double b) {
  double r;
  switch (op) {
  case PROD:
    asm("mul.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
    return r;
  case MIN:
    return a != a ? a : (b != b ? b : (b < a || (b == a && (asL(b) >> 63)) ? b : a));
  case MAX:
    return a != a ? a : (b != b ? b : (b > a || (b == a && !(asL(b) >> 63)) ? b : a));
  }
  asm("add.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
}
template <class I> DEV I opI(u32 op, I a, I b) {
  switch (op) {
  case PROD:
    return (I)((u64)a * (u64)b);
  case MIN:
    return b < a ? b : a;
  case MAX:
    return b > a ? b : a;
  }
  return (I)((u64)a + (u64)b);
}

// Words of two narrow floats.
template <int T> DEV float lowF(u32 w) {
  if (T == BF16)
    return asF(w << 16);
  float f;
  asm("{.reg .b16 l,h; mov.b32 {l,h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(w));
  return f;
}
template <int T> DEV float highF(u32 w) {
  if (T == BF16)
    return asF(w & 0xffff0000u);
  float f;
  asm("{.reg .b16 l,h; mov.b32 {l,h}, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(w));
  return f;
}
template <int T> DEV u32 packF(float lo, float hi) {
  u32 w;
  if (T == BF16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
  return w;
}

// Acc<T> sums four words of T in f32: f32 has one element in a word, bf16 and
// f16 have two.
template <int T> struct Acc {
  float f[T == F32 ? 4 : 8];
};
template <int T> DEV void accSet(Acc<T> &s, V4 v) {
  u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (T == F32) {
      s.f[i] = asF(w[i]);
    } else {
      s.f[2 * i] = lowF<T>(w[i]);
      s.f[(2 * i + 1) % (T == F32 ? 4 : 8)] = highF<T>(w[i]);
    }
  }
}
template <int T> DEV void accAdd(Acc<T> &s, V4 v) {
  u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (T == F32) {
      s.f[i] = addF(s.f[i], asF(w[i]));
    } else {
      s.f[2 * i] = addF(s.f[2 * i], lowF<T>(w[i]));
      s.f[(2 * i + 1) % (T == F32 ? 4 : 8)] = addF(s.f[(2 * i + 1) % (T == F32 ? 4 : 8)], highF<T>(w[i]));
    }
  }
}
// meanF divides by n; for powers of two the product with 1/n has the same bits.
DEV float meanF(float s, u32 n) { return (n & (n - 1)) == 0 ? mulF(s, 1.0f / (float)n) : divF(s, (float)n); }

// accGet rounds to T; an average is divided before it is rounded.
template <int T> DEV V4 accGet(Acc<T> &s, u32 op, u32 n) {
  if (op == AVG) {
#pragma unroll
    for (int i = 0; i < (T == F32 ? 4 : 8); i++)
      s.f[i] = meanF(s.f[i], n);
  }
  if (T == F32)
    return V4{asU(s.f[0]), asU(s.f[1]), asU(s.f[2]), asU(s.f[3])};
  constexpr int m = T == F32 ? 4 : 8;
  return V4{packF<T>(s.f[0], s.f[1]), packF<T>(s.f[2], s.f[3]), packF<T>(s.f[4 % m], s.f[5 % m]),
            packF<T>(s.f[6 % m], s.f[7 % m])};
}

// Any folds eight bytes of any type with any reduction, one rank at a time.
// Narrow floats are held as f32, everything else in its own type.
struct Any {
  float f[4];
  u64 v;
};
DEV void anySet(Any &s, u32 t, u64 v) {
  s.v = v;
  u32 lo = (u32)v, hi = (u32)(v >> 32);
  if (t == BF16) {
    s.f[0] = lowF<BF16>(lo), s.f[1] = highF<BF16>(lo), s.f[2] = lowF<BF16>(hi), s.f[3] = highF<BF16>(hi);
  } else if (t == F16) {
    s.f[0] = lowF<F16>(lo), s.f[1] = highF<F16>(lo), s.f[2] = lowF<F16>(hi), s.f[3] = highF<F16>(hi);
  } else if (t == F32) {
    s.f[0] = asF(lo), s.f[1] = asF(hi);
  }
}
template <class I> DEV u64 lanes(u32 op, u64 a, u64 b) {
  u64 r = 0;
#pragma unroll
  for (u32 i = 0; i < 8; i += sizeof(I)) {
    u64 mask = sizeof(I) == 8 ? ~0ull : (1ull << (8 * sizeof(I) % 64)) - 1;
    r |= ((u64)opI<I>(op, (I)(a >> (8 * i)), (I)(b >> (8 * i))) & mask) << (8 * i);
  }
  return r;
}
DEV void anyFold(Any &s, u32 t, u32 op, u64 v) {
  u32 lo = (u32)v, hi = (u32)(v >> 32);
  switch (t) {
  case BF16:
    s.f[0] = opF(op, s.f[0], lowF<BF16>(lo)), s.f[1] = opF(op, s.f[1], highF<BF16>(lo));
    s.f[2] = opF(op, s.f[2], lowF<BF16>(hi)), s.f[3] = opF(op, s.f[3], highF<BF16>(hi));
    break;
  case F16:
    s.f[0] = opF(op, s.f[0], lowF<F16>(lo)), s.f[1] = opF(op, s.f[1], highF<F16>(lo));
    s.f[2] = opF(op, s.f[2], lowF<F16>(hi)), s.f[3] = opF(op, s.f[3], highF<F16>(hi));
    break;
  case F32:
    s.f[0] = opF(op, s.f[0], asF(lo)), s.f[1] = opF(op, s.f[1], asF(hi));
    break;
  case F64:
    s.v = asL(opD(op, asD(s.v), asD(v)));
    break;
  case I64:
    s.v = lanes<i64>(op, s.v, v);
    break;
  case I32:
    s.v = lanes<i32>(op, s.v, v);
    break;
  case I8:
    s.v = lanes<signed char>(op, s.v, v);
    break;
  case U8:
    s.v = lanes<u8>(op, s.v, v);
    break;
  }
}
DEV u64 anyGet(Any &s, u32 t, u32 op, u32 n) {
  if (op == AVG) {
    if (t == F64) {
      double r, d = (double)n;
      asm("div.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(asD(s.v)), "d"(d));
      return asL(r);
    }
    for (int i = 0; i < 4; i++)
      s.f[i] = meanF(s.f[i], n);
  }
  switch (t) {
  case BF16:
    return (u64)packF<BF16>(s.f[0], s.f[1]) | (u64)packF<BF16>(s.f[2], s.f[3]) << 32;
  case F16:
    return (u64)packF<F16>(s.f[0], s.f[1]) | (u64)packF<F16>(s.f[2], s.f[3]) << 32;
  case F32:
    return (u64)asU(s.f[0]) | (u64)asU(s.f[1]) << 32;
  }
  return s.v;
}

// Types of the simple kernels: ELEM, LSE and BIAS are 0 for f32, 1 for f64, 2 for bf16
// and 3 for f16. Sums are of double precision for f64, else of single.
template <int K> struct kind;
template <> struct kind<0> {
	typedef float type, real;
	FN_MEMBER static float value(type x) { return x; }
	FN_MEMBER static type made(float x) { return x; }
};
template <> struct kind<1> {
	typedef double type, real;
	FN_MEMBER static double value(type x) { return x; }
	FN_MEMBER static type made(double x) { return x; }
};
template <> struct kind<2> {
	typedef u16 type;
	typedef float real;
	FN_MEMBER static float value(type x) { return bf16_value(x); }
	FN_MEMBER static type made(float x) { return bf16_bits(x); }
};
template <> struct kind<3> {
	typedef u16 type;
	typedef float real;
	FN_MEMBER static float value(type x) { return f16_value(x); }
	FN_MEMBER static type made(float x) { return f16_bits(x); }
};
typedef kind<ELEM> E;
typedef kind<LSE> L;
typedef kind<BIAS> B;
typedef E::type elem;
typedef E::real real;
typedef L::type lse_elem;
typedef B::type bias_elem;

FN float expo(float x) { return expf(x); }
FN double expo(double x) { return exp(x); }
FN float loga(float x) { return logf(x); }
FN double loga(double x) { return log(x); }

// What the kernels of half precision share.
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f
typedef u16 elem;
typedef float lse_elem;
#if BIAS == 2
typedef float bias_elem;
FN float bias_value(bias_elem b) { return b; }
#else
typedef u16 bias_elem;
FN float bias_value(bias_elem b) { return half_value(b); }
#endif

// A score's bias in units of log2. The least numbers, which masks are made of, have no such units: they
// become the least one, not -inf, so that a row of nothing else weighs all keys alike as the host does.
#define LEAST -3.40282347e38f
FN float bias_log2(bias_elem b)
{
	const float x = bias_value(b), y = x * LOG2E;
	return x != -inf() && y < LEAST ? LEAST : y;
}
// The natural logarithm of a row's largest weight.
FN float natural(float top)
{
#if BIAS
	if (top == LEAST)
		return LEAST;
#endif
	return top * LN2;
}

FN quad load16(const elem *p, bool there)
{
	quad v = {{0, 0, 0, 0}};
	if (there)
		v = *(const quad *)p;
	return v;
}

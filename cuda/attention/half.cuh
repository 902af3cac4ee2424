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

FN quad load16(const elem *p, bool there)
{
	quad v = {{0, 0, 0, 0}};
	if (there)
		v = *(const quad *)p;
	return v;
}

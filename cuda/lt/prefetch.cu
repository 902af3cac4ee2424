// Brings ranges of memory into the cache while something else runs that needs little of
// memory's bandwidth. Nothing is read or written, so it needs no order with anything:
// what others write meanwhile they write through the same cache.

typedef unsigned int u32;
typedef unsigned long long u64;

struct range {
	const unsigned char *at; // aligned to 16 bytes
	u64 bytes;               // a multiple of 16
};

struct args {
	range of[4];
};

extern "C" __global__ void __launch_bounds__(64) concert_prefetch(args g)
{
	const u64 piece = 8192;
#pragma unroll
	for (int i = 0; i < 4; i++)
		for (u64 at = (blockIdx.x * 64ull + threadIdx.x) * piece; at < g.of[i].bytes; at += gridDim.x * 64ull * piece) {
			u64 left = g.of[i].bytes - at;
			u32 n = left < piece ? (u32)left : (u32)piece;
#if __CUDA_ARCH__ >= 900
			asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(g.of[i].at + at), "r"(n) : "memory");
#endif
		}
}

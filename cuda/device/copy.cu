// Elementwise copies between tensors of one shape and type whose layouts differ, and
// clearing of tensors with gaps. Dimensions are innermost last, unused ones in front
// have the size 0, which the host writes and no loop reaches.
struct walk {
	long long count;
	long long shape[8], to[8], from[8];
};

template <typename T>
static __device__ __forceinline__ void copy(T *to, const T *from, const walk &w)
{
	long long step = (long long)gridDim.x * blockDim.x;
	for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < w.count; i += step) {
		long long rest = i, a = 0, b = 0;
#pragma unroll
		for (int d = 7; d >= 0; d--) {
			if (w.shape[d] == 0)
				break;
			long long q = rest / w.shape[d], x = rest - q * w.shape[d];
			rest = q;
			a += x * w.to[d];
			b += x * w.from[d];
		}
		to[a] = from ? from[b] : T(0);
	}
}

#define COPY(bits, type)                                                                                              \
	extern "C" __global__ void concert_copy##bits(type *to, const type *from, walk w) { copy<type>(to, from, w); }
COPY(8, unsigned char)
COPY(16, unsigned short)
COPY(32, unsigned int)
COPY(64, unsigned long long)

// Uniform numbers in [0, 1), each of as many bits as its type holds exactly: a function
// of the seed and of the element's place in row-major order, the one that the host's
// kernels compute (SplitMix64 in its counter form; the host mixes the seed once).
static __device__ __forceinline__ unsigned long long mix(unsigned long long z)
{
	z += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static __device__ __forceinline__ void put(double *to, unsigned n) { *to = n / 16777216.0; }
static __device__ __forceinline__ void put(float *to, unsigned n) { *to = n / 16777216.0f; }

struct half16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };

// n / 2048 for 11 bits: the highest set bit is the exponent, the others are the mantissa.
static __device__ __forceinline__ void put(half16 *to, unsigned n)
{
	int e = 31 - __clz(n);
	to->bits = n ? (e + 4) << 10 | (n << (10 - e) & 0x3ff) : 0;
}

// n / 256 for 8 bits, which the upper half of a float holds.
static __device__ __forceinline__ void put(bfloat16 *to, unsigned n)
{
	to->bits = __float_as_uint(n / 256.0f) >> 16;
}

template <int bits, typename T>
static __device__ __forceinline__ void draw(T *to, unsigned long long seed, const walk &w)
{
	long long step = (long long)gridDim.x * blockDim.x;
	for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < w.count; i += step) {
		long long rest = i, a = 0;
#pragma unroll
		for (int d = 7; d >= 0; d--) {
			if (w.shape[d] == 0)
				break;
			long long q = rest / w.shape[d];
			a += (rest - q * w.shape[d]) * w.to[d];
			rest = q;
		}
		put(to + a, (unsigned)(mix(seed + i * 0x9e3779b97f4a7c15ull) >> (64 - bits)));
	}
}

#define DRAW(name, type, bits)                                                                                        \
	extern "C" __global__ void concert_rand_##name(type *to, unsigned long long seed, walk w) { draw<bits>(to, seed, w); }
DRAW(f16, half16, 11)
DRAW(bf16, bfloat16, 8)
DRAW(f32, float, 24)
DRAW(f64, double, 24)

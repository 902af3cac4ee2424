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
template <int mantissa, int bias> struct float8 { unsigned char bits; };

// n / 2^(mantissa + 1), below 1: the highest set bit is the exponent, the others are the mantissa,
// unless the number is smaller than the smallest that has one.
static __device__ __forceinline__ unsigned below1(unsigned n, int mantissa, int bias)
{
	int high = 31 - __clz(n), exponent = high - mantissa - 1 + bias;
	if (n == 0 || exponent < 1)
		return n ? n << (bias - 2) : 0;
	return exponent << mantissa | (n << (mantissa - high) & ((1 << mantissa) - 1));
}

static __device__ __forceinline__ void put(half16 *to, unsigned n) { to->bits = below1(n, 10, 15); }

template <int mantissa, int bias>
static __device__ __forceinline__ void put(float8<mantissa, bias> *to, unsigned n) { to->bits = below1(n, mantissa, bias); }

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

#define DRAW8(name, mantissa, bias)                                                                                   \
	typedef float8<mantissa, bias> name;                                                                              \
	DRAW(name, name, mantissa + 1)
DRAW8(f8e5m2, 2, 15)
DRAW8(f8e4m3, 3, 7)
DRAW8(f8e3m4, 4, 3)
DRAW8(f8e4m3fn, 3, 7)
DRAW8(f8e5m2fnuz, 2, 16)
DRAW8(f8e4m3fnuz, 3, 8)
DRAW8(f8e4m3b11fnuz, 3, 11)

// Elementwise copies between tensors of one shape and type whose layouts differ, and
// clearing of tensors with gaps. Dimensions are innermost last, unused ones in front
// have the size 0, which the host writes and no loop reaches.
struct walk {
	long long count;
	long long shape[8], to[8], from[8];
};

// A size or a stride is a number, or less than 0 where it lies in memory, at the address of the
// other bits.
static __device__ __forceinline__ long long size_of(long long n)
{
	return n < 0 ? *(const long long *)(n & 0x7fffffffffffffff) : n;
}

template <typename T>
static __device__ __forceinline__ void copy(T *to, const T *from, const walk &w)
{
	long long step = (long long)gridDim.x * blockDim.x, count = size_of(w.count);
	for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
		long long rest = i, a = 0, b = 0;
#pragma unroll
		for (int d = 7; d >= 0; d--) {
			if (w.shape[d] == 0)
				break;
			long long n = size_of(w.shape[d]), q = rest / n, x = rest - q * n;
			rest = q;
			a += x * size_of(w.to[d]);
			b += x * size_of(w.from[d]);
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

// Sizes that tensors hold, for kernels behind this one (sizes.go): code has the address and the
// bound of each symbol, then of each expression where its code begins and which word it goes to,
// below 0 for one that must not be negative. Where a symbol or an expression is wrong, the
// number of the check and the symbols are told, once, and from then on all words are 0:
// nothing is computed with a size that memory is not laid out for.
struct sizes {
	const long long *code;
	long long *words;
	unsigned *wrong;
	unsigned *told; // the host's: the check, and the symbols behind 8 bytes
	int symbols, expressions, check;
};

static __device__ long long evaluate(const long long *code, const long long *symbols)
{
	long long stack[16];
	int n = 0;
	for (; code[0] != 0; code += 2) {
		long long v = code[1];
		switch (code[0]) {
		case 1:
			stack[n++] = v;
			break;
		case 2:
			stack[n++] = symbols[v];
			break;
		case 3:
			n--;
			stack[n - 1] += stack[n];
			break;
		case 4:
			n--;
			stack[n - 1] *= stack[n];
			break;
		case 5:
			stack[n - 1] = stack[n - 1] / v - (stack[n - 1] % v < 0);
			break;
		}
	}
	return stack[0];
}

extern "C" __global__ void concert_sizes(const sizes s)
{
	__shared__ long long symbols[64];
	__shared__ unsigned wrong, before;
	if (threadIdx.x == 0)
		wrong = before = *(volatile unsigned *)s.wrong;
	__syncthreads();
	for (int i = threadIdx.x; i < s.symbols; i += blockDim.x) {
		symbols[i] = *(const volatile long long *)s.code[2 * i];
		if (symbols[i] < 0 || symbols[i] > s.code[2 * i + 1])
			wrong = 1;
	}
	__syncthreads();
	const long long *table = s.code + 2 * s.symbols;
	for (int pass = 0; pass < 2; pass++) {
		for (int i = threadIdx.x; i < s.expressions; i += blockDim.x) {
			long long word = table[2 * i + 1];
			if (pass == 0 && word < 0 && !wrong && evaluate(s.code + table[2 * i], symbols) < 0)
				wrong = 1;
			if (pass == 1 && word >= 0)
				s.words[word] = wrong ? 0 : evaluate(s.code + table[2 * i], symbols);
		}
		__syncthreads();
	}
	if (threadIdx.x == 0 && wrong && !before && atomicExch(s.wrong, 1u) == 0) {
		for (int i = 0; i < s.symbols; i++)
			((volatile long long *)s.told)[1 + i] = symbols[i];
		__threadfence_system();
		*(volatile unsigned *)s.told = s.check + 1;
	}
}

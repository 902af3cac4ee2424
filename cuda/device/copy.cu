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

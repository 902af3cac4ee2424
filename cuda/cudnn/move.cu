// Elements in another order: what cuDNN wants in another layout than it has.
#ifndef LANES // threads of a block; one where a block is run thread after thread
#define LANES 256
#define MEET() __syncthreads()
#endif
typedef long long i64;
struct args {
	const void *from;
	void *to;
	i64 a, b;                       // sizes of the two dimensions that are tiled
	i64 from_a, from_b, to_a, to_b; // strides in elements
	i64 size[4], from_rest[4], to_rest[4];
	i64 tiles_a, tiles_b;
	i64 along_b; // 1: neighbours along b lie beside each other in the result, too
};

// A block has a tile of 64 x 64 elements, or what there is of it: neighbouring threads read
// along b, and write along the dimension that is innermost in the result.
template <class T>
__device__ void move(const args &g)
{
	const int side = 64;
	__shared__ T tile[side][side + 2];
	const int lane = threadIdx.x % LANES;
	i64 at = blockIdx.x;
	const i64 j0 = at % g.tiles_b * side, i0 = at / g.tiles_b % g.tiles_a * side;
	at /= g.tiles_b * g.tiles_a;
	const T *from = (const T *)g.from + i0 * g.from_a + j0 * g.from_b;
	T *to = (T *)g.to + i0 * g.to_a + j0 * g.to_b;
	for (int d = 3; d >= 0; d--) {
		from += at % g.size[d] * g.from_rest[d];
		to += at % g.size[d] * g.to_rest[d];
		at /= g.size[d];
	}
	const int n = g.a - i0 < side ? g.a - i0 : side, m = g.b - j0 < side ? g.b - j0 : side;
	for (int t = lane; t < n * m; t += LANES)
		tile[t / m][t % m] = from[t / m * g.from_a + t % m * g.from_b];
	MEET();
	for (int t = lane; t < n * m; t += LANES) {
		const int i = g.along_b ? t / m : t % n, j = g.along_b ? t % m : t / n;
		to[i * g.to_a + j * g.to_b] = tile[i][j];
	}
}

extern "C" __global__ void move2(const args g) { move<unsigned short>(g); }
extern "C" __global__ void move4(const args g) { move<unsigned int>(g); }

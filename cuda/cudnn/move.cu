// Elements in another order: what cuDNN wants in another layout than it has.
#ifndef LANES // threads of a block; one where a block is run thread after thread
#define LANES 256
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
// along b, and write along the dimension that is innermost in the result. All reads of a
// thread are under way before it waits for one.
template <class T>
__device__ void move(const args &g)
{
	const int side = 64, rows = LANES < side ? 1 : LANES / side, steps = side / rows;
	__shared__ T tile[side][side + 4 / sizeof(T)];
	const int lane = threadIdx.x % LANES, y = lane / side;
	unsigned at = blockIdx.x;
	const unsigned tiles_a = g.tiles_a, tiles_b = g.tiles_b;
	const i64 j0 = at % tiles_b * side;
	at /= tiles_b;
	const i64 i0 = at % tiles_a * side;
	at /= tiles_a;
	const T *from = (const T *)g.from + (i0 * g.from_a + j0 * g.from_b);
	T *to = (T *)g.to + (i0 * g.to_a + j0 * g.to_b);
	for (int d = 3; d >= 0 && at > 0; d--) {
		const unsigned size = g.size[d], i = at % size;
		from += i * g.from_rest[d];
		to += i * g.to_rest[d];
		at /= size;
	}
	const int n = g.a - i0 < side ? g.a - i0 : side, m = g.b - j0 < side ? g.b - j0 : side;
	for (int x = lane % side; x < m; x += LANES) {
		T v[steps];
#pragma unroll
		for (int k = 0; k < steps; k++)
			if (y + k * rows < n)
				v[k] = from[(y + k * rows) * g.from_a + x * g.from_b];
#pragma unroll
		for (int k = 0; k < steps; k++)
			tile[y + k * rows][x] = v[k];
	}
	__syncthreads();
	const int across = g.along_b ? m : n, down = g.along_b ? n : m;
	for (int x = lane % side; x < across; x += LANES)
#pragma unroll
		for (int k = 0; k < steps; k++)
			if (const int r = y + k * rows; r < down) {
				const int i = g.along_b ? r : x, j = g.along_b ? x : r;
				to[i * g.to_a + j * g.to_b] = tile[i][j];
			}
}

extern "C" __global__ void move2(const args g) { move<unsigned short>(g); }
extern "C" __global__ void move4(const args g) { move<unsigned int>(g); }

// Products of matrices of any element types and layouts. The host defines before the
// prelude: A, B, C and TO, types of elements in memory; DOMAIN, the one that is computed in;
// and ROUND, its rounding to a result.
struct operand {
	i64 row, col, batch[6]; // strides in elements
};
struct args {
	const A *a;
	const B *b;
	const C *c; // nothing without one
	TO *out;
	i64 m, n, k, across, tiles; // sizes and strides of rows and columns as size_of takes them; tiles: of a product, across of them beside each other
	i64 sizes[6];               // of the batch, 1 where there are fewer
	operand as, bs, cs, outs;
	DOMAIN alpha, beta;
};

// tile brings 16 inner indices of 64 rows of operand 1, or of 64 columns of operand 2, to
// shared memory: neighbouring threads take what lies side by side.
template <class T>
FN void tile(DOMAIN (*to)[65], const T *from, i64 first, i64 end, i64 k0, i64 k, i64 outer, i64 inner, int lane, int lanes)
{
	for (int t = lane; t < 1024; t += lanes) {
		const int i = inner == 1 ? t / 16 : t % 64, j = inner == 1 ? t % 16 : t / 64;
		to[j][i] = first + i < end && k0 + j < k ? (DOMAIN)load(from + ((first + i) * outer + (k0 + j) * inner)) : (DOMAIN)0;
	}
}

// A block has 64 x 64 elements of a result, a thread 16 of them. Every element is summed
// over ascending inner indices, whatever the layout.
extern "C" __global__ void __launch_bounds__(256) gemm(const args g)
{
	constexpr int lanes = LANES(256);
	__shared__ DOMAIN x[16][65], y[16][65];
	next_may_begin();
	const i64 m = size_of(g.m), n = size_of(g.n), inner = size_of(g.k);
	const i64 a_row = size_of(g.as.row), a_col = size_of(g.as.col), b_row = size_of(g.bs.row), b_col = size_of(g.bs.col);
	const i64 out_row = size_of(g.outs.row), out_col = size_of(g.outs.col);
	const int lane = threadIdx.x % lanes;
	const i64 at = blockIdx.x % g.tiles, row = at / g.across * 64, col = at % g.across * 64;
	const A *a = g.a;
	const B *b = g.b;
	const C *c = g.c;
	TO *out = g.out;
	if (row >= m || col >= n)
		return; // the grid is that of bounds
	i64 rest = blockIdx.x / g.tiles;
	for (int d = 5; d >= 0; d--) {
		const i64 i = rest % g.sizes[d];
		rest /= g.sizes[d];
		a += i * g.as.batch[d];
		b += i * g.bs.batch[d];
		c += i * g.cs.batch[d];
		out += i * g.outs.batch[d];
	}
	DOMAIN sum[256 / lanes][16] = {};
	for (i64 k = 0; k < inner; k += 16) {
		tile(x, a, row, m, k, inner, a_row, a_col, lane, lanes);
		tile(y, b, col, n, k, inner, b_col, b_row, lane, lanes);
		sync_block();
		for (int u = 0; u < 256 / lanes; u++) {
			const int i = (lane + u * lanes) / 16, j = (lane + u * lanes) % 16;
			for (int q = 0; q < 16 && k + q < inner; q++)
#pragma unroll
				for (int e = 0; e < 16; e++)
					sum[u][e] = add_product(x[q][i + e / 4 * 16], y[q][j + e % 4 * 16], sum[u][e]);
		}
		sync_block();
	}
	for (int u = 0; u < 256 / lanes; u++)
#pragma unroll
		for (int e = 0; e < 16; e++) {
			const i64 i = row + (lane + u * lanes) / 16 + e / 4 * 16, j = col + (lane + u * lanes) % 16 + e % 4 * 16;
			if (i >= m || j >= n)
				continue;
			DOMAIN v = sum[u][e];
			if (g.alpha != 1)
				v = mul_of(v, g.alpha);
			if (g.beta != 0)
				v = add_of(v, mul_of(g.beta, (DOMAIN)load(c + (i * g.cs.row + j * g.cs.col))));
			store(out + (i * out_row + j * out_col), ROUND(v));
		}
}

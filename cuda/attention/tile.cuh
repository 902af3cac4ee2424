// Tiles of rows of PAD halves in shared memory, in pieces of 16 bytes whose places are
// permuted by the row, so that the eight rows that ldmatrix reads at once lie in
// different banks.
#define PITCH (PAD * 2)

FN u32 place(int row, int piece) { return row * PITCH + ((piece ^ (row & 7)) << 4); }

// The place of a piece 2i further right, for even and odd pieces alike: tiles begin at
// multiples of 1024 bytes. Where the place depends on the turn of a loop, the compiler
// makes this in one instruction instead of keeping a register for each i.
FN u32 right(u32 place, int i) { return place ^ (i << 5); }

// Rows first to first+N of a head come to shared memory, zeros after its ends.
template <int N, int THREADS> FN void fetch(u32 to, const elem *p, i64 stride, int first, int rows, int width)
{
	static_assert(N * PAD / 8 % THREADS == 0, "every thread copies as much");
	constexpr int APART = THREADS / (PAD / 8); // rows between those of one thread, a multiple of 8 or below
	const int row = threadIdx.x / (PAD / 8), piece = threadIdx.x % (PAD / 8);
	const elem *from = p + (first + row) * stride + piece * 8;
	const bool inside = piece * 8 < width;
#pragma unroll
	for (int i = 0; i < N * PAD / 8 / THREADS; i++) {
		const bool there = first + row + i * APART < rows && inside;
		copy_async(to + place(row + i * APART, piece), there ? from : p, there);
		from += APART * stride;
	}
}

// What a lane of ldmatrix points at in a tile of 16 rows by 16 columns: for left
// operands, and for right operands that are transposed on the way, lane%16 and lane/16;
// for right operands whose columns are rows of the tile, other bits.
struct pointing {
	int row, piece;
};
FN pointing upright(int lane) { return {lane & 15, lane >> 4}; }
FN pointing sideways(int lane) { return {(lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1}; }

// 16 rows of sums, times factors by row, go to memory through a warp's own rows of a
// tile in shared memory, so that whole pieces are stored.
FN void store_rows(const float (*o)[4], u32 tile, const float *factor, elem *to, i64 stride, int rows, int width)
{
	const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
#pragma unroll
	for (int n = 0; n < PAD / 8; n++)
#pragma unroll
		for (int r = 0; r < 2; r++)
			store_word(tile + place(g + 8 * r, n) + 4 * c, pack(o[n][2 * r] * factor[r], o[n][2 * r + 1] * factor[r]));
	sync_warp();
#pragma unroll
	for (int i = 0; i < PAD / 16; i++) {
		const int at = i * 32 + lane, row = at / (PAD / 8), piece = at % (PAD / 8);
		if (row < rows && piece * 8 < width)
			*(quad *)(to + row * stride + piece * 8) = load_quad(tile + place(row, piece));
	}
	sync_warp();
}

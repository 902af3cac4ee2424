// Products of groups on the tensor cores: rows of operand a with a matrix for each group, or
// with INNER pieces of two matrices along their inner dimension. The ends of groups are in the
// device's memory. The host defines before the machine: BF16, 1 for bfloat16 and 0 for float16;
// ENDS, the type of ends; A_INNER and B_INNER, whether an operand's inner elements are side by
// side, or else those of neighbouring rows (columns of b); A_WIDE and B_WIDE, whether they
// can be brought 16 bytes at a time; OUT_WIDE the same of the result's columns; OUT_DOWN,
// whether its rows are side by side.
//
// A block has 128 x 128 elements of a result, a warp 64 x 64 of them. Inner indices come by 32,
// in STAGES of shared memory, and are summed in ascending order.
#define STAGES 4
#define SIDE 8192          // bytes of an operand in a stage
#define LINE (128 * 2 + 16) // bytes of a row of results in shared memory, where rows meet no bank twice

struct operand {
	const u16 *at;
	i64 outer, inner, group; // strides in elements, of rows of a and columns of b, and so on
};
struct args {
	operand a, b;
	const ENDS *ends;
	u16 *out;
	i64 ends_step, out_row, out_col, out_group;
	int rows, cols, depth, groups;
	int across, tiles; // tiles beside each other, and of a group's product if INNER
};

// place is where 8 elements of an operand's tile begin: of its 128 rows or columns and 32 inner
// indices. 8 rows that are read together meet no bank twice.
template <bool INSIDE> FN u32 place(u32 outer, u32 inner)
{
	if (INSIDE)
		return outer * 64 + ((inner / 8) ^ (outer / 2 % 4)) * 16;
	return inner * 256 + ((outer / 8) ^ (inner % 8)) * 16;
}

// span is what is there of an operand: rows or columns up to end, inner indices from low to high.
struct span {
	int end, low, high;
};

// bring begins to copy a tile's inner indices from k0 on to shared memory: what is not there
// is 0. A thread has four times 8 elements.
template <bool INSIDE, bool WIDE> FN void bring(u32 to, const operand &from, const span &s, int first, int k0)
{
	const u32 t = threadIdx.x;
	const int o = INSIDE ? t / 4 : t % 16 * 8, k = INSIDE ? t % 4 * 8 : t / 16;
	const int next_o = INSIDE ? 32 : 0, next_k = INSIDE ? 0 : 8, more_o = INSIDE ? 0 : 7, more_k = INSIDE ? 7 : 0;
	const i64 outer_step = WIDE && !INSIDE ? 1 : from.outer, inner_step = WIDE && INSIDE ? 1 : from.inner;
	const u16 *at = from.at + ((first + o) * outer_step + (k0 + k) * inner_step);
	const i64 step = next_o * outer_step + next_k * inner_step;
	to += place<INSIDE>(o, k); // the next three are 2048 bytes apart
	if (WIDE && k0 >= s.low && k0 + 32 <= s.high && (INSIDE || first + o >= s.end || first + o + 7 < s.end)) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			copy_async(to + i * 2048, at + i * step, first + o + i * next_o < s.end);
		return;
	}
#pragma unroll 1
	for (int i = 0; i < 4; i++, to += 2048, at += step) {
		const int outer = first + o + i * next_o, inner = k0 + k + i * next_k;
		if (WIDE && outer + more_o < s.end && inner >= s.low && inner + more_k < s.high) {
			copy_async(to, at, true);
			continue;
		}
		u32 words[4] = {0, 0, 0, 0};
#pragma unroll
		for (int e = 0; e < 8; e++) {
			const int eo = INSIDE ? 0 : e, ek = INSIDE ? e : 0;
			if (outer + eo < s.end && inner + ek >= s.low && inner + ek < s.high)
				words[e / 2] |= (u32)at[eo * outer_step + ek * inner_step] << e % 2 * 16;
		}
#pragma unroll
		for (int e = 0; e < 4; e++)
			store_word(to + e * 4, words[e]);
	}
}

// fragment is 16 rows or columns of 16 inner indices: registers of its first 8 outer ones are
// 0 and 2, of the other 8 1 and 3.
template <bool INSIDE> FN void fragment(u32 *r, u32 tile, u32 outer, u32 inner, u32 lane)
{
	if (INSIDE)
		load_matrices(r, tile + place<INSIDE>(outer + lane % 16, inner + lane / 16 * 8));
	else
		load_transposed(r, tile + place<INSIDE>(outer + lane / 8 % 2 * 8, inner + lane % 8 + lane / 16 * 8));
}

// end_of is where a group ends.
FN int end_of(const args &g, int group, int size)
{
	const i64 end = g.ends[group * g.ends_step];
	if (end < 0 || end > size)
		__trap();
	return (int)end;
}

// tile is what a block computes: rows from row on of those from first to end, and columns.
struct tile {
	int group, row, col, first, end;
};

// rows_of finds the block's rows: groups are divided into tiles one after the other, and what
// comes after the last as if it were one more. It returns false if there are none.
FN bool rows_of(const args &g, tile &t)
{
	constexpr int ALIGN = A_WIDE && !A_INNER ? 8 : 1; // of the first row, for copies
	const int lane = threadIdx.x % 32;
	int at = blockIdx.x / (u32)g.across * 128, some = 0;
	t.col = blockIdx.x % (u32)g.across * 128, t.first = 0;
	for (t.group = 0; t.group <= g.groups; t.group++, t.first = t.end) {
		if (t.group % 32 == 0 && t.group < g.groups)
			some = t.group + lane < g.groups ? end_of(g, t.group + lane, g.rows) : g.rows;
		t.end = t.group < g.groups ? from_lane(some, t.group % 32) : g.rows;
		if (t.end < t.first)
			__trap();
		const int from = t.first / ALIGN * ALIGN, many = t.end > t.first ? (t.end - from + 127) / 128 * 128 : 0;
		t.row = from + at;
		if (at < many)
			return true;
		at -= many;
	}
	return false;
}

KERNEL(128, 2) grouped(const args g)
{
	const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, down = warp / 2 * 64, right = warp % 2 * 64;
	tile t;
	int low = 0, high = g.depth, k0 = 0;
	operand a = g.a, b = g.b;
#if INNER
	t.group = blockIdx.x / (u32)g.tiles;
	t.row = blockIdx.x % (u32)g.tiles / (u32)g.across * 128, t.col = blockIdx.x % (u32)g.tiles % (u32)g.across * 128;
	t.first = 0, t.end = g.rows;
	low = t.group > 0 ? end_of(g, t.group - 1, g.depth) : 0, high = end_of(g, t.group, g.depth);
	if (high < low)
		__trap();
	k0 = (A_WIDE && A_INNER) || (B_WIDE && B_INNER) ? low / 8 * 8 : low;
#else
	if (!rows_of(g, t))
		return;
	if (t.group == g.groups)
		high = 0; // after the last group all is 0
	else
		b.at += t.group * b.group;
#endif
	const span as = {A_INNER ? t.end : g.rows, low, high}, bs = {g.cols, low, high};
	const int steps = high > low ? (high - k0 + 31) / 32 : 0;
	const u32 ring = shared_at(0);
	float sum[4][8][4];
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				sum[i][j][e] = 0;
#pragma unroll 1
	for (int step = 1 - STAGES; step < steps; step++) {
		if (step >= 0) {
			copies_wait<STAGES - 2>();
			sync_block();
		}
		const int next = step + STAGES - 1;
		if (next < steps) {
			const u32 to = ring + next % STAGES * (2 * SIDE);
			bring<A_INNER, A_WIDE>(to, a, as, t.row, k0 + next * 32);
			bring<B_INNER, B_WIDE>(to + SIDE, b, bs, t.col, k0 + next * 32);
		}
		copies_end();
		if (step < 0)
			continue;
		const u32 from = ring + step % STAGES * (2 * SIDE);
#pragma unroll
		for (int k = 0; k < 32; k += 16) {
			u32 x[4][4], y[4][4];
#pragma unroll
			for (int i = 0; i < 4; i++)
				fragment<A_INNER>(x[i], from, down + i * 16, k, lane);
#pragma unroll
			for (int j = 0; j < 4; j++)
				fragment<B_INNER>(y[j], from + SIDE, right + j * 16, k, lane);
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 8; j++) {
					const u32 col[2] = {y[j / 2][j % 2], y[j / 2][j % 2 + 2]};
					mma(sum[i][j], x[i], col);
				}
		}
	}
	sync_block();
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 8; j++) {
			const u32 at = ring + (down + i * 16 + lane / 4) * LINE + (right + j * 8 + lane % 4 * 2) * 2;
			store_word(at, pack(sum[i][j][0], sum[i][j][1]));
			store_word(at + 8 * LINE, pack(sum[i][j][2], sum[i][j][3]));
		}
	sync_block();
	u16 *out = g.out + (INNER ? t.group * g.out_group : 0);
	constexpr int WIDTH = OUT_WIDE ? 8 : 1;
#pragma unroll 4
	for (int i = threadIdx.x; i < 128 * 128 / WIDTH; i += 128) {
		const int row = OUT_DOWN ? i % 128 : i / (128 / WIDTH), col = OUT_DOWN ? i / 128 : i % (128 / WIDTH) * WIDTH;
		if (t.row + row < t.first || t.row + row >= t.end || t.col + col >= g.cols)
			continue;
		u16 *to = out + ((t.row + row) * g.out_row + (t.col + col) * (OUT_WIDE ? 1 : g.out_col));
		const u32 at = ring + row * LINE + col * 2;
		if (OUT_WIDE)
			*(quad *)to = load_quad(at);
		else
			*to = (u16)(load_word(at / 4 * 4) >> col % 2 * 16);
	}
}

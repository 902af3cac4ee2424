// Attention after FlashAttention-2 (Dao 2023): a block does 128 queries of one head, 32
// a warp, and walks over the keys by 64, of which the next are on their way while it
// works; scores stay in registers. With HALVES 1 instead of 2 a warp does 16 queries:
// twice the loads from shared memory for each product, and twice the blocks, for calls
// that have too few. PAD is the padded width of heads, 64 or 128.
//
// The blocks with the most keys come first. Scores are scaled while they are
// exponentiated, which needs a positive scale and no bias; else SCALE_FIRST.
#define MINE (16 * HALVES) // queries of a warp
#define ROWS (4 * MINE)
#define COLS 64
#define TILE (COLS * PITCH)

KERNEL(128, 2) attention_forward(const args a)
{
	constexpr int N = PAD / 8; // tiles of the output's columns
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
	const u32 all = gridDim.x / (u32)a.tiles, turn = blockIdx.x / all, which = blockIdx.x - turn * all;
	const u32 batch = which / (u32)a.heads, head = which - batch * a.heads, kv = head / (u32)a.group;
	const int first = (a.tiles - 1 - (int)turn) * ROWS, mine = first + warp * MINE;
	const elem *qp = a.q + batch * a.qs[0] + head * a.qs[1];
	const elem *kp = a.k + batch * a.ks[0] + kv * a.ks[1];
	const elem *vp = a.v + batch * a.vs[0] + kv * a.vs[1];
	const int end = a.causal ? least(a.keys, first + ROWS) : a.keys, steps = (end + COLS - 1) / COLS;

	const u32 qs = shared_at(0), ks = qs + ROWS * PITCH, vs = ks + 2 * TILE;
	fetch<ROWS, 128>(qs, qp, a.qs[2], first, a.queries, a.dim);
	fetch<COLS, 128>(ks, kp, a.ks[2], 0, a.keys, a.dim);
	fetch<COLS, 128>(vs, vp, a.vs[2], 0, a.keys, a.dim_v);
	copies_end();

	float o[HALVES][N][4], top[HALVES][2], sum[HALVES][2];
#pragma unroll
	for (int m = 0; m < HALVES; m++) {
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[m][n][e] = 0;
#pragma unroll
		for (int r = 0; r < 2; r++)
			top[m][r] = -inf(), sum[m][r] = 0;
	}
	const pointing up = upright(lane), side = sideways(lane);
	const u32 q0 = qs + place(warp * MINE + up.row, up.piece), k0 = place(side.row, side.piece), v0 = place(up.row, up.piece);

	for (int step = 0; step < steps; step++) {
		const int j0 = step * COLS;
		copies_wait<0>();
		sync_block();
		if (step + 1 < steps) {
			const u32 next = ((step + 1) & 1) * TILE;
			fetch<COLS, 128>(ks + next, kp, a.ks[2], j0 + COLS, a.keys, a.dim);
			fetch<COLS, 128>(vs + next, vp, a.vs[2], j0 + COLS, a.keys, a.dim_v);
		}
		copies_end();
		if (a.causal && j0 >= mine + MINE)
			continue; // none of this warp's queries sees these keys
		const u32 kt = ks + (step & 1) * TILE + k0, vt = vs + (step & 1) * TILE + v0;

		float s[HALVES][COLS / 8][4];
#pragma unroll
		for (int m = 0; m < HALVES; m++)
#pragma unroll
			for (int n = 0; n < COLS / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					s[m][n][e] = 0;
#pragma unroll
		for (int i = 0; i < PAD / 16; i++) {
			u32 x[HALVES][4];
#pragma unroll
			for (int m = 0; m < HALVES; m++)
				load_matrices(x[m], right(q0, i) + m * 16 * PITCH);
#pragma unroll
			for (int n = 0; n < COLS / 16; n++) {
				u32 y[4];
				load_matrices(y, right(kt, i) + n * 16 * PITCH);
#pragma unroll
				for (int m = 0; m < HALVES; m++) {
					mma(s[m][2 * n], x[m], y);
					mma(s[m][2 * n + 1], x[m], y + 2);
				}
			}
		}

		const bool edge = j0 + COLS > a.keys || (a.causal && j0 + COLS - 1 > mine);
#if SCALE_FIRST
		const float factor = 1;
#else
		const float factor = a.scale2;
#endif
#pragma unroll
		for (int m = 0; m < HALVES; m++)
#pragma unroll
			for (int n = 0; n < COLS / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++) {
#if SCALE_FIRST
					s[m][n][e] *= a.scale2;
#endif
#if BIAS
					const int row = mine + m * 16 + g + (e & 2) * 4, key = j0 + n * 8 + 2 * c + (e & 1);
					if (row < a.queries && key < a.keys)
						s[m][n][e] += bias_log2(a.bias[batch * a.bs[0] + head * a.bs[1] + row * a.bs[2] + key * a.bs[3]]);
#endif
				}
		if (edge) {
#pragma unroll
			for (int m = 0; m < HALVES; m++)
#pragma unroll
				for (int n = 0; n < COLS / 8; n++)
#pragma unroll
					for (int e = 0; e < 4; e++) {
						const int row = mine + m * 16 + g + (e & 2) * 4, key = j0 + n * 8 + 2 * c + (e & 1);
						if (key >= a.keys || (a.causal && key > row))
							s[m][n][e] = -inf();
					}
		}
#pragma unroll
		for (int m = 0; m < HALVES; m++) {
			float base[2], shrink[2];
#pragma unroll
			for (int r = 0; r < 2; r++) {
				float most = top[m][r];
#pragma unroll
				for (int n = 0; n < COLS / 8; n++)
					most = fmaxf(most, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
				most = fmaxf(most, shuffle(most, 1));
				most = fmaxf(most, shuffle(most, 2));
				base[r] = most == -inf() ? 0.0f : most * factor;
				shrink[r] = exp2_fast(top[m][r] * factor - base[r]);
				top[m][r] = most;
				sum[m][r] *= shrink[r];
			}
			if (any(shrink[0] != 1 || shrink[1] != 1)) {
#pragma unroll
				for (int n = 0; n < N; n++)
#pragma unroll
					for (int e = 0; e < 4; e++)
						o[m][n][e] *= shrink[e / 2];
			}
#pragma unroll
			for (int n = 0; n < COLS / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++) {
					s[m][n][e] = exp2_fast(s[m][n][e] * factor - base[e / 2]);
					sum[m][e / 2] += s[m][n][e];
				}
		}
#pragma unroll
		for (int i = 0; i < COLS / 16; i++) {
			u32 x[HALVES][4];
#pragma unroll
			for (int m = 0; m < HALVES; m++) {
				x[m][0] = pack(s[m][2 * i][0], s[m][2 * i][1]);
				x[m][1] = pack(s[m][2 * i][2], s[m][2 * i][3]);
				x[m][2] = pack(s[m][2 * i + 1][0], s[m][2 * i + 1][1]);
				x[m][3] = pack(s[m][2 * i + 1][2], s[m][2 * i + 1][3]);
			}
#pragma unroll
			for (int n = 0; n < PAD / 16; n++) {
				u32 y[4];
				load_transposed(y, right(vt, n) + i * 16 * PITCH);
#pragma unroll
				for (int m = 0; m < HALVES; m++) {
					mma(o[m][2 * n], x[m], y);
					mma(o[m][2 * n + 1], x[m], y + 2);
				}
			}
		}
	}
	copies_wait<0>();
	sync_block();

	// The output takes the place of this warp's rows of q.
	elem *op = a.out + batch * a.os[0] + head * a.os[1];
#pragma unroll
	for (int m = 0; m < HALVES; m++) {
		float inv[2];
#pragma unroll
		for (int r = 0; r < 2; r++) {
			float all = sum[m][r];
			all += shuffle(all, 1);
			all += shuffle(all, 2);
			inv[r] = all == 0 ? 0.0f : 1 / all;
			const int row = mine + m * 16 + g + 8 * r;
#if SCALE_FIRST
			const float base = natural(top[m][r]);
#else
			const float base = top[m][r] * a.scale2 * LN2;
#endif
			if (c == 0 && row < a.queries)
				a.lse[batch * a.ls[0] + head * a.ls[1] + row * a.ls[2]] = all == 0 ? -inf() : base + logf(all);
		}
		store_rows(o[m], qs + (warp * MINE + m * 16) * PITCH, inv, op + (mine + m * 16) * a.os[2], a.os[2], a.queries - mine - m * 16, a.dim_v);
	}
	write_zeros(a);
}

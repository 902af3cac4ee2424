// Gradients of attention. A block keeps rows of one side, 16 a warp, and walks over the
// other side by COLS rows, of which the next are on their way while it works:
//
//	queries:  S = Q K^T, dP = dO V^T, P = exp(S - lse), dS = P (dP - delta), dQ += dS K
//	keys:     the same transposed, dV += P^T dO, dK += dS^T Q
//
// Scores are made twice, which costs two products of seven, and in return no sum
// crosses blocks: nothing is added atomically, and the order of every sum is fixed.
// delta is the inner product of a row of dO with the output; the blocks of queries
// write it down for those of keys, unless both are one launch (attention_backward_both),
// for short sequences, where each makes its own.
//
// PAD is the padded width of heads, WARPS the number of warps.
#define ROWS (16 * WARPS)
#define THREADS (32 * WARPS)
#define TILE (COLS * PITCH)
#define FIXED (ROWS * PITCH)

// One head's operands as a block sees them: f that it keeps, w that it walks over.
struct sides {
	const elem *f1, *f2, *w1, *w2;
	i64 fs1, fs2, ws1, ws2;
};

// delta of one row by two neighbouring lanes.
FN float row_delta(const args &a, u32 batch, u32 head, int row)
{
	const elem *o = a.out + batch * a.os[0] + head * a.os[1] + row * a.os[2];
	const elem *d = a.grad + batch * a.gs[0] + head * a.gs[1] + row * a.gs[2];
	float s = 0;
#pragma unroll
	for (int i = 0; i < PAD / 16; i++) {
		const int at = (2 * i + (threadIdx.x & 1)) * 8;
		const bool there = row < a.queries && at < a.dim_v;
		const quad x = load16(o + at, there), y = load16(d + at, there);
#pragma unroll
		for (int e = 0; e < 4; e++)
			s += low(x.x[e]) * low(y.x[e]) + high(x.x[e]) * high(y.x[e]);
	}
	return s + shuffle(s, 1);
}

// lse times log2(e), or infinity for a row that is not there or saw no key: then all
// its weights are 0.
FN float row_lse(const args &a, u32 batch, u32 head, int row)
{
	float l = inf();
	if (row < a.queries)
		l = a.lse[batch * a.ls[0] + head * a.ls[1] + row * a.ls[2]] * LOG2E;
	return l == -inf() ? inf() : l;
}

template <bool KEYS> FN sides sides_of(const args &a, u32 batch, u32 head, u32 kv)
{
	const elem *q = a.q + batch * a.qs[0] + head * a.qs[1], *d = a.grad + batch * a.gs[0] + head * a.gs[1];
	const elem *k = a.k + batch * a.ks[0] + kv * a.ks[1], *v = a.v + batch * a.vs[0] + kv * a.vs[1];
	if (KEYS)
		return {k, v, q, d, a.ks[2], a.vs[2], a.qs[2], a.gs[2]};
	return {q, d, k, v, a.qs[2], a.gs[2], a.ks[2], a.vs[2]};
}

// t += rows of f (a warp's 16) times rows of w.
FN void scores(float (*t)[4], u32 f, u32 w, const pointing &up, const pointing &side)
{
	f += place(up.row, up.piece);
	w += place(side.row, side.piece);
#pragma unroll
	for (int n = 0; n < COLS / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			t[n][e] = 0;
#pragma unroll
	for (int i = 0; i < PAD / 16; i++) {
		u32 x[4];
		load_matrices(x, right(f, i));
#pragma unroll
		for (int n = 0; n < COLS / 16; n++) {
			u32 y[4];
			load_matrices(y, right(w, i) + n * 16 * PITCH);
			mma(t[2 * n], x, y);
			mma(t[2 * n + 1], x, y + 2);
		}
	}
}

// o += weights times rows of w.
FN void weigh(float (*o)[4], const u32 (*x)[4], u32 w, const pointing &up)
{
	w += place(up.row, up.piece);
#pragma unroll
	for (int i = 0; i < COLS / 16; i++)
#pragma unroll
		for (int n = 0; n < PAD / 16; n++) {
			u32 y[4];
			load_transposed(y, right(w, n) + i * 16 * PITCH);
			mma(o[2 * n], x[i], y);
			mma(o[2 * n + 1], x[i], y + 2);
		}
}

// KEYS: the rows kept are keys. OWN: delta is made here, else it is read (KEYS) or
// written for others to read.
template <bool KEYS, bool OWN> FN void gradients(const args &a, int tile, u32 batch, u32 head)
{
	constexpr int N = PAD / 8;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
	const int first = tile * ROWS, mine = first + warp * 16;
	const int fixed = KEYS ? a.keys : a.queries, walked = KEYS ? a.queries : a.keys;
	const int fw1 = a.dim, fw2 = a.dim_v;
	const u32 heads = KEYS ? a.group : 1, head0 = KEYS ? head * a.group : head, kv = KEYS ? head : head / (u32)a.group;
	// A key is seen by queries from its own index on, a query sees keys up to its own.
	const int from = KEYS && a.causal ? first / COLS : 0;
	const int to = ((!KEYS && a.causal ? least(walked, first + ROWS) : walked) + COLS - 1) / COLS;
	const int steps = to > from ? to - from : 0, all = steps * heads;
	const pointing up = upright(lane), side = sideways(lane);

	const u32 f1 = shared_at(0), f2 = f1 + FIXED, w1 = f2 + FIXED, w2 = w1 + 2 * TILE, stats = w2 + 2 * TILE;
	sides s = sides_of<KEYS>(a, batch, head0, kv);
	fetch<ROWS, THREADS>(f1, s.f1, s.fs1, first, fixed, fw1);
	fetch<ROWS, THREADS>(f2, s.f2, s.fs2, first, fixed, fw2);
	if (all > 0) {
		fetch<COLS, THREADS>(w1, s.w1, s.ws1, from * COLS, walked, fw1);
		fetch<COLS, THREADS>(w2, s.w2, s.ws2, from * COLS, walked, fw2);
	}
	copies_end();

	// Two lanes know of one query: of this tile's rows, or of the next ones walked over.
	const int query = threadIdx.x / 2;
	float lse = 0, delta = 0;
	if (!KEYS) {
		lse = row_lse(a, batch, head, first + query);
		delta = row_delta(a, batch, head, first + query);
		if (!OWN && first + query < a.queries && (lane & 1) == 0)
			a.delta[(batch * (u32)a.heads + head) * (i64)a.queries + first + query] = delta;
	}
	const int spot = (threadIdx.x & 1) * COLS * 4;
	if (KEYS && query < COLS && all > 0) {
		const int row = from * COLS + query;
		lse = row_lse(a, batch, head0, row);
		if (OWN)
			delta = row_delta(a, batch, head0, row);
		else
			delta = row < a.queries ? a.delta[(batch * (u32)a.heads + head0) * (i64)a.queries + row] : 0.0f;
		store_float(stats + query * 4 + spot, lane & 1 ? delta : lse);
	}
	float rl[2], rd[2]; // lse and delta of this lane's rows
	if (!KEYS)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			rl[r] = from_lane(lse, 2 * (g + 8 * r));
			rd[r] = from_lane(delta, 2 * (g + 8 * r));
		}

	float o1[N][4], o2[KEYS ? N : 1][4];
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			o1[n][e] = 0;
			if constexpr (KEYS)
				o2[n][e] = 0;
		}
	const u32 m1 = f1 + warp * 16 * PITCH, m2 = f2 + warp * 16 * PITCH;
	int step = from;
	u32 h = head0;
	for (int turn = 0; turn < all; turn++) {
		const int j0 = step * COLS;
		const u32 odd = turn & 1;
		copies_wait<0>();
		sync_block();
		if (turn + 1 < all) {
			const u32 nh = step + 1 < to ? h : h + 1;
			const int n0 = step + 1 < to ? j0 + COLS : from * COLS;
			s = sides_of<KEYS>(a, batch, nh, kv);
			fetch<COLS, THREADS>(w1 + (1 - odd) * TILE, s.w1, s.ws1, n0, walked, fw1);
			fetch<COLS, THREADS>(w2 + (1 - odd) * TILE, s.w2, s.ws2, n0, walked, fw2);
			if (KEYS && query < COLS) {
				lse = row_lse(a, batch, nh, n0 + query);
				if (OWN)
					delta = row_delta(a, batch, nh, n0 + query);
				else
					delta = n0 + query < a.queries ? a.delta[(batch * (u32)a.heads + nh) * (i64)a.queries + n0 + query] : 0.0f;
			}
		}
		copies_end();
		if (mine < fixed && !(a.causal && (KEYS ? j0 + COLS - 1 < mine : j0 > mine + 15))) {
			const u32 t1 = w1 + odd * TILE, t2 = w2 + odd * TILE, st = stats + odd * COLS * 8;
			float p[COLS / 8][4], d[COLS / 8][4];
			scores(p, m1, t1, up, side);
			scores(d, m2, t2, up, side);
			const bool edge = (!KEYS && j0 + COLS > walked) || (a.causal && (KEYS ? j0 < mine + 15 : j0 + COLS - 1 > mine));
			u32 xp[COLS / 16][4], xd[COLS / 16][4];
#pragma unroll
			for (int n = 0; n < COLS / 8; n++) {
				float cl[2], cd[2];
				if (KEYS)
#pragma unroll
					for (int e = 0; e < 2; e++) {
						cl[e] = load_float(st + (n * 8 + 2 * c + e) * 4);
						cd[e] = load_float(st + (n * 8 + 2 * c + e) * 4 + COLS * 4);
					}
#pragma unroll
				for (int e = 0; e < 4; e++) {
					const int i = mine + g + (e & 2) * 4, j = j0 + n * 8 + 2 * c + (e & 1);
					const int row = KEYS ? j : i, key = KEYS ? i : j;
					float x = p[n][e] * a.scale2 - (KEYS ? cl[e & 1] : rl[e / 2]);
#if BIAS // where the forward pass has LEAST, this is -inf: such a key gets no gradient
					if (row < a.queries && key < a.keys)
						x += bias_value(a.bias[batch * a.bs[0] + h * a.bs[1] + row * a.bs[2] + key * a.bs[3]]) * LOG2E;
#endif
					x = exp2_fast(x);
					if (edge && (key >= a.keys || (a.causal && key > row)))
						x = 0;
					p[n][e] = x;
					d[n][e] = x * (d[n][e] - (KEYS ? cd[e & 1] : rd[e / 2]));
				}
				xp[n / 2][(n & 1) * 2] = pack(p[n][0], p[n][1]);
				xp[n / 2][(n & 1) * 2 + 1] = pack(p[n][2], p[n][3]);
				xd[n / 2][(n & 1) * 2] = pack(d[n][0], d[n][1]);
				xd[n / 2][(n & 1) * 2 + 1] = pack(d[n][2], d[n][3]);
			}
			if constexpr (KEYS)
				weigh(o2, xp, t2, up);
			weigh(o1, xd, t1, up);
		}
		if (KEYS && query < COLS && turn + 1 < all)
			store_float(stats + (1 - odd) * COLS * 8 + query * 4 + spot, lane & 1 ? delta : lse);
		if (++step == to) {
			step = from;
			h++;
		}
	}
	copies_wait<0>();
	sync_block();
	const float by[2] = {(float)a.scale, (float)a.scale}, one[2] = {1, 1};
	const i64 *ss = KEYS ? a.dks : a.dqs;
	elem *out = (KEYS ? a.dk : a.dq) + batch * ss[0] + head * ss[1] + mine * ss[2];
	store_rows(o1, m1, by, out, ss[2], fixed - mine, a.dim);
	if constexpr (KEYS)
		store_rows(o2, m2, one, a.dv + batch * a.dvs[0] + head * a.dvs[1] + mine * a.dvs[2], a.dvs[2], fixed - mine, a.dim_v);
}

// The blocks with most to do come first: the last queries, and the first keys.
template <bool OWN> FN void query_block(const args &a, u32 block, u32 blocks)
{
	const u32 all = blocks / (u32)a.tiles, turn = block / all, which = block - turn * all;
	gradients<false, OWN>(a, a.tiles - 1 - (int)turn, which / (u32)a.heads, which % (u32)a.heads);
}

template <bool OWN> FN void key_block(const args &a, u32 block, u32 blocks)
{
	const u32 all = blocks / (u32)a.key_tiles, turn = block / all, which = block - turn * all, heads = a.heads / (u32)a.group;
	gradients<true, OWN>(a, (int)turn, which / heads, which % heads);
}

#if BOTH
KERNEL(THREADS, 1) attention_backward_both(const args a)
{
	if (blockIdx.x < (u32)a.units)
		query_block<true>(a, blockIdx.x, a.units);
	else
		key_block<true>(a, blockIdx.x - a.units, a.all_units - a.units);
}
#else
KERNEL(THREADS, 2) attention_backward_queries(const args a) { query_block<false>(a, blockIdx.x, a.units); }
KERNEL(THREADS, 2) attention_backward_keys(const args a) { key_block<false>(a, blockIdx.x, a.all_units - a.units); }
#endif

// Attention of few queries with not too many keys, for the least latency: a block does
// 16 queries of one head, its warps share the keys. Nothing goes through shared memory
// before the end, where the warps' parts are joined: fragments come from memory in 16
// byte pieces. That is possible because the depths of a product may be counted in any
// order, the same on both sides, and the columns of the output too.
//
// Latency is what counts: everything is asked for before anything is waited for, the
// next keys while the scores of these are weighed, the next values behind these; what
// is done once is short, because code that runs once is fetched for that; and nothing
// is divided but by a row.
//
// The kernel may begin before the one in front of it has ended: until then it reads
// values only.
//
// PAD is the padded width of heads, 64 or 128; WARPS the number of warps.
#define PART (WARPS * 1024) // of the warps' sums: eight for each lane

// What a lane knows of its rows' softmax: g and g+8.
struct softmax {
	float top[2], sum[2];
};

// The rows' largest score and sum over all warps, from shared memory, and the weights
// of the warps' parts of row half r.
FN void join_rows(u32 stats, int row, float *weight, float *top, float *sum)
{
	float t[WARPS], most = -inf(), all = 0;
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		t[w] = load_float(stats + (w * 16 + row) * 8);
		most = fmaxf(most, t[w]);
	}
	const float base = most == -inf() ? 0.0f : most;
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		weight[w] = exp2_fast(t[w] - base);
		all += weight[w] * load_float(stats + (w * 16 + row) * 8 + 4);
	}
	*top = most;
	*sum = all;
}

// One over a sum of weights; a row that saw no key has none, and becomes 0.
FN float inverse(float sum) { return sum == 0 ? 0.0f : reciprocal(sum); }

KERNEL(32 * WARPS, 1) attention_short(const args a)
{
	constexpr int QK = PAD / 32, VG = PAD / 64;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
	// Three divisions that do not wait for each other.
	const u32 above = blockIdx.x / (u32)a.tiles, batch = blockIdx.x / (u32)(a.tiles * a.heads);
	const u32 head = above - batch * a.heads, kv = blockIdx.x / (u32)(a.tiles * a.group) - batch * a.key_heads;
	const int first = (blockIdx.x - above * a.tiles) * 16;
	const elem *qp = a.q + batch * a.qs[0] + head * a.qs[1];
	const elem *kp = a.k + batch * a.ks[0] + kv * a.ks[1];
	const elem *vp = a.v + batch * a.vs[0] + kv * a.vs[1];
	const int end = a.causal ? least(a.keys, first + 16) : a.keys;

	quad q[2][QK], k[2][QK], v[4][VG];
	auto load_keys = [&](int j0) {
#pragma unroll
		for (int n = 0; n < 2; n++) {
			const int key = j0 + n * 8 + g;
#pragma unroll
			for (int i = 0; i < QK; i++)
				k[n][i] = load16(kp + key * a.ks[2] + i * 32 + c * 8, key < end && i * 32 + c * 8 < a.dim);
		}
	};
	auto load_values = [&](int j0) {
#pragma unroll
		for (int n = 0; n < 4; n++) {
			const int key = j0 + 2 * c + (n & 1) + (n & 2) * 4;
#pragma unroll
			for (int i = 0; i < VG; i++)
				v[n][i] = load16(vp + key * a.vs[2] + i * 64 + g * 8, key < end && i * 64 + g * 8 < a.dim_v);
		}
	};
	load_values(warp * 16);
	front_ended();
	load_keys(warp * 16);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = first + g + 8 * r;
#pragma unroll
		for (int i = 0; i < QK; i++)
			q[r][i] = load16(qp + row * a.qs[2] + i * 32 + c * 8, row < a.queries && i * 32 + c * 8 < a.dim);
	}
	write_zeros(a);

	float o[VG][8][4];
#pragma unroll
	for (int i = 0; i < VG; i++)
#pragma unroll
		for (int j = 0; j < 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[i][j][e] = 0;
	softmax m = {{-inf(), -inf()}, {0, 0}};

#pragma unroll 1
	for (int j0 = warp * 16; j0 < end; j0 += WARPS * 16) {
		// Two sums for even and odd steps: half as long a chain.
		float s[2][2][4];
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][0][e] = s[n][1][e] = 0;
#pragma unroll
		for (int i = 0; i < QK; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const u32 x[4] = {q[0][i].x[2 * h], q[1][i].x[2 * h], q[0][i].x[2 * h + 1], q[1][i].x[2 * h + 1]};
#pragma unroll
				for (int n = 0; n < 2; n++)
					mma(s[n][h], x, k[n][i].x + 2 * h);
			}
		const bool more = j0 + WARPS * 16 < end;
		if (more)
			load_keys(j0 + WARPS * 16);
		float p[2][4], most[2] = {m.top[0], m.top[1]};
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const int row = first + g + (e & 2) * 4, key = j0 + n * 8 + 2 * c + (e & 1);
				float x = (s[n][0][e] + s[n][1][e]) * a.scale2;
				const bool seen = key < a.keys && !(a.causal && key > row);
#if BIAS
				if (seen && row < a.queries)
					x += bias_log2(a.bias[batch * a.bs[0] + head * a.bs[1] + row * a.bs[2] + key * a.bs[3]]);
#endif
				p[n][e] = seen ? x : -inf();
				most[e / 2] = fmaxf(most[e / 2], p[n][e]);
			}
		float base[2], shrink[2];
#pragma unroll
		for (int r = 0; r < 2; r++) {
			most[r] = fmaxf(most[r], shuffle(most[r], 1));
			most[r] = fmaxf(most[r], shuffle(most[r], 2));
			base[r] = most[r] == -inf() ? 0.0f : most[r];
			shrink[r] = exp2_fast(m.top[r] - base[r]);
			m.top[r] = most[r];
			m.sum[r] *= shrink[r];
		}
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				p[n][e] = exp2_fast(p[n][e] - base[e / 2]);
				m.sum[e / 2] += p[n][e];
			}
		const u32 x[4] = {pack(p[0][0], p[0][1]), pack(p[0][2], p[0][3]), pack(p[1][0], p[1][1]), pack(p[1][2], p[1][3])};
#pragma unroll
		for (int i = 0; i < VG; i++)
#pragma unroll
			for (int j = 0; j < 8; j++) {
				const u32 v0 = v[0][i].x[j / 2], v1 = v[1][i].x[j / 2], v2 = v[2][i].x[j / 2], v3 = v[3][i].x[j / 2];
				const u32 y[2] = {j & 1 ? highs(v0, v1) : lows(v0, v1), j & 1 ? highs(v2, v3) : lows(v2, v3)};
#pragma unroll
				for (int e = 0; e < 4; e++)
					o[i][j][e] *= shrink[e / 2];
				mma(o[i][j], x, y);
			}
		if (more)
			load_values(j0 + WARPS * 16);
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		m.sum[r] += shuffle(m.sum[r], 1);
		m.sum[r] += shuffle(m.sum[r], 2);
	}

	// The output's column n of tile j of group i is column 64i + 8n + j: a lane has eight
	// neighbours of each of its two columns and rows, which are one piece of the output.
	elem *op = a.out + batch * a.os[0] + head * a.os[1];
	float *lp = a.lse + batch * a.ls[0] + head * a.ls[1];
	auto store = [&](int i, int e, const float *x, float inv) {
		const int row = first + g + (e & 2) * 4, col = i * 64 + (2 * c + (e & 1)) * 8;
		const quad y = {{pack(x[0] * inv, x[1] * inv), pack(x[2] * inv, x[3] * inv), pack(x[4] * inv, x[5] * inv), pack(x[6] * inv, x[7] * inv)}};
		if (row < a.queries && col < a.dim_v)
			*(quad *)(op + row * a.os[2] + col) = y;
	};
	auto store_lse = [&](int e, float top, float sum) {
		const int row = first + g + (e & 2) * 4;
		if (c == 0 && row < a.queries)
			lp[row * a.ls[2]] = sum == 0 ? -inf() : natural(top) + logf(sum);
	};
	if constexpr (WARPS == 1) {
		const float inv[2] = {inverse(m.sum[0]), inverse(m.sum[1])};
#pragma unroll
		for (int i = 0; i < VG; i++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const float x[8] = {o[i][0][e], o[i][1][e], o[i][2][e], o[i][3][e], o[i][4][e], o[i][5][e], o[i][6][e], o[i][7][e]};
				store(i, e, x, inv[e / 2]);
			}
#pragma unroll
		for (int r = 0; r < 2; r++)
			store_lse(2 * r, m.top[r], m.sum[r]);
	} else {
		const u32 stats = shared_at(VG * 4 * PART);
		if (c == 0)
#pragma unroll
			for (int r = 0; r < 2; r++) {
				store_float(stats + (warp * 16 + g + 8 * r) * 8, m.top[r]);
				store_float(stats + (warp * 16 + g + 8 * r) * 8 + 4, m.sum[r]);
			}
		const u32 mine = shared_at(warp * 1024 + lane * 16);
#pragma unroll
		for (int i = 0; i < VG; i++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				store_floats(mine + (i * 4 + e) * PART, o[i][0][e], o[i][1][e], o[i][2][e], o[i][3][e]);
				store_floats(mine + (i * 4 + e) * PART + 512, o[i][4][e], o[i][5][e], o[i][6][e], o[i][7][e]);
			}
		sync_block();
#pragma unroll 1
		for (int part = warp; part < VG * 4; part += WARPS) {
			const int e = part & 3;
			float weight[WARPS], top, sum, x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
			join_rows(stats, g + (e & 2) * 4, weight, &top, &sum);
#pragma unroll
			for (int w = 0; w < WARPS; w++) {
				const u32 from = shared_at(part * PART + w * 1024 + lane * 16);
				const floats lo = load_floats(from), hi = load_floats(from + 512);
#pragma unroll
				for (int j = 0; j < 4; j++) {
					x[j] += weight[w] * lo.x[j];
					x[4 + j] += weight[w] * hi.x[j];
				}
			}
			store(part / 4, e, x, inverse(sum));
			if (part == 0 || part == 2)
				store_lse(e, top, sum);
		}
	}
}

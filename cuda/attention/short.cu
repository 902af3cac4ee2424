// Attention of few queries with not too many keys, for the least latency: a block does
// 16 queries of one head, its warps share the keys. Nothing goes through shared memory
// before the end, where the warps' parts are joined: fragments come from memory in 16
// byte pieces. That is possible because the depths of a product may be counted in any
// order, the same on both sides, and the columns of the output too.
//
// PAD is the padded width of heads, 64 or 128; WARPS the number of warps.
KERNEL(32 * WARPS, 1) attention_short(const args a)
{
	constexpr int QK = PAD / 32, VG = PAD / 64;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
	const u32 above = blockIdx.x / (u32)a.tiles, head = above % (u32)a.heads, batch = above / (u32)a.heads;
	const u32 kv = head / (u32)a.group;
	const int first = (blockIdx.x - above * a.tiles) * 16;
	const elem *qp = a.q + batch * a.qs[0] + head * a.qs[1];
	const elem *kp = a.k + batch * a.ks[0] + kv * a.ks[1];
	const elem *vp = a.v + batch * a.vs[0] + kv * a.vs[1];

	quad q[2][QK];
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = first + g + 8 * r;
#pragma unroll
		for (int i = 0; i < QK; i++)
			q[r][i] = load16(qp + row * a.qs[2] + i * 32 + c * 8, row < a.queries && i * 32 + c * 8 < a.dim);
	}

	float o[VG][8][4];
#pragma unroll
	for (int i = 0; i < VG; i++)
#pragma unroll
		for (int j = 0; j < 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[i][j][e] = 0;
	float top[2] = {-inf(), -inf()}, sum[2] = {0, 0};

	const int end = a.causal ? least(a.keys, first + 16) : a.keys;
	for (int j0 = warp * 16; j0 < end; j0 += WARPS * 16) {
		quad k[2][QK], v[4][VG];
#pragma unroll
		for (int n = 0; n < 2; n++) {
			const int key = j0 + n * 8 + g;
#pragma unroll
			for (int i = 0; i < QK; i++)
				k[n][i] = load16(kp + key * a.ks[2] + i * 32 + c * 8, key < a.keys && i * 32 + c * 8 < a.dim);
		}
#pragma unroll
		for (int n = 0; n < 4; n++) {
			const int key = j0 + 2 * c + (n & 1) + (n & 2) * 4;
#pragma unroll
			for (int i = 0; i < VG; i++)
				v[n][i] = load16(vp + key * a.vs[2] + i * 64 + g * 8, key < a.keys && i * 64 + g * 8 < a.dim_v);
		}
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
		float p[2][4], most[2] = {top[0], top[1]};
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const int row = first + g + (e & 2) * 4, key = j0 + n * 8 + 2 * c + (e & 1);
				float x = (s[n][0][e] + s[n][1][e]) * a.scale2;
				const bool seen = key < a.keys && !(a.causal && key > row);
#if BIAS
				if (seen && row < a.queries)
					x += bias_value(a.bias[batch * a.bs[0] + head * a.bs[1] + row * a.bs[2] + key * a.bs[3]]) * LOG2E;
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
			shrink[r] = exp2_fast(top[r] - base[r]);
			top[r] = most[r];
			sum[r] *= shrink[r];
		}
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				p[n][e] = exp2_fast(p[n][e] - base[e / 2]);
				sum[e / 2] += p[n][e];
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
	}
#pragma unroll
	for (int r = 0; r < 2; r++) {
		sum[r] += shuffle(sum[r], 1);
		sum[r] += shuffle(sum[r], 2);
	}

	// The output's column n of tile j of group i is column 64i + 8n + j: a lane has eight
	// neighbours of each of its two columns and rows.
	float weight[2][WARPS];
	if (WARPS > 1) {
		const u32 part = shared_at((warp * 32 + lane) * 4), parts = WARPS * VG * 4096;
		if (c == 0)
#pragma unroll
			for (int r = 0; r < 2; r++) {
				store_float(shared_at(parts + (warp * 16 + g + 8 * r) * 8), top[r]);
				store_float(shared_at(parts + (warp * 16 + g + 8 * r) * 8 + 4), sum[r]);
			}
#pragma unroll
		for (int i = 0; i < VG; i++)
#pragma unroll
			for (int e = 0; e < 4; e++)
#pragma unroll
				for (int j = 0; j < 8; j++)
					store_float(part + ((i * 4 + e) * 8 + j) * WARPS * 128, o[i][j][e]);
		sync_block();
#pragma unroll
		for (int r = 0; r < 2; r++) {
			float t[WARPS], most = -inf(), all = 0;
#pragma unroll
			for (int w = 0; w < WARPS; w++) {
				t[w] = load_float(shared_at(parts + (w * 16 + g + 8 * r) * 8));
				most = fmaxf(most, t[w]);
			}
			const float base = most == -inf() ? 0.0f : most;
#pragma unroll
			for (int w = 0; w < WARPS; w++) {
				weight[r][w] = exp2_fast(t[w] - base);
				all += weight[r][w] * load_float(shared_at(parts + (w * 16 + g + 8 * r) * 8 + 4));
			}
			top[r] = most;
			sum[r] = all;
		}
	}
#pragma unroll
	for (int i = 0; i < VG; i++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			if (WARPS > 1 && (i * 4 + e) % WARPS != warp)
				continue;
			const int row = first + g + (e & 2) * 4, col = i * 64 + (2 * c + (e & 1)) * 8;
			float x[8];
#pragma unroll
			for (int j = 0; j < 8; j++) {
				if (WARPS > 1) {
					x[j] = 0;
#pragma unroll
					for (int w = 0; w < WARPS; w++)
						x[j] += weight[e / 2][w] * load_float(shared_at((w * 32 + lane) * 4 + ((i * 4 + e) * 8 + j) * WARPS * 128));
				} else
					x[j] = o[i][j][e];
				x[j] = sum[e / 2] == 0 ? 0.0f : x[j] / sum[e / 2];
			}
			const quad y = {{pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])}};
			if (row < a.queries && col < a.dim_v)
				*(quad *)(a.out + batch * a.os[0] + head * a.os[1] + row * a.os[2] + col) = y;
		}
	if (warp == 0 && c == 0)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const int row = first + g + 8 * r;
			if (row < a.queries)
				a.lse[batch * a.ls[0] + head * a.ls[1] + row * a.ls[2]] = sum[r] == 0 ? -inf() : top[r] * LN2 + logf(sum[r]);
		}
	write_zeros(a);
}

// Attention of any type, width and layout, after the host's kernels: a warp does 128
// columns of one row of a result, with a lane for each of 32 keys (or queries) while it
// makes scores, and for each column while it adds rows up. No block waits for another,
// nothing is shared, and every sum has one order.
#define WIDE 128

FN real total(real x)
{
#pragma unroll
	for (int m = 16; m > 0; m /= 2)
		x += shuffle(x, m);
	return x;
}

FN real inner(const elem *x, i64 xs, const elem *y, i64 ys, int n)
{
	real s = 0;
	for (int i = 0; i < n; i++)
		s += E::value(x[i * xs]) * E::value(y[i * ys]);
	return s;
}

FN real rounded(real x) { return E::value(E::made(x)); }

// Row i of a head's share of a tensor.
FN const elem *row_of(const elem *p, const i64 *s, u32 batch, u32 head, int i) { return p + batch * s[0] + head * s[1] + i * s[2]; }
FN elem *row_of(elem *p, const i64 *s, u32 batch, u32 head, int i) { return p + batch * s[0] + head * s[1] + i * s[2]; }

FN real score(const args &a, const elem *q, const elem *k, u32 batch, u32 head, int row, int key)
{
	real x = inner(q, a.qs[3], k, a.ks[3], a.dim) * (real)a.scale;
	if (a.bias)
		x += (real)B::value(a.bias[batch * a.bs[0] + head * a.bs[1] + row * a.bs[2] + key * a.bs[3]]);
	return x;
}

// What a warp works on: columns first.. of row, of a head of a batch.
struct unit {
	int column, row;
	u32 head, batch;
};

FN unit unit_of(u32 n, int width, int rows, int heads)
{
	const u32 groups = width > WIDE ? (width + WIDE - 1) / WIDE : 1;
	unit u;
	u.column = (int)(n % groups) * WIDE;
	n /= groups;
	u.row = (int)(n % (u32)rows);
	n /= (u32)rows;
	u.head = n % (u32)heads;
	u.batch = n / (u32)heads;
	return u;
}

KERNEL(128, 1) attention_simple(const args a)
{
	const int lane = threadIdx.x % 32;
	const u32 n = blockIdx.x * 4 + threadIdx.x / 32;
	write_zeros(a);
	if (n >= (u32)a.units)
		return;
	const unit u = unit_of(n, a.dim_v, a.queries, a.heads);
	const u32 kv = u.head / (u32)a.group;
	const elem *q = row_of(a.q, a.qs, u.batch, u.head, u.row);
	const elem *k = row_of(a.k, a.ks, u.batch, kv, 0), *v = row_of(a.v, a.vs, u.batch, kv, 0);
	const int end = a.causal ? least(a.keys, u.row + 1) : a.keys;
	const real none = -(real)inf();
	real top = none, sum = 0, o[WIDE / 32];
	for (int i = 0; i < WIDE / 32; i++)
		o[i] = 0;
	for (int j0 = 0; j0 < end; j0 += 32) {
		const int key = j0 + lane;
		real x = key < end ? score(a, q, k + key * a.ks[2], u.batch, u.head, u.row, key) : none, most = x;
#pragma unroll
		for (int m = 16; m > 0; m /= 2)
			most = fmax(most, shuffle(most, m));
		most = fmax(most, top);
		const real base = most == none ? 0 : most, shrink = expo(top - base);
		x = expo(x - base);
		top = most;
		sum = sum * shrink + x;
		x = rounded(x);
#pragma unroll
		for (int i = 0; i < WIDE / 32; i++)
			o[i] *= shrink;
		for (int l = 0; l < 32 && j0 + l < end; l++) {
			const real w = from_lane(x, l);
#pragma unroll
			for (int i = 0; i < WIDE / 32; i++) {
				const int column = u.column + 32 * i + lane;
				if (column < a.dim_v)
					o[i] += w * E::value(v[(j0 + l) * a.vs[2] + column * a.vs[3]]);
			}
		}
	}
	sum = total(sum);
	elem *out = row_of(a.out, a.os, u.batch, u.head, u.row);
#pragma unroll
	for (int i = 0; i < WIDE / 32; i++) {
		const int column = u.column + 32 * i + lane;
		if (column < a.dim_v)
			out[column * a.os[3]] = E::made(sum == 0 ? (real)0 : o[i] / sum);
	}
	if (lane == 0 && u.column == 0)
		a.lse[u.batch * a.ls[0] + u.head * a.ls[1] + u.row * a.ls[2]] = L::made(sum == 0 ? none : top + loga(sum));
}

// The first units of the backward pass make rows of dq.
FN void simple_dq(const args &a, const unit &u, int lane)
{
	const u32 kv = u.head / (u32)a.group;
	const elem *q = row_of(a.q, a.qs, u.batch, u.head, u.row), *grad = row_of(a.grad, a.gs, u.batch, u.head, u.row);
	const elem *k = row_of(a.k, a.ks, u.batch, kv, 0), *v = row_of(a.v, a.vs, u.batch, kv, 0);
	const elem *out = row_of((const elem *)a.out, a.os, u.batch, u.head, u.row);
	const real lse = L::value(a.lse[u.batch * a.ls[0] + u.head * a.ls[1] + u.row * a.ls[2]]);
	const int end = a.causal ? least(a.keys, u.row + 1) : a.keys;
	real delta = 0, s[WIDE / 32];
	for (int i = lane; i < a.dim_v; i += 32)
		delta += E::value(grad[i * a.gs[3]]) * E::value(out[i * a.os[3]]);
	delta = total(delta);
	for (int i = 0; i < WIDE / 32; i++)
		s[i] = 0;
	for (int j0 = 0; j0 < end; j0 += 32) {
		const int key = j0 + lane;
		real x = 0;
		if (key < end && lse != -(real)inf()) {
			const real p = expo(score(a, q, k + key * a.ks[2], u.batch, u.head, u.row, key) - lse);
			x = rounded(p * (inner(grad, a.gs[3], v + key * a.vs[2], a.vs[3], a.dim_v) - delta));
		}
		for (int l = 0; l < 32 && j0 + l < end; l++) {
			const real w = from_lane(x, l);
#pragma unroll
			for (int i = 0; i < WIDE / 32; i++) {
				const int column = u.column + 32 * i + lane;
				if (column < a.dim)
					s[i] += w * E::value(k[(j0 + l) * a.ks[2] + column * a.ks[3]]);
			}
		}
	}
	elem *to = row_of(a.dq, a.dqs, u.batch, u.head, u.row);
#pragma unroll
	for (int i = 0; i < WIDE / 32; i++) {
		const int column = u.column + 32 * i + lane;
		if (column < a.dim)
			to[column * a.dqs[3]] = E::made(s[i] * (real)a.scale);
	}
}

// The others make rows of dk and dv.
FN void simple_dkv(const args &a, const unit &u, int lane)
{
	const elem *k = row_of(a.k, a.ks, u.batch, u.head, u.row), *v = row_of(a.v, a.vs, u.batch, u.head, u.row);
	real sk[WIDE / 32], sv[WIDE / 32];
	for (int i = 0; i < WIDE / 32; i++)
		sk[i] = sv[i] = 0;
	for (u32 h = u.head * a.group; h < (u.head + 1) * a.group; h++) {
		const elem *q = row_of(a.q, a.qs, u.batch, h, 0), *grad = row_of(a.grad, a.gs, u.batch, h, 0);
		const elem *out = row_of((const elem *)a.out, a.os, u.batch, h, 0);
		for (int i0 = a.causal ? u.row / 32 * 32 : 0; i0 < a.queries; i0 += 32) {
			const int row = i0 + lane;
			real p = 0, x = 0;
			if (row < a.queries && !(a.causal && u.row > row)) {
				const real lse = L::value(a.lse[u.batch * a.ls[0] + h * a.ls[1] + row * a.ls[2]]);
				if (lse != -(real)inf()) {
					const elem *gr = grad + row * a.gs[2];
					p = expo(score(a, q + row * a.qs[2], k, u.batch, h, row, u.row) - lse);
					x = inner(gr, a.gs[3], v, a.vs[3], a.dim_v) - inner(gr, a.gs[3], out + row * a.os[2], a.os[3], a.dim_v);
				}
			}
			x = rounded(p * x) * (real)a.scale;
			p = rounded(p);
			for (int l = 0; l < 32 && i0 + l < a.queries; l++) {
				const real wp = from_lane(p, l), wx = from_lane(x, l);
#pragma unroll
				for (int i = 0; i < WIDE / 32; i++) {
					const int column = u.column + 32 * i + lane;
					if (column < a.dim_v)
						sv[i] += wp * E::value(grad[(i0 + l) * a.gs[2] + column * a.gs[3]]);
					if (column < a.dim)
						sk[i] += wx * E::value(q[(i0 + l) * a.qs[2] + column * a.qs[3]]);
				}
			}
		}
	}
	elem *dk = row_of(a.dk, a.dks, u.batch, u.head, u.row), *dv = row_of(a.dv, a.dvs, u.batch, u.head, u.row);
#pragma unroll
	for (int i = 0; i < WIDE / 32; i++) {
		const int column = u.column + 32 * i + lane;
		if (column < a.dim)
			dk[column * a.dks[3]] = E::made(sk[i]);
		if (column < a.dim_v)
			dv[column * a.dvs[3]] = E::made(sv[i]);
	}
}

KERNEL(128, 1) attention_simple_backward(const args a)
{
	const int lane = threadIdx.x % 32;
	const u32 n = blockIdx.x * 4 + threadIdx.x / 32;
	if (n < (u32)a.units)
		simple_dq(a, unit_of(n, a.dim, a.queries, a.heads), lane);
	else if (n < (u32)a.all_units)
		simple_dkv(a, unit_of(n - a.units, a.dim > a.dim_v ? a.dim : a.dim_v, a.keys, a.heads / a.group), lane);
}

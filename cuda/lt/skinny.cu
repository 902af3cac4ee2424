// Products of few rows with matrices of weights, bound by reading the weights:
// out[t][n] = sum over k of a[t][k] w[n][k], bf16, summed in f32. One launch does
// several products of the same a, each with weights and a result of its own.
//
// Compiled with these macros, after which everything is a constant but the sizes:
//   ROWS     strips of 16 weight rows that a block works on at a time
//   PARTS    parts of k that a block works on at a time; ROWS * PARTS warps a block
//   CLUSTER  blocks that share a strip, each with PARTS parts of k of its own
//   UNROLL   loads of 16 bytes that a thread has under way for each of two rows
//   TOKENS   tiles of 8 rows of a
//   MEMBERS  products
//
// Weights go straight from memory to the registers of mma.m16n8k16, whose first
// operand they are: a sum does not depend on how k is numbered as long as both
// operands agree, so a thread takes 8 consecutive k where the instruction speaks of
// two pairs, and one load of 16 bytes feeds two instructions. Four threads read 64
// bytes of a row, 32 bytes of it a sector of memory each.
//
// The rows of a lie in shared memory, padded so that the two rows that a quarter of a
// warp reads fall into different banks. Every warp loads its first weights before it
// waits for them.
//
// The parts of k are added in ascending order: by the block in shared memory, then
// by the cluster, each block of which adds its share of the results from all of
// them. The result has the same bits in every run.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

struct member {
	const u16 *w;
	u16 *out;
	long long ldw, ldo; // elements from row to row
	int n, first;       // rows of w, number of its first tile
};

struct args {
	const u16 *a;
	long long lda; // elements from row to row
	int m, k;      // rows of a, columns
	int grid;      // tiles of all members
	int ahead;     // 256ths of the weights that are fetched into the cache early
	member of[MEMBERS];
};

#define WARPS (ROWS * PARTS)
#define CHUNK (32 * UNROLL) // columns of one step of a warp
#define PAD 32              // elements: 64 bytes
#define STRIDE 20           // floats from token to token in sums: avoids bank conflicts

struct weights {
	uint4 row[UNROLL][2];
};

static __device__ __forceinline__ uint4 stream(const u16 *p)
{
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p));
	return v;
}

static __device__ __forceinline__ void load(weights &w, const u16 *p0, const u16 *p1, int k)
{
#pragma unroll
	for (int u = 0; u < UNROLL; u++) {
		w.row[u][0] = stream(p0 + k + 32 * u);
		w.row[u][1] = stream(p1 + k + 32 * u);
	}
}

static __device__ __forceinline__ void mma(float *c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// multiply adds one chunk. at is the address of this thread's first element of a in
// shared memory, pitch the bytes from token to token.
static __device__ __forceinline__ void multiply(float (*acc)[2][4], const weights &w, u32 at, u32 pitch)
{
#pragma unroll
	for (int u = 0; u < UNROLL; u++)
#pragma unroll
		for (int j = 0; j < TOKENS; j++) {
			uint4 b;
			asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
				     : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
				     : "r"(at + 8 * j * pitch + 64 * u));
			const uint4 &x = w.row[u][0], &y = w.row[u][1];
			mma(acc[j][0], x.x, y.x, x.y, y.y, b.x, b.y);
			mma(acc[j][1], x.z, y.z, x.w, y.w, b.z, b.w);
		}
}

static __device__ __forceinline__ u32 shared_address(const void *p)
{
	u64 a;
	asm("cvta.to.shared.u64 %0, %1;" : "=l"(a) : "l"(p));
	return (u32)a;
}

static __device__ __forceinline__ void cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// from_block reads two floats of shared memory of another block of the cluster.
static __device__ __forceinline__ float2 from_block(u32 at, u32 rank)
{
	float2 v;
	u32 there;
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
	asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(there) : "memory");
	return v;
}

static __device__ __forceinline__ void put(const member &g, int m, int token, int row, float2 v)
{
	if (token >= m || row >= g.n)
		return;
	u32 pair; // the first value in the lower half
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(v.y), "f"(v.x));
	u16 *p = g.out + token * g.ldo + row;
	if (row + 1 < g.n)
		*(u32 *)p = pair;
	else
		*p = (u16)pair;
}

// stage copies the block's columns [from, from + count) of a into shared memory.
// Rows that a lacks become zeros.
static __device__ __forceinline__ void stage(const args &g, u32 at, u32 pitch, int from, int count)
{
	int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	for (int t = warp; t < 8 * TOKENS; t += WARPS) {
		const u16 *p = g.a + (t < g.m ? t : 0) * g.lda + from;
		u32 bytes = t < g.m ? 16 : 0;
		for (int c = 8 * lane; c < count; c += 8 * 32)
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at + t * pitch + 2 * c), "l"(p + c), "r"(bytes)
				     : "memory");
	}
	asm volatile("cp.async.wait_all;" ::: "memory");
}

// prefetch asks for the first columns of this block's rows of weights.
static __device__ __forceinline__ void prefetch(const args &g, const member &x, int row, int from, int count)
{
#if __CUDA_ARCH__ >= 900
	u32 bytes = 2 * (count * g.ahead / 256 & ~63);
	if (threadIdx.x < 16 * ROWS && row + (int)threadIdx.x < x.n && bytes > 0)
		asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(x.w + (row + (int)threadIdx.x) * x.ldw + from), "r"(bytes) : "memory");
#endif
}

// others waits for the end of the kernel in front.
static __device__ __forceinline__ void others()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

extern "C" __global__ void
#if CLUSTER > 1
	__cluster_dims__(CLUSTER, 1, 1)
#endif
	__launch_bounds__(32 * WARPS, 1) concert_skinny(args g)
{
	extern __shared__ __align__(128) unsigned char memory[];
	// Sums of warps, those of the block for the cluster, then a.
	float *sums = (float *)memory;
	float2 *block = (float2 *)(sums + WARPS * 8 * TOKENS * STRIDE);
	unsigned char *rows = (unsigned char *)(block + (CLUSTER > 1 ? ROWS * 64 * TOKENS : 0));

	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane / 4, t = lane % 4;
	const int strip = warp / PARTS, part = warp % PARTS;
	const int rank = blockIdx.x % CLUSTER;
	const int chunks = g.k / CHUNK;
	const int from = chunks * (rank * PARTS + part) / (CLUSTER * PARTS), to = chunks * (rank * PARTS + part + 1) / (CLUSTER * PARTS);
	const int first = chunks * rank / CLUSTER, last = chunks * (rank + 1) / CLUSTER; // of the block
	const u32 pitch = 2 * ((last - first) * CHUNK + PAD);
	const u32 mine = shared_address(rows) + q * pitch + 16 * t;

	bool staged = false;
	for (int tile = blockIdx.x / CLUSTER; tile < g.grid; tile += gridDim.x / CLUSTER) {
		// One field after the other, by constant numbers: g stays where parameters are.
		member x = {g.of[0].w, g.of[0].out, g.of[0].ldw, g.of[0].ldo, g.of[0].n, g.of[0].first};
#pragma unroll
		for (int i = 1; i < MEMBERS; i++) {
			const bool here = tile >= g.of[i].first;
			x.w = here ? g.of[i].w : x.w;
			x.out = here ? g.of[i].out : x.out;
			x.ldw = here ? g.of[i].ldw : x.ldw;
			x.ldo = here ? g.of[i].ldo : x.ldo;
			x.n = here ? g.of[i].n : x.n;
			x.first = here ? g.of[i].first : x.first;
		}
		const int row0 = (tile - x.first) * ROWS * 16; // of the tile
		const int n0 = row0 + strip * 16;
		const int r0 = min(n0 + q, x.n - 1), r1 = min(n0 + q + 8, x.n - 1);
		const u16 *p0 = x.w + r0 * x.ldw + 8 * t, *p1 = x.w + r1 * x.ldw + 8 * t;
		weights w[2];
		if (from < to)
			load(w[0], p0, p1, from * CHUNK);
		if (!staged) {
			prefetch(g, x, row0, first * CHUNK, (last - first) * CHUNK);
			others();
			stage(g, shared_address(rows), pitch, first * CHUNK, (last - first) * CHUNK);
			staged = true;
		}
		__syncthreads(); // the staged rows are there, the last strip's sums were read
		float acc[TOKENS][2][4] = {};
		int c = from;
		for (; c + 1 < to; c += 2) {
			load(w[1], p0, p1, (c + 1) * CHUNK);
			multiply(acc, w[0], mine + 2 * (c - first) * CHUNK, pitch);
			if (c + 2 < to)
				load(w[0], p0, p1, (c + 2) * CHUNK);
			multiply(acc, w[1], mine + 2 * (c + 1 - first) * CHUNK, pitch);
		}
		if (c < to)
			multiply(acc, w[0], mine + 2 * (c - first) * CHUNK, pitch);

		float *s = sums + warp * 8 * TOKENS * STRIDE;
#pragma unroll
		for (int j = 0; j < TOKENS; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				s[(8 * j + 2 * t + i % 2) * STRIDE + q + 8 * (i / 2)] = acc[j][0][i] + acc[j][1][i];
		__syncthreads();
		// An item is two adjacent results of one token.
		for (int i = threadIdx.x; i < ROWS * 64 * TOKENS; i += 32 * WARPS) {
			int pair = i % 8, token = i / 8 % (8 * TOKENS), r = i / (64 * TOKENS);
			const float *y = sums + (r * PARTS * 8 * TOKENS + token) * STRIDE + 2 * pair;
			float2 v = {0, 0};
#pragma unroll
			for (int p = 0; p < PARTS; p++) {
				float2 z = *(const float2 *)(y + p * 8 * TOKENS * STRIDE);
				v.x += z.x;
				v.y += z.y;
			}
			if (CLUSTER > 1)
				block[i] = v;
			else
				put(x, g.m, token, row0 + r * 16 + 2 * pair, v);
		}
		if (CLUSTER > 1) {
			cluster_sync();
			for (int i = rank + CLUSTER * threadIdx.x; i < ROWS * 64 * TOKENS; i += CLUSTER * 32 * WARPS) {
				int pair = i % 8, token = i / 8 % (8 * TOKENS), r = i / (64 * TOKENS);
				float2 v = {0, 0};
#pragma unroll
				for (int b = 0; b < CLUSTER; b++) {
					float2 y = from_block(shared_address(block + i), b);
					v.x += y.x;
					v.y += y.y;
				}
				put(x, g.m, token, row0 + r * 16 + 2 * pair, v);
			}
			cluster_sync(); // nobody leaves, or writes new sums, while others read
		}
	}
}

// The arguments of every kernel, in the order in which the host writes them; those of
// the forward pass are neighbours, because each line of them that a block touches
// delays its start. Strides count elements; they are those of batch, head, row and column.
struct args {
	const elem *q, *k, *v;
	elem *out;
	lse_elem *lse;
	i64 qs[4], ks[4], vs[4], os[4], ls[3];
	int tiles;       // of queries, in a head
	int heads, group; // group: heads of queries for each head of keys
	int queries, keys, dim, dim_v;
	int causal;
	int key_heads, unused;
	double scale;
	float scale2; // scale * log2(e)
	int units, all_units; // of the first of two kinds of work, of both
	int key_tiles; // of keys, in a head
	u32 *zero[2];    // results that are 0
	i64 words[2];    // of them
	const bias_elem *bias;
	i64 bs[4];
	const elem *grad;
	elem *dq, *dk, *dv;
	float *delta; // inner products of out and grad, dense
	i64 gs[4], dqs[4], dks[4], dvs[4];
};

FN int least(int a, int b) { return a < b ? a : b; }

// Results that are always 0 are one thread's work.
FN void write_zeros(const args &a)
{
	if (blockIdx.x != 0 || threadIdx.x != 0)
		return;
	for (int i = 0; i < 2; i++)
#pragma unroll 1
		for (i64 j = 0; j < a.words[i]; j++)
			a.zero[i][j] = 0;
}

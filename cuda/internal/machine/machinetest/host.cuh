// The machine under the kernels for a C++ compiler: every thread of a block is a fiber,
// and what a warp does together happens when its last lane arrives. Copies to shared
// memory happen when they are waited for, and shared memory starts as NaNs, so that a
// missing wait or barrier shows.
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
typedef unsigned u32;
typedef unsigned short u16;
typedef long long i64;
#define FN static inline
#define FN_MEMBER inline
#define KERNEL(threads, blocks) extern "C" void
struct alignas(16) quad {
	u32 x[4];
};
struct floats {
	float x[4];
};
struct index3 {
	u32 x;
};
struct copy {
	u32 to;
	const void *from;
	bool there;
	int group;
};
static const int most_copies = 256;
struct fiber {
	index3 thread;
	jmp_buf at;
	ucontext_t start;
	bool started, done;
	copy copies[most_copies]; // under way, by group
	int count_copies, groups; // the group that is open is no. groups
	const void *give;
	void *take;
};
static const int most_threads = 1024, stack_bytes = 1 << 18, shared_size = 227 << 10;
static fiber fibers[most_threads];
static char *stacks;
static int count_threads, current;
static index3 blockIdx, gridDim;
static u32 arrived[32], turn[32], block_arrived, block_turn;
alignas(1024) static char shared_bytes[shared_size];
#define threadIdx (fibers[current].thread)
static void (*entry)();

static void fail(const char *what)
{
	fprintf(stderr, "block %u thread %d: %s\n", blockIdx.x, current, what);
	exit(1);
}
static void go(int next)
{
	current = next;
	fiber &f = fibers[next];
	if (f.started)
		_longjmp(f.at, 1);
	f.started = true;
	setcontext(&f.start);
}
static int next_alive()
{
	for (int i = 1; i <= count_threads; i++) {
		const int n = (current + i) % count_threads;
		if (!fibers[n].done)
			return n;
	}
	return -1;
}
static jmp_buf all_done;
static void leave()
{
	fibers[current].done = true;
	const int n = next_alive();
	if (n < 0)
		_longjmp(all_done, 1);
	go(n);
}
static void thread_main()
{
	entry();
	const fiber &f = fibers[current];
	if (f.count_copies && f.copies[f.count_copies - 1].group == f.groups)
		fail("ends with copies that no group holds");
	leave();
}
static long spins;
static void yield()
{
	const int n = next_alive();
	if (++spins > 100000000)
		fail("waits for threads that never come");
	if (n != current && !_setjmp(fibers[current].at))
		go(n);
}
// The last of the warp's lanes runs f for all.
template <class F> static void together(const void *give, void *take, F f)
{
	const int w = current / 32, mine = turn[w];
	fibers[current].give = give;
	fibers[current].take = take;
	if (++arrived[w] == 32) {
		arrived[w] = 0;
		turn[w]++;
		spins = 0;
		f(fibers + w * 32);
		return;
	}
	while ((int)turn[w] == mine)
		yield();
}
FN void sync_block()
{
	const u32 mine = block_turn;
	if ((int)++block_arrived == count_threads) {
		block_arrived = 0;
		block_turn++;
		spins = 0;
		return;
	}
	while (block_turn == mine)
		yield();
}
FN void sync_warp() { together(0, 0, [](fiber *) {}); }
template <class T> FN T exchange(T x, int from)
{
	struct give {
		T x;
		int from;
	} g = {x, from};
	T y;
	together(&g, &y, [](fiber *w) {
		for (int i = 0; i < 32; i++)
			*(T *)w[i].take = ((const give *)w[((const give *)w[i].give)->from & 31].give)->x;
	});
	return y;
}
FN float shuffle(float x, int mask) { return exchange(x, (current % 32) ^ mask); }
FN double shuffle(double x, int mask) { return exchange(x, (current % 32) ^ mask); }
FN float from_lane(float x, int lane) { return exchange(x, lane); }
FN double from_lane(double x, int lane) { return exchange(x, lane); }
FN int from_lane(int x, int lane) { return exchange(x, lane); }
FN bool any(bool p)
{
	bool y;
	together(&p, &y, [](fiber *w) {
		bool some = false;
		for (int i = 0; i < 32; i++)
			some |= *(const bool *)w[i].give;
		for (int i = 0; i < 32; i++)
			*(bool *)w[i].take = some;
	});
	return y;
}
FN void __trap() { fail("traps"); }
FN float inf() { return INFINITY; }
FN float exp2_fast(float x) { return exp2f(x); }
FN float reciprocal(float x) { return 1 / x; }
FN float of_bits(u32 b)
{
	float f;
	memcpy(&f, &b, 4);
	return f;
}
FN u32 to_bits(float f)
{
	u32 b;
	memcpy(&b, &f, 4);
	return b;
}
FN float bf16_value(u16 h) { return of_bits((u32)h << 16); }
FN u16 bf16_bits(float x)
{
	const u32 b = to_bits(x);
	if (x != x)
		return 0x7fff;
	return (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
FN float f16_value(u16 h)
{
	const int e = h >> 10 & 31, m = h & 1023;
	const float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
	return h >> 15 ? -v : v;
}
FN u16 f16_bits(float x)
{
	const u16 sign = to_bits(x) >> 16 & 0x8000;
	const float v = fabsf(x);
	if (x != x)
		return 0x7fff;
	if (v >= 65520)
		return sign | 0x7c00;
	int e;
	frexpf(v, &e);
	if (e < -13 || v == 0)
		return sign | (u16)rintf(ldexpf(v, 24));
	return sign | (u16)((e + 14) * 1024 - 1024 + (int)rintf(ldexpf(v, 11 - e)));
}
#if BF16
FN float half_value(u16 h) { return bf16_value(h); }
FN u16 half_bits(float x) { return bf16_bits(x); }
#else
FN float half_value(u16 h) { return f16_value(h); }
FN u16 half_bits(float x) { return f16_bits(x); }
#endif
FN u32 pack(float lo, float hi) { return half_bits(lo) | (u32)half_bits(hi) << 16; }
FN float low(u32 w) { return half_value((u16)w); }
FN float high(u32 w) { return half_value((u16)(w >> 16)); }
FN u32 lows(u32 a, u32 b) { return (a & 0xffff) | b << 16; }
FN u32 highs(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); }
FN void mma(float *c, const u32 *a, const u32 *b)
{
	struct give {
		u32 a[4], b[2];
	} give = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
	together(&give, c, [](fiber *w) {
		static float l[16][16], r[16][8];
		for (int t = 0; t < 32; t++) {
			const auto *v = (const struct give *)w[t].give;
			const int g = t / 4, c = t % 4;
			for (int i = 0; i < 4; i++)
				for (int e = 0; e < 2; e++)
					l[g + (i & 1) * 8][2 * c + (i & 2) * 4 + e] = half_value((u16)(v->a[i] >> 16 * e));
			for (int i = 0; i < 2; i++)
				for (int e = 0; e < 2; e++)
					r[2 * c + 8 * i + e][g] = half_value((u16)(v->b[i] >> 16 * e));
		}
		for (int t = 0; t < 32; t++) {
			float *c = (float *)w[t].take;
			for (int i = 0; i < 4; i++) {
				const int row = t / 4 + (i & 2) * 4, col = t % 4 * 2 + (i & 1);
				float s = 0;
				for (int k = 0; k < 16; k++)
					s += l[row][k] * r[k][col];
				c[i] += s;
			}
		}
	});
}
FN u32 shared_at(u32 offset) { return offset; }
FN char *inside(u32 at, u32 bytes)
{
	if (at % bytes || at + bytes > shared_size)
		fail("a bad address in shared memory");
	return shared_bytes + at;
}
template <bool T> FN void matrices(u32 *r, u32 at)
{
	together(&at, r, [](fiber *w) {
		for (int t = 0; t < 32; t++)
			for (int i = 0; i < 4; i++) {
				const int g = t / 4, c = t % 4;
				u32 v = 0;
				for (int e = 0; e < 2; e++) {
					const int row = T ? 2 * c + e : g, col = T ? g : 2 * c + e;
					v |= (u32)((const u16 *)inside(*(const u32 *)w[i * 8 + row].give, 16))[col] << 16 * e;
				}
				((u32 *)w[t].take)[i] = v;
			}
	});
}
FN void load_matrices(u32 *r, u32 at) { matrices<false>(r, at); }
FN void load_transposed(u32 *r, u32 at) { matrices<true>(r, at); }
FN void copy_async(u32 to, const void *from, bool there)
{
	if ((i64)from % 16)
		fail("a copy from an address that is no multiple of 16");
	fiber &f = fibers[current];
	if (f.count_copies == most_copies)
		fail("more copies under way than the machine keeps");
	f.copies[f.count_copies++] = {to, from, there, f.groups};
}
FN void copies_end() { fibers[current].groups++; }
template <int N> FN void copies_wait()
{
	fiber &f = fibers[current];
	int n = 0;
	for (; n < f.count_copies && f.copies[n].group < f.groups - N; n++) {
		const copy &c = f.copies[n];
		if (c.there)
			memcpy(inside(c.to, 16), c.from, 16);
		else
			memset(inside(c.to, 16), 0, 16);
	}
	f.count_copies -= n;
	memmove(f.copies, f.copies + n, f.count_copies * sizeof *f.copies);
}
FN void store_word(u32 at, u32 v) { memcpy(inside(at, 4), &v, 4); }
FN u32 load_word(u32 at) { return *(const u32 *)inside(at, 4); }
FN void store_float(u32 at, float v) { store_word(at, to_bits(v)); }
FN float load_float(u32 at) { return of_bits(load_word(at)); }
FN quad load_quad(u32 at) { return *(const quad *)inside(at, 16); }
FN floats load_floats(u32 at) { return *(const floats *)inside(at, 16); }
FN void store_floats(u32 at, float x0, float x1, float x2, float x3) { *(floats *)inside(at, 16) = {{x0, x1, x2, x3}}; }
FN void front_ended() {}

static void run(void (*f)(), int grid, int block)
{
	if (!stacks)
		stacks = (char *)mmap(0, (size_t)most_threads * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	entry = f;
	gridDim.x = grid;
	count_threads = block;
	for (int b = 0; b < grid; b++) {
		blockIdx.x = b;
		memset(shared_bytes, 0xff, sizeof shared_bytes);
		memset(arrived, 0, sizeof arrived);
		block_arrived = 0;
		for (int t = 0; t < block; t++) {
			fiber &x = fibers[t];
			x.thread.x = t;
			x.started = x.done = false;
			x.count_copies = x.groups = 0;
			getcontext(&x.start);
			x.start.uc_stack.ss_sp = stacks + (size_t)t * stack_bytes;
			x.start.uc_stack.ss_size = stack_bytes;
			x.start.uc_link = 0;
			makecontext(&x.start, thread_main, 0);
		}
		if (!_setjmp(all_done))
			go(0);
	}
}

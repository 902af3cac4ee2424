package cudagen_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// blockShim runs the threads of a block as fibers that take turns, so that what they do together
// is what a GPU would run: barriers, votes and shuffles. The blocks of a cluster are threads of the
// system, whose thread-local memory is what blocks share.
const blockShim = `
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <setjmp.h>
#include <thread>
#include <ucontext.h>
#define AT_ONCE
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static thread_local
#define CLUSTER(n)
#define CLUSTER_SIZE(n) n
static thread_local struct { unsigned x; } blockIdx, threadIdx, blockDim;
static void __trap() { abort(); }
struct Barrier { unsigned expected, arrived, turn; };
static thread_local Barrier block, warps[32];
static thread_local ucontext_t fibers[1024], home;
static thread_local bool ended[1024];
static thread_local unsigned alive, fiber_count;
static unsigned launches;
static thread_local struct { Barrier* at; unsigned turn; } waits[1024];
static bool runs(unsigned t) { return !ended[t] && (!waits[t].at || waits[t].at->turn != waits[t].turn); }
// next is the fiber whose turn comes. Launches have four orders by turns: thread after thread, the same
// backwards, and each warp as far as it gets, the next one first or the one before. What is read while another
// thread may write it is read before that in some, and behind it in others. Trials run in each (runBlocks).
static unsigned next() {
  const unsigned me = threadIdx.x, n = fiber_count, lane = me % 32, warp = me / 32, count = n / 32;
  for (unsigned i = 0; i < n; ++i) {
    const unsigned j = i - 31; // of other warps
    unsigned t;
    switch (launches % 4) {
    case 0: t = (me + 1 + i) % n; break;
    case 1: t = (me + n - 1 - i) % n; break;
    case 2: t = i < 31 ? warp * 32 + (lane + 1 + i) % 32 : i == n - 1 ? me : (warp + 1 + j / 32) % count * 32 + j % 32; break;
    case 3: t = i < 31 ? warp * 32 + (lane + 31 - i) % 32 : i == n - 1 ? me : (warp + count - 1 - j / 32) % count * 32 + 31 - j % 32;
    }
    if (runs(t)) return t;
  }
  fprintf(stderr, "threads wait for each other\n");
  abort();
}
static void (*body)();
// A fiber begins in a context, which is a system call for the signal mask, and goes on by a jump, which is none.
static thread_local jmp_buf points[1024];
static thread_local bool begun[1024];
static void go(unsigned t) {
  if (begun[t]) _longjmp(points[t], 1);
  begun[t] = true;
  setcontext(fibers + t);
}
static void yield() {
  const unsigned me = threadIdx.x, to = next();
  threadIdx.x = to;
  if (to != me && !_setjmp(points[me])) go(to);
  threadIdx.x = me;
}
static void release(Barrier& b) {
  if (b.arrived < b.expected) return;
  b.arrived = 0;
  ++b.turn;
}
static void wait(Barrier& b) {
  const unsigned turn = b.turn;
  ++b.arrived;
  release(b);
  waits[threadIdx.x] = {&b, turn};
  if (b.turn == turn) yield();
}
static void leave(Barrier& b) {
  --b.expected;
  if (b.expected > 0) release(b);
}
static void fiber() {
  body();
  const unsigned me = threadIdx.x;
  ended[me] = true;
  leave(warps[me / 32]);
  leave(block);
  if (--alive == 0) setcontext(&home);
  threadIdx.x = next();
  go(threadIdx.x);
}
static thread_local char origin; // of a block's memory
static char* origins[8];
static pthread_barrier_t cluster;
static void run_block(unsigned index, unsigned rank, unsigned threads) {
  static thread_local char* stacks = (char*)aligned_alloc(64, 1024 * 32768);
  blockIdx.x = index;
  origins[rank] = &origin;
  fiber_count = alive = blockDim.x = threads;
  block = {threads, 0, 0};
  for (unsigned w = 0; w < threads / 32; ++w) warps[w] = {32, 0, 0};
  for (unsigned t = 0; t < threads; ++t) {
    ended[t] = begun[t] = false;
    waits[t] = {0, 0};
    getcontext(fibers + t);
    fibers[t].uc_stack.ss_sp = stacks + t * 32768;
    fibers[t].uc_stack.ss_size = 32768;
    makecontext(fibers + t, fiber, 0);
  }
  threadIdx.x = 0;
  begun[0] = true;
  swapcontext(&home, fibers);
}
template <class K> static void launch(unsigned clusters, unsigned grid, unsigned threads, const K& kernel) {
  static const K* at;
  at = &kernel;
  ++launches;
  body = [] { (*at)(); };
  pthread_barrier_init(&cluster, 0, clusters);
  for (unsigned first = 0; first < grid; first += clusters) {
    if (clusters == 1) {
      run_block(first, 0, threads);
      continue;
    }
    std::thread blocks[8];
    for (unsigned r = 0; r < clusters; ++r) blocks[r] = std::thread(run_block, first + r, r, threads);
    for (unsigned r = 0; r < clusters; ++r) blocks[r].join();
  }
}
static void sync_cluster() {
  wait(block);
  if (threadIdx.x == 0) pthread_barrier_wait(&cluster);
  wait(block);
}
template <class T> static const T* of_block(const T* p, int rank) { return (const T*)((const char*)p - &origin + origins[rank]); }
static thread_local unsigned long long slots[1024];
static void __syncthreads() { wait(block); }
static void __syncwarp() { wait(warps[threadIdx.x / 32]); }
static unsigned __ballot_sync(unsigned, bool x) {
  slots[threadIdx.x] = x;
  __syncwarp();
  unsigned all = 0;
  for (int l = 0; l < 32; ++l) all |= (unsigned)slots[threadIdx.x / 32 * 32 + l] << l;
  __syncwarp();
  return all;
}
template <class T> static T lane_of(T x, int lane) {
  memcpy(slots + threadIdx.x, &x, sizeof x);
  __syncwarp();
  T y;
  memcpy(&y, slots + threadIdx.x / 32 * 32 + lane, sizeof y);
  __syncwarp();
  return y;
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int m) { return lane_of(x, threadIdx.x % 32 ^ m); }
template <class T> static T __shfl_up_sync(unsigned, T x, int m) { return lane_of(x, (int)threadIdx.x % 32 < m ? threadIdx.x % 32 : threadIdx.x % 32 - m); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static void atomicMax(int* p, int k) { *p = k > *p ? k : *p; }
static void atomicOr(unsigned* p, unsigned k) { __atomic_fetch_or(p, k, __ATOMIC_RELAXED); }
`

var clusterOf = regexp.MustCompile(` CLUSTER\((\d+)\) `)

// clusters are functions whose blocks share rows: a norm of few channels, two sums of long columns,
// and the gradient of a small table.
var clusters = []string{`world 1

func @f(%x: f32[4,2,96,64]) -> (f32[1,2,1,1], f32[4,2,96,64]) {
  %m = mean %x {dims=[0,2,3], keepdim=true} : f32[1,2,1,1]
  %d = sub %x, %m : f32[4,2,96,64]
  %s = mul %d, %d : f32[4,2,96,64]
  %v = sum %s {dims=[0,2,3], keepdim=true} : f32[1,2,1,1]
  %n = mul %d, %v : f32[4,2,96,64]
  return %v, %n
}
`, `world 1

func @f(%x: f32[20000,8]) -> (f32[8], f32[8]) {
  %s = sum %x {dims=[0]} : f32[8]
  %q = mul %x, %x : f32[20000,8]
  %a = sum %q {dims=[0]} : f32[8]
  return %s, %a
}
`, `world 1

func @f(%x: f32[5,6], %v: f32[17000,6], %i: i64[17000]) -> (f32[5,6]) {
  %y = index_put %x, %v, %i {accumulate=true, dims=[0]} : f32[5,6]
  return %y
}
`}

// again are functions whose threads fold or scan one time after the other in the same shared memory: a norm of
// long rows, one of columns, running sums of long lines; and those that fill it for each other: a scatter that finds
// the last writers, a grouped matmul of several tiles in depth, and a sort.
var again = []string{`world 1

func @f(%x: f32[3,5000]) -> (f32[3,5000]) {
  %m = mean %x {dims=[1], keepdim=true} : f32[3,1]
  %d = sub %x, %m : f32[3,5000]
  %s = mul %d, %d : f32[3,5000]
  %v = mean %s {dims=[1], keepdim=true} : f32[3,1]
  %n = mul %d, %v : f32[3,5000]
  return %n
}
`, `world 1

func @f(%x: f32[300,40]) -> (f32[300,40]) {
  %m = mean %x {dims=[0], keepdim=true} : f32[1,40]
  %d = sub %x, %m : f32[300,40]
  %s = mul %d, %d : f32[300,40]
  %v = mean %s {dims=[0], keepdim=true} : f32[1,40]
  %n = mul %d, %v : f32[300,40]
  return %n
}
`, `world 1

func @f(%x: f32[2,5000]) -> (f32[2,5000]) {
  %y = cumsum %x {dim=1} : f32[2,5000]
  return %y
}
`, `world 1

func @f(%x: f32[3,700], %i: i64[3,900], %v: f32[3,900]) -> (f32[3,700]) {
  %y = scatter %x, %i, %v {dim=1} : f32[3,700]
  return %y
}
`, `world 1

func @f(%x: f32[60,100], %w: f32[3,100,70], %e: i64[3]) -> (f32[60,70]) {
  %y = grouped_matmul %x, %w, %e : f32[60,70]
  return %y
}
`, `world 1

func @f(%x: f32[2,1000]) -> (f32[2,1000], i64[2,1000]) {
  %y:2 = topk %x {dim=1, k=1000} : f32[2,1000], i64[2,1000]
  return %y#0, %y#1
}
`}

// Updates of narrow rows and of few rows give the interpreter's numbers where the threads of
// a block share them: few updates and many, out of order, of one row and of all.
func TestBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	some := func(of ...int) int { return of[r.IntN(len(of))] }
	const lists = 12
	var trials []*trial
	add := func(kind string, k int, text string, ulp int64) (body string) {
		m, err := ir.Parse(kind, text)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := newTrial(fmt.Sprint(kind, k), m.Funcs()[0], ulp, uint64(k), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, m)
		}
		trials = append(trials, tr)
		return tr.k.Body
	}
	shared := 0
	for k := range lists {
		rows, row, places := some(1, 2, 3, 33, 127, 256), some(1, 3, 6, 8, 16, 24), some(64, 65, 1000, 4097, 9000)
		dt := []string{"f32", "bf16", "i64", "u8"}[k%4]
		update := []string{"index_add %x, %i, %v {dim=0}", "index_put %x, %v, %i {accumulate=true, dims=[0]}", "index_put %x, %v, %i {accumulate=false, dims=[0]}"}[k%3]
		x := fmt.Sprintf("%s[%d,%d]", dt, rows, row)
		ulp := int64(0)
		if dt == "f32" || dt == "bf16" {
			ulp = -1
		}
		text := fmt.Sprintf("world 1\n\nfunc @f(%%x: %s, %%v: %s[%d,%d], %%i: i64[%d]) -> (%s) {\n  %%y = %s : %s\n  %%z = neg %%y : %s\n  return %%z\n}\n", x, dt, places, row, places, x, update, x, x)
		if strings.Contains(add("block", k, text, ulp), "SHARES(") {
			shared++
		}
	}
	if shared == 0 || shared == lists {
		t.Errorf("%d of %d kernels share elements", shared, lists)
	}
	for k, text := range clusters {
		if body := add("cluster", k, text, -1); !clusterOf.MatchString(body) {
			t.Errorf("blocks share nothing:\n%s", body)
		}
	}
	for k, text := range again {
		add("again", k, text, -1)
	}
	runBlocks(t, trials)
}

// listing are the kernels that list rows without sorting them; TestBlocks has those that sort.
func listing(trials []*trial) []*trial {
	return slices.DeleteFunc(slices.Clone(trials), func(tr *trial) bool { return !strings.Contains(tr.k.Body, "list_rows<") })
}

// cooperates finds kernels whose threads work together.
var cooperates = regexp.MustCompile(`LANES\(([2-9]|\d\d+)\)|(list|sort)_rows<`)

// together runs the kernels whose threads work together with all of a block's threads at once.
func together(t *testing.T, trials []*trial, flags ...string) {
	t.Helper()
	var some []*trial
	for _, tr := range trials {
		if cooperates.MatchString(tr.k.Body) {
			tr := *tr
			tr.together = true
			some = append(some, &tr)
		}
	}
	runBlocks(t, some, append([]string{"-O0"}, flags...)...)
}

// sumUnits is by how many units in the last place a sum may be off that is made of several threads' shares.
func sumUnits(d dtype.DType) int64 {
	switch {
	case d == dtype.F64:
		return 1 << 20
	case d == dtype.F32:
		return 4
	case d.IsFloat():
		return 1
	}
	return 0
}

// runBlocks runs and compares trials with all threads of a block at once, and all blocks of a cluster, in
// all orders of turns.
func runBlocks(t *testing.T, trials []*trial, flags ...string) {
	t.Helper()
	const orders = 4
	all := make([]*trial, 0, orders*len(trials))
	for _, tr := range trials {
		n := orders
		if clusterOf.MatchString(tr.k.Body) { // threads of the system, which take long to make
			n = 1
		}
		all = append(all, slices.Repeat([]*trial{tr}, n)...)
	}
	run := "#define RUN(k, grid, block, lanes, ...) \\\n"
	text := programOf(blockShim+cudagen.Prelude()+strings.Replace(harness, run, "#define RUN(clusters, k, grid, block, lanes, ...) launch(clusters, grid, block, [&] { k(__VA_ARGS__); })\n#define SERIAL(k, grid, block, lanes, ...) \\\n", 1), all)
	for _, tr := range all {
		blocks := "1"
		if at := clusterOf.FindStringSubmatch(tr.k.Body); at != nil {
			blocks = at[1]
		}
		text = strings.Replace(text, "RUN("+tr.k.Name+",", "RUN("+blocks+", "+tr.k.Name+",", 1)
	}
	compare(t, all, runText(t, text, all, append([]string{"-fno-sanitize=all", "-U_FORTIFY_SOURCE", "-O1", "-pthread"}, flags...)...), false)
}

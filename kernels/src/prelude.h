// Prelude of concert's device code: the few types, intrinsics and protocol
// helpers that the collective kernels need. It replaces every CUDA header, so
// that a stock clang compiles the kernels to the same bytes on any machine.
//
// Memory model, which every protocol file relies on:
//
//   - Symmetric memory is only touched by strong (relaxed or stronger, system
//     scope) accesses, by weak stores that a later release publishes, or by
//     bulk copies that are completed and fenced across proxies before a release.
//     It is never read through the non-coherent path (ld.global.nc) and, where
//     a peer may write it during the kernel, never by a weak load.
//   - A packet carries its own proof of arrival in each word that the hardware
//     reads or writes as one piece: 32-bit words with a reserved value
//     (allreduce_oneshot.cu, allreduce_twoshot.cu) or 64-bit words of data and
//     flag (the *_ll kernels). Vector accesses are used for their width only;
//     no proof rests on a vector being one piece.
//   - Flags that guard plain data are written with release and read with
//     acquire semantics at system scope by one thread, and joined to the other
//     threads of its block by a block barrier; causality is cumulative.
//   - The kernels of a group run in one stream order per rank. A kernel starts
//     after the previous one of its rank ended, with that one's writes visible.
//
// Every wait ends: after SPINS failed polls it looks at the abort words and at
// %globaltimer. A wait past its deadline writes one error record, aborts the
// group on every rank and returns; nothing traps, so contexts survive. The
// abort is sticky until the host clears the control page. A kernel that aborts, or
// finds the group aborted at its beginning, tells its own host so (CTL_LEFT).
//
// Kernels whose blocks never meet end a thread that aborts at once (quit). A
// compiler that carries an "aborted" through the loops around the polls, as clang
// does, pays for it in every call: branches between threads that part are not
// threaded through each other.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define DEV static __attribute__((device)) inline __attribute__((always_inline))
#define GLOBAL extern "C" __attribute__((global))
#define SHARED __attribute__((shared))
#define BOUNDS(t, b) __attribute__((launch_bounds(t, b)))

// Element types; the numbers are internal/dtype's.
enum { F64 = 1, F32 = 2, F16 = 3, BF16 = 4, I64 = 5, I32 = 6, I8 = 7, U8 = 8 };
// Reductions.
enum { SUM = 0, AVG = 1, PROD = 2, MIN = 3, MAX = 4 };

// Limits that the host knows too (kernels/args.go).
enum { MAXRANKS = 16, MAXSEGS = 32, MAXBLOCKS = 256 };

// Control page of one rank in one group; all words start at zero.
enum {
  CTL_ABORT = 0,      // u32: nonzero aborts every wait; peers write it
  CTL_LEFT = 4,       // u32, in the host page: nonzero once a kernel of this rank has left early
  CTL_RECORD = 64,    // the error record, see report()
  CTL_ENTRY = 512,    // u32[MAXRANKS]: direct collectives entered by each peer
  CTL_CAME = 576,     // u32[MAXRANKS]: matmuls that gather (gather.h) entered by each peer
  CTL_GATHERED = 640, // u32[MAXRANKS]: the last of them for which each peer's rows have come
  CTL_SENT = 704,     // u32[MAXRANKS]: pieces sent to the k-th peer in this one
  CTL_TICKET = 768,   // u32: pieces dealt out in this one
  CTL_SENDERS = 772,  // u32: blocks that have seen the last
  CTL_EPOCH = 1024,   // u32[MAXBLOCKS]: collectives by packets without flags done, one copy per block
  CTL_LEPOCH = 2048,  // u32[MAXBLOCKS]: direct collectives done, one copy per block
  CTL_EXIT = 4096,    // u32[MAXBLOCKS][MAXRANKS]: direct collective left by each peer's block
  CTL_CHUNKS = 3072,  // u32[MAXBLOCKS]: chunks of push.h done, per block
  CTL_PUSHED = 32768, // u32[MAXBLOCKS][MAXRANKS]: chunks that each peer's block has staged here
  CTL_CREDIT = 49152, // u32[MAXBLOCKS][MAXRANKS]: chunks of ours that each peer's block has folded
  CTL_FLAGGED = 30720, // u32[MAXBLOCKS]: collectives by packets with flags done, one copy per block
  CTL_GATHERS = 31744, // u32[MAXBLOCKS]: matmuls that gather done, one copy per block
  CTL_CHANNEL = 20480, // per channel u32[MAXRANKS] signals by peer, u32[MAXRANKS] consumed; 64 channels
};

// Seg is one tensor of a bucket. bytes is the size of the piece that one rank
// contributes or receives (for all_reduce the whole tensor). unit0 is the index
// of its first unit among the units of all segments.
struct Seg {
  u64 src, dst, bytes;
  u32 unit0;
  u32 align; // log2 of the alignment that src, dst and bytes share, at most 4
};

// Args is what every collective kernel takes, by value.
struct Args {
  u64 peer[MAXRANKS]; // peer[k]: symmetric base of group rank (rank+k)%n; peer[0] is ours
  u64 ctl;            // our control page
  u64 host;           // host page that mirrors abort and record
  u64 timeout;        // nanoseconds a wait may last, 0 for ever
  u64 scratch;        // offset of the packet scratch from a base
  u64 half;           // bytes from one parity of the scratch to the other
  u64 slot;           // bytes of one source's slot
  u64 region;         // bytes from the first region of a parity to the second
  u32 n, rank;
  u32 units;          // of all segments together
  u32 per;            // units of one rank's slice where a kernel slices
  u32 op, dtype;
  u32 seq;            // the host's number for this call, for the error record
  u32 nseg;
};
struct Args1 {
  Args a;
  Seg seg[1];
};
struct ArgsN {
  Args a;
  Seg seg[MAXSEGS];
};

struct V4 {
  u32 x, y, z, w;
};
struct V2 {
  u64 x, y;
};

DEV u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEV u32 bid() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEV u32 nthreads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEV u32 nblocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEV void syncBlock() { __nvvm_bar_sync(0); }
DEV u64 now() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Weak accesses, for memory that no peer writes during the kernel.
DEV V4 ld4(u64 a) {
  V4 v;
  asm volatile("ld.global.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(a));
  return v;
}
DEV void st4(u64 a, V4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEV u64 ld8(u64 a) {
  u64 v;
  asm volatile("ld.global.b64 %0, [%1];" : "=l"(v) : "l"(a));
  return v;
}
DEV void st8(u64 a, u64 v) { asm volatile("st.global.b64 [%0], %1;" ::"l"(a), "l"(v) : "memory"); }
DEV u32 ld1(u64 a) {
  u32 v;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(v) : "l"(a));
  return v;
}
DEV void st1(u64 a, u32 v) { asm volatile("st.global.b32 [%0], %1;" ::"l"(a), "r"(v) : "memory"); }
DEV u32 ldByte(u64 a) {
  u32 v;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(a));
  return v;
}
DEV void stByte(u64 a, u32 v) { asm volatile("st.global.u8 [%0], %1;" ::"l"(a), "r"(v) : "memory"); }

// Strong accesses at system scope.
DEV V4 ld4sys(u64 a) {
  V4 v;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(a)
               : "memory");
  return v;
}
DEV void st4sys(u64 a, V4 v) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
DEV V2 ld2x8sys(u64 a) {
  V2 v;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0,%1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(a) : "memory");
  return v;
}
DEV void st2x8sys(u64 a, V2 v) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1,%2};" ::"l"(a), "l"(v.x), "l"(v.y) : "memory");
}
DEV u32 ldsys(u64 a) {
  u32 v;
  asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
  return v;
}
DEV void stsys(u64 a, u32 v) { asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(a), "r"(v) : "memory"); }
DEV u32 ldAcquire(u64 a) {
  u32 v;
  asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
  return v;
}
DEV void stRelease(u64 a, u32 v) { asm volatile("st.release.sys.global.b32 [%0], %1;" ::"l"(a), "r"(v) : "memory"); }
DEV void addRelease(u64 a, u32 v) {
  asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(a), "r"(v) : "memory");
}
DEV void addRelaxed(u64 a, u32 v) {
  asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(a), "r"(v) : "memory");
}
DEV u32 swapFirst(u64 a, u32 want, u32 v) { // compare and swap, gives the old value
  u32 o;
  asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(o) : "l"(a), "r"(want), "r"(v) : "memory");
  return o;
}
DEV void fenceSys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// ---- waiting ----------------------------------------------------------------

enum { SPINS = 1024 };
enum { CODE_TIMEOUT = 1, CODE_MISMATCH = 2 };

struct Wait {
  u64 start; // %globaltimer of the first slow look, 0 before
  u32 spins;
};

// cold keeps the compiler from computing ahead of time what only an error path needs.
DEV u64 cold(u64 v) {
  asm volatile("" : "+l"(v));
  return v;
}

DEV void abortAll(const Args &a) {
  u64 off = cold(a.ctl) - a.peer[0] + CTL_ABORT;
#pragma unroll 1
  for (u32 k = 0; k < a.n; k++)
    stsys(a.peer[k] + off, 1);
}

// report writes the error record once per rank and aborts the whole group.
// Words: claimed, code, seq, op, rank, peer, block, want, seen, 0, more: of a timeout the
// nanoseconds, of a mismatch the upper halves of want and seen.
DEV void report(const Args &a, u32 code, u32 peer, u32 want, u32 seen, u64 more) {
  if (swapFirst(cold(a.ctl) + CTL_RECORD, 0, 1) == 0) {
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
      u64 r = cold(i ? a.host : a.ctl) + CTL_RECORD;
      stsys(r + 4, code);
      stsys(r + 8, a.seq);
      stsys(r + 12, a.op);
      stsys(r + 16, a.rank);
      stsys(r + 20, peer);
      stsys(r + 24, bid());
      stsys(r + 28, want);
      stsys(r + 32, seen);
      stsys(r + 40, (u32)more);
      stsys(r + 44, (u32)(more >> 32));
      stRelease(r, 2);
    }
  }
  abortAll(a);
}

// quit aborts: it tells the host so, which reads it when the kernel has ended, and ends
// the thread. Barriers of the whole block do not wait for threads that have ended; not
// where others may wait at a barrier of a given number of threads.
[[noreturn]] DEV void quit(const Args &a) {
  asm volatile("st.relaxed.sys.global.b32 [%0+4], 1; exit;" ::"l"(a.host) : "memory"); // CTL_LEFT
  __builtin_unreachable();
}

// quitIf is quit without a branch, for the way of every call: code that is jumped over
// there takes as long as the lines of the instruction cache that it fills.
DEV void quitIf(const Args &a, u32 gone) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; @p st.relaxed.sys.global.b32 [%0+4], 1; @p exit;}" ::"l"(a.host), "r"(gone) : "memory");
}

// left tells the host what quit does, where the whole block returns.
DEV void left(const Args &a) { stsys(cold(a.host) + CTL_LEFT, 1); }

// patient counts a failed poll and says whether the next may follow at once.
DEV bool patient(Wait &w) { return __builtin_expect(++w.spins < SPINS, 1); }

// look is called when patience is over and says whether to abort; with QUIT it quits
// instead, else the caller has to say that it left. peer, want and seen go into the record.
template <bool QUIT> DEV bool look(const Args &a, Wait &w, u32 peer, u32 want, u32 seen) {
  w.spins = 0;
  if (ldsys(a.ctl + CTL_ABORT) == 0) {
    u64 t = now();
    if (w.start == 0)
      w.start = t;
    if (ldsys(a.host + CTL_ABORT) != 0)
      abortAll(a);
    else if (a.timeout != 0 && t - w.start > a.timeout)
      report(a, CODE_TIMEOUT, peer, want, seen, t - w.start);
    else
      return false;
  }
  if (QUIT)
    quit(a);
  return true;
}

// stuck is called after each failed poll and says whether to abort. Cheap until
// SPINS polls have failed.
DEV bool stuck(const Args &a, Wait &w, u32 peer, u32 want, u32 seen) {
  if (patient(w))
    return false;
  return look<false>(a, w, peer, want, seen);
}

// waitCounter waits until the counter at addr has reached want, wrap-safe, and
// acquires what its writer released. False means abort.
DEV bool waitCounter(const Args &a, u64 addr, u32 want, u32 peer) {
  Wait w = {0, 0};
  for (;;) {
    u32 v = ldAcquire(addr);
    if ((i32)(v - want) >= 0)
      return true;
    if (stuck(a, w, peer, want, v))
      return false;
  }
}

// Epochs. Each block reads its own copy; block b writes every copy c with
// c % nblocks == b, so all copies agree when the kernel has ended and no block
// reads a copy that another block of the same launch writes.
DEV u32 nextEpoch(u32 e) { return e == 0xffffffffu ? 2 : e + 1; } // 0 marks untouched packets; parity alternates
DEV u32 lastEpoch(const Args &a, u32 which) { return ld1(a.ctl + which + 4 * bid()); }
DEV u32 readEpoch(const Args &a, u32 which) { return nextEpoch(lastEpoch(a, which)); }
// opaque is e, but the compiler does not know. What a kernel computes from the epoch
// at its beginning is kept apart from what it computes at its end: else both are done
// before the first branch, which then waits for the epoch to arrive.
DEV u32 opaque(u32 e) {
  asm volatile("" : "+r"(e));
  return e;
}
DEV void writeEpoch(const Args &a, u32 which, u32 e) {
  for (u32 c = bid() + tid() * nblocks(); c < MAXBLOCKS; c += nthreads() * nblocks())
    st1(a.ctl + which + 4 * c, e);
}

// peerAt is the group rank of peer k, and nth the same in a group of N.
DEV u32 peerAt(const Args &a, u32 k) {
  u32 r = a.rank + k;
  return r >= a.n ? r - a.n : r;
}
template <int N> DEV u32 nth(const Args &a, u32 k) {
  u32 r = a.rank + k;
  return r >= N ? r - N : r;
}

// ---- units of segments --------------------------------------------------------

// Piece is where one unit of a bucket lies in its segment.
template <int UNIT> struct Piece {
  const Seg *s;
  u64 off;  // byte offset of the unit in the segment
  bool all; // whole and aligned to the unit
};

template <int UNIT, class A> DEV Piece<UNIT> find(const A &p, u32 unit) {
  Piece<UNIT> r;
  u32 i = 0;
  if (sizeof(A) != sizeof(Args1)) {
    u32 n = p.a.nseg;
    while (i + 1 < n && unit >= p.seg[i + 1].unit0)
      i++;
  }
  r.s = &p.seg[i];
  r.off = (u64)(unit - p.seg[i].unit0) * UNIT;
  r.all = p.seg[i].align >= (UNIT == 16 ? 4u : 3u) && r.off + UNIT <= p.seg[i].bytes;
  return r;
}

// Slow forms of a load and a store of up to 16 bytes: any alignment, cut at left
// bytes. Loops that stay loops, to keep the fast paths close together.
DEV V4 ld4any(u64 a, u64 left, u32 align) {
  u64 lo = 0, hi = 0;
  u32 n = left < 16 ? (u32)left : 16, step = align >= 2 && n == 16 ? 4 : 1;
#pragma unroll 1
  for (u32 i = 0; i < n; i += step) {
    u64 w = step == 4 ? ld1(a + i) : ldByte(a + i);
    lo |= i < 8 ? w << (8 * i) : 0;
    hi |= i < 8 ? 0 : w << (8 * i - 64);
  }
  return V4{(u32)lo, (u32)(lo >> 32), (u32)hi, (u32)(hi >> 32)};
}
DEV void st4any(u64 a, u64 left, u32 align, V4 v) {
  u64 lo = v.x | (u64)v.y << 32, hi = v.z | (u64)v.w << 32;
  u32 n = left < 16 ? (u32)left : 16, step = align >= 2 && n == 16 ? 4 : 1;
#pragma unroll 1
  for (u32 i = 0; i < n; i += step) {
    u32 w = (u32)(i < 8 ? lo >> (8 * i) : hi >> (8 * i - 64));
    if (step == 4)
      st1(a + i, w);
    else
      stByte(a + i, w & 255);
  }
}
DEV u64 ld8any(u64 a, u64 left) {
  u64 v = 0;
#pragma unroll 1
  for (u32 i = 0; i < 8 && i < left; i++)
    v |= (u64)ldByte(a + i) << (8 * i);
  return v;
}
DEV void st8any(u64 a, u64 left, u64 v) {
#pragma unroll 1
  for (u32 i = 0; i < 8 && i < left; i++)
    stByte(a + i, (u32)(v >> (8 * i)) & 255);
}

// load4 and store4 move unit p of the bytes at base (base is p.s->src, p.s->dst
// or a slice of them).
DEV V4 load4(const Piece<16> &p, u64 base) {
  if (__builtin_expect(p.all, 1))
    return ld4(base + p.off);
  return ld4any(base + p.off, p.s->bytes - p.off, p.s->align);
}
DEV void store4(const Piece<16> &p, u64 base, V4 v) {
  if (__builtin_expect(p.all, 1))
    st4(base + p.off, v);
  else
    st4any(base + p.off, p.s->bytes - p.off, p.s->align, v);
}
DEV u64 load8(const Piece<8> &p, u64 base) {
  if (__builtin_expect(p.all, 1))
    return ld8(base + p.off);
  return ld8any(base + p.off, p.s->bytes - p.off);
}
DEV void store8(const Piece<8> &p, u64 base, u64 v) {
  if (__builtin_expect(p.all, 1))
    st8(base + p.off, v);
  else
    st8any(base + p.off, p.s->bytes - p.off, v);
}

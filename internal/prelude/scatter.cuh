// Updates at positions that a tensor holds. A block sorts the positions of its rows in shared
// memory, so that each row's are next to each other and in order. Where rows are few, threads, and
// blocks of a cluster, sum shares of a row's updates, which are then folded in a fixed order.
#if defined(__CUDA_ARCH__) && !defined(EXACT_MATH)
#define SHARES(n) n // threads that have shares of an element's sum; one where it is the host's bit by bit
#define PARTS(n) CLUSTER_SIZE(n) // blocks of a cluster that have such shares
#else
#define SHARES(n) 1
#define PARTS(n) 1
#endif

// rank_key of integers, which have no number that is none.
template <bool largest> FN u64 rank_key64(i64 x) {
  const u64 up = (u64)x ^ 0x8000000000000000ull;
  return largest ? ~up : up;
}
template <bool largest> FN u64 rank_key64(u64 x) { return largest ? ~x : x; }

// own_row is which of a block's rows one is, below 0 if none: it has one of every stride groups
// of neighbours, counted from the first.
template <int group, int stride> FN i64 own_row(i64 row) {
  if (row < 0 || stride == 1) return row;
  const unsigned g = (unsigned)row / group;
  return g % stride != 0 ? -1 : (i64)(g / stride * group + (unsigned)row % group);
}

// first_listed is where the entries of a row begin, or would, in a sorted list.
template <int bits> FN int first_listed(const int* list, int listed, int row) {
  int low = 0;
  for (int high = listed; low < high;) {
    const int middle = (low + high) / 2;
    if (list[middle] >> bits < row) low = middle + 1;
    else high = middle;
  }
  return low;
}

// What sort_rows sorts: entry k, less than 0 if there is none.
template <int bits, int group, int stride, class I> struct Places {
  const I* index;
  i64 size, low;
  int rows;
  bool wrap;
  FN_MEMBER int operator()(int k) const {
    const i64 row = own_row<group, stride>(position(load(index + k), size, wrap) - low);
    return row < 0 || row >= rows ? -1 : (int)row << bits | k;
  }
};
struct Entries {
  const int* list;
  FN_MEMBER int operator()(int k) const { return list[k]; }
};

#ifdef AT_ONCE
// sort_digit writes those of n entries that are there to a list, by a digit of some bits and
// else in order. It returns how many they are; if more than capacity it writes none.
template <int threads, int digit, class Get> FN int sort_digit(int* to, Get get, int n, int shift, int capacity) {
  constexpr int warps = threads / 32, batch = 8;
  __shared__ int counts[threads]; // of each value of the digit, of which there are 32, those of each warp
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = (n + threads - 1) / threads * 32, first = warp * share, end = first + share < n ? first + share : n;
  const bool few = share <= batch * 32; // each thread's stay in registers
  int mine[batch];
  i64 all = 0;
  counts[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
#pragma unroll 1
    for (int k0 = first; k0 < end; k0 += 32 * batch) {
      if (pass == 0 || !few) {
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const int k = k0 + b * 32 + lane;
          mine[b] = k < end ? get(k) : -1;
        }
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        if (k0 + b * 32 >= end) break; // so for all of the warp
        unsigned same = __ballot_sync(0xffffffffu, mine[b] >= 0);
        const int value = mine[b] >> shift & ((1 << digit) - 1);
#pragma unroll
        for (int d = 0; d < digit; ++d) {
          const bool bit = value >> d & 1;
          const unsigned with = __ballot_sync(0xffffffffu, bit);
          same &= bit ? with : ~with;
        }
        if (mine[b] < 0) same = 0;
        const int before = __popc(same & ((1u << lane) - 1));
        int* const count = counts + value * warps + warp;
        const int at = *count;
        __syncwarp();
        if (same != 0 && before == 0) *count = at + __popc(same);
        __syncwarp();
        if (pass == 1 && same != 0) to[at + before] = mine[b];
      }
    }
    if (pass == 1) break;
    __syncthreads();
    const i64 before = scan_lanes<threads>((i64)counts[threadIdx.x], all);
    if (all > capacity) return -1; // so for all of the block
    counts[threadIdx.x] = (int)before;
    __syncthreads();
  }
  __syncthreads();
  return (int)all;
}

// sort_rows lists the positions in index[0..n) that are among the block's rows, sorted by row
// and of equal rows in order: each entry is the row and, in the low bits, the offset in the
// index. It returns how many there are, -1 if they are more than capacity. All threads of the
// block call it; rows have some digits, and spare is as long as the list, not used if they are 5 or less.
template <int threads, int bits, int digits, int group, int stride, class I>
FN int sort_rows(int* list, int* spare, const I* index, int n, i64 size, bool wrap, i64 low, int rows, int capacity) {
  constexpr int passes = digits > 5 ? (digits + 4) / 5 : 1;
  int *to = passes % 2 ? list : spare, *from = passes % 2 ? spare : list;
  __syncthreads(); // lists before this one may still be read
  n = sort_digit<threads, (digits < 5 ? digits : 5)>(to, Places<bits, group, stride, I>{index, size, low, rows, wrap}, n, bits, capacity);
#pragma unroll 1
  for (int pass = 1; pass < passes && n > 0; ++pass) {
    int* const swap = to;
    to = from;
    from = swap;
    sort_digit<threads, 5>(to, Entries{from}, n, bits + 5 * pass, capacity);
  }
  return n;
}

#else
template <int threads, int bits, int digits, int group, int stride, class I>
FN int sort_rows(int* list, int* spare, const I* index, int n, i64 size, bool wrap, i64 low, int rows, int capacity) {
  if (is_listed(list, index, n, low)) return last_listed().all;
  const int places_read = n;
  constexpr int passes = digits > 5 ? (digits + 4) / 5 : 1;
  const Places<bits, group, stride, I> places = {index, size, low, rows, wrap};
  int *to = passes % 2 ? list : spare, *from = passes % 2 ? spare : list;
  for (int pass = 0; pass < passes; ++pass) {
    int counts[33] = {}, all = n;
    for (int fill = 0; fill < 2; ++fill) {
      for (int k = 0; k < all; ++k) {
        const int entry = pass == 0 ? places(k) : from[k];
        if (entry < 0) continue;
        int* const count = counts + (entry >> (bits + 5 * pass) & 31) + !fill;
        if (fill) to[*count] = entry;
        ++*count;
      }
      if (fill) break;
      for (int d = 0; d < 32; ++d) counts[d + 1] += counts[d];
      if (counts[32] > capacity) {
        last_listed() = Listed{list, index, low, places_read, -1};
        return -1;
      }
    }
    n = counts[32];
    int* const swap = to;
    to = from;
    from = swap;
  }
  last_listed() = Listed{list, index, low, places_read, n};
  return n;
}
#endif

// Softmax and sums of single precision are computed in double under EXACT_MATH.
#ifdef EXACT_MATH
typedef f64 soft32;
typedef f64 sum32;
#else
typedef f32 soft32;
typedef f32 sum32;
#endif
FN f64 soft_exp(f64 x) { return exp(x); }
FN f64 soft_log(f64 x) { return log(x); }
FN f32 soft_exp(f32 x) { return exp_of(x); }
FN f32 soft_log(f32 x) { return logf(x); }
FN f32 mean_of(f32 sum, i64 n) { return mul_rn(sum, 1.0f / (f32)n); }
FN f64 mean_of(f64 sum, i64 n) { return div_rn(sum, (f64)n); }

// Reductions. Each lane folds its share in ascending order, then the lanes' shares
// are folded in a fixed order, so that equal inputs give equal bits.
struct Sum { template <class T> FN_MEMBER T operator()(T a, T b) const { return add_of(a, b); } };
struct Product { template <class T> FN_MEMBER T operator()(T a, T b) const { return mul_of(a, b); } };
struct Largest { template <class T> FN_MEMBER T operator()(T a, T b) const { return maximum_of(a, b); } };
struct Smallest { template <class T> FN_MEMBER T operator()(T a, T b) const { return minimum_of(a, b); } };
// The first largest element; NaN counts as largest. at < 0 stands for none yet.
template <class T> struct best { T value; i64 at; };
struct First {
  template <class T> FN_MEMBER best<T> operator()(best<T> a, best<T> b) const {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    const bool na = a.value != a.value, nb = b.value != b.value;
    if (na != nb) return na ? a : b;
    if (!na && a.value != b.value) return a.value > b.value ? a : b;
    return a.at < b.at ? a : b;
  }
};

// The same of a window, where of those that are no numbers the last counts.
struct FirstOrNoNumber {
  template <class T> FN_MEMBER best<T> operator()(best<T> a, best<T> b) const {
    return a.value != a.value && b.value != b.value ? (a.at < b.at ? b : a) : First()(a, b);
  }
};

// The order of topk: best first, of equals the one with the lower position.
template <bool largest, class T> FN bool ahead(best<T> a, best<T> b) {
  const bool na = a.value != a.value, nb = b.value != b.value;
  if (na != nb) return largest ? na : nb;
  if (!na && a.value != b.value) return largest ? a.value > b.value : a.value < b.value;
  return a.at < b.at;
}
template <bool largest> struct Ahead {
  template <class T> FN_MEMBER best<T> operator()(best<T> a, best<T> b) const {
    return a.at < 0 ? b : b.at < 0 ? a : ahead<largest>(a, b) ? a : b;
  }
};

// Numbers as integers that ascend from best to worst. Zeros are equal, and so is all
// that is not a number. None is 0xffffffff.
template <bool largest> FN unsigned rank_key(f32 x) {
  const unsigned b = bits_of(x == 0 ? 0.0f : x);
  const unsigned up = x != x ? 0xff800001u : b >> 31 ? ~b : b | 0x80000000u;
  return largest ? ~up : up;
}

// The largest element so far and the sum of exp(x - largest), which one walk over a
// row finds together: the sum shrinks whenever a larger element comes.
struct online { f32 top, sum; };
FN f32 online_base(f32 top) { return top == -inf_of<f32>() ? 0.0f : top; }
template <int n> FN void online_step(online& o, const f32 (&x)[n]) {
  f32 top = o.top;
  for (int v = 0; v < n; ++v) top = maximum_of(top, x[v]);
  const f32 base = online_base(top);
  f32 sum = o.sum * soft_exp(o.top - base);
  for (int v = 0; v < n; ++v) sum += soft_exp(x[v] - base);
  o.top = top;
  o.sum = sum;
}
FN f32 online_sum(const online& o) { return o.top == -inf_of<f32>() ? nan_of<f32>() : o.sum; }
struct Online {
  FN_MEMBER online operator()(online a, online b) const {
    const f32 top = maximum_of(a.top, b.top), base = online_base(top);
    return online{top, a.sum * soft_exp(a.top - base) + b.sum * soft_exp(b.top - base)};
  }
};

// Which of the rows 0, stride, 2 * stride, ... one is, below 0 if none.
template <int stride> FN i64 nth_row(i64 row) {
  if (stride == 1) return row;
  return row < 0 || (unsigned)row % stride != 0 ? -1 : (unsigned)row / stride; // there are fewer than 2^31
}

#ifdef AT_ONCE
template <class T> FN T exchange(T x, int m) { return __shfl_xor_sync(0xffffffffu, x, m); }
template <class T> FN best<T> exchange(best<T> x, int m) { return best<T>{exchange(x.value, m), exchange(x.at, m)}; }
FN online exchange(online x, int m) { return online{exchange(x.top, m), exchange(x.sum, m)}; }
FN void sync_block() { __syncthreads(); }
FN void atomic_max(int* p, int k) { atomicMax(p, k); }

// fold_lanes gives every lane the fold of its row's lanes, neighbours all of them.
// All threads of the block must call it.
template <int lanes, int rows, class T, class F> FN T fold_lanes(T x, F f) {
#pragma unroll
  for (int m = 1; m < lanes && m < 32; m *= 2) x = f(x, exchange(x, m));
  if (lanes <= 32) return x;
  constexpr int warps = lanes > 32 ? lanes / 32 : 1;
  __shared__ T part[warps * rows];
  __syncthreads(); // a fold before this one may still be read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = part[threadIdx.x / lanes * warps + threadIdx.x % warps];
#pragma unroll
  for (int m = 1; m < warps; m *= 2) x = f(x, exchange(x, m));
  return x;
}

// scan_lanes gives every lane the sum of what the lanes before it have, and all that of
// all. All threads of the block must call it.
template <int lanes, class T> FN T scan_lanes(T x, T& all) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int m = 1; m < 32; m *= 2) {
    const T y = __shfl_up_sync(0xffffffffu, x, m);
    if (lane >= m) x = add_of(y, x);
  }
  __shared__ T part[lanes / 32];
  __syncthreads(); // a scan before this one may still be read
  if (lane == 31) part[warp] = x;
  __syncthreads();
  T before = 0;
  all = 0;
  for (int w = 0; w < lanes / 32; ++w) {
    if (w == warp) before = all;
    all = add_of(all, part[w]);
  }
  const T prev = __shfl_up_sync(0xffffffffu, x, 1);
  return lane == 0 ? before : add_of(before, prev);
}

// fold_columns gives every lane the folds of its n columns. Threads next to each
// other have columns next to each other, the lanes of a column are cols threads apart.
template <int lanes, int cols, int n, class T, class F> FN void fold_columns(T (&x)[n], F f) {
  if (lanes == 1) return;
#pragma unroll
  for (int m = cols; m < 32; m *= 2) {
#pragma unroll
    for (int v = 0; v < n; ++v) x[v] = f(x[v], exchange(x[v], m));
  }
  constexpr int warps = lanes * cols / 32 > 0 ? lanes * cols / 32 : 1; // of the block
  constexpr int width = cols < 32 ? cols : 32;                         // columns that a warp has
  constexpr int groups = cols / width;                                 // of warps with the same columns: warps / groups
  constexpr int each = warps / groups > 0 ? warps / groups : 1;
  if (each == 1) return;
  __shared__ T part[warps][width * n + 1];
  __syncthreads(); // a fold before this one may still be read
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane < width) {
#pragma unroll
    for (int v = 0; v < n; ++v) part[warp][lane * n + v] = x[v];
  }
  __syncthreads();
  // As many threads as there are shares fold one column each.
  const int subgroup = threadIdx.x / each, k = threadIdx.x % each;
  for (int j0 = 0; j0 < groups * width * n; j0 += warps * 32 / each) {
    const int j = j0 + subgroup, group = j / (width * n), column = j % (width * n);
    const bool some = group < groups;
    T y = T();
    if (some) y = part[k * groups + group][column];
#pragma unroll
    for (int m = 1; m < each; m *= 2) y = f(y, exchange(y, m));
    if (some && k == 0) part[group][column] = y; // only this subgroup reads the shares of the column
  }
  __syncthreads();
#pragma unroll
  for (int v = 0; v < n; ++v) x[v] = part[warp % groups][lane % width * n + v];
}

#if defined(DEVICE_CLUSTERS) && __CUDA_ARCH__ >= 900
FN void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// of_block is where another block of the cluster has what is at p in shared memory.
template <class T> FN const T* of_block(const T* p, int rank) {
  u64 q;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(q) : "l"((u64)p), "r"(rank));
  return (const T*)q;
}
#elif defined(DEVICE_CLUSTERS)
FN void sync_cluster() {}
template <class T> FN const T* of_block(const T* p, int) { return p; }
#endif

// Columns is what a thread has of one fold: the value of a row, or those of n columns.
template <class X> struct Columns {
  typedef X type;
  static constexpr int n = 1;
  static FN_MEMBER X& at(X& x, int) { return x; }
};
template <class T, int size> struct Columns<T[size]> {
  typedef T type;
  static constexpr int n = size;
  static FN_MEMBER T& at(T (&x)[size], int v) { return x[v]; }
};
// ClusterFold is one of the folds that a cluster makes together: the block's shares of cols times n
// columns, which the other blocks read, and what they fold to.
template <int id, int cols, class X> struct ClusterFold {
  typedef Columns<X> C;
  typedef typename C::type T;
  static constexpr int size = cols * C::n;
  static FN_MEMBER T* memory() { __shared__ T shares[2 * size]; return shares; }
  static FN_MEMBER void put(X& x) {
    if (threadIdx.x < cols) {
#pragma unroll
      for (int v = 0; v < C::n; ++v) memory()[threadIdx.x * C::n + v] = C::at(x, v);
    }
  }
  template <int cluster, class F> static FN_MEMBER void fold(F f) {
    for (int j = threadIdx.x; j < size; j += blockDim.x) {
      T y = *of_block(memory() + j, 0);
#pragma unroll
      for (int k = 1; k < cluster; ++k) y = f(y, *of_block(memory() + j, k));
      memory()[size + j] = y;
    }
  }
  static FN_MEMBER void take(X& x) {
#pragma unroll
    for (int v = 0; v < C::n; ++v) C::at(x, v) = memory()[size + threadIdx.x % cols * C::n + v];
  }
};
template <int id, int cols> FN void put_shares() {}
template <int id, int cols, class X, class F, class... More> FN void put_shares(X& x, F, More&&... more) {
  ClusterFold<id, cols, X>::put(x);
  put_shares<id + 1, cols>(more...);
}
template <int id, int cluster, int cols> FN void fold_shares() {}
template <int id, int cluster, int cols, class X, class F, class... More> FN void fold_shares(X&, F f, More&&... more) {
  ClusterFold<id, cols, X>::template fold<cluster>(f);
  fold_shares<id + 1, cluster, cols>(more...);
}
template <int id, int cols> FN void take_folds() {}
template <int id, int cols, class X, class F, class... More> FN void take_folds(X& x, F, More&&... more) {
  ClusterFold<id, cols, X>::take(x);
  take_folds<id + 1, cols>(more...);
}

// fold_cluster gives every thread of a cluster the folds of what fold_lanes or fold_columns has
// left in all lanes of its blocks: x[0], f[0], x[1], f[1] and so on, all with one exchange.
template <int cluster, int cols, class... Folds> FN void fold_cluster(Folds&&... folds) {
  if (cluster == 1) return;
  put_shares<0, cols>(folds...);
  sync_cluster();
  fold_shares<0, cluster, cols>(folds...);
  sync_cluster(); // before a block ends, or has other shares, all have read these
  take_folds<0, cols>(folds...);
}

// list_rows lists the positions in index[0..n) that are one of the rows low, low + stride,
// ..., in order: each entry is the offset in the index times rows, plus which row it is. It
// returns how many there are, -1 if they are more than capacity. All threads of the block call it.
template <int threads, int stride = 1, class I>
FN int list_rows(int* list, const I* index, int n, i64 size, bool wrap, i64 low, int rows, int capacity = 0x7fffffff) {
  constexpr int warps = threads / 32, batch = 16;
  __shared__ int found[warps];
  // Every warp has a run of the index, of which it reads 32 at a time, and
  // once if they are few.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = (n + warps * 32 - 1) / (warps * 32) * 32, first = warp * share, end = first + share < n ? first + share : n;
  const bool few = share <= batch * 32;
  i64 at[batch];
  int to = 0;
#pragma unroll
  for (int pass = 0; pass < 2; ++pass) {
    for (int k0 = first; k0 < end; k0 += 32 * batch) {
      if (pass == 0 || !few) {
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const int k = k0 + b * 32 + lane;
          at[b] = k < end ? load(index + k) : 0;
        }
#pragma unroll
        for (int b = 0; b < batch; ++b) at[b] = nth_row<stride>(position(at[b], size, wrap) - low);
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int k = k0 + b * 32 + lane;
        const bool mine = k < end && at[b] >= 0 && at[b] < rows;
        const unsigned all = __ballot_sync(0xffffffffu, mine);
        if (pass == 1 && mine) list[to + __popc(all & ((1u << lane) - 1))] = k * rows + (int)at[b];
        to += __popc(all);
      }
    }
    if (pass == 1) break;
    if (lane == 0) found[warp] = to;
    __syncthreads();
    to = 0;
    for (int w = 0; w < warp; ++w) to += found[w];
    int all = 0;
    for (int w = 0; w < warps; ++w) all += found[w];
    if (all > capacity) return -1; // so for all of the block
  }
  int all = 0;
  for (int w = 0; w < warps; ++w) all += found[w];
  __syncthreads();
  return all;
}

// rows_listed has a bit for each row, of 32 at most, that such a list has entries of.
template <int threads> FN unsigned rows_listed(const int* list, int listed, int rows) {
  __shared__ unsigned all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  unsigned mine = 0;
  for (int e = threadIdx.x; e < listed; e += threads) mine |= 1u << list[e] % rows;
  if (mine != 0) atomicOr(&all, mine);
  __syncthreads();
  return all;
}
#else
FN void sync_block() {}
FN void atomic_max(int* p, int k) { *p = k > *p ? k : *p; }
template <int lanes, int rows, class T, class F> FN T fold_lanes(T x, F) { return x; }
template <int lanes, class T> FN T scan_lanes(T x, T& all) { all = x; return 0; }
template <int lanes, int cols, int n, class T, class F> FN void fold_columns(T (&)[n], F) {}
template <int cluster, int cols, class... Folds> FN void fold_cluster(Folds&&...) {}
// Threads of a block run one after the other here: a list that the first has made is there for the
// others, unless another was made since.
struct Listed {
  const void *list, *index;
  i64 low;
  int n, all;
};
FN Listed& last_listed() {
  __shared__ Listed last;
  return last;
}
FN bool is_listed(const void* list, const void* index, int n, i64 low) {
  const Listed& l = last_listed();
  return threadIdx.x != 0 && l.list == list && l.index == index && l.n == n && l.low == low;
}
template <int threads, int stride = 1, class I>
FN int list_rows(int* list, const I* index, int n, i64 size, bool wrap, i64 low, int rows, int capacity = 0x7fffffff) {
  if (is_listed(list, index, n, low)) return last_listed().all;
  int all = 0;
  for (int k = 0; k < n; ++k) {
    const i64 at = nth_row<stride>(position(load(index + k), size, wrap) - low);
    if (at < 0 || at >= rows) continue;
    if (all == capacity) {
      all = -1;
      break;
    }
    list[all++] = k * rows + (int)at;
  }
  last_listed() = Listed{list, index, low, n, all};
  return all;
}
template <int threads> FN unsigned rows_listed(const int* list, int listed, int rows) {
  unsigned all = 0;
  for (int e = 0; e < listed; ++e) all |= 1u << list[e] % rows;
  return all;
}
#endif

// Package cudagen generates CUDA source for regions of a graph: elementwise
// operations, reductions along one set of dimensions, softmax, running sums, and
// data movement that only changes the index, fused into one kernel. A single node
// is a region too, which is how unfused operations get their kernel.
//
// # Numbers
//
// Every operation computes and rounds as the host's kernels do (internal/hostops):
// operands are widened to f32 (f64, i64), the operation is computed, and its
// result is rounded once to the node's element type, even if it never reaches
// memory. Fusion therefore changes no bit. Transcendental functions and quotients
// are the device's, a few units in the last place off, exp of x in f32 up to |x| of them more, as in
// Triton's kernels. Sums of floats stay in single precision, each thread's partial sum in order and the partial sums as a tree:
// equal inputs give equal bits. With the macro EXACT_MATH functions and sums are
// computed in double precision, which agrees with the host to the last bit and is
// how the generator is tested.
//
// # How a kernel is generated
//
// Values are not materialised: each is an expression of an index. The generator asks
// for the results at the current index, and every operation asks for its operands
// at the index that it needs: an elementwise operation at the same one, a permutation,
// a slice or a cat at another, a gather at one that it has loaded. Indices are
// sums of multiples of loop variables, quotients and remainders (internal/index), so that
// inverse reshapes cancel, and so that the generator can tell which tensors
// are contiguous along a thread's walk: those are accessed 16 bytes at a time.
//
// Without reductions each thread handles some consecutive elements of the results,
// or the same elements of forward and backward of a row where cat joins the halves
// (rotary embeddings), since both come from the same operands.
// With reductions, a warp or a block walks the columns of a row, once for each
// level of dependent reductions, and once more for results
// that have columns. Operands are read again in every walk; they come from the
// caches. Where rows are adjacent in memory (a sum over the outer
// dimension), neighbouring threads take neighbouring rows. Rows that are long and too few to fill
// the device are shared by the blocks of a cluster.
//
// Scatters are computed in gather form: whoever computes an element searches for the updates
// to it (pull.go), so that updates are added in the order of their indices: a block first lists
// the indices in its rows (lists.go), sorted by row where rows are narrow (sorted.go). Where
// elements are few, several threads have one, or several blocks of a cluster, each of which
// sums a share of the updates; with EXACT_MATH one has all. topk counts for each element those
// before it.
//
// The text is a function of the region alone: no map is iterated, nothing is
// measured. Its key, with the compiler's options, names a compiled image in a cache.
//
// # Dynamic dimensions
//
// Dynamic sizes are parameters of the kernel (sized.go), and the number of blocks of a launch is an
// expression over them. Indices are formed as usual: a product, a quotient or
// a remainder by such a size is an atom of its own. Work is divided by the
// bounds. Where the size is a number of independent rows, or everything is
// elementwise on one shape, the kernel is that of the bounds, cut off at the last
// row or element (bounds.go). An update of rows at indices fuses with elementwise
// operations before and after it. All other operations get separate kernels.
//
// # Limits
//
// Not supported in a region: nodes with effects, as_strided of a computed value, reductions of
// several shapes, and several dynamic sizes mixed; all
// give an [UnsupportedError], which is [ErrUnsupported]. Operands must be 16-byte aligned
// where their storages are in the program.
package cudagen

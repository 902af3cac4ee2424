// Package cudagen writes CUDA source for regions of a graph: elementwise
// operations, reductions along one set of dimensions, softmax, running sums, and
// data movement that is nothing but another index, fused into one kernel. One node
// is a region too, which is how operations that stand alone get their kernel.
//
// # Numbers
//
// Every operation computes and rounds as the host's kernels do (internal/hostops):
// operands are widened to f32 (f64, i64), the operation is computed, and its
// result is rounded once to the node's element type, also where it never reaches
// memory. Fusing therefore changes no bit. Transcendental functions and quotients
// are those of the device, a few units in the last place off, and sums of floats
// stay in single precision, each thread's share in order and the shares as a tree:
// equal inputs give equal bits. With the macro EXACT_MATH functions and sums are
// computed in double precision, which agrees with the host to the last bit and is
// how the generator is tested.
//
// # How a kernel is made
//
// Values are not laid out: each is an expression of an index. The generator asks
// for the results at the index at hand, and every operation asks for its operands
// at the index that it needs: an elementwise operation at the same, a permutation,
// a slice or a cat at another one, a gather at one that it has loaded. Indices are
// sums of multiples of loop variables, quotients and remainders (expr.go), so that
// reshapes that undo each other vanish, and so that it can be told which tensors
// lie in memory the way a thread walks: those move 16 bytes at a time.
//
// Without reductions each thread handles some consecutive elements of the results,
// or the same elements of both halves of a row where halves are put together by cat
// (a rotation of pairs): either is computed from both.
// With reductions, a warp or a block walks the columns of a row, once for each
// level of reductions that need each other's results, and once more for results
// that have columns. Operands are read again in every walk; they come from the
// caches. Where rows lie beside each other in memory (a sum over the outer
// dimension), neighbouring threads take neighbouring rows.
//
// What is written at positions that a tensor holds is looked for by who computes an
// element (pull.go), so that the order of what is added is that of the positions:
// a block first lists the positions in its rows. topk counts for each element those
// before it.
//
// The text is a function of the region alone: no map is walked, nothing is
// measured. Its key, with the compiler's options, names a compiled image in a cache.
//
// # Sizes known at run time only
//
// They are parameters of the kernel (sized.go), and how many blocks a launch needs is an
// expression over them. Indices are made of them as of numbers: a product, a quotient or
// a remainder by such a size is an atom of its own (expr.go). Work is divided by the
// bounds. Where the sizes are a number of rows that follow each from its own, or all is
// elementwise on one shape, a region is the kernel of the bounds, which ends at the last
// row or element (bounds.go). An update of rows at positions takes in elementwise
// operations in front of it and behind it. Of the others each has a kernel by itself.
//
// # Limits
//
// Nodes with effects are refused, as_strided of a computed value, reductions of several
// shapes in one region, and regions that mix several sizes known at run time only; all
// by an [UnsupportedError], which is [ErrUnsupported]. Operands have to start at multiples of 16
// bytes where their storages do in the program.
package cudagen

package cudagen

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/fusion"
	"github.com/seed-ee968945/concert/ir"
)

// innerReduced is the product of the reduced dimensions inside all that are kept.
func (f *form) innerReduced() int64 {
	n := int64(1)
	for d := len(f.shape) - 1; d >= 0 && (f.isReduced[d] || f.shape[d] == 1); d-- {
		n *= f.shape[d]
	}
	return n
}

// contiguousDim is the dimension along which most bytes of the tensors that have all rows and
// columns are contiguous in memory, -1 if no tensor says. Operands count twice: they are read in
// every walk.
func (f *form) contiguousDim(r *region) int {
	bytes := make([]int64, len(f.shape))
	add := func(v *ir.Value, times int64) {
		strides := v.Type().Strides()
		if !slices.Equal(sizes(v), f.shape) || slices.Contains(strides, 0) {
			return
		}
		for d, s := range strides {
			if s == 1 && f.shape[d] > 1 {
				bytes[d] += times * int64(v.Type().DType().Size())
			}
		}
	}
	seen := map[*ir.Value]bool{} // look-up only
	for _, n := range r.nodes {
		for _, v := range n.Args() {
			if (r.Given(v) || v.Def().Op().IsView()) && !seen[v] {
				add(v, 2)
			}
			seen[v] = true
		}
	}
	for _, v := range r.outs {
		add(v, 1)
	}
	best := -1
	for d, n := range bytes {
		if n > 0 && (best < 0 || n >= bytes[best]) {
			best = d
		}
	}
	return best
}

// walksRows reports whether lanes that are neighbours have columns that are neighbours, which is
// where memory is contiguous along columns. Else they have rows. Where all columns are inside all
// rows, so are results that have both: what is read across them stays in L1, while
// what is written across would be written element by element.
func (f *form) walksRows(r *region) bool {
	inner := f.innerReduced()
	if f.dynamic || f.dynamicLength || inner == f.length && slices.ContainsFunc(r.outs, f.full) {
		return inner == f.length
	}
	if d := f.contiguousDim(r); d >= 0 && (d != len(f.shape)-1 || inner == 1) {
		return f.isReduced[d]
	}
	return inner == f.length || inner >= 16
}

// planRows gives a row to a group of lanes, a block of them if it is long.
func (f *form) planRows(r *region, narrow int64) {
	inner := f.innerReduced()
	if d := f.contiguousDim(r); d >= 0 && inner == 1 && d == slices.Index(f.isReduced, true) && f.length == f.shape[d] {
		inner = f.length
	}
	f.width = commonPowerOfTwo(min(16/narrow, f.maxWidth), inner)
	if f.dynamicLength {
		f.width = commonPowerOfTwo(f.width, innermostSize(f.reducedSizes))
	}
	units := f.length / f.width
	switch {
	case f.length <= 1024:
		f.lanes = 1
		for int64(f.lanes) < units && f.lanes < 32 {
			f.lanes *= 2
		}
		f.rowsPerBlock = max(128/f.lanes, 1)
	case f.length <= 16384:
		f.lanes, f.rowsPerBlock = 256, 1
		f.planCluster(r, f.count, units/int64(f.lanes))
		if f.count*int64(f.cluster) < manyBlocks {
			f.lanes = 1024
		}
		for f.lanes > 64 && int64(f.lanes*f.cluster) > units {
			f.lanes /= 2
		}
	default:
		f.lanes, f.rowsPerBlock = 512, 1
		f.planCluster(r, f.count, units/int64(f.lanes))
		if f.count*int64(f.cluster) < multiprocs {
			f.lanes = 1024
		}
	}
	f.block = f.lanes * f.rowsPerBlock
	if n := int64(f.lanes*f.cluster) * f.width; !f.dynamicLength && f.length%n == 0 && f.length/n <= 8 {
		f.cached = f.length / n
	}
}

// planColumns gives runs of rows that are adjacent in memory to threads
// that are neighbours, and parts of a row to lanes.
func (f *form) planColumns(r *region, narrow int64) {
	inner := []int64{f.count, innermostSize(f.keptSizes)}
	for _, v := range r.outs {
		if v.Type().Rank() > 0 && elements(v).Equal(f.keptSizes.NumElems()) {
			inner = append(inner, innermostSize(v.Type().Shape()))
		}
	}
	f.columns = true
	f.width = commonPowerOfTwo(min(16/narrow, f.maxWidth), inner...)
	if f.dynamic {
		f.width = 1
	}
	for _, n := range r.nodes {
		if n.Op() == ir.OpArgmax {
			f.width = 1 // its shares are large
		}
	}
	runs := f.count / f.width
	if f.length <= 16 {
		f.lanes, f.rowsPerBlock, f.block = 1, 128, 128
		return
	}
	f.rowsPerBlock = 32
	for f.rowsPerBlock > 1 && runs/int64(f.rowsPerBlock) < multiprocs && int64(f.rowsPerBlock)*f.width*narrow > sector {
		f.rowsPerBlock /= 2
	}
	if blocks := runs / int64(f.rowsPerBlock); f.rowsPerBlock > 1 && blocks*clusterBlocks < multiprocs && f.length >= 8192 {
		f.rowsPerBlock /= 2 // half a sector: L2 has the other half by then
	}
	most := 1024
	if int64(f.rowsPerBlock)*f.width > 64 {
		most = 512 // the shares of a block have to fit
	}
	f.lanes = 1
	for f.lanes*f.rowsPerBlock < most && (int64(f.lanes)*4 < f.length || f.lanes*f.rowsPerBlock < 32) {
		f.lanes *= 2
	}
	for f.block = f.lanes * f.rowsPerBlock; f.block > 32 && f.columnBytes(r) > sharedBytes; f.block /= 2 {
		f.lanes /= 2
	}
	f.planCluster(r, (runs+int64(f.rowsPerBlock)-1)/int64(f.rowsPerBlock), f.length/int64(f.lanes))
}

// columnBytes is the shared memory of a block that folds columns, at most: fold_columns has shares of all
// warps for each type and operation, fold_cluster those of the block, and what they fold to, for each fold.
func (f *form) columnBytes(r *region) (bytes int64) {
	columns := int64(f.rowsPerBlock) * f.width
	seen := map[accumulator]bool{} // look-up only
	for _, n := range r.nodes {
		if _, ok := fusion.ReducedDims(n); !ok {
			continue
		}
		for part := range 2 {
			if part == 1 && !isSoftmax(n) {
				continue
			}
			a, _ := accumulatorOf(reduction{n, part})
			size := int64(8)
			switch {
			case a.functor == "First":
				size = 16
			case a.typ == "f32" || a.typ == "sum32" || a.typ == "soft32":
				size = 4
			}
			if bytes += 2 * columns * size; !seen[a] {
				bytes += int64(f.block/32) * (columns + 1) * size
			}
			seen[a] = true
		}
	}
	return bytes
}

// planCluster shares each row among the blocks of a cluster, where rows are so few that blocks do
// not fill the device, and so long that what the others read outweighs waiting for them. On an H200
// a fold over a cluster takes 2 us, 4 with several columns, and a multiprocessor reads 50 bytes a nanosecond.
func (f *form) planCluster(r *region, blocks, trips int64) {
	f.cluster = 1
	if f.dynamic {
		return
	}
	fold := int64(2000)
	if f.columns {
		fold = 4000
	}
	folds, walks := f.folds(r)
	narrow, _, full := f.traffic(r)
	threads := int64(f.lanes * f.rowsPerBlock)
	work := blocks * trips * walks * int64(max(full, 1)) * threads * f.width * narrow / 50
	resident := multiprocs * max(1, 1024/threads)
	ns := func(cluster int64) int64 {
		t := work / min(multiprocs, blocks*cluster)
		if cluster > 1 {
			t += (blocks*cluster + resident - 1) / resident * folds * fold
		}
		return t
	}
	for c := int64(2); c <= min(clusterBlocks, trips); c *= 2 {
		if ns(c) < ns(int64(f.cluster)) {
			f.cluster = int(c)
		}
	}
}

// folds is how many reductions there are, and how often a row is walked: once for all that do not
// depend on each other, and once more for results that have all columns.
func (f *form) folds(r *region) (folds, walks int64) {
	depth := map[*ir.Node]int64{} // look-up only
	for _, n := range r.nodes {
		d := int64(0)
		for _, a := range n.Args() {
			d = max(d, depth[a.Def()])
		}
		if _, ok := fusion.ReducedDims(n); ok {
			folds, d = folds+1, d+1
		}
		depth[n], walks = d, max(walks, d)
	}
	if slices.ContainsFunc(r.outs, f.full) {
		walks++
	}
	return folds, walks
}

package code

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	rt "github.com/seed-ee968945/concert/runtime"
)

// walkBlock and walkEach are the threads of a block that walks through tensors, and the elements of each.
const walkBlock, walkEach = 256, 4

// walk adds a kernel of copy.cu that goes through count elements; no grid has more blocks than most of them need.
func walk(cmds *driver.Commands, f driver.Func, count int64, params []byte) {
	blocks := min((count+walkBlock*walkEach-1)/(walkBlock*walkEach), 2048)
	cmds.Launch(driver.Main, f, int(max(blocks, 1)), walkBlock, 0, params)
}

// walkParams is the parameter block of such a kernel.
func walkParams(to, from uint64, shape, toStride, fromStride []int64) (params []byte, count int64) {
	u64 := func(v uint64) { params = binary.LittleEndian.AppendUint64(params, v) }
	u64(to)
	u64(from)
	count = 1
	for _, n := range shape {
		count *= n
	}
	u64(uint64(count))
	for _, list := range [][]int64{shape, toStride, fromStride} {
		pad := layout.MaxDims - len(list)
		for i := range layout.MaxDims {
			v := int64(0)
			if i >= pad {
				v = list[i-pad]
			}
			u64(uint64(v))
		}
	}
	return params, count
}

// Copy adds a copy between layouts.
func (c *Code) Copy(cmds *driver.Commands, to, from driver.Ptr, dst, src rt.Tensor) error {
	f, ok := c.copies[dst.DType.Size()]
	if !ok {
		return fmt.Errorf("a copy from %v to %v needs a kernel: %w", src, dst, c.none)
	}
	shape, ts, fs, err := layout.Merge(dst, src)
	if err != nil {
		return err
	}
	params, count := walkParams(uint64(to), uint64(from), shape, ts, fs)
	walk(cmds, f, count, params)
	return nil
}

// CopySized adds a copy of n elements to a result that is at its bounds. n, sizes and strides may be in memory,
// as [InMemory] says.
func (c *Code) CopySized(cmds *driver.Commands, to, from driver.Ptr, dst rt.Tensor, n int64, shape, ts, fs []int64) error {
	f, ok := c.copies[dst.DType.Size()]
	if !ok {
		return fmt.Errorf("a copy of a size that a tensor holds needs a kernel: %w", c.none)
	}
	params, _ := walkParams(uint64(to), uint64(from), shape, ts, fs)
	binary.LittleEndian.PutUint64(params[16:], uint64(n))
	walk(cmds, f, dst.NumElems(), params)
	return nil
}

// Zero adds clearing of a tensor with gaps.
func (c *Code) Zero(cmds *driver.Commands, to driver.Ptr, t rt.Tensor) error {
	return c.Copy(cmds, to, 0, t, t)
}

// drawn are the types that copy.cu has random numbers of.
var drawn = []dtype.DType{dtype.F8E5M2, dtype.F8E4M3, dtype.F8E3M4, dtype.F8E4M3FN, dtype.F8E5M2FNUZ, dtype.F8E4M3FNUZ, dtype.F8E4M3B11FNUZ, dtype.F16, dtype.BF16, dtype.F32, dtype.F64}

// Draws reports whether Draw has numbers of a type, if there is a compiler.
func (c *Code) Draws(dt dtype.DType) bool { return c.none != nil || c.draws[dt] != 0 }

// Draw adds filling a tensor with the random numbers of a seed.
func (c *Code) Draw(cmds *driver.Commands, to driver.Ptr, t rt.Tensor, seed uint64) error {
	if c.none != nil {
		return fmt.Errorf("random numbers need a kernel: %w", c.none)
	}
	shape, strides, _, err := layout.Merge(t, t)
	if err != nil {
		return err
	}
	params, count := walkParams(uint64(to), hostops.SplitMix(seed), shape, strides, strides) // the seed stands where a copy has its source
	walk(cmds, c.draws[t.DType], count, params)
	return nil
}

// Package wgmma serves matmuls of bfloat16 and float16 on Hopper with our own kernels
// (kernels/src/matmul.h). Except for skinny matmuls they are about as fast as cuBLASLt's. They need
// no library and no workspace, and give the same bits on every rank, whatever the grid. They use
// programmatic dependent launch: they begin as the kernel before them ends, and wait for it.
package wgmma

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// Library serves "matmul" on one device. It implements library.Library.
type Library struct {
	Early   bool // kernels begin as the one before them ends; Open sets it
	drv     driver.Driver
	ctx     driver.Ctx
	sms     int
	images  *kernels.Set
	modules map[string]driver.Module // by image
	funcs   map[string]driver.Func
	load    *library.Loader // once for each kernel
}

// capability is the compute capability that the kernels are for, and no other: 9.0.
const capability = 90

// Open makes the library of a device with its context. For a device that is no Hopper the
// error wraps library.ErrUnavailable.
func Open(drv driver.Driver, ctx driver.Ctx, info driver.DeviceInfo, images *kernels.Set) (*Library, error) {
	if 10*info.Major+info.Minor != capability {
		return nil, fmt.Errorf("%w: matmuls by wgmma need compute capability 9.0, %s has %d.%d", library.ErrUnavailable, info.Name, info.Major, info.Minor)
	}
	return &Library{Early: true, drv: drv, ctx: ctx, sms: info.SMs, images: images, modules: map[string]driver.Module{}, funcs: map[string]driver.Func{},
		load: library.NewLoader(drv, ctx)}, nil
}

// Plan implements library.Library. Not served are other types, results of another type than
// the operands, and rows that do not begin at multiples of 16 bytes, which the copy unit
// asks for.
func (l *Library) Plan(c *library.Call) (library.Step, error) {
	if c.Op != "matmul" || len(c.Ins) != 2 || len(c.Outs) != 1 {
		return nil, fmt.Errorf("%w: %s", library.ErrNotServed, c.Op)
	}
	p, err := problemOf(c)
	if err != nil {
		return nil, err
	}
	// The problem is in cuBLAS's terms: its result is column-major, so what it calls
	// Y's columns are our rows.
	m, err := kernels.NewMatmul(shapeOf(p), l.upTo(c))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", library.ErrNotServed, err)
	}
	return l.launch(c, p, m)
}

// upTo is how many multiprocessors a call may have.
func (l *Library) upTo(c *library.Call) int {
	if c.SMs > 0 {
		return min(l.sms, c.SMs)
	}
	return l.sms
}

// problemOf is a call's problem, if the kernels serve it.
func problemOf(c *library.Call) (*lt.Problem, error) {
	p, err := lt.ProblemOfCall(c, lt.Config{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", library.ErrNotServed, err)
	}
	return &p, served(&p)
}

// shapeOf is a problem as the kernels have it.
func shapeOf(p *lt.Problem) kernels.MatmulShape {
	return kernels.MatmulShape{DType: p.Type, M: p.N, N: p.M, K: p.K, Batch: p.Batch, TransA: p.Y.Trans, TransB: p.X.Trans}
}

// launch makes the step of a matmul.
func (l *Library) launch(c *library.Call, p *lt.Problem, m *kernels.Matmul) (library.Step, error) {
	at := [2]driver.Ptr{c.Ins[0].At, c.Ins[1].At}
	if p.Swapped {
		at[0], at[1] = at[1], at[0]
	}
	return l.encode(m, [][]*driver.TensorMap{
		{tensorMap(at[1], p.Y, p.K, p.N, p.Batch, m.A)}, {tensorMap(at[0], p.X, p.M, p.K, p.Batch, m.B)}, {tensorMap(c.Outs[0].At, p.D, p.M, p.N, p.Batch, m.D)},
	})
}

// encode makes the step of a kernel whose parameters are three lists of maps, the tiles, further lists, and
// more. There is no map where a list has nil.
func (l *Library) encode(m *kernels.Matmul, maps [][]*driver.TensorMap, more ...[]byte) (library.Step, error) {
	params := make([][]byte, len(maps))
	for i, list := range maps {
		for _, t := range list {
			var b [driver.TensorMapBytes]byte
			var err error
			if t != nil {
				b, err = l.drv.TensorMap(l.ctx, t)
			}
			if err != nil {
				return nil, fmt.Errorf("%s, tensor map %+v: %w", m.Name, *t, err)
			}
			params[i] = append(params[i], b[:]...)
		}
	}
	f, err := l.kernel(m)
	if err != nil {
		return nil, err
	}
	s := &step{name: m.Name}
	s.cmds.LaunchCluster(driver.Main, f, m.Grid, m.Block, m.Cluster, m.Shared, l.Early, append(slices.Insert(params, 3, m.Tiles()), more...)...)
	return s, l.load.Load(f, &s.cmds)
}

// served says what of a problem keeps it from the kernels.
func served(p *lt.Problem) error {
	if p.Type != dtype.BF16 && p.Type != dtype.F16 || p.Out != p.Type {
		return fmt.Errorf("%w: a matmul of %v to %v", library.ErrNotServed, p.Type, p.Out)
	}
	if min(p.M, p.N, p.K, p.Batch) <= 0 {
		return fmt.Errorf("%w: a matmul of nothing", library.ErrNotServed)
	}
	for i, m := range []lt.Matrix{p.X, p.Y, p.D} {
		if m.Align%16 != 0 || m.LD%8 != 0 || p.Batch > 1 && (m.Stride%8 != 0 || m.Stride == 0) {
			return fmt.Errorf("%w: rows of %s are not aligned to 16 bytes", library.ErrNotServed, [...]string{"X", "Y", "the result"}[i])
		}
	}
	return nil
}

// tensorMap describes a matrix of rows by cols in cuBLAS's terms, columns contiguous.
func tensorMap(at driver.Ptr, m lt.Matrix, rows, cols, batch int64, box [2]uint32) *driver.TensorMap {
	if m.Trans {
		rows, cols = cols, rows
	}
	stride := m.Stride
	if batch == 1 {
		stride = m.LD
	}
	return &driver.TensorMap{At: at, Sizes: [3]uint64{uint64(rows), uint64(cols), uint64(batch)}, Strides: [2]uint64{2 * uint64(m.LD), 2 * uint64(stride)}, Box: box}
}

// kernel loads a kernel's module, once.
func (l *Library) kernel(m *kernels.Matmul) (driver.Func, error) {
	if f, ok := l.funcs[m.Name]; ok {
		return f, nil
	}
	mod, ok := l.modules[m.Image]
	if !ok {
		_, host := l.drv.(driver.HostDriver) // reads the kernels' names in PTX
		image, err := l.images.Image(m.Image, capability, host)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", library.ErrNotServed, err)
		}
		if mod, err = l.drv.ModuleLoad(l.ctx, image); err != nil {
			return 0, fmt.Errorf("image %s: %w", m.Image, err)
		}
		l.modules[m.Image] = mod
	}
	f, err := l.drv.Function(l.ctx, mod, m.Name)
	if err == nil {
		err = l.drv.AllowShared(l.ctx, f, m.Shared)
	}
	if err != nil {
		return 0, fmt.Errorf("image %s: %w", m.Image, err)
	}
	l.funcs[m.Name] = f
	return f, nil
}

// Close implements library.Library.
func (l *Library) Close() error {
	var errs []error
	for _, m := range l.modules {
		errs = append(errs, l.drv.ModuleUnload(l.ctx, m))
	}
	clear(l.modules)
	clear(l.funcs)
	return errors.Join(errs...)
}

// step is a planned matmul.
type step struct {
	name string
	cmds driver.Commands
}

// AddTo implements library.Step.
func (s *step) AddTo(c *driver.Commands) { c.Append(&s.cmds) }

// String implements library.Step.
func (s *step) String() string { return s.name }

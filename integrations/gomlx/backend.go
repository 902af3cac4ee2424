// Package gomlx is a backend of GoMLX (github.com/gomlx/compute) on concert: with
//
//	import _ "github.com/seed-ee968945/concert/integrations/gomlx"
//
// and GOMLX_BACKEND=concert:devices=4 a program runs on four ranks of concert's host device,
// or with device=cuda on four GPUs.
//
// GoMLX's operations are XLA's, so a computation is written as StableHLO
// (function.go and its neighbours), with shardings in the sdy dialect if it is
// distributed (distribute.go). Concert imports, partitions and compiles that (program.go), and
// runs it in a world of ranks (world.go, exec.go). Results stay in the ranks' memory until
// they are read (buffer.go), and updated inputs share the memory of the old
// ones (donate.go). There is no silent fallback: what concert lacks is compute.ErrNotImplemented.
//
// Not there yet: dynamic shapes, complex numbers, quantised operations.
package gomlx

import (
	"context"
	"fmt"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/notimplemented"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// Name is the backend's name in GOMLX_BACKEND.
const Name = "concert"

func init() { compute.Register(Name, New) }

// Backend runs computations on devices, which are ranks of worlds that are opened when they
// are first asked for and live until Finalize. Its methods may be called from any goroutine.
type Backend struct {
	notimplemented.Backend
	options
	passes *passes.Pipeline
	maker  func() ([]byte, error) // of programs: the digest of this executable

	mu       sync.Mutex
	ctx      context.Context   // of whatever waits
	worlds   map[string]*world // by the devices
	drv      driver.Driver     // of kinds that have one, once a world is open
	compiled cache
	finished bool
}

// device is what programs are compiled for.
func (b *Backend) device() compile.Device {
	if b.kind == "host" {
		return compile.Host
	}
	return compile.GPU
}

// Name is "concert".
func (b *Backend) Name() string { return Name }

// String is the same as Name.
func (b *Backend) String() string { return Name }

// Description names the devices.
func (b *Backend) Description() string {
	return fmt.Sprintf("concert on %d devices of kind %s", b.devices, b.kind)
}

// NumDevices is how many devices there are.
func (b *Backend) NumDevices() int { return b.devices }

// DeviceDescription names a device.
func (b *Backend) DeviceDescription(d compute.DeviceNum) string {
	return fmt.Sprintf("concert %s rank %d", b.kind, d)
}

// Capabilities lists the operations and element types.
func (b *Backend) Capabilities() compute.Capabilities {
	c := compute.Capabilities{Operations: map[compute.OpType]bool{}, DTypes: map[dtypes.DType]bool{}, Functions: true}
	for _, op := range operations {
		c.Operations[op] = true
	}
	for dt := range elementTypes {
		c.DTypes[dt] = true
	}
	return c
}

// SetContext makes whatever is compiled and executed from now on end when ctx does, with its
// cause. A world whose computation is cut off computes no more, and what lay there is lost: go
// on with another backend and a checkpoint.
func (b *Backend) SetContext(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx = ctx
}

func (b *Backend) context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ctx
}

// Builder begins a computation.
func (b *Backend) Builder(name string) compute.Builder { return newBuilder(b, name) }

// Finalize closes the worlds, when what runs in them has ended.
func (b *Backend) Finalize() {
	b.mu.Lock()
	before := b.finished
	b.finished = true // so that no world is opened from now on
	b.mu.Unlock()
	if before {
		return
	}
	for _, w := range b.worlds {
		w.close()
	}
	if b.drv != nil {
		b.drv.Close()
	}
}

// IsFinalized reports whether Finalize was called.
func (b *Backend) IsFinalized() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.finished
}

// elementTypes has StableHLO's name of every type, and concert's.
var elementTypes = map[dtypes.DType]struct {
	name string
	ir   ir.DType
}{
	dtypes.Float64: {"f64", ir.F64}, dtypes.Float32: {"f32", ir.F32}, dtypes.Float16: {"f16", ir.F16}, dtypes.BFloat16: {"bf16", ir.BF16},
	dtypes.Int64: {"i64", ir.I64}, dtypes.Int32: {"i32", ir.I32}, dtypes.Int16: {"i16", ir.I16}, dtypes.Int8: {"i8", ir.I8},
	dtypes.Uint64: {"ui64", ir.U64}, dtypes.Uint32: {"ui32", ir.U32}, dtypes.Uint16: {"ui16", ir.U16}, dtypes.Uint8: {"ui8", ir.U8},
	dtypes.Bool: {"i1", ir.Bool},
}

// Package gomlx is a backend of GoMLX (github.com/gomlx/compute) on concert: with
//
//	import _ "github.com/seed-ee968945/concert/integrations/gomlx"
//
// and GOMLX_BACKEND=concert a program runs on concert's host device, or on a GPU.
//
// GoMLX's operations are XLA's, so that a computation is written down as StableHLO
// (function.go and its neighbours), which concert imports, compiles and runs (exec.go).
// There is no silent fallback: what concert lacks is compute.ErrNotImplemented.
//
// Not there yet: several devices, fused operations, dynamic shapes;
// donated inputs are copied.
package gomlx

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/notimplemented"
	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Name is the backend's name in GOMLX_BACKEND.
const Name = "concert"

func init() { compute.Register(Name, New) }

// Backend runs computations in a world of one rank, which is opened when the first is
// compiled and lives until Finalize. Its methods may be called from any goroutine.
type Backend struct {
	notimplemented.Backend
	kind   string // host, cuda or fake
	passes string

	mu       sync.Mutex
	rank     *rt.Rank // nil: not opened
	drv      driver.Driver
	finished bool
}

// New makes a backend. config is a list of key=value, separated by commas:
//
//	device=host|cuda|fake   what computes; fake runs the kernels of GPUs on the host
//	passes=PIPELINE         named pipeline of concert's passes, default "default", or
//	                        "cuda" on GPUs
func New(config string) (compute.Backend, error) {
	b := &Backend{kind: "host"}
	for _, kv := range strings.Split(config, ",") {
		switch k, v, _ := strings.Cut(kv, "="); k {
		case "":
		case "device":
			if v != "host" && v != "cuda" && v != "fake" {
				return nil, errors.Errorf("concert: no device %q: there are host, cuda and fake", v)
			}
			b.kind = v
		case "passes":
			b.passes = v
		default:
			return nil, errors.Errorf("concert: no option %q: there are device and passes", kv)
		}
	}
	if b.passes == "" {
		b.passes = b.device().Pipeline()
	}
	return b, nil
}

// device is what programs are compiled for.
func (b *Backend) device() compile.Device {
	if b.kind == "host" {
		return compile.Host
	}
	return compile.GPU
}

// world is the rank that computes.
func (b *Backend) world(ctx context.Context) (*rt.Rank, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.finished:
		return nil, errors.New("concert: the backend is finalized")
	case b.rank != nil:
		return b.rank, nil
	}
	open := host.Opener(host.Options{Local: true})
	switch b.kind {
	case "fake":
		b.drv = fake.New(1)
	case "cuda":
		d, err := driver.Open("")
		if err != nil {
			return nil, errors.WithStack(err)
		}
		b.drv = d
	}
	if b.drv != nil {
		var o device.Options
		if b.kind == "cuda" {
			o.Libraries = device.Standard(device.Paths{})
		}
		open = device.Opener(b.drv, o)
	}
	env := &rt.Env{World: 1, LocalWorld: 1, Source: "a backend of GoMLX"}
	r, err := rt.Join(ctx, open, rt.Config{Env: env, Job: rendezvous.NewLocal()})
	if err != nil {
		return nil, errors.WithStack(err)
	}
	b.rank = r
	return r, nil
}

// Name is "concert".
func (b *Backend) Name() string { return Name }

// String is the same as Name.
func (b *Backend) String() string { return Name }

// Description names the device.
func (b *Backend) Description() string { return "concert on " + b.kind }

// NumDevices is 1.
func (b *Backend) NumDevices() int { return 1 }

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

// Builder begins a computation.
func (b *Backend) Builder(name string) compute.Builder { return newBuilder(b, name) }

// Finalize closes the world.
func (b *Backend) Finalize() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	b.finished = true
	if b.rank != nil {
		b.rank.Close()
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

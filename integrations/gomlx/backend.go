// Package gomlx is a backend of GoMLX (github.com/gomlx/compute) on concert: with
//
//	import _ "github.com/seed-ee968945/concert/integrations/gomlx"
//
// and GOMLX_BACKEND=concert:devices=4 a program runs on four ranks of concert's host device,
// or with device=cuda on four GPUs.
//
// GoMLX's operations are XLA's, so that a computation is written down as StableHLO
// (function.go and its neighbours), with shardings as the sdy dialect has them where it is
// distributed (distribute.go). Concert imports, partitions and compiles that (program.go), and
// runs it in a world of ranks (world.go, exec.go). Results stay in the ranks' memory until
// somebody reads them (buffer.go), and where inputs are updated they lie in the place of the old
// ones (donate.go). There is no silent fallback: what concert lacks is compute.ErrNotImplemented.
//
// Not there yet: dynamic shapes, complex numbers, quantised operations.
package gomlx

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/notimplemented"
	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Name is the backend's name in GOMLX_BACKEND.
const Name = "concert"

func init() { compute.Register(Name, New) }

// Backend runs computations on devices, which are ranks of worlds that are opened when they
// are first asked for and live until Finalize. Its methods may be called from any goroutine.
type Backend struct {
	notimplemented.Backend
	kind    string // host, cuda or fake
	devices int
	passes  *passes.Pipeline
	sharded bool    // new values of variables lie as the old ones
	dump    string  // folder, empty: none
	place   *rt.Env // of this process among those of a launcher; nil: all devices are its own

	mu       sync.Mutex
	worlds   map[string]*world // by the devices
	drv      driver.Driver     // of kinds that have one, once a world is open
	compiled cache
	finished bool
}

// New makes a backend. config is a list of key=value, separated by commas:
//
//	devices=N               how many devices there are, default 1
//	device=host|cuda|fake   what computes; fake runs the kernels of GPUs on the host
//	passes=PIPELINE         named pipeline of concert's passes, default "default", or
//	                        "cuda" on GPUs
//	dump=FOLDER             writes every computation there as StableHLO, for lowerdump
//	launch=env              ranks are processes, each with a device, which a launcher such as
//	                        torchrun starts with the same program: see launched.go
//	variables=asked|sharded how results lie that are new values of sharded variables, where
//	                        a computation asks for them replicated, as GoMLX's Trainer does
//	                        of all results: as asked, or as the variables
func New(config string) (compute.Backend, error) {
	b := &Backend{kind: "host", devices: 1, worlds: map[string]*world{}}
	pipeline, devices := "", 0
	for _, kv := range strings.Split(config, ",") {
		k, v, _ := strings.Cut(kv, "=")
		var err error
		switch k {
		case "":
		case "devices":
			if devices, err = strconv.Atoi(v); err != nil || devices < 1 {
				return nil, errors.Errorf("concert: devices=%s: want a number of devices", v)
			}
		case "device":
			if b.kind, err = oneOf(k, v, "host", "cuda", "fake"); err != nil {
				return nil, err
			}
		case "passes":
			pipeline = v
		case "dump":
			b.dump = v
		case "launch":
			if _, err = oneOf(k, v, "env"); err != nil {
				return nil, err
			}
			env, err := rt.EnvFrom(os.Getenv)
			if err != nil {
				return nil, errors.WithStack(err)
			}
			b.place, b.devices = &env, env.World
		case "variables":
			if v, err = oneOf(k, v, "asked", "sharded"); err != nil {
				return nil, err
			}
			b.sharded = v == "sharded"
		default:
			return nil, errors.Errorf("concert: no option %q: there are devices, device, passes, dump, launch and variables", kv)
		}
	}
	switch {
	case devices == 0:
	case b.place == nil:
		b.devices = devices
	case devices != b.devices:
		return nil, errors.Errorf("concert: devices=%d, and the launcher has started %d ranks", devices, b.devices)
	}
	if pipeline == "" {
		pipeline = b.device().Pipeline()
	}
	var err error
	if b.passes, err = standard.Table().Parse(pipeline); err != nil {
		return nil, errors.Wrapf(err, "concert: passes=%s", pipeline)
	}
	return b, nil
}

func oneOf(key, v string, all ...string) (string, error) {
	if !slices.Contains(all, v) {
		return "", errors.Errorf("concert: %s=%s: there are %s", key, v, strings.Join(all, ", "))
	}
	return v, nil
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

// Builder begins a computation.
func (b *Backend) Builder(name string) compute.Builder { return newBuilder(b, name) }

// Finalize closes the worlds, when what runs in them has ended.
func (b *Backend) Finalize() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	b.finished = true
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

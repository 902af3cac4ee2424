package device

import (
	"log/slog"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/code"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/cuda/topo"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Options tune the device. The zero value is right for most uses. All ranks of a
// world have the same, but for Machine and paths, which differ between hosts.
type Options struct {
	// Devices are the ordinals by rank; nil: the rank on its host modulo the number of devices.
	Devices []int
	// ShareDevice allows several ranks on one device, see symm.WorldOptions.
	ShareDevice bool
	// Machine is the host of this process as package cuda/topo/nvml reads it, or from a
	// file; nil: what the CUDA driver shows. It tells which groups can
	// communicate through symmetric memory.
	Machine *topo.Machine
	// Transport is what carries collectives: topo.Symmetric allows symmetric memory only,
	// topo.NCCL wants NCCL for all groups; empty: symmetric memory for the groups that it
	// can serve, NCCL for the others.
	Transport topo.Transport
	// NCCL is how NCCL is used where it is.
	NCCL NCCLOptions
	// Group are the knobs of every group; its Timeout is the world's.
	Group coll.GroupOptions
	// Staging is memory of each group for collectives overlapped with compute, 0 is 512 MiB,
	// negative none; Group.Staging is ignored.
	Staging int64
	// NoOverlap does all collectives of captured steps as if nothing computed meanwhile.
	NoOverlap bool
	// Scratch is symmetric memory for each group in which operands of collectives are
	// brought together whose layout no kernel takes, 0 is 32 MiB.
	Scratch int64
	// Workspace is memory of each stream that computes for the libraries' use, 0 is
	// 64 MiB, negative none. It grows, up to 4 GiB, when a step is planned whose calls
	// need more.
	Workspace int64
	// Libraries open, in order of preference, what computes launches that are no kernels
	// of the modules; Standard has the usual ones. Behind them stand kernels of our own for
	// attention and matmuls. One that is not installed
	// (library.ErrUnavailable) is left out, and named if it is missed; any other error fails
	// the opening of the device.
	Libraries []OpenLibrary
	// Matmuls are the algorithms of known matmuls; nil: those that package lt knows for
	// the device. An empty tuning leaves the choice to the library.
	Matmuls *lt.Tuning
	// Prefetch is how many bytes of the weights of a skinny matmul are brought into the
	// cache while what stands between it and the matmul before computes or communicates;
	// 0 is none.
	Prefetch int64
	// NoDependentLaunch lets no kernel begin before the one in front of it has ended.
	NoDependentLaunch bool
	// Images are the kernels of collectives; nil: the embedded ones, read anew for each
	// world. Who opens many worlds reads them once.
	Images *kernels.Set
	// NVRTC is the path of the runtime compiler's library, empty for its usual names.
	NVRTC string
	// Cache is a folder for compiled kernels; empty: "concert" in the user's cache
	// folder; "none": no cache.
	Cache string
	// SMs limits what matmuls leave to communication, see library.Call.
	SMs int
	// Log, if not nil, is told what was compiled and how collectives are done.
	Log *slog.Logger
}

// NCCLOptions say which NCCL is used, and how.
type NCCLOptions struct {
	// Path is the library's; empty: where the loader finds it.
	Path string
	// Library is used instead, if not nil. On the fake driver of package cuda it is by
	// default a double that computes on the host.
	Library nccl.Library
	// Config tunes every communicator.
	Config nccl.Config
	// NoRegister leaves memory unregistered. Without it groups whose ranks are each on a
	// host of its own register the arena with network adapters that can use it (GPUDirect
	// RDMA): then NCCL has no copies of its own, and an all_gather takes one multiprocessor.
	// Where something is missing, such as NCCL 2.24, the log says what.
	NoRegister bool
}

// nccl opens the library.
func (o *Options) nccl(drv driver.Driver) (nccl.Library, error) {
	if o.NCCL.Library != nil {
		return o.NCCL.Library, nil
	}
	if h := newHostKernels(drv); h != nil {
		return nccl.NewHost(nccl.Machine{
			Enqueue: func(ctx, stream uintptr, run func() error) error {
				var c driver.Commands
				c.Call(driver.Main, h.drv.RegisterCall(func([]uint64) error { return run() }))
				return drv.Run(driver.Ctx(ctx), c.On(driver.Stream(stream)))
			},
			Bytes: func(at uintptr, n uint64) []byte { return driver.HostBytes(driver.Ptr(at), n) },
		}), nil
	}
	return nccl.Open(o.NCCL.Path)
}

func (o *Options) compiler() code.Options {
	return code.Options{NVRTC: o.NVRTC, Cache: o.Cache, Log: o.Log}
}

// OpenLibrary opens a library for one rank. It may load code and allocate.
type OpenLibrary func(e LibraryEnv) (library.Library, error)

// LibraryEnv is what a library is opened with.
type LibraryEnv struct {
	Driver driver.Driver
	Rank   *symm.Rank
	// Compile makes machine code for the rank's device from CUDA C++; it is cached.
	Compile func(name, source string, options ...string) ([]byte, error)
	// Matmuls are the device's Options.Matmuls.
	Matmuls *lt.Tuning
	Early   bool         // kernels may be launched early: they wait for those before them
	Log     *slog.Logger // may be nil
}

const (
	defaultScratch   = 32 << 20
	defaultStaging   = 512 << 20
	defaultWorkspace = 64 << 20
	maxWorkspace     = 4 << 30
)

func (o *Options) scratch() uint64 {
	if o.Scratch <= 0 {
		return defaultScratch
	}
	return uint64(o.Scratch+4095) &^ 4095
}

func (o *Options) workspace() uint64 {
	switch {
	case o.Workspace < 0:
		return 0
	case o.Workspace == 0:
		return defaultWorkspace
	}
	return uint64(o.Workspace+255) &^ 255
}

// group are the knobs of one group. The group of all ranks, which the runtime adds to every
// world, gets little scratch where the world begins with others.
func (o *Options) group(spec *rt.Spec, name string) coll.GroupOptions {
	g := o.Group
	g.Name, g.Timeout, g.Staging = name, spec.Timeout, defaultStaging
	if o.Staging != 0 {
		g.Staging = uint64(max(o.Staging, 0))
	}
	if name == "world" && len(spec.Groups) > 1 {
		return g.SmallScratch()
	}
	return g
}

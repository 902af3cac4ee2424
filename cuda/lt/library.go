package lt

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// backend is what this package needs of cuBLASLt. Handles and plans are words, so
// that they can travel in command buffers.
type backend interface {
	version() uint64
	create(ctx driver.Ctx) (uint64, error)
	destroy(ctx driver.Ctx, h uint64) error
	plan(ctx driver.Ctx, h uint64, p *Problem) (uint64, error)
	free(plan uint64)
	// heuristics gives up to n algorithms within limit bytes of workspace, best first.
	heuristics(ctx driver.Ctx, plan, limit uint64, n int) ([]Algo, error)
	// use makes a the plan's algorithm and gives the workspace that it needs.
	use(ctx driver.Ctx, plan uint64, a Algo) (uint64, error)
	// call is the function for command buffers; its words are the plan, X, Y, D, the
	// workspace and its size.
	call() driver.CFunc
	// skinny stands in for the kernels of this package on a fake driver; its words are
	// their parameters. Zero on devices.
	skinny() driver.CFunc
	// fetch stands in for prefetch.cu on a fake driver. Zero on devices.
	fetch() driver.CFunc
}

// StatusError is a failed call of cuBLASLt.
type StatusError struct {
	Call   string
	Status int // cublasStatus_t
}

// statusNames are the library's statuses.
var statusNames = map[int]string{1: "not initialized", 3: "allocation failed", 7: "invalid value", 8: "architecture mismatch",
	11: "mapping error", 13: "execution failed", 14: "internal error", 15: "not supported", 16: "license error"}

// Error names the call and the status.
func (e *StatusError) Error() string {
	name := statusNames[e.Status]
	if name == "" {
		name = "unknown status"
	}
	return fmt.Sprintf("cuBLASLt: %s: %s (%d)", e.Call, name, e.Status)
}

// Library is cuBLASLt in this process.
type Library struct {
	drv driver.Driver
	lib backend
}

// Open finds cuBLASLt: at path, or under its usual names if path is empty; the first
// successful call decides for the process. drv is what driver.Open gave, or
// a cuda.HostDriver, for which the host multiplies. A missing library is a
// *dl.LoadError, which wraps library.ErrUnavailable.
func Open(drv driver.Driver, path string) (*Library, error) {
	lib, err := openLibrary(drv, path)
	if err != nil {
		return nil, err
	}
	return &Library{drv: drv, lib: lib}, nil
}

// Version is the library's own number: 10000*major + 100*minor + patch.
func (l *Library) Version() uint64 { return l.lib.version() }

// Options of a handle. The zero value is usable.
type Options struct {
	// Tuning gives the algorithms of known problems; problems that it lacks take the
	// library's first suggestion. It must fit the GPU and the library.
	Tuning *Tuning
	// Workspace is the memory for each stream, in bytes; zero stands for 32 MiB, what
	// NVIDIA advises for Hopper.
	Workspace uint64
	// Compile turns the source of kernels into an image for the device (PTX or machine
	// code). Without it the kernels of this package are not used.
	Compile func(name, source string) ([]byte, error)
}

const defaultWorkspace = 32 << 20

// ErrNoWorkspace is wrapped by errors of Enqueue and AddTo on a stream that has no
// workspace: call Reserve or SetWorkspace for it first.
var ErrNoWorkspace = errors.New("the stream has no workspace")

// ErrAlign is wrapped by errors about an address that is less aligned than the
// problem says.
var ErrAlign = errors.New("misaligned address")

// Handle is the library on one context. Its plans are made once for each problem and
// live as long as it does, but for those that only steps of a Server have, which live
// as long as one of these. Methods may be called from any goroutine.
type Handle struct {
	lib       *Library
	ctx       driver.Ctx
	opts      Options
	h         uint64
	mu        sync.Mutex
	plans     map[planKey]*Plan
	old       []*Plan // replaced by Adopt
	workspace map[driver.Stream]workspace
	kernels   map[Skinny]kernel
	fetch     kernel // of prefetch.cu
}

type planKey struct {
	problem Problem
	algo    Algo   // zero: the default
	limit   uint64 // of workspace
}

type workspace struct {
	at    driver.Ptr
	bytes uint64
	own   bool
}

// NewHandle makes a handle on a context. It allocates nothing on the device itself,
// but the library may: make it before any kernel waits for a peer.
func (l *Library) NewHandle(ctx driver.Ctx, o Options) (*Handle, error) {
	if o.Workspace == 0 {
		o.Workspace = defaultWorkspace
	}
	h, err := l.lib.create(ctx)
	if err != nil {
		return nil, err
	}
	return &Handle{lib: l, ctx: ctx, opts: o, h: h, plans: map[planKey]*Plan{}, workspace: map[driver.Stream]workspace{}, kernels: map[Skinny]kernel{}}, nil
}

// Reserve allocates the workspace of streams that have none. driver.Main stands for
// the stream that a command buffer is run on. Products that may run at the same time
// must be on different streams with a workspace each.
func (h *Handle) Reserve(streams ...driver.Stream) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range streams {
		if _, ok := h.workspace[s]; ok {
			continue
		}
		p, err := h.lib.drv.MemAlloc(h.ctx, h.opts.Workspace)
		if err != nil {
			return fmt.Errorf("workspace of matmuls, %d bytes: %w", h.opts.Workspace, err)
		}
		h.workspace[s] = workspace{at: p, bytes: h.opts.Workspace, own: true}
	}
	return nil
}

// SetWorkspace gives a stream memory of the caller, aligned to 256 bytes, which must
// outlive the handle's work. Plans that were added to command buffers before keep
// what they had.
func (h *Handle) SetWorkspace(s driver.Stream, at driver.Ptr, bytes uint64) error {
	if at%256 != 0 {
		return fmt.Errorf("%w: workspace at %#x", ErrAlign, uint64(at))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.workspace[s]; w.own {
		return fmt.Errorf("stream %#x has a workspace of its own already", uint64(s))
	}
	h.workspace[s] = workspace{at: at, bytes: bytes}
	return nil
}

// Close frees plans, workspaces and the handle. Its work must have ended.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.plans {
		h.old = append(h.old, p)
	}
	for _, p := range h.old {
		if p.lt != 0 {
			h.lib.lib.free(p.lt)
			p.lt = 0
		}
	}
	var errs []error
	var streams []driver.Stream
	for s, w := range h.workspace {
		if w.own {
			streams = append(streams, s)
		}
	}
	slices.Sort(streams)
	for _, s := range streams {
		errs = append(errs, h.lib.drv.MemFree(h.ctx, h.workspace[s].at))
	}
	// cublasLtDestroy waits for all work of the context, and does not say that it failed to.
	destroyed := h.lib.drv.Shared().SyncContext(h.ctx, func() error { return h.lib.lib.destroy(h.ctx, h.h) })
	errs = append(errs, h.unload(), destroyed)
	h.plans, h.old, h.workspace, h.kernels = map[planKey]*Plan{}, nil, map[driver.Stream]workspace{}, map[Skinny]kernel{}
	return errors.Join(errs...)
}

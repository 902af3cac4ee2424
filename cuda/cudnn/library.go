package cudnn

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/cuda/attention"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
)

// Options say which cuDNN, and what its plans may do.
type Options struct {
	// Dir is the folder of libcudnn.so.9 and its parts; empty means wherever the loader
	// finds them. The first folder counts for the process.
	Dir string
	// Preload are paths of libraries that cuDNN wants and that the loader would not
	// find, such as those of NVRTC and cuBLASLt of an installation by a package manager.
	Preload []string
	// Fast lets plans take engines whose results differ from run to run in the last
	// bits: in a backward pass blocks then add to the gradient of q in no fixed order,
	// and a forward pass of few queries may split the keys. Without it every plan is
	// reproducible, and a backward pass needs workspace for the gradients of all scores.
	Fast bool
	// TF32 lets convolutions of f32 be rounded to TF32's 10 bits of mantissa first.
	TF32 bool
	// Compile makes machine code for the rank's device from CUDA C++. Without it no
	// convolution is served whose tensors have different layouts.
	Compile func(name, source string, options ...string) ([]byte, error)
}

// backend is the library with a handle in a context.
type backend interface {
	api
	in(f func() error) error
	version() int
	close() error
	// scalars copies values to memory that is not Go's.
	scalars(v []float32) (at []uintptr, free func())
	// step gives what a command buffer calls to execute a plan.
	step(plan, pack desc) (fn driver.CFunc, arg uint64, free func())
}

// Library serves "attention" and "attention_backward" of bf16 and f16, and "convolution" of
// f32, too. It implements library.Library.
type Library struct {
	drv     driver.Driver
	ctx     driver.Ctx
	b       backend
	o       Options
	engines map[string]*engine // by key
	load    *library.Loader    // once for each engine
	code    *library.Code      // that moves tensors
	steps   map[*step]bool     // that have not been released
}

// Open loads cuDNN and makes a handle on a rank's device. The driver must be one that
// driver.Open gave. A *dl.LoadError says that there is no cuDNN 9.
func Open(drv driver.Driver, r *symm.Rank, o Options) (*Library, error) {
	if _, host := drv.(driver.HostDriver); host {
		return nil, fmt.Errorf("%w: cuDNN needs a device", library.ErrUnavailable)
	}
	b, err := newBackend(r.Ctx, o)
	if err != nil {
		return nil, err
	}
	if o.Compile == nil {
		o.Compile = func(string, string, ...string) ([]byte, error) { return nil, nvrtc.ErrNoCompiler }
	}
	return &Library{drv: drv, ctx: r.Ctx, b: b, o: o, engines: map[string]*engine{}, steps: map[*step]bool{}, load: library.NewLoader(drv, r.Ctx),
		code: library.NewCode(drv, r.Ctx, o.Compile, nil)}, nil
}

// Version is cuDNN's: 10000*major + 100*minor + patch.
func (l *Library) Version() int { return l.b.version() }

// Close frees plans and the handle. All steps must have ended, and command buffers
// and graphs that hold them must not run again.
func (l *Library) Close() error {
	for s := range l.steps {
		s.free()
	}
	for _, e := range l.engines {
		e.low.free()
	}
	l.steps, l.engines = nil, nil
	// cudnnDestroy waits for all work of the context.
	return errors.Join(l.code.Close(), l.drv.Shared().SyncContext(l.ctx, l.b.close))
}

// request is a call as the graph that computes it and the addresses of what it works on.
type request struct {
	op        string
	graph     *graph
	at        [numPorts]uintptr
	zero      []library.Tensor // to be cleared before
	moves     []move
	workspace driver.Ptr
	bytes     uint64
	sms       int
}

// request says what a call asks for.
func (l *Library) request(c *library.Call) (*request, error) {
	r := &request{op: c.Op, workspace: c.Workspace, bytes: c.WorkspaceBytes, sms: c.SMs}
	if c.Op == opConvolution {
		v, err := newConvolution(c)
		if err != nil {
			return nil, err
		}
		r.graph, r.moves = v.graph(l.o.TF32)
		r.at = v.addresses()
		return r, nil
	}
	p, err := attention.ProblemOf(c)
	if err == nil {
		err = l.serves(p)
	}
	if err != nil {
		return nil, err
	}
	r.at, r.zero = addresses(p), p.Zero
	if r.graph = forwardGraph(p); p.Op == attention.Backward {
		r.graph = backwardGraph(p, !l.o.Fast)
	}
	return r, nil
}

// Workspace says how many bytes a call needs, whatever addresses and workspace it
// names. It plans the call: Plan finds the plan ready.
func (l *Library) Workspace(c *library.Call) (uint64, error) {
	r, err := l.request(c)
	if err != nil {
		return 0, err
	}
	e, err := l.engine(r, r.graph.most)
	if err != nil {
		return 0, err
	}
	return e.bytes(), nil
}

// Plan readies a call. What it does not serve wraps library.ErrNotServed: other
// types, dropout, rows that are not contiguous, addresses or strides that are not
// multiples of 16 bytes, lengths or widths that no engine takes, convolutions of other
// layouts than channels first or last, and too little workspace.
func (l *Library) Plan(c *library.Call) (library.Step, error) {
	r, err := l.request(c)
	if err != nil {
		return nil, err
	}
	// What was planned before must not matter, so the engine for any workspace comes first.
	e, err := l.engine(r, r.graph.most)
	if err == nil && e.bytes() > r.bytes {
		e, err = l.engine(r, r.bytes)
	}
	if err != nil {
		return nil, err
	}
	s := &step{lib: l, op: r.op, engine: e, version: l.b.version()}
	l.steps[s] = true
	e.steps++
	if err := l.ready(s, r); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	return s, nil
}

// ready fixes a step's addresses and loads what it needs.
func (l *Library) ready(s *step, r *request) error {
	for _, z := range r.zero {
		s.zero = append(s.zero, span{z.At, uint64(z.DType.Size()) * uint64(intmath.Product(z.Shape)) / 4})
	}
	for _, m := range r.moves {
		f, err := l.code.Function(moveUnit, fmt.Sprintf("move%d", m.size), 0)
		if err != nil {
			return err
		}
		c := &s.before
		if m.back {
			c = &s.after
		}
		if err := m.add(c, f, r); err != nil {
			return err
		}
	}
	if err := l.b.in(func() error { return l.bind(s, r) }); err != nil {
		return err
	}
	var trial driver.Commands
	s.AddTo(&trial)
	if err := l.load.Load(s.engine, &trial); err != nil {
		return fmt.Errorf("%v: %w", s, err)
	}
	return nil
}

// Release implements library.Releaser: the last step of an engine takes it along.
func (s *step) Release() error {
	l, e := s.lib, s.engine
	if !l.steps[s] {
		return nil // the library is closed
	}
	delete(l.steps, s)
	s.free()
	if e.steps--; e.steps > 0 {
		return nil
	}
	delete(l.engines, e.key)
	l.load.Forget(e)
	return l.b.in(func() error { e.low.free(); return nil })
}

// free releases what a step holds by itself.
func (s *step) free() {
	for _, f := range slices.Backward(s.frees) {
		f()
	}
	s.frees = nil
}

// bind fixes the addresses of a step.
func (l *Library) bind(s *step, r *request) error {
	var values []float32
	for _, t := range s.engine.graph.tensors {
		if t.role == scalar {
			values = append(values, t.value)
		}
	}
	at, free := l.b.scalars(values)
	s.frees = append(s.frees, free)
	low := &lowering{api: l.b}
	s.frees = append(s.frees, low.free)
	pack, err := s.engine.pack(low, &r.at, uintptr(r.workspace), at)
	if err != nil {
		return err
	}
	s.fn, s.arg, free = l.b.step(s.engine.plan, pack)
	s.frees = append(s.frees, free)
	return nil
}

func addresses(p *attention.Problem) [numPorts]uintptr {
	a := [numPorts]uintptr{portQ: uintptr(p.Q.At), portK: uintptr(p.K.At), portV: uintptr(p.V.At), portOut: uintptr(p.Out.At),
		portLSE: uintptr(p.LSE.At), portGrad: uintptr(p.Grad.At), portDQ: uintptr(p.DQ.At), portDK: uintptr(p.DK.At), portDV: uintptr(p.DV.At)}
	if p.Bias != nil {
		a[portBias] = uintptr(p.Bias.At)
	}
	return a
}

// engine gives the plan of a request with at most limit bytes of workspace, made on first
// use.
func (l *Library) engine(r *request, limit uint64) (*engine, error) {
	key, err := r.graph.key(r.sms, limit)
	if err != nil {
		return nil, err
	}
	if e, ok := l.engines[key]; ok {
		return e, nil
	}
	var e *engine
	err = l.b.in(func() (err error) {
		e, err = newEngine(l.b, r.graph, !l.o.Fast, limit, r.sms)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cuDNN: %s: %w", r.op, err)
	}
	e.key = key
	l.engines[key] = e
	return e, nil
}

// key is equal for graphs that one plan serves.
func (g *graph) key(sms int, limit uint64) (string, error) {
	type row struct {
		Type, Role, Port int
		Dims, Strides    []int64
		Bits             uint32
	}
	type window struct {
		Kind                        nodeKind
		Pre, Post, Stride, Dilation []int64
		Flip                        bool
	}
	rows := make([]row, len(g.tensors))
	for i, t := range g.tensors {
		rows[i] = row{int(t.typ), int(t.role), int(t.port), t.dims, t.strides, math.Float32bits(t.value)}
	}
	var windows []window
	for _, n := range g.nodes {
		if w := n.win; w != nil {
			windows = append(windows, window{n.kind, w.pre, w.post, w.stride, w.dilation, w.flip})
		}
	}
	b, err := json.Marshal(struct {
		Rows       []row
		Windows    []window
		Nodes, SMs int
		Limit      uint64
	}{rows, windows, len(g.nodes), sms, limit})
	return string(b), err
}

// serves says why cuDNN's engines would not take a problem, as far as that is known
// without asking them.
func (l *Library) serves(p *attention.Problem) error {
	not := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", library.ErrNotServed, p.Op, fmt.Sprintf(format, args...))
	}
	if p.DType != dtype.BF16 && p.DType != dtype.F16 {
		return not("%v", p.DType)
	}
	if p.Empty() {
		return not("nothing to compute, or no keys")
	}
	if p.Dim%8 != 0 || p.DimV%8 != 0 {
		return not("widths %d and %d are not multiples of 8", p.Dim, p.DimV)
	}
	if p.Op == attention.Backward && p.Keys%128 != 0 && l.b.version() <= 91500 {
		return not("this version of cuDNN takes no %d keys without padding", p.Keys)
	}
	if p.LSE.DType != dtype.F32 {
		return not("log-sum-exp of type %v", p.LSE.DType)
	}
	wide := []*library.Tensor{&p.Q, &p.K, &p.V, &p.Out}
	if p.Op == attention.Backward {
		wide = append(wide, &p.Grad, &p.DQ, &p.DK, &p.DV)
	}
	for _, t := range wide {
		if t.DType != p.DType {
			return not("tensors of types %v and %v", p.DType, t.DType)
		}
		if !aligned(t) {
			return not("a tensor of shape %v and strides %v at %#x is not made of aligned rows", t.Shape, t.Strides, t.At)
		}
	}
	if b := p.Bias; b != nil && b.DType != p.DType && b.DType != dtype.F32 {
		return not("a bias of type %v", b.DType)
	}
	for _, t := range []*library.Tensor{&p.LSE, p.Bias} {
		if t != nil && t.At%tensorAlign != 0 {
			return not("a tensor of shape %v at %#x, which is no multiple of %d bytes", t.Shape, t.At, tensorAlign)
		}
	}
	return nil
}

// tensorAlign is what the addresses of all tensors are multiples of, as their descriptors say: engines
// move as many bytes at a time.
const tensorAlign = 16

// aligned says that rows are contiguous and begin at multiples of 16 bytes.
func aligned(t *library.Tensor) bool {
	size := int64(t.DType.Size())
	if t.Strides[3] != 1 && t.Shape[3] != 1 || t.At%tensorAlign != 0 {
		return false
	}
	for i := range 3 {
		if t.Shape[i] > 1 && (t.Strides[i]*size%16 != 0 || t.Strides[i] <= 0) {
			return false
		}
	}
	return true
}

type span struct {
	at    driver.Ptr
	words uint64 // of 32 bits
}

// step is a planned call with its addresses.
type step struct {
	lib     *Library
	frees   []func()
	op      string
	engine  *engine
	version int
	fn      driver.CFunc
	arg     uint64
	zero    []span

	before, after driver.Commands // copies
}

// AddTo adds the call on driver.Main.
func (s *step) AddTo(c *driver.Commands) {
	for _, z := range s.zero {
		c.Memset32(driver.Main, z.at, 0, z.words)
	}
	c.Append(&s.before)
	c.Call(driver.Main, s.fn, s.arg)
	c.Append(&s.after)
}

// String names the version, the engine and its workspace.
func (s *step) String() string {
	text := fmt.Sprintf("cudnn %d %s engine %d workspace %d", s.version, s.op, s.engine.index, s.engine.bytes())
	if n := s.engine.graph.copies(); n > 0 {
		text += fmt.Sprintf(", %d tensors in another layout", n)
	}
	return text
}

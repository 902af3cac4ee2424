package lt

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Plan is a matmul that is ready to be enqueued. It is immutable and belongs to its
// handle.
type Plan struct {
	h         *Handle
	problem   Problem
	algo      Algo
	lt        uint64 // the library's plan
	workspace uint64 // bytes it needs
	kernel    kernel

	key   planKey
	steps int  // of the server that use it
	given bool // to a caller of Handle.Plan: it lives as long as the handle
}

// code is the same for plans that need the same code: a kernel of this package serves
// many, what the library chooses is known to be that of the plan only.
func (l *Plan) code() any {
	if l.algo.Skinny != (Skinny{}) {
		return l.algo.Skinny
	}
	return l
}

// Plan finds or makes the plan of a problem: the tuning's algorithm, or else the
// library's first suggestion. It may load code, so it must not be called while a
// kernel waits for a peer, nor under capture.
func (h *Handle) Plan(p Problem) (*Plan, error) { return h.give(p, Algo{}) }

// PlanWith is Plan with a given algorithm, which must be able to do the problem.
func (h *Handle) PlanWith(p Problem, a Algo) (*Plan, error) {
	if a == (Algo{}) {
		return nil, fmt.Errorf("plan of %v: no algorithm is given", &p)
	}
	return h.give(p, a)
}

func (h *Handle) give(p Problem, a Algo) (*Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, err := h.planWithin(p, a, h.opts.Workspace)
	if err == nil {
		l.given = true
	}
	return l, err
}

// take is Plan for a step, which gives the plan back by drop.
func (h *Handle) take(p Problem, limit uint64) (*Plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, err := h.planWithin(p, Algo{}, limit)
	if err == nil {
		l.steps++
	}
	return l, err
}

// drop releases a plan that a step took. It reports whether what the library has of it
// is gone, since the plan has no other owner.
func (h *Handle) drop(l *Plan) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.steps--; l.steps > 0 || l.given {
		return false
	}
	if h.plans[l.key] == l {
		delete(h.plans, l.key)
	}
	h.old = slices.DeleteFunc(h.old, func(o *Plan) bool { return o == l })
	if l.lt == 0 {
		return false
	}
	h.lib.lib.free(l.lt)
	l.lt = 0
	return true
}

// planWithin finds or makes a plan that needs at most limit bytes of workspace. The
// caller holds h.mu.
func (h *Handle) planWithin(p Problem, a Algo, limit uint64) (*Plan, error) {
	key := planKey{p, a, limit}
	if l, ok := h.plans[key]; ok {
		return l, nil
	}
	l := &Plan{h: h, problem: p, algo: a, key: key}
	if err := l.make(limit); err != nil {
		return nil, fmt.Errorf("plan of %v: %w", &p, err)
	}
	h.plans[key] = l
	return l, nil
}

// make chooses the algorithm and builds what it needs. A tuned algorithm that needs
// more workspace than there is gives way to the library's choice.
func (l *Plan) make(limit uint64) error {
	h, p := l.h, &l.problem
	if p.empty() {
		return nil
	}
	if p.K == 0 {
		return l.checkZero()
	}
	if p.Bias != 0 && !p.Swapped {
		return unsupported("a bias of each row")
	}
	tuned := false
	if l.algo == (Algo{}) {
		l.algo, tuned = h.opts.Tuning.Get(*p)
	}
	if tuned && l.algo.Skinny != (Skinny{}) && (!h.canSkinny() || p.Bias != 0) {
		l.algo = Algo{} // a tuning made with a compiler, used without one; our kernels add no bias
	}
	if l.algo.Skinny != (Skinny{}) {
		return l.makeSkinny()
	}
	lt, err := h.lib.lib.plan(h.ctx, h.h, p)
	if err != nil {
		return err
	}
	given := l.algo
	if given != (Algo{}) {
		l.workspace, err = h.lib.lib.use(h.ctx, lt, given)
		if err != nil && tuned { // of another library than it says; the first suggestion always works
			given, err = Algo{}, nil
		}
		if err == nil && l.workspace > limit {
			if !tuned {
				err = fmt.Errorf("%v: %w: %d bytes needed, there are %d", given, ErrNoWorkspace, l.workspace, limit)
			}
			given = Algo{}
		}
	}
	if err == nil && given == (Algo{}) {
		err = l.first(lt, limit)
	}
	if err != nil {
		h.lib.lib.free(lt)
		return err
	}
	l.lt = lt
	return nil
}

// first takes the library's first suggestion.
func (l *Plan) first(lt, limit uint64) error {
	lib := l.h.lib.lib
	list, err := lib.heuristics(l.h.ctx, lt, limit, 1)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return unsupported("cuBLASLt has no algorithm")
	}
	l.algo = list[0]
	l.workspace, err = lib.use(l.h.ctx, lt, l.algo)
	return err
}

// checkZero admits results of sums over nothing that are one range of words.
func (l *Plan) checkZero() error {
	p := &l.problem
	dense := p.Bias == 0 && (p.N == 1 || p.D.LD == p.M) && (p.Batch == 1 || p.D.Stride == p.M*p.N)
	if !dense || l.bytes()%4 != 0 || p.D.Align < 4 {
		return unsupported("a matmul over no elements whose result is not a dense range of words")
	}
	return nil
}

func (l *Plan) bytes() uint64 {
	p := &l.problem
	return uint64(p.M) * uint64(p.N) * uint64(p.Batch) * uint64(p.Out.Size())
}

// Algo is the algorithm in use; zero for a matmul that has nothing to compute.
func (l *Plan) Algo() Algo { return l.algo }

// Workspace is how many bytes of the stream's workspace the matmul uses.
func (l *Plan) Workspace() uint64 { return l.workspace }

// AddTo adds the matmul to a command buffer. a, b and out are the addresses of
// element (0, ..., 0) of the views that the problem was made of. A matmul that needs
// a workspace binds that of the stream, or of driver.Main. Errors wrap ErrNoWorkspace or
// ErrAlign.
func (l *Plan) AddTo(cmds *driver.Commands, s driver.Stream, a, b, out driver.Ptr) error {
	l.h.mu.Lock()
	w := l.h.workspace[s]
	l.h.mu.Unlock()
	return l.addWith(cmds, s, a, b, out, w, false)
}

// addWith is AddTo with a given workspace; early is for kernels of this package.
func (l *Plan) addWith(cmds *driver.Commands, s driver.Stream, a, b, out driver.Ptr, w workspace, early bool) error {
	p := &l.problem
	x, y := a, b
	if p.Swapped {
		x, y = b, a
	}
	if p.empty() {
		return nil
	}
	for _, v := range []struct {
		m  *Matrix
		at driver.Ptr
	}{{&p.X, x}, {&p.Y, y}, {&p.D, out}} {
		if uint64(v.at)%uint64(v.m.Align) != 0 && p.K > 0 {
			return fmt.Errorf("%v: %w %#x, want a multiple of %d", p, ErrAlign, uint64(v.at), v.m.Align)
		}
	}
	if p.K == 0 {
		cmds.Memset32(s, out, 0, l.bytes()/4)
		return nil
	}
	if l.lt == 0 {
		l.kernel.addSkinny(cmds, s, l.algo.Skinny, []Problem{*p}, y, []driver.Ptr{x}, []driver.Ptr{out}, earlyArg(early))
		return nil
	}
	if w.bytes < l.workspace {
		return fmt.Errorf("%v: %w: %d bytes needed, stream %#x has %d", p, ErrNoWorkspace, l.workspace, uint64(s), w.bytes)
	}
	cmds.Call(s, l.h.lib.lib.call(), l.lt, uint64(x), uint64(y), uint64(out), uint64(w.at), w.bytes)
	return nil
}

// Enqueue runs the matmul on a stream. The first run of an algorithm may load its
// code, which can wait for the device: enqueue every plan once, on any memory of the
// right sizes, before a kernel waits for a peer.
func (l *Plan) Enqueue(s driver.Stream, a, b, out driver.Ptr) error {
	var cmds driver.Commands
	if err := l.AddTo(&cmds, s, a, b, out); err != nil {
		return err
	}
	err := l.h.lib.drv.Run(l.h.ctx, cmds.On(s))
	if status, ok := driver.CallStatus(err); ok {
		return fmt.Errorf("%v, %v: %w", &l.problem, l.algo, &StatusError{Call: "cublasLtMatmul", Status: status})
	}
	return err
}

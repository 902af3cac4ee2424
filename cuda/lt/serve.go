package lt

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Server serves the device with matmuls: a library.Library for one rank.
type Server struct {
	h    *Handle
	c    Config
	load *library.Loader
}

// Serve makes a server on a context.
func (l *Library) Serve(ctx driver.Ctx, o Options, c Config) (*Server, error) {
	h, err := l.NewHandle(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Server{h: h, c: c, load: library.NewLoader(l.drv, ctx)}
	err = h.loadPrefetch()
	if err == nil { // what steps fetch with is no part of their own commands
		var trial driver.Commands
		h.addPrefetch(&trial, driver.Main, []library.Memory{{Bytes: 1 << 10}}, 1<<10)
		err = s.load.Load(h.fetch, &trial)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Handle is what the server plans with.
func (s *Server) Handle() *Handle { return s.h }

// ProblemOfCall describes a matmul of a program, or an addmm that adds a number to each column.
// Alignments are those of the operands' addresses. Errors wrap ErrLayout or ErrUnsupported.
func ProblemOfCall(c *library.Call, cfg Config) (Problem, error) {
	want := 2
	if c.Op == "addmm" {
		want = 3
	}
	if c.Op != "matmul" && c.Op != "addmm" || len(c.Ins) != want || len(c.Outs) != 1 {
		return Problem{}, unsupported("%s of %d operands and %d results", c.Op, len(c.Ins), len(c.Outs))
	}
	a, b := c.Ins[want-2], c.Ins[want-1]
	view := func(t library.Tensor) Operand {
		return Operand{Type: t.DType, Shape: t.Shape, Strides: t.Strides, Align: alignment(t.At)}
	}
	if c.SMs != 0 {
		cfg.SMs = c.SMs
	}
	p, err := ProblemOf(view(a), view(b), view(c.Outs[0]), cfg)
	if err != nil || c.Op == "matmul" {
		return p, err
	}
	return p, p.addBias(c)
}

// alignment is what an address is a multiple of, in bytes, 256 at most.
func alignment(at driver.Ptr) int { return 1 << min(bits.TrailingZeros64(uint64(at)), 8) }

// addBias makes the sum of an addmm the epilogue of its matmul. Errors wrap ErrUnsupported.
func (p *Problem) addBias(c *library.Call) error {
	if c.Attrs.Float("alpha", 1) != 1 || c.Attrs.Float("beta", 1) != 1 {
		return unsupported("factors of %s that are not 1", c.Op)
	}
	t := c.Ins[0]
	last := len(t.Shape) - 1
	row := last >= 0 && t.Shape[last] == p.M && (t.Strides[last] == 1 || p.M == 1)
	for i := range last {
		row = row && (t.Shape[i] == 1 || t.Strides[i] == 0)
	}
	if !row || !p.Swapped || t.DType != p.Out || p.Type != p.Out || p.Type == dtype.F64 {
		return unsupported("the sum with %v of shape %v and strides %v is not that with a row", t.DType, t.Shape, t.Strides)
	}
	p.Bias = t.At
	p.D.Align = min(p.D.Align, alignment(t.At)) // the library reads the row as it writes the result
	return nil
}

// Plan implements library.Library. Calls that are no matmul, of types or views that
// have no descriptor, are not served.
func (s *Server) Plan(c *library.Call) (library.Step, error) {
	if c.Op != "matmul" && c.Op != "addmm" {
		return nil, library.ErrOtherOp
	}
	p, err := ProblemOfCall(c, s.c)
	var l *Plan
	if err == nil {
		l, err = s.h.take(p, c.WorkspaceBytes)
	}
	if errors.Is(err, ErrLayout) || errors.Is(err, ErrUnsupported) {
		return nil, fmt.Errorf("%w: %w", library.ErrNotServed, err)
	}
	if err != nil {
		return nil, err
	}
	st := &step{srv: s, plan: l, set: Operands{A: c.Ins[len(c.Ins)-2].At, B: c.Ins[len(c.Ins)-1].At, Out: c.Outs[0].At}, work: workspace{at: c.Workspace, bytes: c.WorkspaceBytes}}
	var trial driver.Commands
	if err := st.add(&trial, false); err != nil { // so that AddTo cannot fail
		return nil, errors.Join(err, st.Release())
	}
	if err := s.load.Load(l.code(), &trial); err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", l.algo, err), st.Release())
	}
	return st, nil
}

// Close implements library.Library.
func (s *Server) Close() error { return s.h.Close() }

// step is a planned matmul at fixed addresses.
type step struct {
	srv  *Server
	plan *Plan
	set  Operands
	work workspace
}

var (
	_ library.Joiner            = (*step)(nil)
	_ library.DependentLauncher = (*step)(nil)
	_ library.Prefetcher        = (*step)(nil)
	_ library.Releaser          = (*step)(nil)
	_ library.DependentLauncher = (*joined)(nil)
	_ library.Prefetcher        = (*joined)(nil)
)

func (s *step) add(c *driver.Commands, early bool) error {
	return s.plan.addWith(c, driver.Main, s.set.A, s.set.B, s.set.Out, s.work, early)
}

// Release implements library.Releaser: the last step of a plan takes it along.
func (s *step) Release() error {
	if s.srv.h.drop(s.plan) {
		s.srv.load.Forget(s.plan)
	}
	return nil
}

// AddTo implements library.Step; Plan has tried it.
func (s *step) AddTo(c *driver.Commands) { _ = s.add(c, false) }

// AddDependentTo implements library.DependentLauncher. Algorithms of the library begin when all before
// them has ended, so their Ahead is empty.
func (s *step) AddDependentTo(c *driver.Commands) { _ = s.add(c, true) }

// Ahead implements library.DependentLauncher.
func (s *step) Ahead() []library.Memory {
	if s.plan.algo.Skinny == (Skinny{}) {
		return nil
	}
	_, b, _ := s.memory()
	return []library.Memory{b}
}

// AddPrefetchTo implements library.Prefetcher: the weights of skinny matmuls.
func (s *step) AddPrefetchTo(c *driver.Commands, limit uint64) {
	s.srv.h.addPrefetch(c, driver.Main, s.Ahead(), limit)
}

// memory is what the operands and the result are in.
func (s *step) memory() (a, b, out library.Memory) {
	p := &s.plan.problem
	span := func(m Matrix, rows, cols int64, size int) uint64 {
		if m.Trans {
			rows, cols = cols, rows
		}
		return uint64((p.Batch-1)*m.Stride+(cols-1)*m.LD+rows) * uint64(size)
	}
	x, y := span(p.X, p.M, p.K, p.Type.Size()), span(p.Y, p.K, p.N, p.Type.Size())
	if p.Swapped {
		x, y = y, x
	}
	return library.Memory{At: s.set.A, Bytes: x}, library.Memory{At: s.set.B, Bytes: y}, library.Memory{At: s.set.Out, Bytes: uint64(p.span())}
}

// String is the algorithm.
func (s *step) String() string {
	if s.plan.algo == (Algo{}) {
		return "empty"
	}
	return s.plan.algo.String()
}

// Join implements library.Joiner: skinny matmuls with the same left operand that
// the tuning has a kernel for.
func (s *step) Join(next []library.Step) (library.Step, int, error) {
	list := []*step{s}
	for _, n := range next {
		t, ok := n.(*step)
		if !ok || t.srv != s.srv || t.set.A != s.set.A || len(list) == maxMembers || !independent(list, t) {
			break
		}
		list = append(list, t)
	}
	for n := len(list); n > 1; n-- {
		var ps []Problem
		var sets []Operands
		for _, t := range list[:n] {
			ps, sets = append(ps, t.plan.problem), append(sets, t.set)
		}
		g, err := s.srv.h.Group(ps)
		if errors.Is(err, ErrUnsupported) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		j := &joined{h: s.srv.h, group: g, sets: sets}
		for _, t := range list[:n] {
			_, b, _ := t.memory()
			j.ahead = append(j.ahead, b)
		}
		var trial driver.Commands
		if err = g.AddTo(&trial, driver.Main, sets, false); err == nil {
			err = s.srv.load.Load(g.algo.Skinny, &trial)
		}
		return j, n - 1, err
	}
	return nil, 0, nil
}

// independent reports whether t may run at the same time as the matmuls in list: no result
// shares memory with an operand or a result of another.
func independent(list []*step, t *step) bool {
	a, b, out := t.memory()
	for _, o := range list {
		oa, ob, oout := o.memory()
		for _, m := range []library.Memory{a, b, out} {
			if m.Overlaps(oout) {
				return false
			}
		}
		if out.Overlaps(oa) || out.Overlaps(ob) {
			return false
		}
	}
	return true
}

// joined is several matmuls in one launch.
type joined struct {
	h     *Handle
	group *Group
	sets  []Operands
	ahead []library.Memory
}

// AddTo implements library.Step; Join has tried it.
func (j *joined) AddTo(c *driver.Commands) { _ = j.group.AddTo(c, driver.Main, j.sets, false) }

// AddDependentTo implements library.DependentLauncher.
func (j *joined) AddDependentTo(c *driver.Commands) { _ = j.group.AddTo(c, driver.Main, j.sets, true) }

// Ahead implements library.DependentLauncher.
func (j *joined) Ahead() []library.Memory { return j.ahead }

// AddPrefetchTo implements library.Prefetcher.
func (j *joined) AddPrefetchTo(c *driver.Commands, limit uint64) {
	j.h.addPrefetch(c, driver.Main, j.ahead, limit)
}

// String is the kernel.
func (j *joined) String() string { return j.group.algo.String() }

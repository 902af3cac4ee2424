package lt

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/cuda/library"
)

// Server serves the device with products: a library.Library for one rank.
type Server struct {
	h *Handle
	c Config
}

// Serve makes a server on a context.
func (l *Library) Serve(ctx cuda.Ctx, o Options, c Config) (*Server, error) {
	h, err := l.NewHandle(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Server{h: h, c: c}, nil
}

// Handle is what the server plans with.
func (s *Server) Handle() *Handle { return s.h }

// ProblemOfCall describes a matmul of a program. Alignments are those of the
// operands' addresses.
func (s *Server) ProblemOfCall(c *library.Call) (Problem, error) {
	if c.Op != "matmul" || len(c.Ins) != 2 || len(c.Outs) != 1 {
		return Problem{}, unsupported("%s of %d operands and %d results", c.Op, len(c.Ins), len(c.Outs))
	}
	view := func(t library.Tensor) Operand {
		return Operand{Type: t.DType, Shape: t.Shape, Strides: t.Strides, Align: 1 << min(bits.TrailingZeros64(uint64(t.At)), 8)}
	}
	cfg := s.c
	if c.SMs != 0 {
		cfg.SMs = c.SMs
	}
	return ProblemOf(view(c.Ins[0]), view(c.Ins[1]), view(c.Outs[0]), cfg)
}

// Plan implements library.Library. Calls that are no product, of types or views that
// have no descriptor, are not served.
func (s *Server) Plan(c *library.Call) (library.Step, error) {
	if c.Op != "matmul" {
		return nil, fmt.Errorf("%w: cuBLASLt does products, not %s", library.ErrNotServed, c.Op)
	}
	p, err := s.ProblemOfCall(c)
	if errors.Is(err, ErrLayout) || errors.Is(err, ErrUnsupported) {
		return nil, fmt.Errorf("%w: %w", library.ErrNotServed, err)
	}
	if err != nil {
		return nil, err
	}
	l, err := s.h.planWithin(p, Algo{}, c.WorkspaceBytes)
	if err != nil {
		return nil, err
	}
	st := &step{plan: l, a: c.Ins[0].At, b: c.Ins[1].At, out: c.Outs[0].At, at: c.Workspace, bytes: c.WorkspaceBytes}
	var trial cuda.Commands
	if err := st.add(&trial); err != nil { // so that AddTo cannot fail
		return nil, err
	}
	return st, nil
}

// Close implements library.Library.
func (s *Server) Close() error { return s.h.Close() }

// step is a planned product at fixed addresses.
type step struct {
	plan      *Plan
	a, b, out cuda.Ptr
	at        cuda.Ptr // workspace
	bytes     uint64
}

func (s *step) add(c *cuda.Commands) error {
	return s.plan.addWith(c, cuda.Main, s.a, s.b, s.out, workspace{at: s.at, bytes: s.bytes})
}

// AddTo implements library.Step; Plan has tried it.
func (s *step) AddTo(c *cuda.Commands) { _ = s.add(c) }

// String is the algorithm.
func (s *step) String() string {
	if s.plan.algo == (Algo{}) {
		return "empty"
	}
	return s.plan.algo.String()
}

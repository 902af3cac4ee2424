// Package gemm multiplies matrices with kernels of our own, compiled when a call is planned:
// matrices of any element types, layouts and alignments, which are the matmuls that no
// library serves, and all of them where no library is installed; and groups of bfloat16 and
// float16, on the tensor cores. It needs no workspace, and its results are bitwise
// reproducible. On the fake driver the host's kernels replace its own.
package gemm

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
)

//go:embed gemm.cu
var source string

// Library serves "matmul", "addmm" and "grouped_matmul". It implements library.Library.
type Library struct {
	host driver.HostDriver // computes calls on the fake driver, else nil
	code *library.Code
}

// Open makes the library of a context, for whose device compile makes machine code.
func Open(drv driver.Driver, ctx driver.Ctx, compile func(name, source string, options ...string) ([]byte, error), log *slog.Logger) (*Library, error) {
	host, _ := drv.(driver.HostDriver)
	if compile == nil && host == nil {
		return nil, errors.New("gemm: no compiler was given")
	}
	return &Library{host: host, code: library.NewCode(drv, ctx, compile, log)}, nil
}

// Plan implements library.Library. What is not served wraps library.ErrNotServed: other
// ops, more than 6 batch dimensions, groups of other types, and more tiles than one launch
// can have.
func (l *Library) Plan(c *library.Call) (library.Step, error) {
	if c.Op == "grouped_matmul" {
		return l.planGrouped(c)
	}
	p, err := problemOf(c)
	if err != nil {
		return nil, err
	}
	blocks, across, tiles, ok := p.blocks()
	if !ok {
		return nil, fmt.Errorf("%w: %s %v of more tiles than a launch can have", library.ErrNotServed, c.Op, p.out.Shape)
	}
	if l.host != nil {
		return library.OnHost(l.host, "gemm", c), nil
	}
	if blocks == 0 {
		return &step{name: "gemm"}, nil
	}
	return l.launch(p, blocks, across, tiles)
}

// PlanSized implements library.SizeReader.
func (l *Library) PlanSized(bounds, sized *library.Call) (library.Step, error) {
	p, err := problemOf(bounds)
	if err != nil {
		return nil, err
	}
	blocks, across, tiles, ok := p.blocks()
	if !ok || len(p.out.Shape) != 2 || bounds.Op != "matmul" {
		return nil, fmt.Errorf("%w: %s %v of sizes in memory", library.ErrNotServed, bounds.Op, p.out.Shape)
	}
	if blocks == 0 {
		return &step{name: "gemm"}, nil
	}
	p.a, p.b, p.c, p.out = sized.Ins[0], sized.Ins[1], sized.Outs[0], sized.Outs[0]
	return l.launch(p, blocks, across, tiles)
}

func (l *Library) launch(p *problem, blocks, across, tiles int64) (library.Step, error) {
	s := &step{name: "gemm"}
	f, err := l.code.Function(p.unit(), "gemm", 0)
	if err != nil {
		return nil, err
	}
	s.cmds.Launch(driver.Main, f, int(blocks), 256, 0, p.params(across, tiles))
	return s, l.code.Load(f, &s.cmds)
}

// Close implements library.Library.
func (l *Library) Close() error { return l.code.Close() }

// step is a planned matmul.
type step struct {
	name string
	cmds driver.Commands
}

// AddTo implements library.Step.
func (s *step) AddTo(c *driver.Commands) { c.Append(&s.cmds) }

// String implements library.Step.
func (s *step) String() string { return s.name }

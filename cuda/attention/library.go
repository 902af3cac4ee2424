package attention

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/symm"
)

// Options are what a Library is opened with.
type Options struct {
	// Compile makes machine code for the rank's device from CUDA C++.
	Compile func(name, source string, options ...string) ([]byte, error)
	// Short limits the library to the calls that Prefer names, for a place before a
	// library that does long sequences faster.
	Short bool
	// Log, if not nil, is told of kernels that do not compile.
	Log *slog.Logger
}

// Library serves "attention" and "attention_backward" of every type, width and layout
// that the IR allows, without dropout. It implements library.Library. A call needs
// little or no workspace, see Workspace, and is reproducible bit by bit.
type Library struct {
	host  driver.HostDriver // computes calls on the fake driver, else nil
	short bool
	code  *library.Code
}

// Open makes the library of a rank. Nothing is compiled before a call is planned.
func Open(drv driver.Driver, r *symm.Rank, o Options) (*Library, error) {
	host, _ := drv.(driver.HostDriver)
	if o.Compile == nil && host == nil {
		return nil, errors.New("attention: no compiler was given")
	}
	return &Library{host: host, short: o.Short, code: library.NewCode(drv, r.Ctx, o.Compile, o.Log)}, nil
}

// Workspace says how many bytes a call needs. What is not served wraps
// library.ErrNotServed.
func (l *Library) Workspace(c *library.Call) (uint64, error) {
	p, err := l.problem(c)
	if err != nil {
		return 0, err
	}
	return formOf(p).workspace(p), nil
}

// problem reads a call that the library serves.
func (l *Library) problem(c *library.Call) (*Problem, error) {
	p, err := ProblemOf(c)
	if err == nil && l.short && !Prefer(p) {
		err = fmt.Errorf("%w: %s of %d queries and %d keys is not short", library.ErrNotServed, p.Op, p.Queries, p.Keys)
	}
	return p, err
}

// Plan readies a call: it compiles and loads the kernels on first use. What it does
// not serve wraps library.ErrNotServed: dropout, lengths from 2^31 on, too little
// workspace, and, with Options.Short, what Prefer does not name.
func (l *Library) Plan(c *library.Call) (library.Step, error) {
	p, err := l.problem(c)
	if err != nil {
		return nil, err
	}
	launches, err := plan(p)
	if err != nil {
		return nil, err
	}
	if l.host != nil {
		return library.OnHost(l.host, "host", c), nil
	}
	s := &step{op: p.Op}
	for _, k := range launches {
		f, err := l.code.Function(&library.Unit{Name: k.unit.name, Source: k.unit.source(), Options: []string{"--std=c++17"}}, k.name, k.shared)
		if err != nil {
			return nil, err
		}
		s.names = append(s.names, k.name)
		s.cmds.Launch(driver.Main, f, k.grid, k.block, k.shared, k.params)
		s.early.LaunchDependent(driver.Main, f, k.grid, k.block, k.shared, k.params)
		s.ahead = k.ahead
		var one driver.Commands // a kernel that needs local memory gets it at its first launch
		one.Launch(driver.Main, f, k.grid, k.block, k.shared, k.params)
		if err := l.code.Load(f, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
	}
	if len(launches) == 0 {
		for _, z := range p.Zero {
			s.cmds.Memset32(driver.Main, z.At, 0, words(&z))
		}
		if err := l.code.Load("zero", &s.cmds); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close unloads the kernels. All steps must have ended.
func (l *Library) Close() error { return l.code.Close() }

// step is a planned call. It implements library.DependentLauncher: a step whose kernels cannot
// begin early reads nothing ahead.
type step struct {
	op          string
	names       []string
	cmds, early driver.Commands
	ahead       []library.Memory // of one launch
}

// AddTo adds the call on driver.Main.
func (s *step) AddTo(c *driver.Commands) { c.Append(&s.cmds) }

// Ahead lists the values, which the short forward kernel reads before the kernel in
// front of it has ended.
func (s *step) Ahead() []library.Memory { return s.ahead }

// AddDependentTo is AddTo with an early launch, if there is anything ahead.
func (s *step) AddDependentTo(c *driver.Commands) {
	if len(s.ahead) == 0 {
		s.AddTo(c)
		return
	}
	c.Append(&s.early)
}

// String names the kernels.
func (s *step) String() string {
	if len(s.names) == 0 {
		return s.op + " of nothing"
	}
	return strings.Join(s.names, " + ")
}

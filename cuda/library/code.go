package library

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
)

// Unit is a translation unit of a library that has kernels of its own.
type Unit struct {
	Name    string
	Source  string
	Options []string // of the compiler
}

// Code is the kernels of a library, each compiled and loaded when a call first needs it.
// One goroutine at a time uses it.
type Code struct {
	drv     driver.Driver
	ctx     driver.Ctx
	compile func(name, source string, options ...string) ([]byte, error)
	log     *slog.Logger // nil: compile errors are not logged
	units   map[string]*loaded
	load    *Loader // once for each kernel
}

// loaded is a translation unit on the device.
type loaded struct {
	module driver.Module
	funcs  map[string]driver.Func
	err    error // why it did not compile
}

// NewCode is code for a context, made by a compiler for its device.
func NewCode(drv driver.Driver, ctx driver.Ctx, compile func(name, source string, options ...string) ([]byte, error), log *slog.Logger) *Code {
	return &Code{drv: drv, ctx: ctx, compile: compile, log: log, units: map[string]*loaded{}, load: NewLoader(drv, ctx)}
}

// freeShared is the dynamic shared memory that needs no permission.
const freeShared = 48 << 10

// Function is a kernel of a unit that may take that much dynamic shared memory. Without a
// compiler the call is not served (ErrNotServed).
func (c *Code) Function(u *Unit, name string, shared int) (driver.Func, error) {
	l := c.units[u.Source]
	if l == nil {
		l = &loaded{funcs: map[string]driver.Func{}}
		c.units[u.Source] = l
		l.module, l.err = c.module(u)
		if l.err != nil && c.log != nil {
			c.log.Warn("kernels of a library", "unit", u.Name, "error", l.err)
		}
	}
	if l.err != nil {
		return 0, l.err
	}
	if f, ok := l.funcs[name]; ok {
		return f, nil
	}
	f, err := c.drv.Function(c.ctx, l.module, name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", u.Name, err)
	}
	if shared > freeShared {
		if err := c.drv.AllowShared(c.ctx, f, shared); err != nil {
			return 0, fmt.Errorf("%s: %d bytes of shared memory: %w", name, shared, err)
		}
	}
	l.funcs[name] = f
	return f, nil
}

func (c *Code) module(u *Unit) (driver.Module, error) {
	image, err := c.compile(u.Name, u.Source, u.Options...)
	if errors.Is(err, nvrtc.ErrNoCompiler) {
		return 0, fmt.Errorf("%w: %w", ErrNotServed, err)
	}
	if err != nil {
		return 0, err
	}
	return c.drv.ModuleLoad(c.ctx, image)
}

// Load is Loader.Load.
func (c *Code) Load(key any, cmds *driver.Commands) error { return c.load.Load(key, cmds) }

// Close unloads the kernels. All steps must have ended.
func (c *Code) Close() error {
	var errs []error
	for _, l := range c.units {
		if l.err == nil {
			errs = append(errs, c.drv.ModuleUnload(c.ctx, l.module))
		}
	}
	c.units = nil
	return errors.Join(errs...)
}

// Package librarytest has helpers for tests of libraries.
package librarytest

import (
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Driver counts what is loaded ahead and what runs. It passes on to the Driver in it,
// or, without one, does as if all went well.
type Driver struct {
	driver.Driver
	Loads int // graphs that were instantiated
	Runs  int // command buffers that were run outside of captures

	shared    driver.Shared
	capturing bool
	streams   int
	graphs    int
}

// Shared is the driver's own.
func (d *Driver) Shared() *driver.Shared { return &d.shared }

// Check fails the test if streams or graphs are left.
func (d *Driver) Check(t testing.TB) {
	t.Helper()
	if d.streams != 0 || d.graphs != 0 || d.capturing {
		t.Errorf("%d streams and %d graphs are left, capturing is %v", d.streams, d.graphs, d.capturing)
	}
}

// StreamCreate implements driver.Driver.
func (d *Driver) StreamCreate(c driver.Ctx) (driver.Stream, error) {
	d.streams++
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.StreamCreate(c)
}

// StreamDestroy implements driver.Driver.
func (d *Driver) StreamDestroy(c driver.Ctx, s driver.Stream) error {
	d.streams--
	if d.Driver == nil {
		return nil
	}
	return d.Driver.StreamDestroy(c, s)
}

// Run implements driver.Driver.
func (d *Driver) Run(c driver.Ctx, words []uint64) error {
	if !d.capturing {
		d.Runs++
	}
	if d.Driver == nil {
		return nil
	}
	return d.Driver.Run(c, words)
}

// CaptureBegin implements driver.Driver.
func (d *Driver) CaptureBegin(c driver.Ctx, s driver.Stream) error {
	d.capturing = true
	if d.Driver == nil {
		return nil
	}
	return d.Driver.CaptureBegin(c, s)
}

// CaptureEnd implements driver.Driver.
func (d *Driver) CaptureEnd(c driver.Ctx, s driver.Stream) (driver.Graph, error) {
	d.capturing = false
	d.graphs++
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.CaptureEnd(c, s)
}

// GraphInstantiate implements driver.Driver.
func (d *Driver) GraphInstantiate(c driver.Ctx, g driver.Graph) (driver.Exec, error) {
	d.Loads++
	d.graphs++
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.GraphInstantiate(c, g)
}

// GraphDestroy implements driver.Driver.
func (d *Driver) GraphDestroy(c driver.Ctx, g driver.Graph) error {
	d.graphs--
	if d.Driver == nil {
		return nil
	}
	return d.Driver.GraphDestroy(c, g)
}

// ExecDestroy implements driver.Driver.
func (d *Driver) ExecDestroy(c driver.Ctx, x driver.Exec) error {
	d.graphs--
	if d.Driver == nil {
		return nil
	}
	return d.Driver.ExecDestroy(c, x)
}

// ModuleLoad implements driver.Driver.
func (d *Driver) ModuleLoad(c driver.Ctx, image []byte) (driver.Module, error) {
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.ModuleLoad(c, image)
}

// ModuleUnload implements driver.Driver.
func (d *Driver) ModuleUnload(c driver.Ctx, m driver.Module) error {
	if d.Driver == nil {
		return nil
	}
	return d.Driver.ModuleUnload(c, m)
}

// Function implements driver.Driver. Names have functions of their own, modules share them.
func (d *Driver) Function(c driver.Ctx, m driver.Module, name string) (driver.Func, error) {
	if d.Driver != nil {
		return d.Driver.Function(c, m, name)
	}
	f := driver.Func(1)
	for _, b := range []byte(name) {
		f = f*31 + driver.Func(b)
	}
	return f, nil
}

// AllowShared implements driver.Driver.
func (d *Driver) AllowShared(c driver.Ctx, f driver.Func, bytes int) error {
	if d.Driver == nil {
		return nil
	}
	return d.Driver.AllowShared(c, f, bytes)
}

// Package librarytest has what tests of libraries share.
package librarytest

import (
	"testing"

	"github.com/seed-ee968945/concert/cuda"
)

// Driver counts what is loaded ahead and what runs. It passes on to the Driver in it,
// or, without one, does as if all went well.
type Driver struct {
	cuda.Driver
	Loads int // graphs that were instantiated
	Runs  int // command buffers that were run outside of captures

	capturing bool
	streams   int
	graphs    int
}

// Check fails the test if streams or graphs are left.
func (d *Driver) Check(t testing.TB) {
	t.Helper()
	if d.streams != 0 || d.graphs != 0 || d.capturing {
		t.Errorf("%d streams and %d graphs are left, capturing is %v", d.streams, d.graphs, d.capturing)
	}
}

// StreamCreate implements cuda.Driver.
func (d *Driver) StreamCreate(c cuda.Ctx) (cuda.Stream, error) {
	d.streams++
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.StreamCreate(c)
}

// StreamDestroy implements cuda.Driver.
func (d *Driver) StreamDestroy(c cuda.Ctx, s cuda.Stream) error {
	d.streams--
	if d.Driver == nil {
		return nil
	}
	return d.Driver.StreamDestroy(c, s)
}

// Run implements cuda.Driver.
func (d *Driver) Run(c cuda.Ctx, words []uint64) error {
	if !d.capturing {
		d.Runs++
	}
	if d.Driver == nil {
		return nil
	}
	return d.Driver.Run(c, words)
}

// CaptureBegin implements cuda.Driver.
func (d *Driver) CaptureBegin(c cuda.Ctx, s cuda.Stream) error {
	d.capturing = true
	if d.Driver == nil {
		return nil
	}
	return d.Driver.CaptureBegin(c, s)
}

// CaptureEnd implements cuda.Driver.
func (d *Driver) CaptureEnd(c cuda.Ctx, s cuda.Stream) (cuda.Graph, error) {
	d.capturing = false
	d.graphs++
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.CaptureEnd(c, s)
}

// GraphInstantiate implements cuda.Driver.
func (d *Driver) GraphInstantiate(c cuda.Ctx, g cuda.Graph) (cuda.Exec, error) {
	d.Loads++
	d.graphs++
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.GraphInstantiate(c, g)
}

// GraphDestroy implements cuda.Driver.
func (d *Driver) GraphDestroy(c cuda.Ctx, g cuda.Graph) error {
	d.graphs--
	if d.Driver == nil {
		return nil
	}
	return d.Driver.GraphDestroy(c, g)
}

// ExecDestroy implements cuda.Driver.
func (d *Driver) ExecDestroy(c cuda.Ctx, x cuda.Exec) error {
	d.graphs--
	if d.Driver == nil {
		return nil
	}
	return d.Driver.ExecDestroy(c, x)
}

// ModuleLoad implements cuda.Driver.
func (d *Driver) ModuleLoad(c cuda.Ctx, image []byte) (cuda.Module, error) {
	if d.Driver == nil {
		return 1, nil
	}
	return d.Driver.ModuleLoad(c, image)
}

// ModuleUnload implements cuda.Driver.
func (d *Driver) ModuleUnload(c cuda.Ctx, m cuda.Module) error {
	if d.Driver == nil {
		return nil
	}
	return d.Driver.ModuleUnload(c, m)
}

// Function implements cuda.Driver. Names have functions of their own, modules share them.
func (d *Driver) Function(c cuda.Ctx, m cuda.Module, name string) (cuda.Func, error) {
	if d.Driver != nil {
		return d.Driver.Function(c, m, name)
	}
	f := cuda.Func(1)
	for _, b := range []byte(name) {
		f = f*31 + cuda.Func(b)
	}
	return f, nil
}

// AllowShared implements cuda.Driver.
func (d *Driver) AllowShared(c cuda.Ctx, f cuda.Func, bytes int) error {
	if d.Driver == nil {
		return nil
	}
	return d.Driver.AllowShared(c, f, bytes)
}

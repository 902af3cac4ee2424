// Package code manages a device's loaded kernels: those of modules, compiled at run time, and
// the device's own for copies, random numbers and sizes (copy.cu).
package code

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/owned"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

//go:embed copy.cu
var copySource string

// Options say who compiles.
type Options struct {
	NVRTC string // path of the compiler's library, empty for its usual names
	Cache string // folder for compiled kernels; empty: the user's; "none": none
	Log   *slog.Logger
}

// Compiler opens the compiler.
func (o *Options) Compiler() (*nvrtc.Compiler, error) {
	dir := o.Cache
	switch dir {
	case "":
		var err error
		if dir, err = nvrtc.DefaultDir(); err != nil {
			dir = "" // no home, no cache
		}
	case "none":
		dir = ""
	}
	return nvrtc.Open(o.NVRTC, dir)
}

// Code is the kernels of one device.
type Code struct {
	log    *slog.Logger
	arch   string
	rtc    *nvrtc.Compiler // nil if there is none
	none   error           // why
	units  map[int]*Unit
	own    []byte              // image of the device's kernels, nil without a compiler
	copies map[int]driver.Func // by element size
	draws  map[dtype.DType]driver.Func
	sizes  driver.Func // 0 without a compiler
}

// Unit is the kernels of one module.
type Unit struct {
	name   string
	life   *lifecycle.Scope // once it is loaded
	image  []byte           // nil without kernels
	shared map[string]int64 // kernels by name, with their dynamic shared memory
	funcs  map[string]driver.Func
}

// New compiles what device dev needs for itself. It touches no device, and so happens before the
// ranks join.
func New(drv driver.Driver, dev int, o Options) (*Code, error) {
	c := &Code{log: o.Log, units: map[int]*Unit{}, copies: map[int]driver.Func{}, draws: map[dtype.DType]driver.Func{}}
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	if dev < 0 || dev >= len(infos) {
		return nil, fmt.Errorf("device %d: this machine has %d devices", dev, len(infos))
	}
	c.arch = nvrtc.Arch(infos[dev].Major, infos[dev].Minor)
	if c.rtc, c.none = o.Compiler(); c.none != nil {
		return c, nil
	}
	c.own, _, err = c.rtc.Compile("copy", copySource, []string{"--std=c++17", c.arch})
	return c, err
}

// Compile compiles the kernels of module n.
func (c *Code) Compile(n int, u *rt.Unit) error {
	v := &Unit{name: u.Name, shared: map[string]int64{}, funcs: map[string]driver.Func{}}
	if len(u.Kernels) > 0 {
		if err := c.compile(v, u); err != nil {
			return err
		}
	}
	c.units[n] = v
	return nil
}

func (c *Code) compile(v *Unit, u *rt.Unit) error {
	if c.rtc == nil {
		return fmt.Errorf("module %s has kernels: %w", u.Name, c.none)
	}
	start := time.Now()
	image, cached, err := c.rtc.Compile(u.Name, u.Source, append(slices.Clone(u.Flags), c.arch))
	if err != nil {
		return err
	}
	if c.log != nil {
		c.log.Info("compiled", "module", u.Name, "kernels", len(u.Kernels), "bytes", len(image), "cached", cached, "took", time.Since(start))
	}
	v.image = image
	for i := range u.Kernels {
		v.shared[u.Kernels[i].Name] = u.Kernels[i].Shared
	}
	return nil
}

// Unit is module n, nil if it was not compiled.
func (c *Code) Unit(n int) *Unit { return c.units[n] }

// maxStaticShared is the dynamic shared memory that needs no permission.
const maxStaticShared = 48 << 10

// Load brings the device's own kernels to it.
func (c *Code) Load(m owned.Maker) error {
	if c.own == nil {
		return nil
	}
	mod, err := m.Module(c.own)
	if err != nil {
		return err
	}
	c.own = nil
	for _, size := range []int{1, 2, 4, 8} {
		if c.copies[size], err = m.Driver.Function(m.Ctx, mod, fmt.Sprintf("concert_copy%d", 8*size)); err != nil {
			return err
		}
	}
	if c.sizes, err = m.Driver.Function(m.Ctx, mod, "concert_sizes"); err != nil {
		return err
	}
	for _, dt := range drawn {
		if c.draws[dt], err = m.Driver.Function(m.Ctx, mod, "concert_rand_"+dt.String()); err != nil {
			return err
		}
	}
	return nil
}

// Load brings a module's kernels to the device, and looks up every one. They live in a scope of m's.
func (u *Unit) Load(m owned.Maker) (err error) {
	if u == nil || u.image == nil {
		return nil
	}
	if u.life, err = m.Life.New("kernels of " + u.name); err != nil {
		return err
	}
	m.Life = u.life
	mod, err := m.Module(u.image)
	if err != nil {
		return fmt.Errorf("module %s: %w", u.name, err)
	}
	u.image = nil
	for name, shared := range u.shared {
		f, err := m.Driver.Function(m.Ctx, mod, name)
		if err != nil {
			return fmt.Errorf("module %s: %w", u.name, err)
		}
		if shared > maxStaticShared {
			if err := m.Driver.AllowShared(m.Ctx, f, int(shared)); err != nil {
				return fmt.Errorf("module %s: kernel %s: %d bytes of shared memory: %w", u.name, name, shared, err)
			}
		}
		u.funcs[name] = f
	}
	return nil
}

// Unload gives module n back, once drop has let go of what has its kernels.
func (c *Code) Unload(n int, drop func(u *Unit) error) error {
	u := c.units[n]
	if u == nil {
		return nil
	}
	delete(c.units, n)
	err := drop(u)
	if u.life != nil {
		err = errors.Join(err, u.life.EndInCall())
	}
	return err
}

// Function is a loaded kernel of module n.
func (c *Code) Function(n int, name string) (driver.Func, error) {
	if u := c.units[n]; u != nil {
		if f, ok := u.funcs[name]; ok {
			return f, nil
		}
	}
	return 0, fmt.Errorf("kernel %q of module %d was not compiled", name, n)
}

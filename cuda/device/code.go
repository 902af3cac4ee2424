package device

import (
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
)

//go:embed copy.cu
var copySource string

// code is the compiled kernels of a device: those of the modules, and the copy kernel.
type code struct {
	units  []unit
	noCopy error               // why there is no copy kernel
	copies map[int]driver.Func // by element size
	draws  map[dtype.DType]driver.Func
}

type unit struct {
	name   string
	image  []byte
	shared map[string]int64 // kernels by name, with their dynamic shared memory
	funcs  map[string]driver.Func
	copy   bool
}

// compile compiles everything that a device will run. It touches no device, and so
// happens before the ranks meet.
func compile(drv driver.Driver, dev int, units []rt.Unit, o *Options) (*code, error) {
	c := &code{copies: map[int]driver.Func{}, draws: map[dtype.DType]driver.Func{}}
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	if dev < 0 || dev >= len(infos) {
		return nil, fmt.Errorf("device %d: this machine has %d devices", dev, len(infos))
	}
	rtc, err := compiler(o)
	if err != nil {
		for _, u := range units {
			if u.Source != "" && len(u.Kernels) > 0 {
				return nil, fmt.Errorf("module %s has kernels: %w", u.Name, err)
			}
		}
		c.noCopy = err
	}
	arch := nvrtc.Arch(infos[dev].Major, infos[dev].Minor)
	for _, u := range units {
		if len(u.Kernels) == 0 {
			c.units = append(c.units, unit{name: u.Name})
			continue
		}
		if u.Source == "" {
			return nil, fmt.Errorf("module %s has kernels without source: it was made for the host only", u.Name)
		}
		start := time.Now()
		image, cached, err := rtc.Compile(u.Name, u.Source, append(slices.Clone(u.Flags), arch))
		if err != nil {
			return nil, err
		}
		if o.Log != nil {
			o.Log.Info("compiled", "module", u.Name, "kernels", len(u.Kernels), "bytes", len(image), "cached", cached, "took", time.Since(start))
		}
		v := unit{name: u.Name, image: image, shared: map[string]int64{}, funcs: map[string]driver.Func{}}
		for i := range u.Kernels {
			v.shared[u.Kernels[i].Name] = u.Kernels[i].Shared
		}
		c.units = append(c.units, v)
	}
	if c.noCopy == nil {
		image, _, err := rtc.Compile("copy", copySource, []string{"--std=c++17", arch})
		if err != nil {
			return nil, err
		}
		c.units = append(c.units, unit{name: "copy", image: image, copy: true})
	}
	return c, nil
}

// compiler opens the compiler that the options choose.
func compiler(o *Options) (*nvrtc.Compiler, error) {
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

// maxStaticShared is the dynamic shared memory that needs no permission.
const maxStaticShared = 48 << 10

// load brings the images to a device and looks up every kernel.
func (c *code) load(d *Device) error {
	drv, ctx := d.drv, d.rank.Ctx
	for i := range c.units {
		u := &c.units[i]
		if u.image == nil {
			continue
		}
		m, err := drv.ModuleLoad(ctx, u.image)
		if err != nil {
			return fmt.Errorf("module %s: %w", u.name, err)
		}
		d.life.Defer("module", func() error { return drv.ModuleUnload(ctx, m) })
		u.image = nil
		if u.copy {
			for _, size := range []int{1, 2, 4, 8} {
				if c.copies[size], err = drv.Function(ctx, m, fmt.Sprintf("concert_copy%d", 8*size)); err != nil {
					return err
				}
			}
			for _, dt := range []dtype.DType{dtype.F16, dtype.BF16, dtype.F32, dtype.F64} {
				if c.draws[dt], err = drv.Function(ctx, m, "concert_rand_"+dt.String()); err != nil {
					return err
				}
			}
			continue
		}
		for name, shared := range u.shared {
			f, err := drv.Function(ctx, m, name)
			if err != nil {
				return fmt.Errorf("module %s: %w", u.name, err)
			}
			if shared > maxStaticShared {
				if err := drv.AllowShared(ctx, f, int(shared)); err != nil {
					return fmt.Errorf("module %s: kernel %s: %d bytes of shared memory: %w", u.name, name, shared, err)
				}
			}
			u.funcs[name] = f
		}
	}
	return nil
}

// function is a loaded kernel of a module.
func (c *code) function(unit int, name string) (driver.Func, error) {
	if unit >= 0 && unit < len(c.units) {
		if f, ok := c.units[unit].funcs[name]; ok {
			return f, nil
		}
	}
	return 0, fmt.Errorf("kernel %q of module %d was not compiled", name, unit)
}

// copy adds a copy between layouts.
func (c *code) copy(cmds *driver.Commands, to, from driver.Ptr, dst, src rt.Tensor) error {
	f, ok := c.copies[dst.DType.Size()]
	if !ok {
		return fmt.Errorf("a copy from %v to %v needs a kernel: %w", src, dst, c.noCopy)
	}
	shape, ts, fs, err := strided(dst, src)
	if err != nil {
		return err
	}
	params, count := copyParams(to, from, shape, ts, fs)
	const block, per = 256, 4
	grid := min((count+block*per-1)/(block*per), 2048)
	cmds.Launch(driver.Main, f, int(max(grid, 1)), block, 0, params)
	return nil
}

// draw adds filling a tensor with the random numbers of a seed.
func (c *code) draw(cmds *driver.Commands, to driver.Ptr, t rt.Tensor, seed uint64) error {
	f, ok := c.draws[t.DType]
	switch {
	case c.noCopy != nil:
		return fmt.Errorf("random numbers need a kernel: %w", c.noCopy)
	case !ok:
		return fmt.Errorf("random numbers are floats, not %v", t.DType)
	}
	shape, strides, _, err := strided(t, t)
	if err != nil {
		return err
	}
	// The seed stands where a copy has its source.
	params, count := copyParams(to, driver.Ptr(splitMix(seed)), shape, strides, strides)
	const block, per = 256, 4
	cmds.Launch(driver.Main, f, int(min((count+block*per-1)/(block*per), 2048)), block, 0, params)
	return nil
}

// splitMix is a step of SplitMix64, as the host's kernels take it.
func splitMix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// zero adds clearing of a tensor with gaps.
func (c *code) zero(cmds *driver.Commands, to driver.Ptr, t rt.Tensor) error {
	return c.copy(cmds, to, 0, t, t)
}

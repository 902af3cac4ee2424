package device

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/lifecycle"
	rt "github.com/seed-ee968945/concert/runtime"
)

//go:embed copy.cu
var copySource string

// code is the compiled kernels of a device: those of the modules, and its own.
type code struct {
	o      *Options
	arch   string
	rtc    *nvrtc.Compiler // nil if there is none
	none   error           // why
	units  map[int]*unit
	own    []byte              // image of the device's kernels, nil without a compiler
	copies map[int]driver.Func // by element size
	draws  map[dtype.DType]driver.Func
	sizes  driver.Func // 0 without a compiler
}

type unit struct {
	name   string
	life   *lifecycle.Scope // once it is loaded
	image  []byte           // nil without kernels
	shared map[string]int64 // kernels by name, with their dynamic shared memory
	funcs  map[string]driver.Func
}

// newCode compiles what the device needs for itself. It touches no device, and so happens
// before the ranks meet.
func newCode(drv driver.Driver, dev int, o *Options) (*code, error) {
	c := &code{o: o, units: map[int]*unit{}, copies: map[int]driver.Func{}, draws: map[dtype.DType]driver.Func{}}
	infos, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	if dev < 0 || dev >= len(infos) {
		return nil, fmt.Errorf("device %d: this machine has %d devices", dev, len(infos))
	}
	c.arch = nvrtc.Arch(infos[dev].Major, infos[dev].Minor)
	if c.rtc, c.none = compiler(o); c.none != nil {
		return c, nil
	}
	c.own, _, err = c.rtc.Compile("copy", copySource, []string{"--std=c++17", c.arch})
	return c, err
}

// compile compiles a module's kernels.
func (c *code) compile(u *rt.Unit) (*unit, error) {
	v := &unit{name: u.Name, shared: map[string]int64{}, funcs: map[string]driver.Func{}}
	switch {
	case len(u.Kernels) == 0:
		return v, nil
	case c.rtc == nil:
		return nil, fmt.Errorf("module %s has kernels: %w", u.Name, c.none)
	}
	start := time.Now()
	image, cached, err := c.rtc.Compile(u.Name, u.Source, append(slices.Clone(u.Flags), c.arch))
	if err != nil {
		return nil, err
	}
	if c.o.Log != nil {
		c.o.Log.Info("compiled", "module", u.Name, "kernels", len(u.Kernels), "bytes", len(image), "cached", cached, "took", time.Since(start))
	}
	v.image = image
	for i := range u.Kernels {
		v.shared[u.Kernels[i].Name] = u.Kernels[i].Shared
	}
	return v, nil
}

// Compile implements runtime.Device.
func (d *Device) Compile(n int, u rt.Unit) error {
	var v *unit
	var err error
	switch {
	case len(u.Kernels) > 0 && u.Source == "":
		err = fmt.Errorf("module %s has kernels without source: it was made for the host only", u.Name)
	case d.code == nil:
		return nil
	default:
		v, err = d.code.compile(&u)
	}
	if err != nil {
		return &rt.RendezvousError{Rank: d.spec.Rank, Reason: "cannot compile the modules' kernels", Err: err}
	}
	d.code.units[n] = v
	return nil
}

// Load implements runtime.Device.
func (d *Device) Load(n int) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if d.code == nil || d.code.units[n] == nil || d.code.units[n].image == nil {
		return nil
	}
	return d.code.units[n].load(d)
}

// Unload implements runtime.Device.
func (d *Device) Unload(n int) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if d.code == nil || d.code.units[n] == nil {
		return nil
	}
	u := d.code.units[n]
	delete(d.code.units, n)
	err := d.forget(func(p *plan) bool { return p.unit == u })
	if u.life != nil {
		err = errors.Join(err, u.life.EndInCall())
	}
	return err
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

// drawn are the types that copy.cu has random numbers of.
var drawn = []dtype.DType{dtype.F8E5M2, dtype.F8E4M3, dtype.F8E3M4, dtype.F8E4M3FN, dtype.F8E5M2FNUZ, dtype.F8E4M3FNUZ, dtype.F8E4M3B11FNUZ, dtype.F16, dtype.BF16, dtype.F32, dtype.F64}

// load brings the device's own kernels to it.
func (c *code) load(d *Device) error {
	if c.own == nil {
		return nil
	}
	m, err := d.module(d.life, c.own)
	if err != nil {
		return err
	}
	c.own = nil
	for _, size := range []int{1, 2, 4, 8} {
		if c.copies[size], err = d.drv.Function(d.rank.Ctx, m, fmt.Sprintf("concert_copy%d", 8*size)); err != nil {
			return err
		}
	}
	if c.sizes, err = d.drv.Function(d.rank.Ctx, m, "concert_sizes"); err != nil {
		return err
	}
	for _, dt := range drawn {
		if c.draws[dt], err = d.drv.Function(d.rank.Ctx, m, "concert_rand_"+dt.String()); err != nil {
			return err
		}
	}
	return nil
}

// load brings a module's kernels to a device, and looks up every one.
func (u *unit) load(d *Device) (err error) {
	drv, ctx := d.drv, d.rank.Ctx
	if u.life, err = d.life.New("kernels of " + u.name); err != nil {
		return err
	}
	m, err := d.module(u.life, u.image)
	if err != nil {
		return fmt.Errorf("module %s: %w", u.name, err)
	}
	u.image = nil
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
	return nil
}

// function is a loaded kernel of a module.
func (c *code) function(unit int, name string) (driver.Func, error) {
	if u := c.units[unit]; u != nil {
		if f, ok := u.funcs[name]; ok {
			return f, nil
		}
	}
	return 0, fmt.Errorf("kernel %q of module %d was not compiled", name, unit)
}

// copy adds a copy between layouts.
func (c *code) copy(cmds *driver.Commands, to, from driver.Ptr, dst, src rt.Tensor) error {
	f, ok := c.copies[dst.DType.Size()]
	if !ok {
		return fmt.Errorf("a copy from %v to %v needs a kernel: %w", src, dst, c.none)
	}
	shape, ts, fs, err := layout.Merge(dst, src)
	if err != nil {
		return err
	}
	params, count := copyParams(to, from, shape, ts, fs)
	const block, per = 256, 4
	grid := min((count+block*per-1)/(block*per), 2048)
	cmds.Launch(driver.Main, f, int(max(grid, 1)), block, 0, params)
	return nil
}

// copySized adds a copy whose sizes and strides may lie in memory, to a result that is at its bounds.
func (c *code) copySized(cmds *driver.Commands, to, from driver.Ptr, dst rt.Tensor, n int64, shape, ts, fs []int64) error {
	f, ok := c.copies[dst.DType.Size()]
	if !ok {
		return fmt.Errorf("a copy of a size that a tensor holds needs a kernel: %w", c.none)
	}
	params, _ := copyParams(to, from, shape, ts, fs)
	binary.LittleEndian.PutUint64(params[16:], uint64(n))
	const block, per = 256, 4
	cmds.Launch(driver.Main, f, int(max(min((dst.NumElems()+block*per-1)/(block*per), 2048), 1)), block, 0, params)
	return nil
}

// draw adds filling a tensor with the random numbers of a seed.
func (c *code) draw(cmds *driver.Commands, to driver.Ptr, t rt.Tensor, seed uint64) error {
	f, ok := c.draws[t.DType]
	if !ok && c.none == nil {
		return &UnservedError{Op: "rand", Reason: fmt.Sprintf("random numbers of %v are drawn on the host only", t.DType)}
	}
	if !ok {
		return fmt.Errorf("random numbers need a kernel: %w", c.none)
	}
	shape, strides, _, err := layout.Merge(t, t)
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

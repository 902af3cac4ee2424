package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ee968945/concert/cuda/device/internal/code"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/internal/dim"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Sizes that tensors hold, in captured steps. A kernel of one block computes, in front of what
// needs them, the expressions that a stream's calls name, and leaves them in words of memory.
// Kernels are given the words' addresses in the place of numbers, and have the grid of the
// bounds. Another such kernel, behind what reads sizes, checks them: what is wrong it tells the
// host, which breaks the world, and all sizes are 0 from then on.

// badSizes is what kernels tell of sizes that are wrong: a page of the host's, and a word of the
// device that is not 0 once they have.
type badSizes struct {
	mu     sync.Mutex
	host   uintptr
	seen   driver.Ptr
	wrong  driver.Ptr
	checks []*rt.SizeCheck // by number
}

// wordsBytes is what a recording takes at a time.
const wordsBytes = 64 << 10

// ReadSizes implements runtime.SizeReader.
func (d *Device) ReadSizes(s rt.Stream, c *rt.SizeCheck) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	if err := d.makeBadSizes(); err != nil {
		return d.call("sizes", err)
	}
	d.badSizes.mu.Lock()
	d.badSizes.checks = append(d.badSizes.checks, c)
	n := len(d.badSizes.checks) - 1
	d.badSizes.mu.Unlock()
	_, err = d.settle(st, &c.DynamicSizes, c.Needs, n)
	return d.orHost("sizes", err)
}

// HostReads implements runtime.SizeReader.
func (d *Device) HostReads(why error) {
	if d.rec != nil && d.rec.hostReads == nil {
		d.rec.hostReads = why
	}
}

// orHost leaves to the host what the device cannot read.
func (d *Device) orHost(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rt.ErrUnsupported):
		d.HostReads(err)
		return nil
	}
	return d.call(op, err)
}

// makeBadSizes makes the page, which lives as long as the device.
func (d *Device) makeBadSizes() error {
	t := &d.badSizes
	if t.wrong != 0 {
		return nil
	}
	wrong, err := d.own(d.life).Alloc(256)
	if err != nil {
		return err
	}
	host, seen, err := d.drv.HostAlloc(d.rank.Ctx, code.ToldBytes)
	if err != nil {
		return err
	}
	err = d.life.Defer("sizes", func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.host = 0
		return d.drv.HostFree(d.rank.Ctx, host)
	})
	if err == nil {
		err = d.drv.Memset32(d.rank.Ctx, d.rank.Setup(), wrong, 0, 1)
	}
	if err == nil {
		err = d.drv.StreamSync(d.rank.Ctx, d.rank.Setup())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.host, t.seen, t.wrong = host, seen, wrong
	return err
}

// error is what kernels have told, nil if nothing.
func (t *badSizes) error() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.host == 0 {
		return nil
	}
	n := hostmem.Load32(t.host)
	if n == 0 {
		return nil
	}
	c, values := t.checks[n-1], map[string]int64{}
	for i, r := range c.Reads {
		values[r.Symbol] = int64(binary.LittleEndian.Uint64(hostmem.Bytes(t.host, code.ToldBytes)[8+8*i:]))
	}
	if err := c.Error(values); err != nil {
		return err
	}
	return fmt.Errorf("sizes %v, which a tensor held, were wrong: %w", values, rt.ErrSymbol)
}

// room takes words of the device's for as long as the step lives.
func (r *recording) room(words int) (driver.Ptr, error) {
	need := uint64(8 * words)
	if need > r.left {
		at, err := r.d.borrow(r.life, max(need, wordsBytes))
		if err != nil {
			return 0, err
		}
		r.free, r.left = at, max(need, wordsBytes)
	}
	at := r.free
	r.free, r.left = r.free+driver.Ptr(need), r.left-need
	return at, nil
}

// settle adds the kernel that computes expressions, and gives the first of their words; with the
// number of a check the expressions must not be negative, and have none. Without one it is -1.
func (d *Device) settle(st *stream, l *rt.DynamicSizes, list []dim.Dim, check int) (driver.Ptr, error) {
	if err := d.makeBadSizes(); err != nil {
		return 0, err
	}
	if len(l.Reads) > code.MostSymbols {
		return 0, fmt.Errorf("%d sizes that tensors hold in one call: %w", len(l.Reads), rt.ErrUnsupported)
	}
	table, err := code.SizesTable(l, list, int64(d.base), check >= 0)
	if err != nil {
		return 0, err
	}
	at, err := d.rec.room(len(table) + len(list))
	if err != nil {
		return 0, err
	}
	words := at + driver.Ptr(8*len(table))
	var b []byte
	for _, v := range table {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	if err := d.drv.CopyIn(d.rank.Ctx, d.rank.Setup(), at, b); err != nil {
		return 0, d.driver("sizes", err)
	}
	p := &plan{name: "sizes", algo: "sizes"}
	k := code.Sizes{Table: at, Words: words, Wrong: d.badSizes.wrong, Told: d.badSizes.seen, Symbols: len(l.Reads), Expressions: len(list), Check: check}
	if d.host == nil {
		if err := d.code.AddSizes(&p.cmds, k); err != nil {
			return 0, fmt.Errorf("%w: %w", err, rt.ErrUnsupported)
		}
		return words, d.emit(st, p)
	}
	d.host.add(&p.cmds, d, p.name, func() error {
		k.OnHost(table, d.badSizes.host)
		return nil
	})
	return words, d.emit(st, p)
}

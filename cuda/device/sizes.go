package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

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

// told is what kernels tell of sizes that are wrong: a page of the host's, and a word of the
// device that is not 0 once they have.
type told struct {
	mu     sync.Mutex
	host   uintptr
	seen   driver.Ptr
	wrong  driver.Ptr
	checks []*rt.SizeCheck // by number
}

const (
	mostSymbols = 64 // of one kernel; copy.cu has the same number
	toldBytes   = 8 + 8*mostSymbols
	wordsBytes  = 64 << 10 // that a recording takes at a time
)

// ReadSizes implements runtime.SizeReader.
func (d *Device) ReadSizes(s rt.Stream, c *rt.SizeCheck) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	if err := d.makeTold(); err != nil {
		return d.call("sizes", err)
	}
	d.told.mu.Lock()
	d.told.checks = append(d.told.checks, c)
	n := len(d.told.checks) - 1
	d.told.mu.Unlock()
	_, err = d.settle(st, &c.Late, c.Needs, n)
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

// makeTold makes the page, which lives as long as the device.
func (d *Device) makeTold() error {
	t := &d.told
	if t.wrong != 0 {
		return nil
	}
	wrong, err := d.alloc(d.life, 256)
	if err != nil {
		return err
	}
	host, seen, err := d.drv.HostAlloc(d.rank.Ctx, toldBytes)
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
func (t *told) error() error {
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
		values[r.Symbol] = int64(binary.LittleEndian.Uint64(hostmem.Bytes(t.host, toldBytes)[8+8*i:]))
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
		at, err := r.d.alloc(r.life, max(need, wordsBytes))
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
func (d *Device) settle(st *stream, l *rt.Late, list []dim.Dim, check int) (driver.Ptr, error) {
	if err := d.makeTold(); err != nil {
		return 0, err
	}
	if len(l.Reads) > mostSymbols {
		return 0, fmt.Errorf("%d sizes that tensors hold in one call: %w", len(l.Reads), rt.ErrUnsupported)
	}
	code, err := d.sizesCode(l, list, check >= 0)
	if err != nil {
		return 0, err
	}
	at, err := d.rec.room(len(code) + len(list))
	if err != nil {
		return 0, err
	}
	words := at + driver.Ptr(8*len(code))
	var b []byte
	for _, v := range code {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	if err := d.drv.CopyIn(d.rank.Ctx, d.rank.Setup(), at, b); err != nil {
		return 0, d.driver("sizes", err)
	}
	p := &plan{name: "sizes", algo: "sizes"}
	if d.host != nil {
		d.host.add(&p.cmds, d, p.name, func() error {
			d.sizesOnHost(code, words, len(l.Reads), len(list), check)
			return nil
		})
		return words, d.emit(st, p)
	}
	var params []byte
	for _, v := range []driver.Ptr{at, words, d.told.wrong, d.told.seen} {
		params = binary.LittleEndian.AppendUint64(params, uint64(v))
	}
	for _, v := range []int{len(l.Reads), len(list), check} {
		params = binary.LittleEndian.AppendUint32(params, uint32(v))
	}
	if d.code.sizes == 0 {
		return 0, fmt.Errorf("sizes that tensors hold need a kernel: %w: %w", d.code.none, rt.ErrUnsupported)
	}
	p.cmds.Launch(driver.Main, d.code.sizes, 1, mostSymbols, 0, params)
	return words, d.emit(st, p)
}

// sizesCode is what the kernel reads.
func (d *Device) sizesCode(l *rt.Late, list []dim.Dim, checks bool) ([]int64, error) {
	var head, code []int64
	for _, r := range l.Reads {
		head = append(head, int64(d.base)+r.At.Off, r.Max)
	}
	first := len(head) + 2*len(list)
	for i, e := range list {
		word := int64(i)
		if checks {
			word = -1
		}
		head = append(head, int64(first+len(code)), word)
		var err error
		code, err = e.AppendCode(code, func(name string) (int, int64) {
			return slices.IndexFunc(l.Reads, func(r rt.SizeRead) bool { return r.Symbol == name }), l.Known[name]
		})
		if err != nil {
			return nil, fmt.Errorf("size %v: %w: %w", e, err, rt.ErrUnsupported)
		}
	}
	return append(head, code...), nil
}

// sizesOnHost is the kernel on the fake driver.
func (d *Device) sizesOnHost(code []int64, words driver.Ptr, symbols, list, check int) {
	word := func(at driver.Ptr) []byte { return driver.HostBytes(at, 8) }
	values := make([]int64, symbols)
	wrong := binary.LittleEndian.Uint32(driver.HostBytes(d.told.wrong, 4))
	before := wrong
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(word(driver.Ptr(code[2*i]))))
		if values[i] < 0 || values[i] > code[2*i+1] {
			wrong = 1
		}
	}
	for pass := range 2 {
		for i := range list {
			from, to := code[2*(symbols+i)], code[2*(symbols+i)+1]
			if pass == 0 && to < 0 && wrong == 0 && dim.RunCode(code[from:], values) < 0 {
				wrong = 1
			}
			if pass == 1 && to >= 0 {
				v := int64(0)
				if wrong == 0 {
					v = dim.RunCode(code[from:], values)
				}
				binary.LittleEndian.PutUint64(word(words+driver.Ptr(8*to)), uint64(v))
			}
		}
	}
	if wrong != 0 && before == 0 {
		binary.LittleEndian.PutUint32(driver.HostBytes(d.told.wrong, 4), 1)
		for i, v := range values {
			binary.LittleEndian.PutUint64(hostmem.Bytes(d.told.host, toldBytes)[8+8*i:], uint64(v))
		}
		hostmem.Store32(d.told.host, uint32(check+1))
	}
}

package device

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/seed-ee968945/concert/cuda/device/internal/code"
	"github.com/seed-ee968945/concert/cuda/device/internal/progress"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/nccl"
	rt "github.com/seed-ee968945/concert/runtime"
)

// plan is one call, ready to be made any number of times: commands, or a Go function
// that enqueues by itself.
type plan struct {
	name    string
	algo    string
	group   *group          // of a collective
	calls   []progress.Call // the collective, for the group's log
	stream  *stream         // whose workspace it has, nil for none
	unit    *code.Unit      // whose kernel it launches
	regions []rt.Region     // of the arena, that it reads or writes
	cmds    driver.Commands
	call    func(st *stream) error // instead of cmds
	ops     []nccl.Op              // what call gives to NCCL, for groups that it serves
	step    library.Step           // what cmds are, if they are one call of a library
	asked   *library.Call          // what step is, of a matmul

	owned   library.Releaser // a call of a library that cmds have and that has to be given back, see held.go
	holders int              // under Device.mu

	// writes is what a generated kernel writes: memory that the call behind it must not
	// read early. Empty for what lets no call begin early.
	writes []library.Memory

	// Of a reduction overlapped with compute: cmds without waiting for its end, see deferred.go;
	// what it reads and writes; and how many parts of staging it fills.
	ahead   *driver.Commands
	touches [2][]library.Memory
	parts   int
}

// maxPlans bounds the plans that are kept: a program whose arguments never repeat, as
// with run-time sizes, must not fill the memory.
const maxPlans = 1 << 16

// planned finds the plan of a key, or makes it. It works on the tensors.
func (d *Device) planned(key []byte, make func() (*plan, error), tensors ...[]rt.Tensor) (*plan, error) {
	if p := d.plans[string(key)]; p != nil {
		return p, nil
	}
	name := string(key) // the buffer may serve other keys meanwhile
	if err := d.giveBack(); err != nil {
		return nil, err
	}
	p, err := make()
	if err != nil && p != nil && p.owned != nil { // it has not run
		err = errors.Join(err, p.owned.Release())
	}
	if err != nil {
		return nil, err
	}
	for _, ts := range tensors {
		for i := range ts {
			lo, hi, _ := ts[i].Span() // which make has checked
			if at, ok := d.domain.Region(lo, hi); ok && !slices.Contains(p.regions, at) {
				p.regions = append(p.regions, at)
			}
		}
	}
	d.keep(name, p)
	return p, nil
}

// emit runs a plan on a stream, or adds it to the capture.
func (d *Device) emit(st *stream, p *plan) error {
	if d.rec != nil {
		d.rec.add(item{st: st, plan: p})
		return nil
	}
	st.loose = true
	if p.group != nil && p.group.log != nil {
		d.latest.Store(&p.calls[0])
		p.group.log.Add(p.calls)
	}
	end, err := d.traced(st, p)
	if err != nil {
		return d.driver(p.name, err)
	}
	if p.call != nil {
		err = p.call(st)
	} else if p.cmds.Len() > 0 {
		err = d.drv.Run(d.rank.Ctx, p.cmds.On(st.h))
	}
	if err == nil && end != 0 {
		err = d.drv.EventRecord(d.rank.Ctx, end, st.h)
	}
	return d.driver(p.name, err)
}

// Keys hold everything that a plan depends on.

func (d *Device) begin(kind byte) []byte { return append(d.key[:0], kind) }

func text(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func ints(b []byte, v []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	for _, x := range v {
		b = binary.AppendVarint(b, x)
	}
	return b
}

func tensors(b []byte, ts []rt.Tensor) []byte {
	b = binary.AppendUvarint(b, uint64(len(ts)))
	for i := range ts {
		t := &ts[i]
		b = binary.AppendVarint(append(b, byte(t.DType)), t.Off)
		b = ints(b, t.Shape)
		if t.Strides != nil {
			b = ints(append(b, 1), t.Strides)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// kernelKey names a launch; what its stream is counts for its workspace.
func (d *Device) kernelKey(k *rt.Kernel, st *stream) []byte {
	b := text(text(d.begin('k'), k.Op), k.Target)
	b = binary.AppendVarint(binary.AppendVarint(b, int64(k.Unit)), int64(st.id))
	b = tensors(tensors(b, k.Outs), k.Ins)
	if k.Op == "call" {
		b = text(text(b, k.Group), k.Label)
	}
	d.key = k.Attrs.AppendText(b)
	return d.key
}

func (d *Device) collectiveKey(c *rt.Collective, part int, dsts [][]int64) []byte {
	b := text(text(append(d.begin('c'), byte(c.Op)), c.Group), c.Reduce)
	b = binary.AppendVarint(binary.AppendVarint(b, int64(c.Dim)), int64(c.Root))
	b = append(b, byte(part+1))
	b = tensors(tensors(ints(b, c.Pairs), c.Outs), c.Ins)
	for _, list := range [][][]int64{c.InSplits, c.OutSplits, dsts} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, row := range list {
			b = ints(b, row)
		}
	}
	d.key = text(b, c.Label)
	return d.key
}

func (d *Device) copyKey(dst, src rt.Tensor) []byte {
	d.key = tensors(d.begin('m'), []rt.Tensor{dst, src})
	return d.key
}

package device

import (
	"errors"
	"slices"

	"github.com/seed-ee968945/concert/cuda/device/internal/callkey"
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

// collectiveKey is the key of a collective's plans, in memory that the next key overwrites.
func (d *Device) collectiveKey(c *rt.Collective, part int, dsts [][]int64) []byte {
	d.key = callkey.Collective(d.key[:0], c, part, dsts)
	return d.key
}

package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/device/internal/code"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/device/internal/segments"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Calls of captured steps whose sizes tensors hold (sizes.go): generated kernels, products by the
// kernel of package gemm, copies, and exchanges. The host reads the sizes of all others.

// sizeReader gives a call's sizes to kernels: numbers, or places in memory. The words of a
// stream serve its later calls, up to the next loop or branch.
type sizeReader struct {
	d    *Device
	st   *stream
	l    *rt.DynamicSizes
	want []dim.Dim
}

type wordKey struct {
	st   *stream
	expr string
}

func (s *sizeReader) needs(list ...dim.Dim) {
	for _, e := range list {
		if _, ok := s.number(e); ok {
			continue
		}
		if _, ok := s.d.rec.words[wordKey{s.st, e.String()}]; !ok && !slices.ContainsFunc(s.want, e.Equal) {
			s.want = append(s.want, e)
		}
	}
}

// number is the value of an expression over sizes that the caller gave.
func (s *sizeReader) number(e dim.Dim) (int64, bool) { return e.Eval(s.l.Value(nil)) }

// settle adds the kernel for all that is needed and not there yet.
func (s *sizeReader) settle() error {
	if len(s.want) == 0 {
		return nil
	}
	at, err := s.d.settle(s.st, s.l, s.want, -1)
	if err != nil {
		return err
	}
	if s.d.rec.words == nil {
		s.d.rec.words = map[wordKey]driver.Ptr{}
	}
	for i, e := range s.want {
		s.d.rec.words[wordKey{s.st, e.String()}] = at + driver.Ptr(8*i)
	}
	s.want = nil
	return nil
}

// at is an expression as kernels take it, which has been needed before the last settle.
func (s *sizeReader) at(e dim.Dim) int64 {
	if n, ok := s.number(e); ok {
		return n
	}
	return code.InMemory(s.d.rec.words[wordKey{s.st, e.String()}])
}

func (s *sizeReader) all(list []dim.Dim) []int64 {
	out := make([]int64, len(list))
	for i, e := range list {
		out[i] = s.at(e)
	}
	return out
}

func product(shape []dim.Dim) dim.Dim {
	n := dim.New(1)
	for _, s := range shape {
		n = n.Mul(s)
	}
	return n
}

// launchLate adds a launch.
func (d *Device) launchLate(st *stream, k *rt.Kernel) error {
	if err := d.inArena(k.Outs, k.Ins); err != nil {
		return err
	}
	p := &plan{name: k.Name(), stream: st}
	s := &sizeReader{d: d, st: st, l: k.Dynamic}
	var add func() error
	switch l := k.Dynamic; {
	case k.Op == program.OpFused:
		s.needs(l.Sizes...)
		add = func() error {
			at := *k
			at.Sizes = s.all(l.Sizes)
			return d.planFused(p, &at)
		}
	case k.Op == "clone" && len(k.Ins) == 1 && len(k.Outs) == 1 && len(k.Outs[0].Shape) <= layout.MaxDims:
		shape, to, from := l.Outs[0].Shape, l.Outs[0].SymbolicStrides(), l.Ins[0].SymbolicStrides()
		n := product(shape)
		s.needs(append(slices.Concat(shape, to, from), n)...)
		add = func() error {
			return d.code.CopySized(&p.cmds, d.at(k.Outs[0]), d.at(k.Ins[0]), k.Outs[0], s.at(n), s.all(shape), s.all(to), s.all(from))
		}
	case k.Op == "matmul" && len(k.Ins) == 2 && len(k.Outs) == 1 && len(k.Outs[0].Shape) == 2:
		for _, t := range slices.Concat(l.Outs, l.Ins) {
			s.needs(slices.Concat(t.Shape, t.SymbolicStrides())...)
		}
		add = func() error { return d.productLate(p, k, s) }
	default:
		return fmt.Errorf("%s of a size that a tensor holds: %w", k.Name(), rt.ErrUnsupported)
	}
	if d.host != nil { // the texts are for GPUs
		d.host.add(&p.cmds, d, p.name, func() error {
			at, err := k.At(k.Dynamic.Read(d.hostBytes))
			if err != nil || d.wrongSizes() {
				return err
			}
			run, err := at.OnHost(d.hostBytes)
			if err == nil {
				err = run()
			}
			return err
		})
		return d.emit(st, p)
	}
	if err := s.settle(); err != nil {
		return err
	}
	if err := add(); err != nil {
		return err
	}
	return d.emit(st, p)
}

// wrongSizes reports whether a check has found sizes to be wrong, on the fake driver.
func (d *Device) wrongSizes() bool {
	return binary.LittleEndian.Uint32(driver.HostBytes(d.badSizes.wrong, 4)) != 0
}

// productLate adds a product by the library that reads sizes.
func (d *Device) productLate(p *plan, k *rt.Kernel, s *sizeReader) error {
	l := k.Dynamic
	c := &library.Call{Op: k.Op, Attrs: k.Attrs, Outs: d.libTensors(k.Outs), Ins: d.libTensors(k.Ins), SMs: d.opts.SMs}
	read := func(t library.Tensor, of program.Tensor) library.Tensor {
		t.Shape, t.Strides = s.all(of.Shape), s.all(of.SymbolicStrides())
		return t
	}
	sized := *c
	sized.Outs = []library.Tensor{read(c.Outs[0], l.Outs[0])}
	sized.Ins = []library.Tensor{read(c.Ins[0], l.Ins[0]), read(c.Ins[1], l.Ins[1])}
	for _, lib := range d.libs {
		r, ok := lib.(library.SizeReader)
		if !ok {
			continue
		}
		step, err := r.PlanSized(c, &sized)
		if errors.Is(err, library.ErrNotServed) {
			return fmt.Errorf("%w: %w", err, rt.ErrUnsupported)
		} else if err != nil {
			return err
		}
		p.algo = step.String()
		step.AddTo(&p.cmds)
		return nil
	}
	return fmt.Errorf("no library reads the sizes of %s: %w", k.Name(), rt.ErrUnsupported)
}

// collectiveLate adds an exchange of rows.
func (d *Device) collectiveLate(st *stream, g *group, c *rt.Collective) error {
	if err := d.inArena(c.Outs, c.Ins); err != nil {
		return err
	}
	if g.m == nil || g.nc != nil {
		return fmt.Errorf("%s of sizes that tensors hold, which peers exchange over memory of theirs: %w", c.Name(), rt.ErrUnsupported)
	}
	if staged, err := layout.Overlaps(c); staged || err != nil {
		return fmt.Errorf("%s of sizes that tensors hold, with a result over an operand: %w", c.Name(), rt.ErrUnsupported)
	}
	p := newCollective(g, c)
	for k := range c.Ins {
		table, most, err := segments.Table(c, k, d.base)
		if err != nil {
			return err
		}
		at, err := d.settle(st, c.Dynamic, table, -1)
		if err != nil {
			return err
		}
		q, err := g.m.PrepareAllToAllVDynamic(at, most[0], most[1])
		if err != nil {
			return err
		}
		q.AddTo(&p.cmds)
	}
	p.algo = "packets and chunks of each pair, sizes in memory"
	if err := d.takeTurn(g, st); err != nil {
		return err
	}
	d.rec.addDigest(g, c)
	return d.emit(st, p)
}

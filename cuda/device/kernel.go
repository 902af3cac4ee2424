package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/cuda/device/internal/callkey"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/cuda/lt"
	"github.com/seed-ee968945/concert/cuda/nvrtc"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// UnservedError says that nothing on a CUDA device computes an operation.
type UnservedError struct {
	Op     string
	Reason string
}

// Error names the operation and the way out.
func (e *UnservedError) Error() string {
	s := fmt.Sprintf("nothing computes %s on a CUDA device", e.Op)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s + "; lower with kernels, or open a library for it"
}

// Is matches runtime.ErrUnsupported.
func (e *UnservedError) Is(target error) bool { return target == rt.ErrUnsupported }

// Launch implements runtime.Device.
func (d *Device) Launch(s rt.Stream, k *rt.Kernel) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	if k.Dynamic != nil {
		return d.orHost(k.Name(), d.launchLate(st, k))
	}
	var p *plan
	if k.Op == "rand" { // with another seed each time
		p, err = d.planKernel(k, st)
	} else {
		d.key = callkey.Sizes(callkey.Kernel(d.key[:0], k, int64(st.id)), k.Sizes)
		p, err = d.planned(d.key, func() (*plan, error) { return d.planKernel(k, st) }, k.Outs, k.Ins)
	}
	if err != nil {
		return d.call(k.Name(), err)
	}
	return d.emit(st, p)
}

func (d *Device) planKernel(k *rt.Kernel, st *stream) (*plan, error) {
	if err := d.inArena(k.Outs, k.Ins); err != nil {
		return nil, err
	}
	p := &plan{name: k.Name(), stream: st}
	switch {
	case k.Op == "call":
		return p, d.planFunc(p, k)
	case k.Op == "rand":
		return p, d.planRand(p, k)
	case k.Op == program.OpFused:
		return p, d.planGenerated(p, k, st)
	}
	return p, d.planLibrary(p, k, st)
}

// planGenerated plans a launch of a generated kernel: of one operation that a library may
// serve only where none does.
func (d *Device) planGenerated(p *plan, k *rt.Kernel, st *stream) error {
	why := ""
	if c, ok := d.alone(k); ok {
		err := d.planLibrary(p, c, st)
		var not *UnservedError
		if !errors.As(err, &not) {
			return err
		}
		why = strings.ReplaceAll(not.Reason, "\n", "; ")
		if log := d.opts.Log; log != nil {
			log.Info("generated kernel", "rank", d.spec.Rank, "name", p.name, "operation", c.Op, "reason", why)
		}
	}
	p.writes = d.writes(k)
	err := d.planFused(p, k)
	if why != "" {
		p.algo += ": " + why
	}
	return err
}

// alone is the operation of a generated kernel as a launch of its own, if libraries serve
// such.
func (d *Device) alone(k *rt.Kernel) (*rt.Kernel, bool) {
	if len(k.Code.Body) != 1 || k.Code.Body[0].Op != "convolution" && k.Code.Body[0].Op != "grouped_matmul" {
		return nil, false
	}
	s := &k.Code.Body[0]
	c := &rt.Kernel{Op: s.Op, Attrs: s.Attrs, Label: k.Label}
	params := slices.Concat(k.Ins, k.Outs)
	place := func(ts []rt.CodeTensor) (out []rt.Tensor) {
		for i := range ts {
			if t, err := rt.Place(&ts[i], params); err == nil && ts[i].Param >= 0 {
				out = append(out, t)
			}
		}
		return out
	}
	c.Ins, c.Outs = place(s.Ins), place(s.Outs)
	return c, len(c.Ins) == len(s.Ins) && len(c.Outs) == len(s.Outs)
}

// planRand draws random numbers, whose seed the runtime has derived for this rank and
// run.
func (d *Device) planRand(p *plan, k *rt.Kernel) error {
	if len(k.Outs) != 1 || len(k.Ins) != 0 || !k.Attrs.Has("seed") {
		return fmt.Errorf("%d operands, %d results, seed %v: want a seed and a result", len(k.Ins), len(k.Outs), k.Attrs.Has("seed"))
	}
	p.algo = "counter"
	switch {
	case !k.Outs[0].DType.IsFloat():
		return fmt.Errorf("random numbers are floats, not %v", k.Outs[0].DType)
	case k.Outs[0].NumElems() == 0:
		return nil
	case d.host != nil:
		return d.host.launch(&p.cmds, d, p.name, k)
	case !d.code.Draws(k.Outs[0].DType):
		return &UnservedError{Op: "rand", Reason: fmt.Sprintf("random numbers of %v are drawn on the host only", k.Outs[0].DType)}
	}
	return d.code.Draw(&p.cmds, d.at(k.Outs[0]), k.Outs[0], uint64(k.Attrs.Int("seed", 0)))
}

// planFused launches a compiled kernel of a module.
func (d *Device) planFused(p *plan, k *rt.Kernel) error {
	if d.host != nil { // the text is for GPUs
		p.algo = "host"
		return d.host.launch(&p.cmds, d, p.name, k)
	}
	f, err := d.code.Function(k.Unit, k.Target)
	if err != nil {
		return err
	}
	if k.Code.Grid == 0 {
		return nil
	}
	var params []byte
	for _, list := range [][]rt.Tensor{k.Ins, k.Outs} {
		for _, t := range list {
			params = binary.LittleEndian.AppendUint64(params, uint64(d.at(t)))
		}
	}
	for _, n := range k.Sizes {
		params = binary.LittleEndian.AppendUint64(params, uint64(n))
	}
	p.algo, p.unit = "generated", d.code.Unit(k.Unit)
	p.cmds.Launch(driver.Main, f, int(k.Code.Grid), int(k.Code.Block), int(k.Code.Shared), params)
	return nil
}

// writes is the memory of a kernel's results, where launches behind it can be early.
func (d *Device) writes(k *rt.Kernel) []library.Memory {
	if !d.early {
		return nil
	}
	var out []library.Memory
	for _, t := range k.Outs {
		if lo, hi, err := t.Span(); err == nil && lo < hi {
			out = append(out, library.Memory{At: d.base + driver.Ptr(lo), Bytes: uint64(hi - lo)})
		}
	}
	return out
}

// planLibrary asks the libraries in turn. Operands and results of a matmul or an addmm whose
// layout has no descriptor are brought into row-major order in the workspace.
func (d *Device) planLibrary(p *plan, k *rt.Kernel, st *stream) error {
	c := &library.Call{Op: k.Op, Attrs: k.Attrs, Outs: d.libTensors(k.Outs), Ins: d.libTensors(k.Ins), SMs: d.opts.SMs}
	lend(c, st)
	var out rt.Tensor // where a result is made first
	for i := range 4 {
		step, err := d.ask(c, st, i == 0)
		var bad *lt.LayoutError
		if errors.As(err, &bad) && len(k.Ins) >= 2 && len(k.Outs) == 1 {
			a := len(k.Ins) - 2
			which := []*library.Tensor{&c.Ins[a], &c.Ins[a+1], &c.Outs[0]}[bad.Operand]
			t := slices.Concat(k.Ins[a:], k.Outs)[bad.Operand]
			s, ok := d.carve(c, t)
			if !ok {
				return fmt.Errorf("%w; its copy does not fit in the workspace: raise Options.Workspace", bad)
			}
			*which = d.libTensor(s)
			if bad.Operand == 2 {
				out = s
			} else if err := d.copyInto(&p.cmds, s, t); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		p.algo = step.String()
		p.owned, _ = step.(library.Releaser)
		if p.cmds.Len() == 0 && out.Shape == nil {
			p.step = step
			if k.Op == "matmul" {
				p.asked = c
			}
		}
		step.AddTo(&p.cmds)
		if out.Shape != nil {
			return d.copyInto(&p.cmds, k.Outs[0], out)
		}
		return nil
	}
	return fmt.Errorf("%s: no layout of its operands is served", k.Op)
}

// lend gives a call its stream's workspace.
func lend(c *library.Call, st *stream) {
	if n := len(st.work); n > 0 {
		c.Workspace, c.WorkspaceBytes = st.work[n-1].at, st.work[n-1].bytes
	}
}

// room lets the workspace grow to what a library says that it needs for a call, up to
// the limit. It does so within a capture, which is where the runtime plans steps:
// nothing of this rank runs then.
func (d *Device) room(l library.Library, c *library.Call, st *stream) error {
	s, ok := l.(interface {
		Workspace(c *library.Call) (uint64, error)
	})
	if !ok || d.rec == nil || d.opts.Workspace < 0 {
		return nil
	}
	need, err := s.Workspace(c)
	if err != nil || need > maxWorkspace {
		return nil // Plan says why, or makes do with less
	}
	if err := d.workspace(st, (need+255)&^255); err != nil {
		return err
	}
	lend(c, st)
	return nil
}

// carve takes a row-major tensor like t from the end of a call's workspace.
func (d *Device) carve(c *library.Call, t rt.Tensor) (rt.Tensor, bool) {
	bytes := uint64(t.Bytes()+255) &^ 255
	if bytes > c.WorkspaceBytes {
		return t, false
	}
	c.WorkspaceBytes -= bytes
	// Relative to the arena, as all tensors are; the sum wraps around.
	return layout.Dense(t, int64(c.Workspace+driver.Ptr(c.WorkspaceBytes)-d.base)), true
}

// ask asks the libraries in turn. Where nothing of the workspace is taken yet it may grow.
func (d *Device) ask(c *library.Call, st *stream, grow bool) (library.Step, error) {
	refused := slices.Clone(d.missing)
	for _, l := range d.libs {
		if grow {
			if err := d.room(l, c, st); err != nil {
				return nil, err
			}
		}
		step, err := l.Plan(c)
		var layout *lt.LayoutError
		no := errors.Is(err, library.ErrNotServed) || errors.Is(err, nvrtc.ErrNoCompiler)
		if no && !errors.As(err, &layout) {
			if !errors.Is(err, library.ErrOtherOp) {
				refused = append(refused, err)
			}
			continue
		}
		return step, err
	}
	e := &UnservedError{Op: c.Op}
	if err := errors.Join(refused...); err != nil {
		e.Reason = err.Error()
	}
	return nil, e
}

func (d *Device) libTensors(ts []rt.Tensor) []library.Tensor {
	out := make([]library.Tensor, len(ts))
	for i, t := range ts {
		out[i] = d.libTensor(t)
	}
	return out
}

func (d *Device) libTensor(t rt.Tensor) library.Tensor {
	return library.Tensor{At: d.at(t), DType: t.DType, Shape: t.Shape, Strides: t.StridesOrDense()}
}

// RunsStages implements runtime.StageRunner: ranks tell each other where results are (forms.go).
func (d *Device) RunsStages() bool { return true }

// RunsFunc implements runtime.FuncRunner.
func (d *Device) RunsFunc(f rt.Func) bool { return f.GPU != nil || d.host != nil && f.Host != nil }

// planFunc calls a registered Go function: one for GPUs enqueues on the stream it is given,
// one for the host is enqueued as the fake driver's kernels are.
func (d *Device) planFunc(p *plan, k *rt.Kernel) error {
	f := d.spec.Funcs[k.Target]
	if !d.RunsFunc(f) {
		return fmt.Errorf("no function for GPUs is registered as %q: %w", k.Target, rt.ErrUnsupported)
	}
	onHost := d.host != nil && f.Host != nil
	c := k.Call(d.spec.Rank, d.spec.World, func(t rt.Tensor) rt.FuncTensor {
		x := rt.FuncTensor{Tensor: t, Ptr: uint64(d.at(t))}
		if _, hi, _ := t.Span(); onHost {
			x.Data = d.hostBytes(min(t.Off, hi), hi)
		}
		return x
	})
	if onHost {
		d.host.add(&p.cmds, d, p.name, func() error { return c.Run(f.Host) })
		return nil
	}
	p.call = func(st *stream) error {
		on := *c
		on.Stream, on.Context = uint64(st.h), uint64(d.rank.Ctx)
		return on.Run(f.GPU)
	}
	return nil
}

// Signal implements runtime.Device.
func (d *Device) Signal(s rt.Stream, peer, slot int) error { return d.signal("signal", s, peer, slot) }

// WaitSignal implements runtime.Device.
func (d *Device) WaitSignal(s rt.Stream, peer, slot int) error {
	return d.signal("wait_signal", s, peer, slot)
}

func (d *Device) signal(op string, s rt.Stream, peer, slot int) error {
	st, err := d.stream(s)
	if err != nil {
		return err
	}
	defer d.leave()
	g := d.table.Load().groups[0] // all ranks
	if g.nc != nil {
		return d.call(op, fmt.Errorf("counters need memory that all ranks reach, and NCCL serves this world: %w", rt.ErrUnsupported))
	}
	if peer < 0 || peer >= d.spec.World || peer == d.spec.Rank || slot < 0 || slot >= symm.UserChannels || g.m == nil {
		return d.call(op, fmt.Errorf("rank %d of %d, slot %d of %d", peer, d.spec.World, slot, symm.UserChannels))
	}
	return d.emit(st, &plan{name: op, call: func(st *stream) error {
		if op == "signal" {
			return g.m.Signal(st.h, slot, peer)
		}
		return g.m.Wait(st.h, slot, peer)
	}})
}

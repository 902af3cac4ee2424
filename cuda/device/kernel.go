package device

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed-ee968945/concert/cuda"
	"github.com/seed-ee968945/concert/cuda/library"
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
	p, err := d.planned(d.kernelKey(k, st), func() (*plan, error) { return d.planKernel(k, st) })
	if err != nil {
		return d.call(k.Name(), err)
	}
	return d.emit(st, p)
}

func (d *Device) planKernel(k *rt.Kernel, st *stream) (*plan, error) {
	if err := d.inArena(k.Outs, k.Ins); err != nil {
		return nil, err
	}
	p := &plan{name: k.Name()}
	switch {
	case k.Op == "call":
		return p, d.planFunc(p, k)
	case d.host != nil:
		return p, d.planHost(p, k)
	case k.Op == program.OpFused:
		return p, d.planFused(p, k)
	}
	return p, d.planLibrary(p, k, st)
}

// planFused launches a compiled kernel of a module.
func (d *Device) planFused(p *plan, k *rt.Kernel) error {
	f, err := d.code.function(k.Unit, k.Target)
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
	p.algo = "generated"
	p.cmds.Launch(cuda.Main, f, int(k.Code.Grid), int(k.Code.Block), int(k.Code.Shared), params)
	return nil
}

// planLibrary asks the libraries in turn.
func (d *Device) planLibrary(p *plan, k *rt.Kernel, st *stream) error {
	c := &library.Call{Op: k.Op, Attrs: k.Attrs, Outs: d.libTensors(k.Outs), Ins: d.libTensors(k.Ins), Workspace: st.work, SMs: d.opts.SMs}
	if st.work != 0 {
		c.WorkspaceBytes = d.opts.workspace()
	}
	var refused []error
	for _, l := range d.libs {
		step, err := l.Plan(c)
		if errors.Is(err, library.ErrNotServed) {
			refused = append(refused, err)
			continue
		}
		if err != nil {
			return err
		}
		p.algo = step.String()
		step.AddTo(&p.cmds)
		return nil
	}
	e := &UnservedError{Op: k.Op}
	if err := errors.Join(refused...); err != nil {
		e.Reason = err.Error()
	}
	return e
}

func (d *Device) libTensors(ts []rt.Tensor) []library.Tensor {
	out := make([]library.Tensor, len(ts))
	for i, t := range ts {
		out[i] = library.Tensor{At: d.at(t), DType: t.DType, Shape: t.Shape, Strides: t.StridesOrDense()}
	}
	return out
}

// planFunc calls a registered Go function, which enqueues on the stream it is given.
func (d *Device) planFunc(p *plan, k *rt.Kernel) error {
	f := d.spec.Funcs[k.Target]
	if f == nil {
		return fmt.Errorf("no function is registered as %q: %w", k.Target, rt.ErrUnsupported)
	}
	tensors := func(ts []rt.Tensor) []rt.FuncTensor {
		out := make([]rt.FuncTensor, len(ts))
		for i, t := range ts {
			out[i] = rt.FuncTensor{Tensor: t, Ptr: uint64(d.at(t))}
		}
		return out
	}
	outs, ins := tensors(k.Outs), tensors(k.Ins)
	p.call = func(st *stream) (err error) {
		// The function is the user's: its panic becomes this call's error instead of
		// taking down a process that other ranks depend on.
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("function %q panicked: %v", k.Target, v)
			}
		}()
		return f(&rt.FuncCall{Rank: d.spec.Rank, World: d.spec.World, Target: k.Target, Group: k.Group, Attrs: k.Attrs,
			Outs: outs, Ins: ins, Stream: uint64(st.h), Context: uint64(d.rank.Ctx)})
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
	g := d.order[0] // all ranks
	if peer < 0 || peer >= d.spec.World || peer == d.spec.Rank || slot < 0 || slot >= cuda.UserChannels || g.m == nil {
		return d.call(op, fmt.Errorf("rank %d of %d, slot %d of %d", peer, d.spec.World, slot, cuda.UserChannels))
	}
	g.dirty = true
	return d.emit(st, &plan{name: op, call: func(st *stream) error {
		if op == "signal" {
			return g.m.Signal(st.h, slot, peer)
		}
		return g.m.Wait(st.h, slot, peer)
	}})
}

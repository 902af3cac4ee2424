package device

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/cuda/device/internal/pace"
	"github.com/seed-ee968945/concert/cuda/nccl"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/lifecycle"
)

// warmUp is an operation of a communicator that makes it connect its ranks.
type warmUp struct {
	c  *comm
	op nccl.Op
}

// introduce connects the ranks of a communicator for what goes from rank to rank. Stages do so
// at their first send or receive: their steps, which need not be captured, come to it in different orders.
func (d *Device) introduce(ctx context.Context, c *comm) error {
	st, err := d.openStream("connecting", true)
	if err != nil {
		d.fail(err) // the others wait in it
		return err
	}
	op, bytes := (&nccl.Op{Kind: nccl.Permute, DType: dtype.U8}).WarmUp(c.c.Rank(), len(c.ranks))
	err = d.warmUp(ctx, st, []warmUp{{c, op}}, bytes)
	return errors.Join(err, st.life.EndInCall())
}

// connect lets NCCL connect the ranks for all that a step does, which it does when
// something is first done and which a capture cannot hold. All ranks of the world call it for the same step.
func (d *Device) connect(ctx context.Context, r *recording) error {
	r.calls, r.last = entriesOf(r.items)
	if d.over.Load() == nil {
		return nil
	}
	var list []warmUp
	seen := map[string]bool{}
	bytes := uint64(256)
	for i := range r.items {
		p := r.items[i].plan
		if p == nil || p.group == nil || p.group.nc == nil {
			continue
		}
		if log := d.opts.Log; log != nil {
			log.Info("collective", "rank", d.spec.Rank, "name", p.name, "form", p.algo, "beside", false)
		}
		for k := range p.ops {
			c := p.group.nc
			if c.crossStage && p.ops[k].PointToPoint() {
				continue // introduced
			}
			op, need := p.ops[k].WarmUp(slices.Index(c.ranks, d.spec.Rank), len(c.ranks))
			key := fmt.Sprint(c.name, op.Kind, op.DType, op.Reduce, op.Root, op.Tensors)
			if op.Kind == nccl.AllToAll {
				key = fmt.Sprint(c.name, op.Kind)
			}
			if seen[key] {
				continue
			}
			seen[key], bytes = true, max(bytes, need)
			list = append(list, warmUp{c, op})
		}
	}
	// All ranks connect groups between stages in one order, ahead of what each stage does by itself.
	comms := d.over.Load().comms()
	at := func(c *comm) int {
		if !c.crossStage {
			return len(comms)
		}
		return slices.Index(comms, c)
	}
	slices.SortStableFunc(list, func(a, b warmUp) int { return at(a.c) - at(b.c) })
	// Nobody waits for a peer that still loads code.
	if err := d.barrier(ctx); err != nil || len(list) == 0 {
		return err
	}
	return d.warmUp(ctx, r.main, list, bytes)
}

// warmUp runs operations on memory of their own, of that many bytes: the arena may hold what is
// needed. The others wait in it, so what fails here breaks the world.
func (d *Device) warmUp(ctx context.Context, st *stream, list []warmUp, bytes uint64) error {
	n := d.over.Load()
	n.warmsUp.Store(true)
	defer n.warmsUp.Store(false)
	own, err := d.life.New("connecting the ranks")
	if err == nil { // the stream may be none of the device's
		err = own.Work(lifecycle.Hooks{Tend: d.tend, Idle: func() (bool, error) { return d.drv.StreamQuery(d.rank.Ctx, st.h) }})
	}
	if err != nil {
		d.fail(err)
		return err
	}
	if err = d.warmUpOn(ctx, own, st, list, bytes); err != nil {
		d.fail(err)
	}
	return errors.Join(err, own.EndInCall())
}

func (d *Device) warmUpOn(ctx context.Context, own *lifecycle.Scope, st *stream, list []warmUp, bytes uint64) error {
	at, err := d.own(own).Alloc(bytes)
	if err != nil {
		return fmt.Errorf("memory of %d bytes for connecting the ranks: %w", bytes, err)
	}
	for _, x := range list {
		for i := range x.op.Tensors {
			t := &x.op.Tensors[i]
			t.Src, t.Dst = t.Src+uintptr(at), t.Dst+uintptr(at)
		}
		if err := d.runNCCL(st, &plan{name: x.op.Name(), group: &group{name: x.c.name, nc: x.c}, ops: []nccl.Op{x.op}}); err != nil {
			return err
		}
	}
	return d.await(ctx, new(pace.Waits), func() (bool, error) { return d.drv.StreamQuery(d.rank.Ctx, st.h) })
}

package gomlx

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	rt "github.com/seed-ee968945/concert/runtime"
)

// With launch=env every device is a process's of its own, and all processes run the same program:
// each builds all computations and gives the inputs of all devices, of which it uses those of its
// own device. A computation of one device runs in every process. Results that all devices have
// alike are there at once; a piece is fetched by all processes together, so that whoever reads
// one, to save a checkpoint for instance, does so in all of them.

// launched opens this process's rank of a world.
func (b *Backend) launched(w *world, open rt.Opener) error {
	env := *b.place
	n := len(w.devices)
	w.mine = slices.Index(w.devices, compute.DeviceNum(env.Rank))
	switch {
	case n == 1:
		w.mine, env.Rank, env.World = 0, 0, 1
	case n != b.devices || !slices.IsSorted(w.devices):
		return errors.Wrapf(compute.ErrNotImplemented, "concert: a computation on devices %v of %d processes", w.devices, b.devices)
	}
	r, err := rt.Join(b.ctx, open, rt.Config{Env: &env})
	if err != nil {
		return errors.WithStack(err)
	}
	w.ranks = make([]*rt.Rank, n)
	w.ranks[w.mine] = r
	return nil
}

// spread says where a result of several processes is found.
func (u *Buffer) spread(replicated bool) {
	if replicated {
		u.at.rank = u.at.l.w.mine
		return
	}
	home := *u.at
	u.home = &home
}

// gather brings a piece that one process has to Go's memory in all; the world is locked.
func (u *Buffer) gather() error {
	w, root := u.home.l.w, u.home.rank
	if w.ranks == nil {
		return errFinalized
	}
	r, ctx := w.ranks[w.mine], w.b.context()
	if root == w.mine {
		if err := u.bring(); err != nil {
			return err
		}
	} else {
		u.flat, u.at = dtypes.MakeAnySlice(u.shape.DType, u.shape.Size()), nil
	}
	data := dtypes.UnsafeByteSliceFromAny(u.flat)
	n := int64(len(data))
	if n > 0 {
		t, err := w.staged(ctx, r, n)
		if err == nil && root == w.mine {
			err = r.Upload(t, data)
		}
		var done *rt.Work
		if err == nil {
			done, err = r.Start(ctx, "", &rt.Collective{Op: rt.Broadcast, Group: "world", Root: root, Outs: []rt.Tensor{t}, Ins: []rt.Tensor{t}})
		}
		if err == nil {
			err = done.Wait(ctx)
		}
		if err == nil && root != w.mine {
			err = r.Device().Download(data, t)
		}
		if err != nil {
			return errors.WithStack(err)
		}
	}
	u.home = nil
	return nil
}

// staged is room for n bytes on every rank.
func (w *world) staged(ctx context.Context, r *rt.Rank, n int64) (rt.Tensor, error) {
	if w.stage != nil && w.stage.Bytes() < n {
		if err := w.stage.Free(ctx); err != nil {
			return rt.Tensor{}, err
		}
		w.stage = nil
	}
	if w.stage == nil {
		var err error
		if w.stage, err = r.NewBuffer(ctx, fmt.Sprintf("pieces of %d bytes", n), n); err != nil {
			return rt.Tensor{}, err
		}
	}
	return w.stage.View(0, rt.U8, n)
}

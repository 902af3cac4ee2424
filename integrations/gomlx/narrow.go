package gomlx

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	rt "github.com/seed-ee968945/concert/runtime"
)

// narrow makes, on the devices, the copies of variables that are there and that another program
// has left without one, where this program wants them. It says so in args. The world is locked.
func (l *loaded) narrow(args [][]rt.Value, bufs []*Buffer) error {
	if l.c.copies == nil || slices.ContainsFunc(bufs, l.has) {
		return nil // what is written might be the copy of another one
	}
	programs := map[string]*loaded{} // by shape: a device has room for one variable more
	defer func() {
		for _, n := range programs {
			n.unload()
		}
	}()
	for _, c := range l.c.copies {
		from := l.bare(bufs, slices.Index(l.c.params, c.of))
		if from == nil {
			continue
		}
		key := fmt.Sprint(l.wants[c.of].Shape)
		if programs[key] == nil {
			n, err := l.w.narrower(l.wants[c.of].Shape)
			if err != nil {
				return err
			}
			programs[key] = n
		}
		if err := programs[key].into(from, l.wants[c.input]); err != nil {
			return err
		}
		for j := range args {
			if args[j] != nil {
				args[j][c.input].Resident = true
			}
		}
	}
	return nil
}

// has reports whether a run of the program has left a buffer where it is.
func (l *loaded) has(u *Buffer) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at != nil && u.at.l == l
}

// bare are the places of parameter k by rank, where each rank of this process has it without a copy, or nil.
func (l *loaded) bare(bufs []*Buffer, k int) []rt.Tensor {
	out, np := make([]rt.Tensor, len(l.w.ranks)), len(l.c.params)
	for j, r := range l.w.ranks {
		if r == nil {
			continue
		}
		u := bufs[j*np+k]
		u.mu.Lock()
		p := u.at
		u.mu.Unlock()
		if p == nil || p.rank != j || p.copy() != nil {
			return nil
		}
		out[j] = p.t
	}
	return out
}

// narrower is a program that rounds a tensor of float32 to bfloat16, on every rank.
func (w *world) narrower(dims []int64) (*loaded, error) {
	n, shape := newBuilder(w.b, "copy"), shapes.Shape{DType: dtypes.Float32}
	for _, d := range dims {
		shape.Dimensions = append(shape.Dimensions, int(d))
	}
	if len(w.ranks) > 1 {
		n.replicas = len(w.ranks)
	}
	x, err := n.main.Parameter("x", shape, nil)
	if err == nil {
		x, err = n.main.ConvertDType(x, dtypes.BFloat16)
	}
	if err == nil {
		err = n.main.Return([]compute.Value{x}, nil)
	}
	if err == nil {
		err = n.donate()
	}
	if err != nil {
		return nil, err
	}
	c, err := w.b.compile(n)
	if err != nil {
		return nil, err
	}
	return w.add(c, nil)
}

// into runs a program of one input and one result, which is brought to a place of every rank.
func (l *loaded) into(from []rt.Tensor, to rt.Tensor) error {
	args := make([][]rt.Value, len(from))
	for j, r := range l.w.ranks {
		if r != nil {
			args[j] = slices.Clone(l.c.constants)
			args[j][l.c.params[0]].Place = from[j]
		}
	}
	outs, err := l.run(args)
	if err != nil {
		return err
	}
	ctx := l.w.b.context()
	return l.w.each(func(j int, r *rt.Rank) error {
		d := r.Device()
		s, err := d.NewStream("copies")
		if err != nil {
			return err
		}
		defer d.DropStream(s)
		e, err := d.NewEvent()
		if err != nil {
			return err
		}
		defer d.DropEvent(e)
		if err := d.Copy(s, to, outs[j][0].Place); err != nil {
			return err
		}
		if err := d.Record(s, e); err != nil {
			return err
		}
		return errors.WithStack(canceled(ctx, d.Synchronize(ctx, e)))
	})
}

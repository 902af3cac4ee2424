package bench

import (
	"context"
	"fmt"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
)

// edges measures the time from an end on one stream to the beginning of what waits for
// it on another, where both have something to do.
func (k *meter) edges(ctx context.Context) error {
	c := k.c
	if len(c.p.Streams) < 2 || !k.isNew(finding{What: anEdge}) {
		return nil
	}
	// One branch of two tiny kernels, beside another of one; and three in a row.
	a, b := c.computeStream(), c.p.Streams[1].Name
	apart, err := k.slope(ctx, 0, func(x *rt.Exec) {
		c.tinyLaunch(x, a)
		x.Record(a, c.ownEvent(0))
		x.Wait(b, c.ownEvent(0))
		c.tinyLaunch(x, b)
		c.tinyLaunch(x, b)
		x.Record(b, c.ownEvent(1))
		c.tinyLaunch(x, a)
		x.Wait(a, c.ownEvent(1))
	})
	if err != nil {
		return err
	}
	together, err := k.slope(ctx, 0, func(x *rt.Exec) {
		for range 3 {
			c.tinyLaunch(x, a)
		}
	})
	if err != nil {
		return err
	}
	k.edgeUs = max(apart-together, 0) / 2
	k.add(finding{What: anEdge, Us: k.edgeUs})
	return nil
}

// overlappedCompute measures a collective that has compute beside it: as little as there
// can be of what keeps multiprocessors to itself. A collective that takes no longer than
// that has a tiny launch beside it instead.
func (k *meter) overlappedCompute(ctx context.Context, said float64, stream int, run func(x *rt.Exec)) (float64, error) {
	c := k.c
	partner := func(x *rt.Exec) { rt.Instruct(x, c.p, c.partner) }
	if c.partner >= 0 && k.partnerUs == 0 {
		us, err := k.slope(ctx, 0, c.forked(stream, func(*rt.Exec) {}, partner))
		if err != nil {
			return 0, err
		}
		k.partnerUs = max(us, 0.001)
	}
	// What one rank measured must not decide: all go the same ways.
	us, err := k.slope(ctx, said, c.forked(stream, run, func(x *rt.Exec) { c.tinyLaunch(x, c.computeStream()) }))
	if err != nil || c.partner < 0 {
		return us - 2*k.edgeUs, err
	}
	busy, err := k.slope(ctx, said, c.forked(stream, run, partner))
	if busy > coveredBy*k.partnerUs {
		us = busy
	}
	return us - 2*k.edgeUs, err
}

// coveredBy is how much longer than its partner a collective must take to be told apart
// from it.
const coveredBy = 1.2

// forked surrounds a collective by events, with something to compute meanwhile.
func (c *measuredProgram) forked(stream int, run, beside func(x *rt.Exec)) func(x *rt.Exec) {
	a, b := c.computeStream(), c.p.Streams[stream].Name
	return func(x *rt.Exec) {
		x.Record(a, c.ownEvent(0))
		x.Wait(b, c.ownEvent(0))
		run(x)
		x.Record(b, c.ownEvent(1))
		beside(x)
		x.Wait(a, c.ownEvent(1))
	}
}

// sweep measures collectives of one tensor, by size, on every group size, in the form
// that they have overlapped with compute, for passes want to know what they hide, and alone.
func (k *meter) sweep(ctx context.Context) error {
	c := k.c
	for s, st := range c.p.Streams {
		if st.Group < 0 {
			continue
		}
		n := int64(c.p.Groups[st.Group].Size())
		for _, op := range []rt.CollOp{rt.AllReduce, rt.AllGather, rt.ReduceScatter, rt.AllToAll} {
			for size := int64(1 << 10); size <= c.flags.Sweep; size *= 4 {
				elems := size / int64(dtype.BF16.Size()) / n * n
				whole, part := rt.C(c.room+c.bytes/2, rt.BF16, elems), rt.C(c.room, rt.BF16, elems/n)
				in, out := rt.C(c.room, rt.BF16, elems), whole
				switch op {
				case rt.AllGather:
					in = part
				case rt.ReduceScatter:
					in, out = whole, part
				}
				f := finding{What: aCollective, Key: op.String(), Ranks: int(n), Bytes: size}
				if elems == 0 || !k.isNew(f) {
					continue
				}
				said, _ := cost.H200().Micros(op.String(), "nccl", int(n), size)
				if size >= 1<<20 { // many copies each
					said = max(said, aimUs/4)
				}
				run := func(x *rt.Exec) {
					col := &rt.Collective{Op: op, Group: c.p.Groups[st.Group].Name, Ins: rt.Ts{in}, Outs: rt.Ts{out}}
					if op == rt.AllReduce || op == rt.ReduceScatter {
						col.Reduce = "sum"
					}
					x.Collective(c.p.Streams[s].Name, col)
				}
				var err error
				if f.Us, err = k.overlappedCompute(ctx, said, s, run); err == nil {
					f.Alone, err = k.slope(ctx, said, run)
				}
				if err != nil {
					return fmt.Errorf("%v of %d bytes: %w", op, size, err)
				}
				k.add(f)
			}
		}
	}
	return nil
}

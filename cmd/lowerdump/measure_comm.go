package main

import (
	"context"
	"fmt"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/dtype"
	rt "github.com/seed-ee968945/concert/runtime"
)

// sweep measures collectives of one tensor, by size, on every group size, in the form
// that they have beside compute: passes want to know what they hide.
func (k *meter) sweep(ctx context.Context) error {
	c := k.c
	for s, st := range c.p.Streams {
		if st.Group < 0 {
			continue
		}
		n := int64(c.p.Groups[st.Group].Size())
		for _, op := range []rt.CollOp{rt.AllReduce, rt.AllGather, rt.ReduceScatter, rt.AllToAll} {
			for size := int64(1 << 10); size <= c.flags.sweep; size *= 4 {
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
				us, err := k.slope(ctx, said, c.withSpeck(s, func(x *rt.Exec) {
					col := &rt.Collective{Op: op, Group: c.p.Groups[st.Group].Name, Ins: rt.Ts{in}, Outs: rt.Ts{out}}
					if op == rt.AllReduce || op == rt.ReduceScatter {
						col.Reduce = "sum"
					}
					x.Collective(c.p.Streams[s].Name, col)
				}))
				if err != nil {
					return fmt.Errorf("%v of %d bytes: %w", op, size, err)
				}
				f.Us = us - 2*k.edgeUs
				k.add(f)
			}
		}
	}
	return nil
}

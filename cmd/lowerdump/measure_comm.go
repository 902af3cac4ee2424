package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// sweep measures collectives of one tensor, by size, on every group size.
func (k *meter) sweep(ctx context.Context) error {
	c := k.c
	seen := map[int]bool{}
	for s, st := range c.p.Streams {
		if st.Group < 0 || seen[c.p.Groups[st.Group].Size()] {
			continue
		}
		n := int64(c.p.Groups[st.Group].Size())
		seen[int(n)] = true
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
				if elems == 0 {
					continue
				}
				us, err := k.slope(ctx, func(x *rt.Exec) {
					col := &rt.Collective{Op: op, Group: c.p.Groups[st.Group].Name, Ins: rt.Ts{in}, Outs: rt.Ts{out}}
					if op == rt.AllReduce || op == rt.ReduceScatter {
						col.Reduce = "sum"
					}
					x.Collective(c.p.Streams[s].Name, col)
				})
				if err != nil {
					return fmt.Errorf("%v of %d bytes: %w", op, size, err)
				}
				k.add(finding{What: aCollective, Key: op.String(), Ranks: int(n), Bytes: size, Us: us})
			}
		}
	}
	return nil
}

// pairs measures how the dearest launch of each operation and the dearest collective
// of each operation disturb each other.
func (k *meter) pairs(ctx context.Context) error {
	c := k.c
	launches, collectives := c.dearest()
	for _, l := range launches {
		for _, o := range collectives {
			u, v, err := k.pair(ctx, l, o)
			if err != nil {
				return fmt.Errorf("%s beside %s: %w", c.p.Instrs[l].Op, c.p.Instrs[o].Op, err)
			}
			k.add(finding{What: aPair, Key: c.p.Instrs[l].Op, Other: c.p.Instrs[o].Op, Us: u, Us2: v})
		}
	}
	return nil
}

// dearest are, for each operation, the launch and the collective that move most.
func (c *calibration) dearest() (launches, collectives []int) {
	var ops []string
	best, size := map[string]int{}, map[string]int64{}
	for i := range c.p.Instrs {
		in := &c.p.Instrs[i]
		if in.Kind != program.Launch && (in.Kind != program.Collective || !c.beside[i]) || indexes(in) {
			continue
		}
		n := int64(0)
		for _, t := range slices.Concat(in.Ins, in.Outs) {
			bytes, _ := c.p.Span(&t)
			n += bytes
		}
		if _, ok := best[in.Op]; !ok {
			ops = append(ops, in.Op)
		}
		if n > size[in.Op] {
			best[in.Op], size[in.Op] = i, n
		}
	}
	for _, op := range ops {
		i, ok := best[op]
		if !ok {
			continue
		}
		if c.p.Instrs[i].Kind == program.Collective {
			collectives = append(collectives, i)
		} else {
			launches = append(launches, i)
		}
	}
	return launches, collectives
}

// mostRepeats bounds the chain of launches that covers a collective, and the reverse.
const mostRepeats = 200

// pair is what a unit of time of collective o adds to launches l that cover it, and
// the other way round.
func (k *meter) pair(ctx context.Context, l, o int) (u, v float64, err error) {
	c := k.c
	in := &c.p.Instrs[o]
	a, b := c.computeStream(), c.p.Streams[in.Stream].Name
	both := func(launches, collectives int) func(x *rt.Exec) {
		return func(x *rt.Exec) {
			x.Record(a, c.our(0))
			x.Wait(b, c.our(0))
			for range collectives {
				rt.Instruct(x, c.p, o)
			}
			x.Record(b, c.our(1))
			c.speck(x, a)
			for range launches {
				rt.Instruct(x, c.p, l)
			}
			x.Wait(a, c.our(1))
		}
	}
	launches, collectives := c.repeats(l, o)
	var us [4]float64
	for i, n := range [][2]int{{2 * launches, collectives}, {2 * launches, 0}, {launches, 2 * collectives}, {0, 2 * collectives}} {
		if us[i], err = k.time(ctx, both(n[0], n[1])); err != nil {
			return 0, 0, err
		}
	}
	comm, compute := us[3]/2, us[1]/2
	if !(comm > 0 && compute > 0) {
		return 0, 0, nil
	}
	return (us[0] - us[1]) / comm, (us[2] - us[3]) / compute, nil
}

// repeats chooses how many launches last about as long as how many collectives. All
// ranks must run the same, so it goes by what the nodes are said to cost, not by what
// this rank measured.
func (c *calibration) repeats(l, o int) (launches, collectives int) {
	launch, collective := guess(c.p, &c.p.Instrs[l], c.h.f, c.model), guess(c.p, &c.p.Instrs[o], c.h.f, c.model)
	ratio := max(collective, 0.1) / max(launch, 0.1)
	if ratio >= 1 {
		return min(int(math.Ceil(ratio)), mostRepeats), 1
	}
	return 1, min(int(math.Ceil(1/ratio)), mostRepeats)
}

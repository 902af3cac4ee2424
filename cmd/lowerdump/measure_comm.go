package main

import (
	"context"
	"fmt"
	"math"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
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

// pairs measures how a dear launch of each operation and a dear collective of each
// operation disturb each other.
func (k *meter) pairs(ctx context.Context) error {
	c := k.c
	launches, collectives := c.dearest()
	for _, l := range launches {
		for _, o := range collectives {
			f := finding{What: aPair, Key: c.p.Instrs[l].Op, Other: c.p.Instrs[o].Op}
			if !k.isNew(f) {
				continue
			}
			u, v, err := k.pair(ctx, l, o)
			if err != nil {
				return fmt.Errorf("%s beside %s: %w", c.p.Instrs[l].Op, c.p.Instrs[o].Op, err)
			}
			f.Us, f.Us2 = u, v
			k.add(f)
		}
	}
	return nil
}

// dearestUs is the most that what stands in a pair is said to take, if there is one
// that takes less: pairs are to be measured quickly.
const dearestUs = 1000

// dearest are, for each operation, the launch and the collective that take longest,
// within dearestUs.
func (c *calibration) dearest() (launches, collectives []int) {
	var ops []string
	best, us := map[string]int{}, map[string]float64{}
	for i := range c.p.Instrs {
		in := &c.p.Instrs[i]
		if in.Kind != program.Launch && (in.Kind != program.Collective || !c.beside[i]) || indexes(in) {
			continue
		}
		t := c.guess(in)
		old, ok := us[in.Op]
		switch {
		case !ok:
			ops = append(ops, in.Op)
		case old > dearestUs && t < old: // less is better
		case t > old && t <= dearestUs:
		default:
			continue
		}
		best[in.Op], us[in.Op] = i, t
	}
	for _, op := range ops {
		if i := best[op]; c.p.Instrs[i].Kind == program.Collective {
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
	launch, collective := c.guess(&c.p.Instrs[l]), c.guess(&c.p.Instrs[o])
	ratio := max(collective, 0.1) / max(launch, 0.1)
	if ratio >= 1 {
		return min(int(math.Ceil(ratio)), mostRepeats), 1
	}
	return 1, min(int(math.Ceil(1/ratio)), mostRepeats)
}

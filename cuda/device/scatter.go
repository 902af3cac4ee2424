package device

import (
	"errors"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/device/internal/layout"
	"github.com/seed-ee968945/concert/cuda/device/internal/segments"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/kernels"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A matmul whose product a reduce_scatter takes sends (kernels/src/matmul.h): its tiles go into the staging
// memory of the ranks that own them, and a reduction in the place of the reduce_scatter adds up what came. The program
// guarantees by its mark that the product, of which each rank then has only its own rows, has no other reader.
//
// The matmul waits for nobody, so anything may be under way beside it but calls of the same group: until those before
// have ended, here and therefore everywhere, peers' staging is theirs.

// scatterer is a library with matmuls that send their results to the ranks that own them.
type scatterer interface {
	PlanScatter(c *library.Call, to []driver.Ptr, rank int) (library.Step, error)
}

// scatters plans reduce_scatter k and the matmul of its operand; nil if no matmul directly before it makes that.
func (r *recording) scatters(o order, k int) (*inMatmul, error) {
	c, j := r.items[k].coll, k-1
	for ; j >= 0 && r.items[j].plan == nil; j-- {
		if x := &r.items[j]; x.coll != nil || x.mark != 0 || x.bracket != nil {
			return nil, nil
		}
	}
	if j < 0 || r.items[j].plan.asked == nil || o[k][r.items[j].st] <= j {
		return nil, nil
	}
	for i := range j {
		x := &r.items[i]
		ours := x.coll != nil && x.coll.g == c.g || x.plan != nil && x.plan.group == c.g
		if ours && o[j][x.st] <= i {
			return nil, nil
		}
	}
	w := &inMatmul{matmul: j}
	var err error
	w.plan, w.reduction, err = r.scatter(c, r.items[j].plan)
	return w, err
}

// scatter plans a matmul that sends and the reduction of what comes. Errors that wrap library.ErrNotServed mean that
// matmul and reduce_scatter stay as they are.
func (r *recording) scatter(c *collective, matmul *plan) (send, reduction *plan, err error) {
	d, in, out, asked := r.d, c.c.Ins[0], c.c.Outs[0], *matmul.asked
	if _, err := d.checkCollective(c.g, &c.c); err != nil {
		return nil, nil, err
	}
	count, bytes, ok := layout.Rows(out, in, c.c.Dim)
	own := library.Memory{At: d.at(in) + driver.Ptr(int64(c.g.pos)*bytes), Bytes: uint64(bytes)}
	dst := library.Memory{At: d.at(out), Bytes: uint64(bytes)}
	switch {
	case !ok || count != 1:
		return nil, nil, notServed("the reduce_scatter")
	case asked.Outs[0].At != d.at(in) || asked.Outs[0].DType != in.DType || intmath.Product(asked.Outs[0].Shape) != in.NumElems():
		return nil, nil, notServed("the matmul makes something else")
	case own.At != dst.At && own.Overlaps(dst):
		return nil, nil, notServed("the result lies over a part of the own rows")
	}
	op, err := segments.Op(&c.c, kernels.ReduceScatter, in.DType, coll.Tensor{Src: own.At, Dst: dst.At, Bytes: own.Bytes})
	if err != nil {
		return nil, nil, err
	}
	b := &builder{d: d, p: newCollective(c.g, &c.c), part: alone}
	op.Algo, op.Symmetric = kernels.Sent, false
	b.try(op)
	var refused *kernels.PlanError
	if errors.As(b.err, &refused) {
		return nil, nil, notServed(refused.Reason)
	}
	b.p.algo = b.how
	err = b.err
	if err == nil {
		err = notServed("no library")
	}
	send = &plan{name: matmul.name + ", " + c.c.Name(), stream: matmul.stream}
	for _, l := range d.libs {
		if s, ok := l.(scatterer); ok && errors.Is(err, library.ErrNotServed) {
			if send.step, err = s.PlanScatter(&asked, c.g.m.SentTo(own.At, own.Bytes), c.g.pos); err == nil {
				send.algo = send.step.String()
				send.step.AddTo(&send.cmds)
			}
		}
	}
	return send, b.p, err
}

// placeScatters puts matmuls that send into their places, but not in groups that have reductions overlapped with compute: what
// those leave behind in the peers' staging is given up by credits that a matmul does not ask for. All ranks decide alike.
func (r *recording) placeScatters() {
	credits := map[*group]bool{}
	for k := range r.items {
		if c := r.items[k].coll; c != nil && c.overlapped && (c.c.Op == rt.ReduceScatter || c.c.Op == rt.AllReduce) {
			credits[c.g] = true
		}
	}
	for k := range r.items {
		c := r.items[k].coll
		switch {
		case c == nil || c.within == nil || c.within.reduction == nil:
		case credits[c.g]:
			c.within = nil
		default:
			r.items[c.within.matmul].plan = c.within.plan
			r.hold(c.within.plan)
		}
	}
}

package loops

import (
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// Known is what the small integers of a function are, as far as constants say.
type Known struct {
	writes *ir.Writes
	values map[*ir.Value]*hostops.Tensor // nil where that is not known; look-up only
}

// NewKnown knows nothing of f yet.
func NewKnown(f *ir.Func) *Known {
	return &Known{ir.FindWrites(f), map[*ir.Value]*hostops.Tensor{}}
}

// State is what the operands of a node are.
func (k *Known) State(n *ir.Node) []*hostops.Tensor {
	out := make([]*hostops.Tensor, len(n.Args()))
	for i, a := range n.Args() {
		out[i] = k.number(a, 0)
	}
	return out
}

// number is what a value of the function is, if that follows from constants.
func (k *Known) number(v *ir.Value, depth int) *hostops.Tensor {
	if t, ok := k.values[v]; ok || depth > maxDepth {
		return t
	}
	n := v.Def()
	if Small(v) && !k.writes.Written(v) {
		args := make([]*hostops.Tensor, len(n.Args()))
		for i, a := range n.Args() {
			if args[i] = k.number(a, depth+1); args[i] == nil {
				break
			}
		}
		k.values[v] = compute(n, args)
	} else {
		k.values[v] = nil
	}
	return k.values[v]
}

// Numbers is what is known of the values of a function whose inputs are known; look-up only.
func Numbers(f *ir.Func, in []*hostops.Tensor) map[*ir.Value]*hostops.Tensor {
	known := map[*ir.Value]*hostops.Tensor{}
	for i, n := range f.Inputs() {
		known[n.Result(0)] = in[i]
	}
	writes := ir.FindWrites(f)
	for _, n := range f.Order() {
		if len(n.Results()) != 1 || n.Op() == ir.OpInput || !Small(n.Result(0)) || writes.Written(n.Result(0)) {
			continue
		}
		args := make([]*hostops.Tensor, len(n.Args()))
		for i, a := range n.Args() {
			args[i] = known[a]
		}
		if t := compute(n, args); t != nil {
			known[n.Result(0)] = t
		}
	}
	return known
}

// follow is what is known of the results of a function whose inputs are known.
func follow(f *ir.Func, in []*hostops.Tensor) []*hostops.Tensor {
	known := Numbers(f, in)
	out := make([]*hostops.Tensor, len(f.Return().Args()))
	for i, v := range f.Return().Args() {
		out[i] = known[v]
	}
	return out
}

// Bounds of the operations of a loop's iterations.
const (
	MaxProved  = 1 << 15 // package equiv follows no more one by one
	MaxCounted = 1 << 18
)

// End says why counting the iterations of a loop has ended.
type End uint8

// The reasons.
const (
	Counted End = iota // the loop is over
	Unknown            // a run decides
	Long               // the iterations have more operations than were asked for
)

// Count counts the iterations of a while whose operands are known, and says what the last of them
// begins with. operations bounds those of all iterations together; tick is called in each.
func Count(n *ir.Node, now []*hostops.Tensor, operations int64, tick func()) (iterations int64, last []*hostops.Tensor, end End) {
	cond, body := n.Bodies()[0], n.Bodies()[1]
	size := int64(len(cond.Order()) + len(body.Order()))
	for ; ; iterations++ {
		tick()
		c := follow(cond, now)[0]
		switch {
		case c == nil:
			return 0, nil, Unknown
		case (iterations+1)*size > operations:
			return 0, nil, Long
		case c.Data[0] == 0:
			return iterations, last, Counted
		}
		last, now = now, append(follow(body, now), now[n.Carried():]...)
	}
}

package traced

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
)

// Loop is [decompose.Loop] of helpers.
func (c *Call) Loop(iterations int64, state, fixed []*ir.Value, body func(b *Call, iteration *ir.Value, state, fixed []*ir.Value) []*ir.Value) []*ir.Value {
	if c.Err != nil {
		return slices.Repeat([]*ir.Value{c.None()}, len(state))
	}
	return decompose.Loop(Emitter{c}, iterations, state, fixed, nil, func(e decompose.Looper, iteration *ir.Value, state, fixed []*ir.Value) []*ir.Value {
		return body(e.(Emitter).Call, iteration, state, fixed)
	})
}

// Body begins the body of a loop: the call in a new function of the module.
func (e Emitter) Body(what string, types []ir.Type) (decompose.Looper, []*ir.Value, func([]*ir.Value) *ir.Func) {
	m, b := e.Func.Module(), *e.Call
	for k := 1; ; k++ {
		if name := fmt.Sprintf("%s.%s%d", e.Func.Name, what, k); m.Func(name) == nil {
			b.Func, b.Charged = m.AddFunc(name), true
			break
		}
	}
	in := make([]*ir.Value, len(types))
	for i, t := range types {
		in[i] = b.Func.Append(ir.NodeSpec{Op: ir.OpInput, Name: "x", Results: []ir.Type{t}}).Result(0)
	}
	return Emitter{&b}, in, func(outs []*ir.Value) *ir.Func {
		if e.Err = cmp.Or(e.Err, b.Err); e.Err != nil {
			return nil
		}
		b.Func.Append(ir.NodeSpec{Op: ir.OpReturn, Args: outs})
		return b.Func
	}
}

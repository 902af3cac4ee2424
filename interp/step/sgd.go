package step

import (
	"fmt"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
)

// SGD gives a backward function that updates the parameters where they lie, in place of
// giving their gradients: result k is parameter k minus rate times its gradient, and the
// parameter is donated to it. Forward's inputs are the parameters, in the order of the traced
// gradients. Those that backward did not take become further inputs, by their names
// in forward.
func SGD(p *Pair, rate float64) (*ir.Func, error) {
	ws, err := p.wires()
	if err != nil {
		return nil, err
	}
	places, err := tracedOutputs(p.Backward)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", p.Name, err)
	}
	outs, ins := interp.OutputSlots(p.Forward), interp.InputSlots(p.Forward)
	taken := map[*ir.Value]string{} // by forward input: backward's; look-up only
	for _, w := range ws {
		if w.src != tangent {
			taken[outs[w.src].Value] = w.slot.Name
		}
	}
	f := p.Backward.Module().Clone().Func(p.Backward.Name)
	ret := f.Return()
	first := f.Order()[len(f.Inputs())]
	for k, place := range places {
		if place < 0 {
			continue
		}
		if k >= len(ins) {
			return nil, fmt.Errorf("step %s: gradient %d is of no forward input", p.Name, k)
		}
		grad, w := ret.Arg(place), ins[k].Value
		if !w.Type().Equal(grad.Type()) {
			return nil, fmt.Errorf("step %s: parameter %s is %v, its gradient %v", p.Name, w, w.Type(), grad.Type())
		}
		var in *ir.Node
		if name, ok := taken[w]; ok {
			in = f.Lookup(name)
		} else {
			in = f.InsertBefore(first, ir.NodeSpec{Op: ir.OpInput, Name: w.Def().Name(), Results: []ir.Type{w.Type()}, Meta: w.Def().Meta()})
		}
		typ := []ir.Type{w.Type()}
		by := f.InsertBefore(ret, ir.NodeSpec{Op: ir.OpMul, Name: in.Name() + "_step", Args: []*ir.Value{grad}, Attrs: ir.A("scalar", rate), Results: typ})
		made := f.InsertBefore(ret, ir.NodeSpec{Op: ir.OpSub, Name: in.Name() + "_new", Args: []*ir.Value{in.Result(0), by.Result(0)}, Results: typ})
		f.SetArg(ret, place, made.Result(0))
		f.SetAttrs(in, ir.A(ir.DonateKey, place))
	}
	return f, f.Module().Verify()
}

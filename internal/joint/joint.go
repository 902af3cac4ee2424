// Package joint makes joint forward-and-backward functions from traced pairs, for
// tests of pass partition, and runs the forward and backward functions that the pass produces.
//
// A traced pair has been partitioned before: backward repeats what its tracer
// chose to recompute, and takes the rest from forward's outputs. Join undoes
// that: backward's inputs become the forward values that feed them, and equal
// nodes are merged, so that only the tangents and what depends on them are left
// of backward, and the collectives that it repeats on purpose. Collectives are never
// merged, and neither are waits or operations with effects.
package joint

import (
	"context"
	"fmt"
	"strconv"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

// Join returns a module with the one function @NAME: its inputs are forward's and
// then backward's tangents, its results forward's, up to the first that backward takes,
// and then all of backward's. fw and bw are functions as package fx imports them, fed as
// step.Sources says. Backward nodes whose names are taken get another one.
func Join(name string, fw, bw *ir.Func) (*ir.Module, error) {
	outs := fx.Outputs(fw)
	if len(outs) == 0 || outs[0] == nil || bw.Return() == nil {
		return nil, fmt.Errorf("joint: @%s gives no loss or @%s nothing", fw.Name, bw.Name)
	}
	src, more := fw.Module(), bw.Module()
	m := ir.NewModule(src.World)
	if more.World != src.World {
		return nil, fmt.Errorf("joint: forward runs on %d ranks, backward on %d", src.World, more.World)
	}
	for _, from := range []*ir.Module{src, more} {
		for _, g := range from.Groups() {
			if have := m.Group(g.Name); have == nil {
				m.AddGroup(g.Name, g.Ranks)
			} else if fmt.Sprint(have.Ranks) != fmt.Sprint(g.Ranks) {
				return nil, fmt.Errorf("joint: group @%s differs between the two", g.Name)
			}
		}
		for _, s := range from.Symbols() {
			if m.Symbol(s.Name) == nil {
				m.AddSymbol(s.Name, s.Hint, s.Min, s.Max)
			}
		}
	}
	j := &joiner{to: m.AddFunc(name), seen: map[string]*ir.Node{}}
	fwVals, bwVals := make([]*ir.Value, fw.NumValueIDs()), make([]*ir.Value, bw.NumValueIDs())
	for _, n := range fw.Inputs() {
		j.copy(n, fwVals)
	}
	pair, err := step.New(name, fw, bw)
	if err != nil {
		return nil, fmt.Errorf("joint: %w", err)
	}
	sources, err := pair.Sources()
	if err != nil {
		return nil, fmt.Errorf("joint: %w", err)
	}
	slots := interp.OutputSlots(fw)
	for k, n := range bw.Inputs() {
		if sources[k] == step.Tangent {
			j.copy(n, bwVals)
		}
	}
	for _, n := range fw.Order() {
		if n.Op() != ir.OpInput && n.Op() != ir.OpReturn {
			j.copy(n, fwVals)
		}
	}
	first := len(outs)
	for k, n := range bw.Inputs() {
		if sources[k] == step.Tangent {
			continue
		}
		saved := slots[sources[k]].Value
		last := len(outs) - 1 // a result may be taken as well: then it is there twice
		for outs[last] != saved {
			last--
		}
		first = min(first, last)
		v := fwVals[saved.ID()]
		if !v.Type().Equal(n.Result(0).Type()) {
			v = j.to.Append(ir.NodeSpec{Op: ir.OpClone, Name: n.Name() + "_layout", Args: []*ir.Value{v}, Results: []ir.Type{n.Result(0).Type()}}).Result(0)
		}
		bwVals[n.Result(0).ID()] = v
	}
	for _, n := range bw.Order() {
		if n.Op() != ir.OpInput && n.Op() != ir.OpReturn {
			j.copy(n, bwVals)
		}
	}
	var rets []*ir.Value
	for _, v := range outs[:first] {
		if v != nil {
			rets = append(rets, fwVals[v.ID()])
		}
	}
	forward := int64(len(rets))
	for _, v := range bw.Return().Args() {
		rets = append(rets, bwVals[v.ID()])
	}
	j.to.Append(ir.NodeSpec{Op: ir.OpReturn, Args: rets, Meta: attr.Make(attr.Attr{Key: "forward", Val: attr.Int(forward)})})
	return m, m.Verify()
}

// Load reads the pair NAME from dir and joins it.
func Load(dir, name string) (*ir.Func, *step.Pair, error) {
	p, err := step.Load(dir, name)
	if err != nil {
		return nil, nil, err
	}
	if p.Backward == nil {
		return nil, nil, fmt.Errorf("joint: %s has no backward graph", name)
	}
	m, err := Join(name, p.Forward, p.Backward)
	if err != nil {
		return nil, nil, err
	}
	return m.Funcs()[0], p, nil
}

type joiner struct {
	to   *ir.Func
	seen map[string]*ir.Node // first node of each content; look-up only
	buf  []byte
}

// copy adds n, or finds its equal.
func (j *joiner) copy(n *ir.Node, vals []*ir.Value) {
	args := make([]*ir.Value, len(n.Args()))
	for i, a := range n.Args() {
		args[i] = vals[a.ID()]
	}
	key := ""
	if c := n.Op().Class(); n.Pure() && c != ir.ClassWait && c != ir.ClassInput {
		key = j.key(n, args)
	}
	made := j.seen[key]
	if key == "" || made == nil {
		s := n.Spec()
		s.Args, s.Meta = args, n.Meta().Without(fx.MetaName).Without(fx.MetaFrom)
		if s.Group != nil {
			s.Group = j.to.Module().Group(s.Group.Name)
		}
		made = j.to.Append(s)
		if key != "" {
			j.seen[key] = made
		}
	}
	for k, v := range n.Results() {
		vals[v.ID()] = made.Result(k)
	}
}

// key is equal for nodes that do the same to the same operands.
func (j *joiner) key(n *ir.Node, args []*ir.Value) string {
	b := append(j.buf[:0], n.Op().Name()...)
	for _, a := range args {
		b = strconv.AppendInt(append(b, ' '), int64(a.ID()), 10)
	}
	if n.Group() != nil {
		b = append(append(b, '@'), n.Group().Name...)
	}
	b = n.Attrs().AppendText(b)
	for _, v := range n.Results() {
		b = append(append(b, ' '), v.Type().String()...)
	}
	j.buf = b
	return string(b)
}

// Run executes the halves of a function that pass partition has split, on the
// inputs of the joint function, and returns the joint function's outputs by rank.
func Run(ctx context.Context, run step.Runner, jf, fw, bw *ir.Func, inputs [][]interp.Tensor) ([][]interp.Tensor, error) {
	place := map[string]int{} // look-up only: input tensor of each input node
	at := 0
	for _, n := range jf.Inputs() {
		place[n.Name()] = at
		at += len(n.Result(0).Type().Tensors())
	}
	given := func(n *ir.Node, r int) ([]interp.Tensor, error) {
		k, ok := place[n.Name()]
		if !ok {
			return nil, fmt.Errorf("joint: @%s has no input %%%s", jf.Name, n.Name())
		}
		return inputs[r][k : k+len(n.Result(0).Type().Tensors())], nil
	}
	fwIn := make([][]interp.Tensor, len(inputs))
	for r := range inputs {
		for _, n := range fw.Inputs() {
			ts, err := given(n, r)
			if err != nil {
				return nil, err
			}
			fwIn[r] = append(fwIn[r], ts...)
		}
	}
	fwOut, err := run(ctx, fw, fwIn)
	if err != nil {
		return nil, fmt.Errorf("joint: forward: %w", err)
	}
	fed := 0
	for _, n := range bw.Inputs() {
		if n.Meta().Has(fx.MetaFrom) {
			fed++
		}
	}
	outs := len(fw.Return().Args()) - fed
	first := len(interp.OutputSlots(fw)) - fed // the fed ones are tensors, the others may be several
	if outs < 0 {
		return nil, fmt.Errorf("joint: forward gives %d results, backward takes %d", len(fw.Return().Args()), fed)
	}
	bwIn := make([][]interp.Tensor, len(inputs))
	for r := range inputs {
		k := first
		for _, n := range bw.Inputs() {
			if n.Meta().Has(fx.MetaFrom) {
				bwIn[r] = append(bwIn[r], fwOut[r][k])
				k++
				continue
			}
			ts, err := given(n, r)
			if err != nil {
				return nil, err
			}
			bwIn[r] = append(bwIn[r], ts...)
		}
	}
	bwOut, err := run(ctx, bw, bwIn)
	if err != nil {
		return nil, fmt.Errorf("joint: backward: %w", err)
	}
	return gather(jf, fw, bw, outs, fwOut, bwOut)
}

// gather puts the results of the halves into the joint function's order.
func gather(jf, fw, bw *ir.Func, outs int, fwOut, bwOut [][]interp.Tensor) ([][]interp.Tensor, error) {
	ret := jf.Return()
	type piece struct {
		bw    bool
		first int
	}
	from := make([]piece, len(ret.Args()))
	for _, half := range []bool{false, true} {
		f, n, start := fw, outs, 0
		if half {
			f, n, start = bw, len(bw.Return().Args()), outs
		}
		places := f.Return().Meta().Ints("places")
		at := 0
		for i := range n {
			k := start + i
			if places != nil {
				k = int(places[i])
			}
			if k >= len(from) {
				return nil, fmt.Errorf("joint: @%s gives result %d of %d", f.Name, k, len(from))
			}
			from[k] = piece{half, at}
			at += len(f.Return().Arg(i).Type().Tensors())
		}
	}
	all := make([][]interp.Tensor, len(fwOut))
	for r := range all {
		for k, p := range from {
			src := fwOut[r]
			if p.bw {
				src = bwOut[r]
			}
			all[r] = append(all[r], src[p.first:p.first+len(ret.Arg(k).Type().Tensors())]...)
		}
	}
	return all, nil
}

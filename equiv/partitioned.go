package equiv

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// repeatedKey is the annotation of nodes of a backward half that forward runs as well:
// those of checkpointed regions may communicate, which then happens twice.
const repeatedKey = "recompute"

// Join reads the halves of a joint function as forward and then backward: what
// forward returns behind its own results are backward's first inputs, in order, and
// other inputs are the joint function's of the same name. The error says how
// the signatures do not fit.
func (p *Prover) Join(joint *Meaning, forward, backward *ir.Func) (*Meaning, error) {
	seed := func(n *ir.Node) (source, error) {
		i := slices.Index(joint.names, n.Name())
		if i < 0 || !joint.inputs[i].Equal(n.Result(0).Type()) {
			return source{}, fmt.Errorf("@%s: input %%%s is none of the joint function's", n.Func().Name, n.Name())
		}
		return p.input(i, n.Name(), joint.inputs[i]), nil
	}
	var given []source
	for _, n := range forward.Inputs() {
		s, err := seed(n)
		if err != nil {
			return nil, err
		}
		given = append(given, s)
	}
	fw := p.read(forward, given, &Meaning{}, -1, "")
	own := len(joint.outputs) - len(backward.Return().Args())
	handed := len(fw.outputs) - own
	if own < 0 || handed < 0 || handed > len(backward.Inputs()) {
		return nil, fmt.Errorf("@%s gives %d results and @%s %d; the joint function has %d", forward.Name, len(fw.outputs), backward.Name, len(backward.Return().Args()), len(joint.outputs))
	}
	given = nil
	for i, n := range backward.Inputs() {
		if i >= handed {
			s, err := seed(n)
			if err != nil {
				return nil, err
			}
			given = append(given, s)
			continue
		}
		o := fw.outputs[own+i]
		if !o.typ.Equal(n.Result(0).Type()) {
			return nil, fmt.Errorf("@%s takes %%%s as %s, @%s gives %s", backward.Name, n.Name(), n.Result(0).Type(), forward.Name, o.typ)
		}
		s := source{nums: o.tensors}
		for k, h := range o.homes {
			if h.input < 0 { // a storage of forward's, by another number than backward's own
				h = home{-3 - i, 0, k}
			}
			s.homes = append(s.homes, h)
		}
		given = append(given, s)
	}
	bw := p.read(backward, given, fw, -2, repeatedKey)
	all := *bw
	all.name, all.names, all.inputs = joint.name, joint.names, joint.inputs
	all.halves = true
	all.left = slices.Concat(bw.left, fw.left) // backward's word is the last
	slices.SortStableFunc(all.left, func(x, y leftover) int { return cmp.Or(x.of.input-y.of.input, x.of.k-y.of.k) })
	all.left = slices.CompactFunc(all.left, func(x, y leftover) bool { return x.of == y.of })
	all.outputs = make([]output, len(joint.outputs))
	all.donated = nil
	if err := all.put(forward, fw.outputs[:own], 0); err != nil {
		return nil, err
	}
	if err := all.put(backward, bw.outputs, own); err != nil {
		return nil, err
	}
	slices.SortFunc(all.donated, func(x, y donation) int { return x.input - y.input })
	return &all, nil
}

// put places results of a half among those of the joint function.
func (m *Meaning) put(half *ir.Func, outs []output, first int) error {
	places := half.Return().Meta().Ints(ir.MetaPlaces)
	for i, o := range outs {
		at := first + i
		if places != nil {
			if i >= len(places) || places[i] < 0 || places[i] >= int64(len(m.outputs)) {
				return fmt.Errorf("@%s: %s=%v for %d results", half.Name, ir.MetaPlaces, places, len(outs))
			}
			at = int(places[i])
		}
		m.outputs[at] = o
		for _, d := range half.Donations() {
			if d.Result == i {
				m.donated = append(m.donated, donation{slices.Index(m.names, d.Input.Name()), at})
			}
		}
	}
	return nil
}

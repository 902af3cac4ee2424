package interp

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// flight is what Options.Poison keeps of an async value on one rank between its
// start and its wait.
type flight struct {
	results []view   // what other nodes could see: garbage
	land    [][]byte // the storages' true contents, stored at the wait
	args    []view   // the operands; held, so that their storage outlives the flight
	before  []Tensor // their contents at the start
}

// Garbage in storages in flight. A float of all ones is a NaN in every format.
const (
	poisonFloat = 0xFF
	poisonOther = 0xAA
)

func poison(dt ir.DType) byte {
	if dt.IsFloat() {
		return poisonFloat
	}
	return poisonOther
}

// takeOff hides the results of b until the wait and remembers the operands.
func (m *machine) takeOff(b *binding, args []view) error {
	fl := &flight{results: b.ts, args: args}
	for _, t := range b.ts {
		fl.land = append(fl.land, bytes.Clone(t.Data))
		p := poison(t.DType)
		for i := range t.Data {
			t.Data[i] = p
		}
	}
	for _, a := range args {
		m.hold(a)
		t, err := a.tensor()
		if err != nil {
			return err
		}
		fl.before = append(fl.before, t)
	}
	b.fl = fl
	return nil
}

// land ends a flight: it checks that nobody wrote to its operands or results and
// makes the results visible. A nil flight has landed already.
func (m *machine) land(fl *flight) error {
	if fl == nil {
		return nil
	}
	for i, a := range fl.args {
		now, err := a.tensor()
		if err != nil {
			return err
		}
		if !bytes.Equal(now.Data, fl.before[i].Data) {
			return fmt.Errorf("operand %d of the collective was changed while in flight, first at element %d", i, firstDiff(now, fl.before[i]))
		}
		m.release(a)
	}
	for i, t := range fl.results {
		p := poison(t.DType)
		if k := slices.IndexFunc(t.Data, func(c byte) bool { return c != p }); k >= 0 {
			return fmt.Errorf("result %d of the collective was changed while in flight, first at element %d of its storage", i, k/t.DType.Size())
		}
		copy(t.Data, fl.land[i])
	}
	return nil
}

func firstDiff(a, b Tensor) int {
	i := 0
	for i < len(a.Data) && a.Data[i] == b.Data[i] {
		i++
	}
	return i / a.DType.Size()
}

// wait makes the tensors of an async value visible; they keep its storages.
func (m *machine) wait(n *ir.Node) error {
	outs := make([][]binding, len(n.Results()))
	for i := range outs {
		outs[i] = make([]binding, m.world)
	}
	for _, r := range m.ranks {
		b := &m.env[n.Arg(0).ID()][r]
		if err := m.land(b.fl); err != nil {
			return nodeError(n, r, err)
		}
		b.fl = nil
		if len(b.ts) != len(outs) {
			return nodeError(n, r, fmt.Errorf("%d results for %d tensors", len(outs), len(b.ts)))
		}
		for i, v := range n.Results() {
			t, err := m.waited(v.Type(), b.ts[i], r)
			if err != nil {
				return nodeError(n, r, err)
			}
			outs[i][r].ts = []view{t}
		}
	}
	for i, v := range n.Results() {
		m.bind(v, outs[i])
	}
	return nil
}

// waited is one tensor of a wait: an alias, so its layout must be the one that the
// async value carries.
func (m *machine) waited(t ir.Type, x view, rank int) (view, error) {
	h, _, err := m.layout(t, rank)
	if err != nil {
		return view{}, err
	}
	if !slices.Equal(h.Shape, x.Shape) || !slices.Equal(h.Strides, x.Strides) {
		return view{}, fmt.Errorf("a wait aliases its operand, which carries %v with strides %v; the result is declared %v with strides %v",
			x.Shape, x.Strides, h.Shape, h.Strides)
	}
	return x, nil
}

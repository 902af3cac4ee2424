package interp

import (
	"context"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
)

// control runs the bodies of a while or a case. Ranks that go another way than the rest run
// along: they compute what the first rank that goes this way does, and nobody sees it. So all
// ranks stay in lockstep, and none reads numbers that it would not have read.
func (m *machine) control(ctx context.Context, n *ir.Node) error {
	in := make([][]Tensor, m.world)
	for _, r := range m.ranks {
		for _, a := range n.Args() {
			t, err := m.env[a.ID()][r].ts[0].tensor()
			if err != nil {
				return nodeError(n, r, err)
			}
			in[r] = append(in[r], t)
		}
	}
	run := m.loop
	if n.Op() == ir.OpCase {
		run = m.choice
	}
	out, err := run(ctx, n, in)
	if err != nil {
		return nodeError(n, -1, err)
	}
	for i, v := range n.Results() {
		bs := make([]binding, m.world)
		for _, r := range m.ranks {
			x, err := m.alloc(v.Type(), r)
			if err == nil {
				err = fillView(x.Tensor, out[r][i].host())
			}
			if err != nil {
				return nodeError(n, r, err)
			}
			bs[r].ts = []view{x}
		}
		m.bind(v, bs)
	}
	return nil
}

// loop gives the carried tensors of each rank when its condition no longer holds.
func (m *machine) loop(ctx context.Context, n *ir.Node, state [][]Tensor) ([][]Tensor, error) {
	bodies, carried := n.Bodies(), n.Carried()
	going := make([]bool, m.world)
	for _, r := range m.ranks {
		going[r] = true
	}
	for {
		more, err := m.body(ctx, bodies[0], state, going)
		if err != nil {
			return nil, err
		}
		left := -1
		for r := range going {
			if going[r] && more[r][0].Data[0] == 0 {
				going[r], left = false, r
			}
		}
		if !slices.Contains(going, true) {
			return state, nil
		}
		if left >= 0 && n.Communicates() {
			return nil, onRank(left, "it communicates, and this rank leaves it while others go on")
		}
		next, err := m.body(ctx, bodies[1], state, going)
		if err != nil {
			return nil, err
		}
		for r := range going {
			if going[r] {
				state[r] = append(next[r], state[r][carried:]...)
			}
		}
	}
}

// choice runs the branches that some rank takes.
func (m *machine) choice(ctx context.Context, n *ir.Node, in [][]Tensor) ([][]Tensor, error) {
	bodies, out := n.Bodies(), make([][]Tensor, m.world)
	takes := make([]int, m.world)
	for _, r := range m.ranks {
		takes[r] = len(bodies) - 1
		if k := dtype.LoadInt(in[r][0].DType, in[r][0].Data); k >= 0 && k < int64(len(bodies)) {
			takes[r] = int(k)
		}
		if first := m.ranks[0]; takes[r] != takes[first] && n.Communicates() {
			return nil, onRank(r, "it communicates, and this rank takes branch %d, rank %d branch %d", takes[r], first, takes[first])
		}
		in[r] = in[r][1:]
	}
	for k, b := range bodies {
		going := make([]bool, m.world)
		for _, r := range m.ranks {
			going[r] = takes[r] == k
		}
		if !slices.Contains(going, true) {
			continue
		}
		got, err := m.body(ctx, b, in, going)
		if err != nil {
			return nil, err
		}
		for r := range going {
			if going[r] {
				out[r] = got[r]
			}
		}
	}
	return out, nil
}

// body runs a function on all ranks, for the results of those that are going.
func (m *machine) body(ctx context.Context, f *ir.Func, in [][]Tensor, going []bool) ([][]Tensor, error) {
	first := slices.Index(going, true)
	inputs, o := slices.Clone(in), m.opts
	o.Symbols, o.Trace = slices.Clone(m.syms), nil
	for _, r := range m.ranks {
		if !going[r] {
			inputs[r], o.Symbols[r] = in[first], m.syms[first]
		}
	}
	for _, held := range m.live {
		if o.MemoryLimit > 0 {
			o.MemoryLimit = max(o.MemoryLimit-held, 1)
		}
	}
	sub, err := newMachine(f, m.ranks, inputs, o)
	if err != nil {
		return nil, err
	}
	return sub.advance(ctx, inputs)
}

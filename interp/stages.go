package interp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/ir"
)

// RunStages executes the functions of stages of a module side by side, each on the ranks that
// run it. inputs[r] holds what rank r's function takes, the result what it gives; all else is
// as for Run, errors too. A collective between stages moves its data when all of them have
// issued it; if the module is not verified, stages that wait for each other are an error.
func RunStages(ctx context.Context, mod *ir.Module, s *ir.Stages, inputs [][]Tensor, o Options) ([][]Tensor, error) {
	if !o.SkipVerify {
		if err := mod.Verify(); err != nil {
			return nil, err
		}
	}
	all := &stages{s: s, issued: make([]map[*ir.Group][]*issue, len(s.Funcs))}
	syms, live := make([]map[string]int64, mod.World), make([]int64, mod.World)
	for stage, name := range s.Funcs {
		m, err := newMachine(mod.Func(name), s.Ranks(stage), inputs, o)
		if err != nil {
			return nil, err
		}
		for _, r := range m.ranks {
			syms[r] = m.syms[r]
		}
		m.syms, m.live, m.stages, m.stage = syms, live, all, stage
		all.machines = append(all.machines, m)
		all.issued[stage] = map[*ir.Group][]*issue{}
	}
	outs := make([][]Tensor, mod.World)
	for running := len(all.machines); running > 0; {
		before := running
		moved := false
		for _, m := range all.machines {
			if m.ended {
				continue
			}
			at := m.at
			out, err := m.advance(ctx, inputs)
			if err != nil {
				return nil, err
			}
			moved = moved || m.at > at
			if m.ended {
				running--
				for _, r := range m.ranks {
					outs[r] = out[r]
				}
			}
		}
		if !moved && running == before {
			return nil, all.stuck()
		}
	}
	return outs, nil
}

// stages are machines that run side by side.
type stages struct {
	s        *ir.Stages
	machines []*machine
	issued   []map[*ir.Group][]*issue // by stage: its collectives with other stages, in order; look-up only
}

// issue is a collective with other stages that a stage has issued.
type issue struct {
	n    *ir.Node
	args [][]view // by operand and rank
	out  []binding
	done bool
}

// stuck says who waits for what.
func (s *stages) stuck() error {
	var l []string
	for _, m := range s.machines {
		if !m.ended {
			l = append(l, fmt.Sprintf("@%s at %%%s", m.f.Name, m.f.Order()[m.at].Name()))
		}
	}
	return fmt.Errorf("interp: the stages of @%s wait for each other: %s", s.s.Name, strings.Join(l, ", "))
}

// peers lists the stages that take part in a collective, and reports whether they are several.
func (m *machine) peers(n *ir.Node) ([]int, bool, error) {
	if m.stages == nil {
		return nil, false, nil
	}
	stages, err := m.stages.s.Peers(m.stage, n.Group())
	return stages, len(stages) > 1, err
}

// issue begins a collective with other stages, and does it if this one is the last to come.
func (m *machine) issue(n *ir.Node, peers []int, out []binding) error {
	own := &issue{n: n, out: out}
	for _, a := range n.Args() {
		vs := make([]view, m.world)
		for _, r := range m.ranks {
			vs[r] = m.env[a.ID()][r].ts[0]
		}
		own.args = append(own.args, vs)
	}
	queue := m.stages.issued
	queue[m.stage][n.Group()] = append(queue[m.stage][n.Group()], own)
	k := len(queue[m.stage][n.Group()]) - 1
	all := make([]*issue, len(queue)) // by stage
	for _, p := range peers {
		if len(queue[p][n.Group()]) <= k {
			return nil
		}
		all[p] = queue[p][n.Group()][k]
		if o := all[p]; o.n.Op() != n.Op() || len(o.args) != len(own.args) || !o.n.Attrs().Equal(n.Attrs()) {
			return nodeError(n, -1, fmt.Errorf("@%s issues %s here", o.n.Func().Name, o.n))
		}
	}
	in, res, err := n.Splits()
	if err != nil {
		return nodeError(n, -1, err)
	}
	for _, ranks := range n.Group().Ranks {
		if !slices.ContainsFunc(ranks, func(r int) bool { return slices.Contains(m.ranks, r) }) {
			continue
		}
		for i := range n.Args() {
			x := exchange{m: m, n: n, ranks: ranks}
			for _, r := range ranks {
				o := all[m.stages.s.Index(r)]
				x.in = append(x.in, o.args[i][r].Tensor)
				x.out = append(x.out, o.out[r].landing(i))
			}
			if in != nil {
				x.inSplits, x.outSplits = in[i], res[i]
			}
			if err := x.run(); err != nil {
				return nodeError(n, -1, inOperand(i, err))
			}
		}
	}
	for _, p := range peers {
		all[p].done = true
	}
	return nil
}

// landing is where tensor i of an async value is until its wait.
func (b *binding) landing(i int) hostops.Tensor {
	t := b.ts[i].Tensor
	if b.fl != nil {
		t.Data = b.fl.land[i]
	}
	return t
}

// blocked reports whether a node waits for a collective that other stages have not come to.
func (m *machine) blocked(n *ir.Node) bool {
	if m.stages == nil || n.Op().Class() != ir.ClassWait && n.Op() != ir.OpReturn {
		return false
	}
	return slices.ContainsFunc(n.Args(), func(a *ir.Value) bool {
		c := a.Def()
		return a.Type().IsAsync() && c.Op().IsCollective() && slices.ContainsFunc(m.stages.issued[m.stage][c.Group()], func(o *issue) bool { return o.n == c && !o.done })
	})
}

// ranksOf lists the ranks that run a function.
func ranksOf(f *ir.Func) []int {
	if s, stage := f.Module().StagesOf(f); s != nil {
		return s.Ranks(stage)
	}
	all := make([]int, f.Module().World)
	for r := range all {
		all[r] = r
	}
	return all
}

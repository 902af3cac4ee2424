package mesh

import (
	"fmt"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/normal"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

// side is one of the two programs.
type side struct {
	t       *normal.Table
	m       *normal.Mesh
	name    string             // which of the two: what is unknown in one is never what it is in the other
	g       *placement.Grid    // nil of one device
	vals    [][]*normal.Tensor // by value: one for each tensor
	unknown []Unknown
	made    []*ir.Node             // by expression: the node that first made it
	lost    map[normal.Expr]string // the nodes of what is unknown
}

// Unknown is a step of which no rule says what its ranks compute.
type Unknown struct {
	Node string // as a line
	Why  string
}

func newSide(t *normal.Table, name string, g *placement.Grid, lost map[normal.Expr]string) *side {
	var atoms []int64
	if g != nil {
		for _, a := range g.Atoms {
			atoms = append(atoms, a.Size)
		}
	}
	return &side{t: t, m: t.Mesh(atoms...), name: name, g: g, lost: lost}
}

// read states every value of the function, the inputs by what they are given.
func (s *side) read(f *ir.Func, inputs []*normal.Tensor) []*normal.Tensor {
	s.vals = make([][]*normal.Tensor, f.NumValueIDs())
	at := 0
	for _, n := range f.Order() {
		switch n.Op() {
		case ir.OpInput:
			s.vals[n.Result(0).ID()] = []*normal.Tensor{inputs[at]}
			at++
		case ir.OpReturn:
			var out []*normal.Tensor
			for _, v := range n.Args() {
				out = append(out, s.of(v)...)
			}
			return out
		default:
			s.node(n)
		}
		for len(s.made) < s.t.Len() {
			s.made = append(s.made, n)
		}
	}
	return nil
}

// of is what a value's tensors are.
func (s *side) of(v *ir.Value) []*normal.Tensor { return s.vals[v.ID()] }

// node states the results of a node; what no rule knows is different on every rank.
func (s *side) node(n *ir.Node) {
	why := s.t.Try(func() { s.state(n) })
	if why == "" {
		return
	}
	s.unknown = append(s.unknown, Unknown{n.String(), why})
	for i, v := range n.Results() {
		var out []*normal.Tensor
		for k, t := range v.Type().Tensors() {
			local, _ := t.Shape().Static() // of a size that is no number nobody asks
			p := s.m.Unknown(fmt.Sprintf("%s %s %d %d %d", s.name, n.Name(), i, k, len(s.unknown)), local...)
			s.lost[p.Expr()] = n.String()
			out = append(out, p)
		}
		s.vals[v.ID()] = out
	}
}

// state states them by a rule.
func (s *side) state(n *ir.Node) {
	if n.Effects()&(ir.EffectWrites|ir.EffectRandom) != 0 && !(s.g == nil && n.Op() == ir.OpRand) {
		normal.Unsupported("it writes in place or draws random numbers")
	}
	for _, v := range n.Args() {
		sizes(v)
	}
	for _, v := range n.Results() {
		sizes(v)
	}
	switch {
	case n.Op() == ir.OpWaitTensor:
		for i, v := range n.Results() {
			s.vals[v.ID()] = s.of(n.Arg(0))[i : i+1]
		}
	case n.Op().IsCollective() || n.Op() == ir.OpShard:
		s.communicate(n)
	default:
		x := &step{m: s.m, t: s.t, n: n}
		for _, v := range n.Args() {
			x.in = append(x.in, s.of(v)[0])
		}
		for i, p := range x.rule() {
			s.vals[n.Result(i).ID()] = []*normal.Tensor{p}
		}
	}
}

// sizes are those of a value's tensors, which must be numbers from 1.
func sizes(v *ir.Value) [][]int64 {
	var out [][]int64
	for _, t := range v.Type().Tensors() {
		l, ok := t.Shape().Static()
		if !ok {
			normal.Unsupported("%s has a size that is no number", v)
		}
		for _, n := range l {
			if n == 0 {
				normal.Unsupported("%s has no elements", v)
			}
		}
		out = append(out, l)
	}
	return out
}

package mesh

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

// piece is what a tensor is: of one device, or on each rank.
type piece struct {
	base *expr
	coef float64
	dims [][]digits.Digit // of the tensor: the digits of each dimension, major first
	held []digits.Digit   // by atom: the digit that it is of the rank
}

// side is one of the two programs.
type side struct {
	t       *table
	name    string          // which of the two: what is unknown in one is never what it is in the other
	g       *placement.Grid // nil of one device
	f       *ir.Func
	vals    [][]*piece // by value: one for each tensor
	unknown []Unknown
	made    []*ir.Node       // by expression: the node that first made it
	lost    map[*expr]string // the nodes of what is unknown
}

// Unknown is a step of which no rule says what its ranks compute.
type Unknown struct {
	Node string // as a line
	Why  string
}

func (s *side) atoms() int {
	if s.g == nil {
		return 0
	}
	return len(s.g.Atoms)
}

// read states every value of the function, the inputs by what they are given.
func (s *side) read(f *ir.Func, inputs []*piece) []*piece {
	s.f = f
	s.vals = make([][]*piece, f.NumValueIDs())
	at := 0
	for _, n := range f.Order() {
		switch n.Op() {
		case ir.OpInput:
			s.vals[n.Result(0).ID()] = []*piece{inputs[at]}
			at++
		case ir.OpReturn:
			var out []*piece
			for _, v := range n.Args() {
				out = append(out, s.of(v)...)
			}
			return out
		default:
			s.node(n)
		}
		for len(s.made) < len(s.t.exprs) {
			s.made = append(s.made, n)
		}
	}
	return nil
}

// of is what a value's tensors are.
func (s *side) of(v *ir.Value) []*piece { return s.vals[v.ID()] }

// refusal is why a step is unknown.
type refusal struct{ why string }

func refuse(format string, args ...any) { panic(refusal{fmt.Sprintf(format, args...)}) }

// node states the results of a node; what no rule knows is different on every rank.
func (s *side) node(n *ir.Node) {
	defer func() {
		var why string
		switch r := recover().(type) {
		case nil:
			return
		case refusal:
			why = r.why
		case digits.Uneven:
			why = "its operands are cut at places that are no parts of each other"
		case spent:
			why = s.t.why()
		default:
			panic(r)
		}
		s.unknown = append(s.unknown, Unknown{n.String(), why})
		for i, v := range n.Results() {
			s.vals[v.ID()] = s.unknowns(v, fmt.Sprintf("%s %d", n.Name(), i))
			for _, p := range s.vals[v.ID()] {
				s.lost[p.base] = n.String()
			}
		}
	}()
	if n.Effects()&(ir.EffectWrites|ir.EffectRandom) != 0 && !(s.g == nil && n.Op() == ir.OpRand) {
		refuse("it writes in place or draws random numbers")
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
		u := &use{s: s, t: s.t, n: n, held: make([]int, s.atoms())}
		for _, v := range n.Args() {
			u.in = append(u.in, s.of(v)[0])
		}
		u.apply()
	}
}

// sizes are those of a value's tensors, which must be numbers from 1.
func sizes(v *ir.Value) [][]int64 {
	var out [][]int64
	for _, t := range v.Type().Tensors() {
		l, ok := t.Shape().Static()
		if !ok {
			refuse("%s has a size that is no number", v)
		}
		for _, n := range l {
			if n == 0 {
				refuse("%s has no elements", v)
			}
		}
		out = append(out, l)
	}
	return out
}

// unknowns are tensors of which nothing is known: every rank has its own.
func (s *side) unknowns(v *ir.Value, name string) []*piece {
	var out []*piece
	for k, t := range v.Type().Tensors() {
		var shape []int64
		p := &piece{coef: 1, held: make([]digits.Digit, s.atoms())}
		for a := range p.held {
			p.held[a] = digits.Of(len(shape), 1, s.g.Atoms[a].Size)
			shape = append(shape, s.g.Atoms[a].Size)
		}
		local, _ := t.Shape().Static() // of a size that is no number nobody asks
		for _, n := range local {
			p.dims = append(p.dims, digits.Add(nil, digits.Of(len(shape), 1, n)))
			if n > 1 {
				shape = append(shape, n)
			}
		}
		p.base = s.t.leaf(fmt.Sprintf("unknown %s %s %d %d", s.name, name, k, len(s.unknown)), shape...)
		out = append(out, p)
	}
	return out
}

// whole is a base by itself, laid out as a tensor of one device.
func (t *table) whole(text string, sizes []int64) *piece {
	p := &piece{coef: 1}
	var shape []int64
	for _, n := range sizes {
		if n == 1 {
			p.dims = append(p.dims, nil)
			continue
		}
		p.dims = append(p.dims, []digits.Digit{digits.Of(len(shape), 1, n)})
		shape = append(shape, n)
	}
	p.base = t.leaf(text, shape...)
	return p
}

// atoms are those along each dimension of a tensor that lies so.
func (p *piece) atoms(g *placement.Grid, at placement.Placement) ([][]int, error) {
	if at != nil && len(at) != len(p.dims) {
		return nil, fmt.Errorf("placement %s of %d dimensions for a tensor of %d", at, len(at), len(p.dims))
	}
	out := make([][]int, len(p.dims))
	used := make([]bool, len(g.Atoms))
	for d, axes := range at {
		for _, name := range axes {
			atoms, err := g.Axis(name)
			if err != nil {
				return nil, err
			}
			for _, a := range atoms {
				if used[a] {
					return nil, fmt.Errorf("placement %s has axis %q twice", at, name)
				}
				used[a] = true
			}
			out[d] = append(out[d], atoms...)
		}
	}
	return out, nil
}

// placed is a tensor of one device as each rank has a piece of it; where it does not divide,
// the last pieces reach behind its end.
func (p *piece) placed(t *table, g *placement.Grid, at placement.Placement) (*piece, error) {
	atoms, err := p.atoms(g, at)
	if err != nil {
		return nil, err
	}
	for d, l := range atoms {
		n, pieces, by := digits.Places(p.dims[d]), int64(1), []int64(nil)
		for _, a := range l {
			pieces *= g.Atoms[a].Size
			by = append(by, g.Atoms[a].Size)
		}
		if n%pieces != 0 {
			p = t.padded(p, d, (n+pieces-1)/pieces*pieces)
		}
		p = t.divisible(p, d, by)
	}
	out := &piece{base: p.base, coef: p.coef, held: slices.Clone(p.held)}
	for a := len(p.held); a < len(g.Atoms); a++ {
		out.held = append(out.held, digits.Repeated(g.Atoms[a].Size))
	}
	for d, l := range p.dims {
		for _, a := range atoms[d] {
			taken, rest, ok := digits.Leading(l, g.Atoms[a].Size)
			if !ok || len(taken) > 1 {
				return nil, fmt.Errorf("dimension %d does not divide by its axes", d)
			}
			out.held[a], l = append(taken, digits.Repeated(1))[0], rest
		}
		out.dims = append(out.dims, digits.Joined(l))
	}
	return out, nil
}

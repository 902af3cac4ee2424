package suggest

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// This file finds layers that repeat, and makes the program with fewer of them. Layers are told by
// their inputs: a run of types with a period. Forward, an operation is of the highest layer on
// which it depends; after the last layer all depend on all, and it is of the lowest one whose
// activations, or parameters, it has come down to. Layers that are taken out leave
// their neighbours with each other's operands at the same place of the layer. What comes out is
// believed only if two such programs have, of every kind of operation, numbers that lead
// on to those of the whole one.

// layers are inputs that repeat.
type layers struct {
	start, period, count int
	names                map[*ir.Node]string // of the first input of the kind; look-up only
}

// kind names all inputs at one place of a layer.
func (l *layers) kind(in *ir.Node) string { return l.names[in] }

// least is how many layers have to repeat to be told.
const least = 6

// repeating finds the run that covers most inputs, with the shortest period.
func repeating(inputs []*ir.Node) layers {
	sign := make([]string, len(inputs))
	for i, n := range inputs {
		sign[i] = n.Result(0).Type().String() + " " + string(n.Role())
	}
	var best layers
	for period := 1; period <= len(inputs)/least; period++ {
		for start := 0; start+period < len(inputs); start++ {
			n := 0
			for start+n+period < len(inputs) && sign[start+n] == sign[start+n+period] {
				n++
			}
			if l := (layers{start: start, period: period, count: n/period + 1}); l.count >= least && l.count*period > best.count*best.period {
				best = l
			}
			start += n
		}
	}
	best.names = map[*ir.Node]string{}
	for i, n := range inputs {
		if k := i - best.start; best.count > 0 && k >= 0 && k < best.count*best.period {
			n = inputs[best.start+k%best.period]
		}
		best.names[inputs[i]] = n.Name()
	}
	return best
}

// shortened are the programs with four and five layers; none if they do not lead on to this one.
func (p *program) shortened() []*program {
	l := p.layers
	if l.count < least {
		return nil
	}
	var out []*program
	for keep := 4; keep <= 5; keep++ {
		m := p.f.Module().Clone()
		q := &program{f: m.Func(p.f.Name), mesh: p.mesh}
		if !shorten(q.f, l, keep) || m.Verify() != nil {
			return nil
		}
		q.read()
		q.layers.start, q.layers.period, q.layers.count = l.start, l.period, keep
		q.layers.names = map[*ir.Node]string{}
		for _, in := range q.f.Inputs() {
			q.layers.names[in] = l.names[p.f.Lookup(in.Name())]
		}
		out = append(out, q)
	}
	few, more, all := kinds(out[0].f), kinds(out[1].f), kinds(p.f)
	for k, n := range all {
		if few[k]+(l.count-4)*(more[k]-few[k]) != n {
			return nil
		}
	}
	return out
}

// kinds counts operations that are alike.
func kinds(f *ir.Func) map[string]int {
	out := map[string]int{}
	for _, n := range f.Order() {
		if n.Op() != ir.OpReturn {
			out[sign(n)]++
		}
	}
	return out
}

func sign(n *ir.Node) string {
	out := n.Op().Name() + " " + string(n.Role())
	if n.Op() != ir.OpInput { // whose attributes name results
		out += fmt.Sprint(n.Attrs())
	}
	for _, v := range n.Results() {
		out += " " + v.Type().String()
	}
	return out
}

// level is a node's place among layers.
type level struct {
	up, down int // the highest layer it depends on; the lowest that it has come down to, after the last
	slot     int // among the nodes of its level
}

// shortener takes layers out of a function.
type shortener struct {
	f          *ir.Func
	layers     layers
	first, end int // layers that go, from 1 on
	at         map[*ir.Node]level
	ups, downs [][]*ir.Node // by layer
	inputs     []*ir.Node
}

// shorten takes out all layers but so many, and reports whether it could.
func shorten(f *ir.Func, l layers, keep int) bool {
	s := &shortener{f: f, layers: l, first: 2, end: 2 + l.count - keep, at: map[*ir.Node]level{}, inputs: f.Inputs()}
	s.ups, s.downs = make([][]*ir.Node, l.count+1), make([][]*ir.Node, l.count+1)
	s.levels()
	return s.cut()
}

// levels finds each node's.
func (s *shortener) levels() {
	last := s.layers.count
	for i, n := range s.inputs {
		if k := i - s.layers.start; k >= 0 && k < last*s.layers.period {
			s.at[n] = level{up: k/s.layers.period + 1, down: last}
		}
	}
	for _, n := range s.f.Order() {
		if n.Op() == ir.OpInput || n.Op() == ir.OpReturn {
			continue
		}
		l := level{down: last}
		for _, v := range n.Args() {
			a := s.at[v.Def()]
			l.up = max(l.up, a.up)
			switch {
			case a.up == last:
				l.down = min(l.down, a.down)
			case a.up > 0:
				l.down = min(l.down, a.up)
			}
		}
		if list := s.list(l); list != nil {
			l.slot = len(*list)
			*list = append(*list, n)
		}
		s.at[n] = l
	}
}

// list are the nodes of a level, none of what depends on no layer.
func (s *shortener) list(l level) *[]*ir.Node {
	switch {
	case l.up == 0:
		return nil
	case l.up < s.layers.count:
		return &s.ups[l.up]
	}
	return &s.downs[l.down]
}

// goes reports whether a node is of a layer that is taken out.
func (s *shortener) goes(n *ir.Node) bool {
	l, ok := s.at[n]
	at := l.up
	if n.Op() != ir.OpInput && l.up == s.layers.count {
		at = l.down
	}
	return ok && at >= s.first && at < s.end
}

// instead is the node at the same place of a layer so many further on, nil if there is none.
func (s *shortener) instead(n *ir.Node, by int) *ir.Node {
	l := s.at[n]
	if n.Op() == ir.OpInput {
		return s.inputs[slices.Index(s.inputs, n)+by*s.layers.period]
	}
	if l.up == s.layers.count {
		l.down += by
	} else {
		l.up += by
	}
	if l.up < 1 || l.down < 1 || l.up > s.layers.count || l.down > s.layers.count {
		return nil
	}
	list := *s.list(l)
	if l.slot >= len(list) || sign(list[l.slot]) != sign(n) || s.goes(list[l.slot]) {
		return nil
	}
	return list[l.slot]
}

// cut takes the layers out.
func (s *shortener) cut() bool {
	count := s.end - s.first
	var gone []*ir.Node
	for _, n := range s.f.Order() {
		if s.goes(n) {
			gone = append(gone, n)
			continue
		}
		if n.Op() == ir.OpReturn {
			s.results(n)
			continue
		}
		for i, v := range n.Args() {
			if !s.goes(v.Def()) {
				continue
			}
			by := -count
			if l := s.at[n]; l.up == s.layers.count {
				by = count
			}
			o := s.instead(v.Def(), by)
			if o == nil {
				return false
			}
			s.f.SetArg(n, i, o.Result(v.Index()))
		}
	}
	for _, n := range slices.Backward(gone) {
		for _, v := range n.Results() {
			if len(v.Uses()) > 0 {
				return false
			}
		}
		s.f.Remove(n)
	}
	for _, n := range slices.Backward(slices.Clone(s.f.Order())) { // constants of these layers alone
		if n.Op() != ir.OpInput && n.Op() != ir.OpReturn && s.at[n].up == 0 && !slices.ContainsFunc(n.Results(), func(v *ir.Value) bool { return len(v.Uses()) > 0 }) {
			s.f.Remove(n)
		}
	}
	return true
}

// results drops those of the layers, and tells donated inputs where theirs have gone.
func (s *shortener) results(ret *ir.Node) {
	var kept []*ir.Value
	to := map[int64]int64{} // look-up only
	meta := ret.Meta().Without(sharding.Key)
	for i, v := range ret.Args() {
		if !s.goes(v.Def()) {
			to[int64(i)] = int64(len(kept))
			kept = append(kept, v)
		}
	}
	for _, in := range s.inputs {
		if !s.goes(in) && in.Donated() {
			a := in.Attrs().Without(ir.DonateKey)
			if k, ok := to[in.Attrs().Int(ir.DonateKey, 0)]; ok {
				a = a.With(ir.DonateKey, ir.A(ir.DonateKey, k)[0].Val)
			}
			s.f.SetAttrs(in, a)
		}
	}
	s.f.SetArgs(ret, kept...)
	s.f.SetMeta(ret, meta)
}

package sdy

import (
	"github.com/seed-ee968945/concert/sharding"
)

// rule is an operation's rule: its own, or that of the table.
func (p *Program) rule(s *subject, args, results []*binding) (_ *sharding.Rule, err error) {
	if a, ok := s.op.Attr("sdy.sharding_rule"); ok {
		text, at := p.m.Inside(a)
		r, err := sharding.ParseRule("<" + text + ">")
		if err != nil {
			return nil, p.textError(err, at-1)
		}
		return r, nil
	}
	make, ok := p.table[s.op.Name]
	if !ok || len(results) == 0 || len(args) < max(1, operands[s.op.Name]) {
		return nil, nil
	}
	for _, b := range args {
		s.ins = append(s.ins, p.Graph.Values[b.id].Shape)
		s.defs = append(s.defs, b.def)
		base := b
		if b.from != nil {
			base = b.from
		}
		s.bases = append(s.bases, base.use)
	}
	for _, b := range results {
		s.outs = append(s.outs, p.Graph.Values[b.id].Shape)
		s.feeds = append(s.feeds, b.feed...)
	}
	for _, shape := range append(s.ins, s.outs...) {
		for _, n := range shape {
			if n < 0 {
				return nil, s.errorf("shardings are of tensors whose sizes are known")
			}
		}
	}
	defer func() { // what a rule relates does not fit the shapes: the text is no program
		if recover() != nil {
			err = s.errorf("%s: the shapes of its operands and results do not fit", s.op.Name)
		}
	}()
	r, err := make(s)
	if err == nil && r != nil {
		if bad := r.Check(); bad != nil {
			err = s.errorf("%s: %v", s.op.Name, bad)
		}
	}
	return r, err
}

// constrain gives what a closed constraint is of the constraint's sharding, where nothing
// else is said of it.
func (p *Program) constrain() {
	for _, st := range p.steps {
		for _, b := range st.operands {
			v := &p.Graph.Values[b.id]
			if len(b.pins) == 0 || v.Sharding != nil || b.flow {
				continue
			}
			same := true
			for _, s := range b.pins {
				same = same && s.Equal(b.pins[0]) && s.Closed()
			}
			if same {
				v.Sharding = b.pins[0]
			}
		}
	}
}

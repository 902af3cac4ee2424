package decompose

import (
	"fmt"

	"github.com/seed-ee968945/concert/ir"
)

// kind is what one result of a body of pairs is of its own pair.
type kind int

const (
	kindOther kind = iota
	kindFirst
	kindSecond
	kindAdd
	kindMul
	kindMax
	kindMin
)

// probed is a body applied to scalars. Its parameters are n first and n second ones.
type probed struct {
	n       int
	results []*ir.Value
	inputs  []*ir.Value
}

// probe applies a body to scalars of the element types of two rows of operands.
func probe(body Body, first, second []*ir.Value) (*probed, error) {
	return probeOf(body, append(append([]*ir.Value(nil), first...), second...))
}

// probePairs applies a body to pairs of scalars of the element types of operands.
func probePairs(body Body, xs []*ir.Value) (*probed, error) {
	var pairs []*ir.Value
	for _, x := range xs {
		pairs = append(pairs, x, x)
	}
	return probeOf(body, pairs)
}

func probeOf(body Body, params []*ir.Value) (*probed, error) {
	b := ir.NewBuilder(1)
	f := b.Func("body")
	p := &probed{n: len(params) / 2}
	for i, v := range params {
		p.inputs = append(p.inputs, f.Input(fmt.Sprintf("p%d", i), ir.Tensor(v.Type().DType())))
	}
	got, err := body(f, p.inputs)
	if err != nil {
		return nil, err
	}
	for _, v := range got {
		if v == nil || v.Def() == nil {
			f.Return()
			if _, err := b.Finish(); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("a result of the computation is missing")
		}
	}
	f.Return(got...)
	if _, err := b.Finish(); err != nil {
		return nil, err
	}
	p.results = got
	return p, nil
}

// gives checks that there is a result for each of xs, of its element type.
func (p *probed) gives(what string, xs []*ir.Value) error {
	if len(p.results) != len(xs) {
		return fmt.Errorf("%s: the computation has %d results for %d operands", what, len(p.results), len(xs))
	}
	for i, v := range p.results {
		if v.Type().Rank() != 0 || v.Type().DType() != xs[i].Type().DType() {
			return fmt.Errorf("%s: result %d of the computation is %s, want a scalar of type %s", what, i, v.Type(), xs[i].Type().DType())
		}
	}
	return nil
}

// kind is what result i is of parameters i and n+i.
func (p *probed) kind(i int) kind {
	if i >= len(p.results) {
		return kindOther
	}
	a, b, v := p.inputs[i], p.inputs[p.n+i], p.results[i]
	switch v {
	case a:
		return kindFirst
	case b:
		return kindSecond
	}
	n := v.Def()
	if len(n.Args()) != 2 || len(n.Attrs()) != 0 || v.Type().DType() != a.Type().DType() {
		return kindOther
	}
	if x, y := n.Arg(0), n.Arg(1); !(x == a && y == b || x == b && y == a) {
		return kindOther
	}
	truth := a.Type().DType() == ir.Bool
	switch n.Op() {
	case ir.OpAdd:
		if !truth {
			return kindAdd
		}
		return kindMax
	case ir.OpMul:
		if !truth {
			return kindMul
		}
		return kindMin
	case ir.OpMaximum:
		return kindMax
	case ir.OpMinimum:
		return kindMin
	case ir.OpLogicalAnd, ir.OpBitwiseAnd:
		if truth {
			return kindMin
		}
	case ir.OpLogicalOr, ir.OpBitwiseOr:
		if truth {
			return kindMax
		}
	}
	return kindOther
}

// known reports whether result i is an operation of the table on its own pair.
func (p *probed) known(i int) bool { return p.kind(i) != kindOther }

// apply applies a body to two rows of operands of one shape.
func apply(e emit, body Body, first, second []*ir.Value) ([]*ir.Value, error) {
	args := append(append([]*ir.Value(nil), first...), second...)
	got, err := body(e.Emitter, args)
	if err != nil {
		return nil, err
	}
	shape := sizes(args[0])
	for i, v := range got {
		if v == nil || v.Def() == nil {
			return nil, fmt.Errorf("a result of the computation is missing")
		}
		if len(sizes(v)) == 0 && len(shape) > 0 { // it depends on no operand
			v = e.view(v, ones(len(shape)))
		}
		got[i] = e.expand(v, shape)
	}
	return got, nil
}

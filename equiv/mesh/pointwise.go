package mesh

import (
	"github.com/seed-ee968945/concert/equiv/mesh/internal/normal"
	"github.com/seed-ee968945/concert/ir"
)

// pointwise is an elementwise operation. Of floats what is a sum or a product is one.
func (s *step) pointwise() *normal.Tensor {
	op, attrs, dt := s.n.Op(), s.n.Attrs(), s.dtype()
	float := dt.IsFloat()
	for _, v := range s.n.Args() {
		float = float && v.Type().DType().IsFloat()
	}
	if op == ir.OpConvert && s.n.Arg(0).Type().DType() == dt {
		return s.in[0]
	}
	if attrs.Has("scalar") {
		of := s.n.Arg(0).Type().DType()
		s.in = append(s.in, s.m.Full(s.number("scalar", of)))
		if attrs.Bool("reverse", false) {
			s.in[0], s.in[1] = s.in[1], s.in[0]
		}
	}
	if p := s.accumulated(); p != nil {
		return p
	}
	if op == ir.OpWhere && dt != ir.Bool {
		return s.m.Select(dt.String(), s.in[0], s.in[1], s.in[2])
	}
	attrs = attrs.Without("scalar").Without("reverse")
	if !float {
		name := op.Name() + " " + attrs.String() + " " + dt.String()
		if v, ok := s.n.Attrs().Get("scalar"); ok && dt.IsInt() {
			if _, whole := v.AsInt(); !whole { // integers are floats for it, which rounds
				name += " real"
			}
		}
		return s.each(name)
	}
	alpha := attrs.Float("alpha", 1)
	switch op {
	case ir.OpAdd:
		return s.m.Add([]float64{1, alpha}, s.in...)
	case ir.OpSub:
		return s.m.Add([]float64{1, -alpha}, s.in...)
	case ir.OpNeg:
		return s.m.Add([]float64{-1}, s.in...)
	case ir.OpMul:
		return s.m.Mul(s.in...)
	case ir.OpDiv:
		return s.m.Div(s.in[0], s.in[1])
	case ir.OpReciprocal:
		return s.m.Reciprocal(s.in[0])
	case ir.OpExp:
		return s.m.Exp(s.in[0])
	case ir.OpLog:
		return s.m.Log(s.in[0])
	case ir.OpFma:
		return s.m.Add([]float64{1, 1}, s.m.Mul(s.in[:2]...), s.in[2])
	case ir.OpConvert:
		return s.m.Convert(dt.String(), s.in[0])
	}
	return s.each(op.Name() + " " + attrs.Without("alpha").String() + " " + dt.String())
}

// each is an operation of which no more is known than that it is one of each element.
func (s *step) each(name string) *normal.Tensor {
	for _, v := range s.n.Args() { // numbers have no type of their own
		name += " " + v.Type().DType().String()
	}
	return s.m.Pointwise(name, s.in...)
}

// accumulations are the operations that join scans, by what they fold.
var accumulations = map[ir.Op]string{ir.OpAdd: normal.Sum, ir.OpMul: normal.Prod, ir.OpMaximum: normal.Max, ir.OpMinimum: normal.Min}

// accumulated is an operation on two scans of which the one goes on where the other ends; nil where
// it is none.
func (s *step) accumulated() *normal.Tensor {
	how := accumulations[s.n.Op()]
	if how == "" || len(s.in) != 2 || s.n.Attrs().Float("alpha", 1) != 1 {
		return nil
	}
	return s.m.JoinScans(how, s.neutral(how), s.in[0], s.in[1])
}

// neutral is the number that changes nothing in a sum or a fold.
func (s *step) neutral(how string) normal.Operand {
	least, largest := s.t.Limits(s.dtype())
	switch how {
	case normal.Prod:
		return s.t.Real(1)
	case normal.Max:
		return least
	case normal.Min:
		return largest
	}
	return s.t.Real(0)
}

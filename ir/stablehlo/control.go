package stablehlo

import (
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
)

// This file imports control flow as straight-line operations, where that has its meaning: a
// branch computes nothing but its results, so both are computed and one is chosen; a loop
// whose length follows from constants is unrolled. What is neither is refused. Numbers that
// follow from constants are therefore known while a program is imported.

// Bounds of what loops are unrolled to.
const (
	maxRounds   = 1 << 13 // of all loops
	maxUnrolled = 1 << 16 // operations of one loop
)

// known is the number of a constant that is a single integer or truth value.
func (v *value) known() (int64, bool) {
	if v.lit == nil || !v.lit.Splat || len(v.lit.Shape) > 0 || v.lit.DType.IsFloat() {
		return 0, false
	}
	return dtype.LoadInt(v.lit.DType, v.lit.Data), true
}

// integerValue is a constant that is a single integer, cut to its type.
func integerValue(dt ir.DType, n int64) *value {
	if dt == ir.Bool && n != 0 {
		n = 1
	}
	b := make([]byte, dt.Size())
	dtype.StoreInt(dt, b, n)
	return literalValue(&Literal{DType: dt, Splat: true, Data: b})
}

// fold is the result of an operation on single integers that are constants; nil if it is none.
func (im *importer) fold(o *op, in []*value) *value {
	n := make([]int64, len(in))
	for i, v := range in {
		var ok bool
		if n[i], ok = v.known(); !ok {
			return nil
		}
	}
	if len(in) == 0 || len(o.results) != 1 {
		return nil
	}
	dt := in[0].lit.DType
	if f, ok := folds[o.name]; ok && len(in) == 2 && dt.IsInt() && dt == in[1].lit.DType {
		return integerValue(dt, f(n[0], n[1]))
	}
	truth := dt == ir.Bool
	switch {
	case o.name == "stablehlo.convert" && len(o.outs) == 1:
		to, err := elementType(o.outs[0].Elem)
		if err != nil || to.IsFloat() {
			return nil
		}
		return integerValue(to, n[0])
	case o.name == "stablehlo.select" && len(in) == 3 && truth:
		if n[0] != 0 {
			return in[1]
		}
		return in[2]
	case o.name == "stablehlo.compare" && len(in) == 2 && dt == in[1].lit.DType:
		return compared(im.enum("comparison_direction", 0), dt, n[0], n[1])
	case o.name == "stablehlo.and" && truth && len(in) == 2:
		return integerValue(dt, n[0]&n[1])
	case o.name == "stablehlo.or" && truth && len(in) == 2:
		return integerValue(dt, n[0]|n[1])
	case o.name == "stablehlo.not" && truth:
		return integerValue(dt, 1-n[0])
	}
	return nil
}

// folds are operations on integers; their results are cut to the type.
var folds = map[string]func(a, b int64) int64{
	"stablehlo.add":      func(a, b int64) int64 { return a + b },
	"stablehlo.subtract": func(a, b int64) int64 { return a - b },
	"stablehlo.multiply": func(a, b int64) int64 { return a * b },
}

// compared compares two integers of a type; nil by a direction that there is not.
func compared(direction string, dt ir.DType, a, b int64) *value {
	less := a < b
	if dt == ir.U64 {
		less = uint64(a) < uint64(b)
	}
	holds, ok := map[string]bool{"EQ": a == b, "NE": a != b, "LT": less, "LE": less || a == b, "GT": !less && a != b, "GE": !less}[direction]
	if !ok {
		return nil
	}
	if holds {
		return integerValue(ir.Bool, 1)
	}
	return integerValue(ir.Bool, 0)
}

// regionOf runs a region of the operation on values.
func (im *importer) regionOf(o *op, i int, in []*value) ([]*value, error) {
	b := o.regions[i]
	im.op = o
	if len(b.args) != len(in) {
		return nil, im.errorf("region %d of %s takes %d values, gets %d", i, o.name, len(b.args), len(in))
	}
	for k, a := range b.args {
		if !sameType(a.Type, in[k].typ) {
			return nil, im.errorf("argument %d of region %d of %s is %s, gets %s", k, i, o.name, a.Type, in[k].typ)
		}
	}
	out, err := im.block(b, b.args, in)
	im.op = o
	return out, err
}

// while unrolls a loop whose condition follows from constants in each round.
func while(im *importer, o *op, in []*value) ([]*value, error) {
	if len(o.regions) != 2 {
		return nil, im.errorf("while of %d regions, want a condition and a body", len(o.regions))
	}
	before := im.nodes
	for ; ; im.rounds++ {
		c, err := im.regionOf(o, 0, in)
		if err != nil {
			return nil, err
		}
		if len(c) != 1 {
			return nil, im.errorf("the condition of while gives %d values", len(c))
		}
		more, ok := c[0].known()
		switch {
		case !ok:
			return nil, im.errorf("op not supported: stablehlo.while of a length that does not follow from constants")
		case more == 0:
			return in, nil
		case im.rounds >= maxRounds || im.nodes-before > maxUnrolled:
			return nil, im.errorf("loops of more than %d rounds, or one of more than %d operations", maxRounds, maxUnrolled)
		}
		if in, err = im.regionOf(o, 1, in); err != nil {
			return nil, err
		}
	}
}

// branches runs all regions of the operation: none may communicate, as ranks that take
// another branch would not.
func (im *importer) branches(o *op) ([][]*value, error) {
	if len(o.regions) == 0 {
		return nil, im.errorf("%s without branches", o.name)
	}
	defer func(b bool) { im.branch = b }(im.branch)
	im.branch = true
	var out [][]*value
	for i := range o.regions {
		vs, err := im.regionOf(o, i, nil)
		if err != nil {
			return nil, err
		}
		if len(vs) != o.numResults() {
			return nil, im.errorf("branch %d gives %d values, want %d", i, len(vs), o.numResults())
		}
		out = append(out, vs)
	}
	return out, nil
}

// choose are the values of one of two branches.
func (im *importer) choose(first *ir.Value, a, b []*value) ([]*value, error) {
	out := make([]*value, len(a))
	for i := range a {
		if !sameType(a[i].typ, b[i].typ) || !a[i].typ.Tensor {
			return nil, im.errorf("branches give %s and %s", a[i].typ, b[i].typ)
		}
		args, err := im.irs([]*value{a[i], b[i]})
		if err != nil {
			return nil, err
		}
		v, err := im.where(first, args[0], args[1])
		if err != nil {
			return nil, err
		}
		out[i] = im.value(v)
	}
	return out, nil
}

func ifOp(im *importer, o *op, in []*value) ([]*value, error) {
	if len(o.regions) != 2 {
		return nil, im.errorf("if of %d regions, want two", len(o.regions))
	}
	if t := in[0].typ; t.Elem != elementName(ir.Bool) || len(t.Shape) != 0 {
		return nil, im.errorf("if by %s, want one truth value", t)
	}
	if n, ok := in[0].known(); ok {
		return im.regionOf(o, 1-int(n), nil)
	}
	p, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	all, err := im.branches(o)
	if err != nil {
		return nil, err
	}
	return im.choose(p, all[0], all[1])
}

// caseOp takes the last branch for a number that is none.
func caseOp(im *importer, o *op, in []*value) ([]*value, error) {
	last := len(o.regions) - 1
	if n, ok := in[0].known(); ok && last >= 0 {
		if n < 0 || n > int64(last) {
			n = int64(last)
		}
		return im.regionOf(o, int(n), nil)
	}
	p, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	if !dtypeOf(p).IsInt() || len(sizes(p)) != 0 {
		return nil, im.errorf("case by %s, want one integer", in[0].typ)
	}
	all, err := im.branches(o)
	if err != nil {
		return nil, err
	}
	out := all[last]
	for k, vs := range all[:last] {
		is, err := im.emit(ir.OpEq, ir.A("scalar", int64(k)), []*ir.Value{p})
		if err != nil {
			return nil, err
		}
		if out, err = im.choose(is, vs, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

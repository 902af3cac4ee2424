package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/fold"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports control flow. A loop whose length follows from constants and is short is
// unrolled, and small branches that only compute are both computed and one is chosen: no host
// has to look at numbers for that. What is neither becomes a while or a case of concert, see
// bodies.go. Numbers that follow from constants are therefore known while a program is
// imported.

// Bounds of what is straight-line code in the place of control flow.
const (
	maxIterations = 1 << 13 // of all loops that are unrolled
	maxUnrolled   = 1 << 16 // operations of one such loop, in all turns of those around it
	maxFolds      = 1 << 20 // operations that are looked at for how long loops are
	maxChosen     = 32      // operations of a branch that is computed in any case
)

// known is the number of a constant that is a single integer or truth value.
func (v *value) known() (int64, bool) { return fold.Known(v.lit) }

// fold is the result of an operation on single integers that are constants; nil if it is none.
func (im *importer) fold(o *mlir.Operation, in []*value) *value {
	lits := make([]*mlir.Literal, len(in))
	for i, v := range in {
		lits[i] = v.lit
	}
	out := fold.Operation(o, lits, func() string { return im.enum("comparison_direction", 0) })
	if out == nil {
		return nil
	}
	if i := slices.Index(lits, out); i >= 0 { // a select's
		return in[i]
	}
	return literalValue(out)
}

// regionOf runs a region of the operation on values.
func (im *importer) regionOf(o *mlir.Operation, i int, in []*value) ([]*value, error) {
	b := o.Regions[i]
	im.op = o
	if len(b.Args) != len(in) {
		return nil, im.errorf("region %d of %s takes %d values, gets %d", i, o.Name, len(b.Args), len(in))
	}
	for k, a := range b.Args {
		if !sameType(a.Type, in[k].typ) {
			return nil, im.errorf("argument %d of region %d of %s is %s, gets %s", k, i, o.Name, a.Type, in[k].typ)
		}
	}
	out, err := im.block(b, b.Args, in)
	im.op = o
	return out, err
}

// while unrolls a loop that is short, and makes a body of any other.
func while(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(o.Regions) != 2 {
		return nil, im.errorf("while of %d regions, want a condition and a body", len(o.Regions))
	}
	trips, inner, known := im.trips(o, in)
	if trips < 0 && !im.branch && im.cur.caps == nil {
		return nil, im.errorf("the loop never ends: nothing that its condition reads changes")
	}
	turns := im.turns * max(trips, 1)
	if !known || im.iterations+trips > maxIterations || (im.bodies(o)+inner)*turns > maxUnrolled {
		if !known {
			trips = 0
		}
		return im.loop(o, in, trips)
	}
	defer func(n int) { im.turns = n }(im.turns)
	im.iterations, im.turns = im.iterations+trips, turns
	for range trips {
		var err error
		if in, err = im.regionOf(o, 1, in); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// bodies is how many operations a loop has.
func (im *importer) bodies(o *mlir.Operation) int {
	return im.size(o.Regions[0]).ops + im.size(o.Regions[1]).ops
}

// trips is the number of iterations of a loop, and how many operations the loops in it are in its first
// one; false if it does not follow from constants or is more than is unrolled, below 0 if there is no end.
// It computes nothing else.
func (im *importer) trips(o *mlir.Operation, in []*value) (n, inner int, known bool) {
	defer func(w *int) { im.work = w }(im.work)
	for im.work = &inner; ; n++ {
		c := im.foldRegion(o.Regions[0], in, len(im.calls))
		if len(c) != 1 {
			return 0, 0, false
		}
		more, ok := c[0].known()
		if !ok || more == 0 || n > maxIterations {
			return n, inner, ok && more == 0
		}
		next := im.foldRegion(o.Regions[1], in, len(im.calls))
		if len(next) != len(o.Regions[1].Args) {
			return 0, 0, false
		}
		if slices.EqualFunc(in, next, sameNumber) {
			return -1, 0, false
		}
		in, im.work = next, nil
	}
}

// sameNumber reports whether as much is known of two values.
func sameNumber(a, b *value) bool {
	x, known := a.known()
	y, too := b.known()
	return known == too && x == y
}

// foldRegion is what follows from constants of the results of a block; nil if it is not well
// formed, which its import reports.
func (im *importer) foldRegion(b *mlir.Block, in []*value, depth int) (out []*value) {
	if len(in) != len(b.Args) {
		return nil
	}
	args := make([]string, len(in))
	for i, a := range b.Args {
		args[i] = a.Name
	}
	return im.foldBlock(b, args, in, depth)
}

func (im *importer) foldBlock(b *mlir.Block, args []string, in []*value, depth int) []*value {
	im.scope = &scope{vals: map[string][]*value{}, up: im.scope}
	defer func(s *scope, o *mlir.Operation) { im.scope, im.op = s, o }(im.scope.up, im.op)
	for i, name := range args {
		im.scope.vals[name] = []*value{in[i]}
	}
	for _, o := range b.Ops {
		im.op = o
		im.folds += 1 + o.NumResults()
		vs, err := im.operands(o)
		if err != nil || im.folds > maxFolds {
			return nil
		}
		switch o.Name {
		case "func.return", "stablehlo.return", "sdy.return":
			return vs
		}
		im.foldOp(o, vs, depth)
	}
	return nil
}

// foldOp names the results of an operation: nothing is known of those that do not follow from
// constants.
func (im *importer) foldOp(o *mlir.Operation, in []*value, depth int) {
	var out []*value
	switch v := im.fold(o, in); {
	case v != nil:
		out = []*value{v}
	case o.Name == "stablehlo.constant":
		out, _ = constantOp(im, o, in)
	case o.Name == "stablehlo.while" && im.work != nil && len(o.Regions) == 2:
		if n, inner, ok := im.trips(o, in); ok {
			*im.work = min(*im.work+n*(im.bodies(o)+inner), maxSteps)
		}
	case o.Name == "func.call" && depth < maxCalls:
		if f, err := im.callee(o); err == nil && f.Body != nil && len(f.Args) == len(in) {
			args := make([]string, len(in))
			for i, a := range f.Args {
				args[i] = a.Name
			}
			scope := im.scope
			im.scope = nil
			out = im.foldBlock(f.Body, args, in, depth+1)
			im.scope = scope
		}
	}
	for len(out) < o.NumResults() {
		out = append(out, &value{})
	}
	for _, r := range o.Results {
		im.scope.vals[r.Name], out = out[:r.Count:r.Count], out[r.Count:]
	}
}

// branches runs all regions of the operation: none may communicate, as ranks that take
// another branch would not.
func (im *importer) branches(o *mlir.Operation) ([][]*value, error) {
	defer func(b bool) { im.branch = b }(im.branch)
	im.branch = true
	var out [][]*value
	for i := range o.Regions {
		vs, err := im.regionOf(o, i, nil)
		if err != nil {
			return nil, err
		}
		if len(vs) != o.NumResults() {
			return nil, im.errorf("branch %d gives %d values, want %d", i, len(vs), o.NumResults())
		}
		out = append(out, vs)
	}
	return out, nil
}

// choose are the values of one of two branches.
func (im *importer) choose(first *ir.Value, a, b []*value) ([]*value, error) {
	out := make([]*value, len(a))
	for i := range a {
		if isToken(a[i].typ) && isToken(b[i].typ) {
			out[i] = a[i]
			continue
		}
		same := sameType(a[i].typ, b[i].typ)
		if im.vector { // one may be a number
			same = sameElem(a[i].typ.Elem, b[i].typ.Elem)
		}
		if !same || !a[i].typ.Tensor {
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

func ifOp(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(o.Regions) != 2 {
		return nil, im.errorf("if of %d regions, want two", len(o.Regions))
	}
	if t := in[0].typ; t.Elem != mlir.ElementName(ir.Bool) || len(t.Shape) != 0 && !im.vector {
		return nil, im.errorf("if by %s, want one truth value", t)
	}
	if n, ok := in[0].known(); ok {
		return im.regionOf(o, 1-int(n), nil)
	}
	p, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	if im.apart(o) {
		return im.choice(o, p, []int{1, 0})
	}
	all, err := im.branches(o)
	if err != nil {
		return nil, err
	}
	return im.choose(p, all[0], all[1])
}

// caseOp takes the last branch for a number that is none.
func caseOp(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	last := len(o.Regions) - 1
	if last < 0 {
		return nil, im.errorf("%s without branches", o.Name)
	}
	if n, ok := in[0].known(); ok {
		if n < 0 || n > int64(last) {
			n = int64(last)
		}
		return im.regionOf(o, int(n), nil)
	}
	p, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	if !dtypeOf(p).IsInt() || len(sizes(p)) != 0 && !im.vector {
		return nil, im.errorf("case by %s, want one integer", in[0].typ)
	}
	if im.apart(o) {
		return im.choice(o, p, nil)
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

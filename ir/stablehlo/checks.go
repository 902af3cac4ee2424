package stablehlo

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/processgroups"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// check imports an expectation: it is no operation, but a part of the plan.
func check(kind string) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		pos := im.m.Source.PosAt(o.At)
		c := Check{Kind: kind, Tolerance: 1e-4, MaxULP: 3, Line: pos.Line, Col: pos.Col}
		want := 2
		switch kind {
		case "eq_const", "almost_eq_const":
			want = 1
			a, ok := o.Attr("value")
			for _, f := range o.Flags {
				if f.Kind == mlir.KindDense {
					a, ok = f, true
				}
			}
			if !ok {
				return nil, im.errorf("%s without a constant", o.Name)
			}
			l, err := im.decoded(a)
			if err != nil {
				return nil, err
			}
			in = append(in[:len(in):len(in)], l)
		case "all_true":
			if want = 1; len(in) == 1 {
				var err error
				if in, err = im.allTrue(in[0]); err != nil {
					return nil, err
				}
			}
		case "serialized_eq":
			return nil, im.errorf("op not supported: %s", o.Name)
		}
		if im.branch || im.cur.caps != nil {
			return nil, im.errorf("op not supported: %s in a branch or a loop", o.Name)
		}
		if len(in) != 2 {
			return nil, im.errorf("%s takes %d operands", o.Name, want)
		}
		if !sameType(in[0].typ, in[1].typ) {
			return nil, im.errorf("%s of %s and %s", o.Name, in[0].typ, in[1].typ)
		}
		if err := im.tolerances(o, &c); err != nil {
			return nil, err
		}
		var err error
		if c.Actual, err = im.source(in[0], 0); err != nil {
			return nil, err
		}
		if c.Expected, err = im.source(in[1], 0); err != nil {
			return nil, err
		}
		im.plan.Checks = append(im.plan.Checks, c)
		return nil, nil
	}
}

// tolerances reads by how much results may differ.
func (im *importer) tolerances(o *mlir.Operation, c *Check) (err error) {
	for _, a := range o.Attrs {
		switch a.Name {
		case "tolerance", "atol":
			c.Tolerance, err = strconv.ParseFloat(a.Val.Text, 64)
		case "rtol":
			c.Relative, err = strconv.ParseFloat(a.Val.Text, 64)
		case "min_ulp_difference":
			c.MinULP, err = strconv.ParseUint(a.Val.Text, mlir.IntBase(a.Val.Text), 64)
		case "max_ulp_difference":
			c.MaxULP, err = strconv.ParseUint(a.Val.Text, mlir.IntBase(a.Val.Text), 64)
		}
		if err != nil {
			return im.errorf("%s is no number", a.Name)
		}
	}
	return nil
}

// allTrue are whether elements are not zero, and that they are not.
func (im *importer) allTrue(v *value) ([]*value, error) {
	x, err := im.ir(v)
	if err != nil {
		return nil, err
	}
	if dtypeOf(x) != ir.Bool {
		if x, err = im.scalarOf(ir.OpNe, x, 0); err != nil {
			return nil, err
		}
	}
	return []*value{im.value(x), literalValue(&mlir.Literal{DType: ir.Bool, Shape: v.typ.Shape, Splat: true, Data: []byte{1}})}, nil
}

// runParallel imports interpreter.run_parallel: a stage whose ranks run one function, each
// with its own arguments. What stands behind it is another stage.
func runParallel(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	a, ok := o.Attr("programs")
	if !ok || a.Kind != mlir.KindList || len(a.List) == 0 {
		return nil, im.errorf("%s without programs", o.Name)
	}
	if different(a.List) {
		return im.separately(a.List, in)
	}
	f, world, sequential, err := im.programs(o, a.List)
	if err != nil {
		return nil, err
	}
	rows := len(a.List)
	if im.cur.caps != nil {
		return nil, im.errorf("op not supported: %s in a branch or a loop", o.Name)
	}
	if world%rows != 0 || len(in) != world*len(f.Args) {
		return nil, im.errorf("%d ranks of a function of %d arguments get %d values", world, len(f.Args), len(in))
	}
	from := make([][]Source, len(f.Args))
	for r := range world {
		for i := range f.Args {
			s, err := im.source(in[r*len(f.Args)+i], 0)
			if err != nil {
				return nil, err
			}
			from[i] = append(from[i], s)
		}
	}
	global, err := im.m.statedShardings(f)
	if err != nil {
		return nil, err
	}
	for k, v := range in {
		if a := f.Args[k%len(f.Args)]; !sameElem(a.Type.Elem, v.typ.Elem) || global == nil && !sameType(a.Type, v.typ) {
			return nil, im.errorf("argument %d of @%s is %s, rank %d gets %s", k%len(f.Args), f.Name, a.Type, k/len(f.Args), v.typ)
		}
	}
	if sequential { // without its shardings
		global = nil
	}
	before, said, grid := im.cur, im.global, im.procs.Grid
	im.global = global
	im.begin(f.Name, world)
	im.procs.Grid = processgroups.Grid{Replicas: rows, Partitions: world / rows}
	var args []*value
	for i, a := range f.Args {
		t, err := im.tensorType(a.Type)
		if err != nil {
			return nil, mlir.ErrorAt(im.m.Source, a.At, 1, "stablehlo", "%v", err)
		}
		args = append(args, im.value(im.cur.fb.Input(a.Name, t)))
		im.cur.feeds = append(im.cur.feeds, Feed{Arg: -1, Ranks: from[i]})
	}
	outs, err := im.run(f, args)
	if err != nil {
		return nil, err
	}
	var all []*value
	for r := range world {
		for _, v := range outs {
			s, err := im.source(v, r)
			if err != nil {
				return nil, err
			}
			t := v.typ
			if global != nil && len(all) < len(o.Outs) { // the type of a rank's piece
				t = o.Outs[len(all)]
			}
			all = append(all, &value{typ: t, sources: []Source{s}})
		}
	}
	im.global, im.procs.Grid = said, grid
	im.begin("rest", before.world)
	return all, nil
}

// different reports whether ranks run several programs.
func different(grid []mlir.Attr) bool {
	first := ""
	return slices.ContainsFunc(grid, func(row mlir.Attr) bool {
		return slices.ContainsFunc(row.List, func(p mlir.Attr) bool {
			first = cmp.Or(first, p.Text)
			return p.Text != first
		})
	})
}

// separately runs the programs of ranks one after the other. What communicates would have no
// one program for all ranks, and is refused.
func (im *importer) separately(grid []mlir.Attr, in []*value) (all []*value, err error) {
	defer func(old bool) { im.separate = old }(im.separate)
	im.separate = true
	for _, row := range grid {
		for _, p := range row.List {
			f, err := im.target(p)
			if err != nil {
				return nil, err
			}
			if len(in) < len(f.Args) {
				return nil, im.errorf("no values for the arguments of @%s", f.Name)
			}
			outs, err := im.run(f, in[:len(f.Args):len(f.Args)])
			if err != nil {
				return nil, err
			}
			all, in = append(all, outs...), in[len(f.Args):]
		}
	}
	if len(in) > 0 {
		return nil, im.errorf("%d values more than the programs have arguments", len(in))
	}
	return all, nil
}

// programs are the function that all ranks run, how many they are, and whether it is run
// without its shardings.
func (im *importer) programs(o *mlir.Operation, grid []mlir.Attr) (f *mlir.Func, world int, sequential bool, err error) {
	for _, row := range grid {
		for _, p := range row.List {
			g, err := im.target(p)
			if err != nil {
				return nil, 0, false, err
			}
			f, sequential = g, strings.HasPrefix(p.Text, "sequential_") && p.Text != g.Name
			world++
		}
	}
	if f == nil {
		return nil, 0, false, im.errorf("%s without programs", o.Name)
	}
	return f, world, sequential, nil
}

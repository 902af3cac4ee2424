package stablehlo

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// manual reports whether a function is a manual computation over all axes, so that it is of each
// rank's pieces. One that does anything beside it, or leaves axes, is a global program.
func (im *importer) manual(f *mlir.Func) (bool, error) {
	for _, o := range f.Body.Ops {
		if o.Name == "sdy.manual_computation" {
			im.op = o
			defer func() { im.op = nil }()
			for _, other := range f.Body.Ops {
				if other != o && other.Name != "func.return" {
					im.op = other
					return false, im.errorf("op not supported: %s beside a manual computation: the program is global and wants a partitioner", other.Name)
				}
			}
			err := im.allAxes(o)
			return err == nil, err
		}
	}
	for _, a := range f.Args {
		if s, ok := a.Attrs.Get("sdy.sharding"); ok && im.cur.world > 1 && strings.Contains(im.m.Source.Text[s.Start:s.End], "{\"") {
			return false, mlir.ErrorAt(im.m.Source, a.At, 1, "stablehlo", "the program is global: its arguments are sharded, and its body wants a partitioner")
		}
	}
	return false, nil
}

// allAxes checks that a manual computation leaves no axis to a partitioner.
func (im *importer) allAxes(o *mlir.Operation) error {
	var names []string
	if a, ok := o.Attr("manual_axes"); ok {
		p := im.m.Parser(a)
		for p.Err == nil && p.Peek() == '"' {
			names = append(names, p.Str())
			p.Eat(",")
		}
	}
	for _, which := range []string{"in_shardings", "out_shardings"} {
		a, ok := o.Attr(which)
		if !ok {
			continue
		}
		p := im.m.Parser(a)
		if !p.Eat("<") || !p.Eat("@") {
			continue
		}
		m, err := im.procs.Mesh(o, p.Suffix("a mesh"))
		if err != nil {
			return err
		}
		for i, n := range m.Names {
			if m.Sizes[i] > 1 && !slices.Contains(names, n) {
				return im.errorf("op not supported: %s that leaves axis %q to a partitioner", o.Name, n)
			}
		}
	}
	return nil
}

// manualComputation runs the body on each rank's pieces.
func manualComputation(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(o.Regions) != 1 {
		return nil, im.errorf("%s without a body", o.Name)
	}
	b := o.Regions[0]
	if len(b.Args) != len(in) {
		return nil, im.errorf("%d arguments for a body of %d", len(in), len(b.Args))
	}
	if im.global != nil {
		return im.inPieces(o, in)
	}
	for i, a := range b.Args {
		if !sameType(a.Type, in[i].typ) {
			return nil, im.errorf("op not supported: %s without a mesh around it: its body takes the piece of a rank, argument %d is %s, the value is %s", o.Name, i, a.Type, in[i].typ)
		}
	}
	return im.block(b, b.Args, in)
}

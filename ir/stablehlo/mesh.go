package stablehlo

import (
	"regexp"
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
			if err := im.allAxes(o); err != nil {
				return false, err
			}
			if !im.agrees(f, o) {
				return false, im.errorf("op not supported: %s whose shardings are not those of the function's arguments and results: the program is global and wants a partitioner", o.Name)
			}
			return true, nil
		}
	}
	for _, a := range f.Args {
		if s, ok := a.Attrs.Get("sdy.sharding"); ok && im.cur.world > 1 && strings.Contains(im.m.Source.Text[s.Start:s.End], "{\"") {
			return false, mlir.ErrorAt(im.m.Source, a.At, 1, "stablehlo", "the program is global: its arguments are sharded, and its body wants a partitioner")
		}
		if s, ok := a.Attrs.Get("mhlo.sharding"); ok && im.cur.world > 1 && strings.Contains(s.Text, "devices=") {
			return false, mlir.ErrorAt(im.m.Source, s.At, 1, "stablehlo", "the program is global: its arguments are sharded, and its body wants a partitioner")
		}
	}
	return false, nil
}

// agrees reports whether what a function says of the shardings of its arguments and results is what
// the manual computation that is all of it takes and gives, with nothing left to be added up.
func (im *importer) agrees(f *mlir.Func, o *mlir.Operation) bool {
	taken, given := im.listed(o, "in_shardings"), im.listed(o, "out_shardings")
	if strings.Contains(strings.Join(append(taken, given...), ""), "unreduced") {
		return false
	}
	said := func(attrs mlir.Attrs, is string) bool {
		s, ok := attrs.Get("sdy.sharding")
		return !ok || plain(im.m.Source.Text[s.Start:s.End]) == is
	}
	for i, a := range f.Args {
		for k, x := range o.Operands {
			if x.Name == a.Name && k < len(taken) && !said(f.Args[i].Attrs, taken[k]) {
				return false
			}
		}
	}
	for _, last := range f.Body.Ops {
		if last.Name != "func.return" || len(o.Results) == 0 {
			continue
		}
		for i, x := range last.Operands {
			if k := x.Index; x.Name == o.Results[0].Name && i < len(f.ResultAttrs) && k < len(given) && !said(f.ResultAttrs[i], given[k]) {
				return false
			}
		}
	}
	return true
}

// listed are the shardings of an attribute, as text.
func (im *importer) listed(o *mlir.Operation, name string) []string {
	a, ok := o.Attr(name)
	if !ok {
		return nil
	}
	list := oneSharding.FindAllString(im.m.Source.Text[a.Start:a.End], -1)
	for i := range list {
		list[i] = plain(list[i])
	}
	return list
}

// oneSharding is <@mesh, ...>: shardings have no brackets of that kind within.
var oneSharding = regexp.MustCompile(`<@[^<>]*>`)

// plain is a sharding without what makes no difference to who has which piece: spaces, what is around it,
// whether a dimension is open.
func plain(s string) string {
	return strings.NewReplacer("#sdy.sharding", "", "<", "", ">", "", " ", "", ",?}", "}", "?}", "}").Replace(s)
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

package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports operations in two halves: what is started, and the wait for it. One that
// is a single collective is in flight between them; any other is computed where it starts.

// future is the type of what was started.
var future = mlir.Type{Text: "!stablehlo.future"}

// launched starts a collective and waits for it at once, or leaves that to the importer of
// the operation around it.
func (im *importer) launched(o ir.Op, g *ir.Group, attrs ir.Attrs, args []*ir.Value) ([]*ir.Value, error) {
	if !im.starting {
		return im.waited(o, g, attrs, args)
	}
	return im.emitAll(o, g, attrs, args)
}

// flying are the operations that are in flight between their halves.
var flying = []string{"stablehlo.all_reduce", "stablehlo.all_gather", "stablehlo.reduce_scatter", "stablehlo.collective_permute", "stablehlo.collective_broadcast"}

// asyncStart runs a region of one operation, or of several.
func asyncStart(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(o.Regions) != 1 {
		return nil, im.errorf("%s of %d regions, want one", o.Name, len(o.Regions))
	}
	if b := o.Regions[0]; len(b.Ops) == 2 && len(b.Args) == len(in) {
		im.scope = &scope{vals: map[string][]*value{}, up: im.scope}
		defer func(s *scope) { im.scope = s }(im.scope.up)
		for i, a := range b.Args {
			im.scope.vals[a.Name] = []*value{in[i]}
		}
		im.op = b.Ops[0]
		args, err := im.operands(im.op)
		if err != nil {
			return nil, err
		}
		im.starting = slices.Contains(flying, im.op.Name)
		out, err := im.operation(im.op, args)
		im.starting = false
		return []*value{{typ: future, tuple: out}}, err
	}
	out, err := im.regionOf(o, 0, in)
	return []*value{{typ: future, tuple: out}}, err
}

// asyncDone waits for what is in flight.
func asyncDone(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	out := in[0].tuple
	if in[0].typ.Text != future.Text {
		return nil, im.errorf("%s of a value of type %s, which nothing started", im.op.Name, in[0].typ)
	}
	if len(out) == 1 && out[0].tuple != nil && im.op.NumResults() != 1 {
		return out[0].tuple, nil
	}
	if len(out) != 1 || out[0].v == nil || !out[0].v.Type().IsAsync() {
		return out, nil
	}
	return im.decomposed(im.emitAll(ir.OpWaitTensor, nil, nil, []*ir.Value{out[0].v}))
}

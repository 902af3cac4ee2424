package stablehlo

import (
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/internal/decompose"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/lapack"
	"github.com/seed-ee968945/concert/ir/stablehlo/internal/library"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports calls by name: of what checks results, of what an operation has become
// since, or was before, of what says where a value lies, and of libraries.

// customCall imports a call of what is not an operation.
func customCall(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	a, ok := o.Attr("call_target_name")
	if !ok && len(o.Flags) > 0 {
		a = o.Flags[0]
	}
	if run := im.called(o, a.Text, len(in)); run != nil {
		return run(im, o, in)
	}
	if out, ok, err := im.library(o, a.Text, in); ok {
		return out, err
	}
	if !im.opaque {
		return nil, im.errorf("op not supported: custom_call @%s", a.Text)
	}
	return im.opaqueCall(o, a.Text, in)
}

// called is the rule for a call that has one.
func (im *importer) called(o *mlir.Operation, target string, operands int) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	switch target {
	case "Sharding", "xla.sdy.FuncResultSharding":
		if operands == 1 {
			return unsharded
		}
	case "SPMDFullToShardShape":
		if operands == 1 {
			return between(ir.OpShard)
		}
	case "SPMDShardToFullShape":
		if operands == 1 {
			return between(ir.OpAllGather)
		}
	case "annotate_device_placement", "LayoutConstraint", "MoveToDevice", "MoveToHost":
		return same
	case "mhlo.topk":
		return calledTopK
	case "ApproxTopK":
		if library.Setting(o, "aggregate_to_topk") == "true" {
			return approximateTopK
		}
	case "shape_assertion":
		return shapeAssertion
	case "cu_threefry2x32_ffi", "hip_threefry2x32_ffi":
		if operands == 4 {
			return threeFry
		}
	}
	if f, n := lapack.Find(target); f != nil && n == operands {
		return linearAlgebra(f)
	}
	family, name, _ := strings.Cut(target, ".")
	switch r := im.rules["chlo."+name]; {
	case family == "check" || family == "concert":
		return im.rules[target].run
	case family == "mhlo" && r.args == operands:
		return r.run
	}
	return nil
}

func linearAlgebra(f lapack.Function) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		args, err := im.irs(in)
		if err != nil {
			return nil, err
		}
		declared, err := im.declaredTypes(o)
		if err != nil {
			return nil, err
		}
		return im.decomposed(f(im.cur, func(name string) (int64, bool) { return library.Number(o, name) }, args, declared))
	}
}

// threeFry is the generator of JAX's keys, which it calls on GPUs: two words of the key, two of the counts.
func threeFry(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	v, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	return im.decomposed(decompose.ThreeFry(im.cur, [2]*ir.Value{v[0], v[1]}, [2]*ir.Value{v[2], v[3]}))
}

// opaqueCall is a call of an operation unknown to concert, which its executor must define.
func (im *importer) opaqueCall(o *mlir.Operation, target string, in []*value) ([]*value, error) {
	args, err := im.irs(in)
	if err != nil {
		return nil, err
	}
	types, err := im.declaredTypes(o)
	if err != nil {
		return nil, err
	}
	attrs := ir.A("target", target)
	if c, ok := o.Attr("backend_config"); ok && c.Kind == mlir.KindString && c.Text != "" {
		attrs = ir.A("payload", c.Text, "target", target)
	}
	return im.decomposed(im.emitAll(ir.OpCall, nil, attrs, args, types...))
}

// declaredTypes are those of an operation's results.
func (im *importer) declaredTypes(o *mlir.Operation) ([]ir.Type, error) {
	types := make([]ir.Type, len(o.Outs))
	for i, t := range o.Outs {
		var err error
		if types[i], err = im.tensorType(t); err != nil {
			return nil, im.errorf("%v", err)
		}
	}
	return types, nil
}

// unsharded is a value whose sharding is named: on one rank it has no pieces.
func unsharded(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if im.cur.world > 1 {
		return nil, im.errorf("op not supported: %s on several ranks: the program is global and wants a partitioner", o.Name)
	}
	return in, nil
}

// shapeAssertion is a condition on sizes, which are numbers here. Behind it stand the numbers
// that its message names.
func shapeAssertion(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(in) == 0 {
		return nil, im.errorf("shape_assertion without a condition")
	}
	switch n, ok := in[0].known(); {
	case !ok:
		return nil, im.errorf("op not supported: shape_assertion of what is not known before the program runs")
	case n == 0:
		message, _ := o.Attr("error_message")
		return nil, im.errorf("shape_assertion: %s", message.Text)
	}
	return nil, nil
}

// approximateTopK is a search that may miss some of the first elements of a dimension, in the
// order that a function says: a sort finds them all. Behind the tensors stand where each begins.
func approximateTopK(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	functions, _ := o.Attr("called_computations")
	if len(functions.List) != 1 || len(in) == 0 || len(in)%2 != 0 {
		return nil, im.errorf("ApproxTopK of %d operands and %d called_computations", len(in), len(functions.List))
	}
	f, err := im.target(functions.List[0])
	if err != nil {
		return nil, err
	}
	count, ok := library.Number(o, "top_k")
	dim, there := library.Number(o, "reduction_dim")
	if !ok || !there || f.Body == nil {
		return nil, im.errorf("ApproxTopK without top_k, reduction_dim or the body of @%s", f.Name)
	}
	sort := *o
	sort.Attrs, sort.Regions = mlir.Attrs{{Name: "dimension", Val: mlir.Number(o.At, dim)}}, []*mlir.Block{{Args: f.Args, Ops: f.Body.Ops}}
	im.op = &sort
	out, err := sortOp(im, im.op, in[:len(in)/2])
	if err != nil {
		return nil, err
	}
	rank := int64(len(in[0].typ.Shape))
	dim = (dim + rank) % rank
	if count < 0 || count > in[0].typ.Shape[dim] {
		return nil, im.errorf("ApproxTopK of %d elements of dimension %d of %s", count, dim, in[0].typ)
	}
	for i, v := range out {
		if out[i], err = im.first(v, int(dim), count); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// first are the first elements of a dimension.
func (im *importer) first(v *value, dim int, count int64) (*value, error) {
	x, err := im.ir(v)
	if err != nil {
		return nil, err
	}
	if x, err = im.sliced(x, dim, 0, count, 1); err != nil {
		return nil, err
	}
	return im.value(x), nil
}

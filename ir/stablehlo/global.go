package stablehlo

import (
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports global programs: those that are written for all devices of a mesh
// together, of which package sharding says how their values lie on it. What is imported is a
// function in which every rank has all of every tensor, with annotations (ir.ShardingKey) for
// the pass that partitions it.

// Global says how the values of a program lie on a mesh, in the text of annotations; empty
// where nothing is said.
type Global interface {
	World() int // how many devices there are
	Argument(f *mlir.Func, i int) string
	Result(f *mlir.Func, i int) string
	Value(o *mlir.Operation, i int) string
	Call(o *mlir.Operation) (back func()) // what is asked next is of the function that a call runs
	Replicated(rank int) string

	// Axes are the ranks that an explicit reduction of the sdy dialect is among; nil where
	// its operand is in parts along these axes already, which it completes.
	Axes(o *mlir.Operation) ([][]int, error)

	// Manual says how operands come into a manual computation and results out of it.
	Manual(o *mlir.Operation) (in, out []Along, err error)
}

// Along says what a manual computation has of a tensor: of each dimension the piece that
// groups of ranks cut it into, if any do.
type Along struct {
	Groups [][][]int // by dimension
	Inside string    // how the piece lies on the axes that are left
}

// Shardings finds what is said of a function; nil where it says nothing.
type Shardings func(m *mlir.Module, f *mlir.Func) (Global, error)

// Sharded makes what is imported of the module from here on global, where something is said of
// a function.
func (m *Module) Sharded(find Shardings) { m.find = find }

// statedShardings is what is said of a function.
func (m *Module) statedShardings(f *mlir.Func) (Global, error) {
	if m.find == nil || f.Body == nil {
		return nil, nil
	}
	return m.find(m.Module, f)
}

// annotated gives the node that a value is of a sharding.
func annotated(v *ir.Value, text string) {
	n := v.Def()
	n.Func().SetMeta(n, n.Meta().With(ir.ShardingKey, ir.A("s", []string{text})[0].Val))
}

// pinned is a value with a sharding: of its own node if that was made for it alone.
func (im *importer) pinned(v *value, text string) (*value, error) {
	if text == "" || v.v == nil || v.stage != im.cur || im.cur.caps != nil {
		return v, nil
	}
	n := v.v.Def()
	if n.ID() >= im.mark && len(n.Results()) == 1 && !n.Meta().Has(ir.ShardingKey) {
		annotated(v.v, text)
		return v, nil
	}
	a, err := im.emit(ir.OpAlias, nil, []*ir.Value{v.v})
	if err != nil {
		return nil, err
	}
	annotated(a, text)
	out := *v
	out.v = a
	return &out, nil
}

// globalArgs annotates arguments.
func (im *importer) globalArgs(f *mlir.Func, args []*value) {
	for i, a := range args {
		if text := im.global.Argument(f, i); text != "" {
			annotated(a.v, text)
		}
	}
}

// globalResults are what a function returns, with the shardings of its results.
func (im *importer) globalResults(f *mlir.Func, outs []*value) ([]*value, error) {
	outs = slices.Clone(outs)
	for i, v := range outs {
		if !v.typ.Tensor {
			continue
		}
		x, err := im.ir(v)
		if err != nil {
			return nil, err
		}
		c := *v
		c.v, c.lit, c.sources, c.stage = x, nil, nil, im.cur
		im.mark = ir.NodeID(im.cur.fb.Func().NumNodeIDs())
		if outs[i], err = im.pinned(&c, im.global.Result(f, i)); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// resharded is a value that lies otherwise from here on, which define says.
func resharded(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if im.global == nil {
		return unsharded(im, o, in)
	}
	return in, nil
}

// grouped puts a value into a group of those that are sharded alike.
func grouped(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	_, err := resharded(im, o, in)
	return nil, err
}

// namedComputation is its body.
func namedComputation(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(o.Regions) != 1 {
		return nil, im.errorf("%s of %d regions, want a body", o.Name, len(o.Regions))
	}
	return im.regionOf(o, 0, in)
}

// summed is an explicit reduction over axes.
func summed(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if im.global == nil {
		return unsharded(im, o, in)
	}
	ranks, err := im.global.Axes(o)
	if err != nil || ranks == nil {
		return in, err
	}
	v, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	g, err := im.declared(ranks)
	if err != nil {
		return nil, err
	}
	return im.decomposed(im.launched(ir.OpAllReduce, g, ir.A("reduce", string(ir.Sum)), []*ir.Value{v}))
}

// along is a rank's piece of a value, or with all_gather the value of pieces.
func (im *importer) along(v *value, a Along, op ir.Op) (*ir.Value, error) {
	x, err := im.ir(v)
	for d, ranks := range a.Groups {
		if err != nil || ranks == nil {
			continue
		}
		g, bad := im.declared(ranks)
		if err = bad; err != nil {
			break
		}
		dim := ir.A("dim", int64(d))
		var l []*ir.Value
		if op == ir.OpAllGather {
			l, err = im.waited(op, g, dim, []*ir.Value{x})
		} else {
			l, err = im.emitAll(op, g, dim, []*ir.Value{x})
		}
		if err == nil {
			x = l[0]
		}
	}
	return x, err
}

// between imports a call that goes from a tensor to each rank's piece of it, or back.
func between(op ir.Op) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		if im.global == nil {
			return unsharded(im, o, in)
		}
		l, _, err := im.global.Manual(o)
		if err != nil {
			return nil, err
		}
		x, err := im.along(in[0], l[0], op)
		if err != nil || op == ir.OpAllGather {
			return im.one(x, err)
		}
		v, err := im.pinned(im.value(x), l[0].Inside)
		return []*value{v}, err
	}
}

// inPieces runs the body of a manual computation on each rank's pieces.
func (im *importer) inPieces(o *mlir.Operation, in []*value) ([]*value, error) {
	ins, outs, err := im.global.Manual(o)
	if err != nil {
		return nil, err
	}
	b := o.Regions[0]
	pieces := make([]*value, len(in))
	for i, v := range in {
		im.mark = ir.NodeID(im.cur.fb.Func().NumNodeIDs())
		x, err := im.along(v, ins[i], ir.OpShard)
		if err != nil {
			return nil, err
		}
		if pieces[i], err = im.pinned(im.value(x), ins[i].Inside); err != nil {
			return nil, err
		}
		if !sameType(b.Args[i].Type, pieces[i].typ) {
			return nil, im.errorf("argument %d is %s on each rank, by its sharding %s", i, b.Args[i].Type, pieces[i].typ)
		}
	}
	made, err := im.block(b, b.Args, pieces)
	if err != nil {
		return nil, err
	}
	im.op = o
	if len(made) != len(outs) {
		return nil, im.errorf("a body of %d results for %d", len(made), len(outs))
	}
	for i, v := range made {
		x, err := im.along(v, outs[i], ir.OpAllGather)
		if err != nil {
			return nil, err
		}
		made[i] = im.value(x)
	}
	return made, nil
}

package export

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// This file writes what makes and moves tensors. Views are copies in the text: whoever
// compiles it sees which are none.

func full(e *emitter, _ []val) val { return e.filled("value", e.dtype(0), e.shape(0)) }

// filled is a number among the attributes in every element, converted to their type.
func (e *emitter) filled(key string, dt ir.DType, shape []int64) val {
	v, _ := e.node.Attrs().Get(key)
	if f, ok := v.AsFloat(); ok && v.Kind() == attr.KindFloat && !dt.IsFloat() && (f != math.Trunc(f) || !fits(int64(f), dt)) {
		return e.to(e.number(f, ir.F64, shape), dt)
	}
	return e.scalarOf(v, dt, shape)
}

func constant(e *emitter, _ []val) val {
	data, err := e.node.Attrs().Bytes("data")
	if err != nil {
		e.failf("%v", err)
	}
	return e.constant(e.dtype(0), e.shape(0), denseText(data, e.dtype(0), e.shape(0)))
}

func counted(e *emitter, _ []val) val {
	dt, shape, attrs := e.dtype(0), e.shape(0), e.node.Attrs()
	start, step := attrs.Int("start", 0), attrs.Int("step", 1)
	if (start == 0 && step == 1 || intmath.Product(shape) == 0) && dt != ir.Bool {
		return e.iota(dt, shape, 0)
	}
	x := e.iota(ir.I64, shape, 0)
	x = e.simple("stablehlo.multiply", x, e.whole(step, ir.I64, shape))
	return e.to(e.simple("stablehlo.add", x, e.whole(start, ir.I64, shape)), dt)
}

// random draws numbers of its own: the seed of a rank is the interpreter's.
func random(e *emitter, _ []val) val {
	dt := e.dtype(0)
	return e.typed("stablehlo.rng", dt, e.shape(0), "distribution = UNIFORM", e.whole(0, dt, nil), e.whole(1, dt, nil), e.dense(ir.I64, e.shape(0)))
}

func cat(e *emitter, vs []val) val {
	d := int(e.node.Attrs().Int("dim", 0))
	var parts []val
	for _, v := range vs {
		if len(v.shape) == len(e.shape(0)) {
			parts = append(parts, e.to(v, e.dtype(0)))
		}
	}
	return e.concatenate(parts, d)
}

func view(e *emitter, vs []val) val { return e.reshape(vs[0], e.shape(0)) }

func permute(e *emitter, vs []val) val { return e.transpose(vs[0], e.node.Attrs().Ints("dims")) }

func expand(e *emitter, vs []val) val { return e.broadcast(vs[0], e.shape(0)) }

// ranged are the bounds of a slice among the attributes.
func (e *emitter) ranged(size int64) (start, end, step int64) {
	a := e.node.Attrs()
	return a.Int("start", 0), a.Int("end", size), a.Int("step", 1)
}

func slice(e *emitter, vs []val) val {
	d := int(e.node.Attrs().Int("dim", 0))
	start, end, step := e.ranged(vs[0].shape[d])
	return e.slice(vs[0], d, start, end, step)
}

func split(e *emitter, vs []val) []val {
	d := int(e.node.Attrs().Int("dim", 0))
	var out []val
	at := int64(0)
	for _, n := range e.node.Attrs().Ints("sizes") {
		out = append(out, e.slice(vs[0], d, at, at+n, 1))
		at += n
	}
	return out
}

func selectIndex(e *emitter, vs []val) val {
	at := e.node.Attrs().Int("index", 0)
	d := int(e.node.Attrs().Int("dim", 0))
	if at < 0 {
		at += vs[0].shape[d]
	}
	return e.reshape(e.slice(vs[0], d, at, at+1, 1), e.shape(0))
}

// asStrided takes elements of the storage by their places: those of the value that owns it.
func asStrided(e *emitter, vs []val) val {
	offset := e.node.Attrs().Int("offset", 0)
	root := e.node.Arg(0)
	for root.Aliases() != nil && root.Def().Op().IsView() {
		at, err := root.Def().ViewOffset(root.Index())
		if err != nil {
			e.failf("%v", err)
			return val{}
		}
		offset += at
		root = root.Def().Arg(0)
	}
	t := e.node.Result(0).Type()
	shape := e.shape(0)
	if intmath.Product(shape) == 0 {
		return e.broadcast(e.whole(0, t.DType(), nil), shape)
	}
	flat, ok := e.storage(root)
	if !ok {
		e.failf("the storage of %s, of type %s, has gaps", root, root.Type())
		return val{}
	}
	at := e.whole(offset, ir.I64, shape)
	for d, n := range t.Strides() {
		step := e.simple("stablehlo.multiply", e.iota(ir.I64, shape, d), e.whole(n, ir.I64, shape))
		at = e.simple("stablehlo.add", at, step)
	}
	return e.gather(flat, []int64{0}, []val{at}, shape)
}

// storage is the tensor in the order of its memory; false if that has gaps, or places that
// elements share.
func (e *emitter) storage(v *ir.Value) (val, bool) {
	t, x := v.Type(), e.vals[v][0]
	order := make([]int64, len(x.shape))
	for i := range order {
		order[i] = int64(i)
	}
	if !t.Contiguous() {
		ext, _ := t.Extent().Const()
		size, _ := t.Bytes().Const()
		if ext != size || !t.NonOverlapping() {
			return val{}, false
		}
		st := t.Strides()
		slices.SortStableFunc(order, func(a, b int64) int {
			if c := cmp.Compare(st[b], st[a]); c != 0 {
				return c
			}
			return cmp.Compare(x.shape[b], x.shape[a])
		})
	}
	return e.reshape(e.transpose(x, order), []int64{intmath.Product(x.shape)}), true
}

// sliceScatter puts the elements between those that stay.
func sliceScatter(e *emitter, vs []val) val {
	x, d := vs[0], int(e.node.Attrs().Int("dim", 0))
	start, end, step := e.ranged(x.shape[d])
	src := e.to(vs[1], x.dt)
	if intmath.Product(src.shape) == 0 {
		return x
	}
	if step == 1 {
		return e.concatenate([]val{e.slice(x, d, 0, start, 1), src, e.slice(x, d, end, x.shape[d], 1)}, d)
	}
	low, high, between := make([]int64, len(x.shape)), make([]int64, len(x.shape)), make([]int64, len(x.shape))
	n := src.shape[d]
	low[d], between[d] = start, step-1
	high[d] = x.shape[d] - start - (n-1)*step - 1
	padded := e.pad(src, e.whole(0, x.dt, nil), low, high, between)
	there := e.pad(e.whole(1, ir.Bool, src.shape), e.whole(0, ir.Bool, nil), low, high, between)
	return e.choose(there, padded, x)
}

package export

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// This file writes collectives. Groups are of ranks, which are replicas; what StableHLO has
// for one tensor only stands there once for each.

// groups are the node's replica groups, in an order that f may change.
func (e *emitter) groups(f func([]int) []int) string {
	g := e.node.Group()
	rows := list(g.Ranks, func(l []int) string {
		if f != nil {
			l = f(l)
		}
		return "[" + ints(l) + "]"
	})
	return fmt.Sprintf("replica_groups = dense<[%s]> : tensor<%dx%dxi64>", rows, len(g.Ranks), g.Size())
}

// reduced is a collective that combines: the operation, and the type that tensors of a type
// have on the way.
func (e *emitter) reduced(dt ir.DType) (string, ir.DType) {
	how := e.node.Reduction()
	op := map[ir.Reduction]string{ir.Sum: "stablehlo.add", ir.Avg: "stablehlo.add", ir.Product: "stablehlo.multiply", ir.Min: "stablehlo.minimum", ir.Max: "stablehlo.maximum"}[how]
	n := uint(e.node.Group().Size())
	switch {
	case dt == ir.Bool:
		return op, ir.I32
	case how != ir.Avg:
	case dt == ir.F16 || dt.IsFloat() && dt.Size() == 1 || dt == ir.BF16 && bits.OnesCount(n) != 1: // a sum that is rounded, or overflows, before it is divided
		return op, ir.F32
	case dt.IsInt() && dt.Size() < 8:
		return op, ir.I64
	}
	return op, dt
}

// averaged divides sums of an avg by the number of ranks, and gives them their type.
func (e *emitter) averaged(v val, dt ir.DType) val {
	if e.node.Reduction() == ir.Avg {
		v = e.simple("stablehlo.divide", v, e.whole(int64(e.node.Group().Size()), v.dt, v.shape))
	}
	return e.to(v, dt)
}

// allReduce is one operation for all tensors that are combined in one type.
func allReduce(e *emitter, vs []val) []val {
	out := make([]val, len(vs))
	var kinds []ir.DType
	for _, v := range vs {
		if _, dt := e.reduced(v.dt); !slices.Contains(kinds, dt) {
			kinds = append(kinds, dt)
		}
	}
	for _, kind := range kinds {
		var at []int
		var wide []val
		op := ""
		for i, v := range vs {
			if o, dt := e.reduced(v.dt); dt == kind {
				at, wide, op = append(at, i), append(wide, e.to(v, dt)), o
			}
		}
		for k, v := range e.generic("stablehlo.all_reduce", e.groups(nil), body(op, kind), wide, wide) {
			out[at[k]] = e.averaged(v, vs[at[k]].dt)
		}
	}
	return out
}

func allGather(e *emitter, vs []val) []val {
	d := e.node.Attrs().Int("dim", 0)
	return e.generic("stablehlo.all_gather", fmt.Sprintf("all_gather_dim = %d : i64, %s", d, e.groups(nil)), "", vs, e.carried(vs))
}

// carried are the types of what the collective carries.
func (e *emitter) carried(vs []val) []val {
	out := slices.Clone(vs)
	for i, t := range e.node.Result(0).Type().Tensors() {
		out[i].shape = e.static(t)
	}
	return out
}

// reduceScatter takes one tensor at a time.
func reduceScatter(e *emitter, vs []val) []val {
	d := e.node.Attrs().Int("dim", 0)
	out := e.carried(vs)
	for i, v := range vs {
		op, dt := e.reduced(v.dt)
		r := e.generic("stablehlo.reduce_scatter", fmt.Sprintf("%s, scatter_dimension = %d : i64", e.groups(nil), d), body(op, dt), []val{e.to(v, dt)}, []val{of(dt, out[i].shape)})
		out[i] = e.averaged(r[0], v.dt)
	}
	return out
}

func allToAll(e *emitter, vs []val) []val {
	n := int64(e.node.Group().Size())
	for _, key := range []string{"in_splits", "out_splits"} {
		for i, s := range e.node.Attrs().Strs(key) {
			size := vs[i].shape[0]
			if key == "out_splits" {
				size = e.carried(vs)[i].shape[0]
			}
			if want := equal(size, n); s != want {
				e.failf("%s %q: StableHLO has equal pieces, %q here", key, s, want)
			}
		}
	}
	attrs := fmt.Sprintf("concat_dimension = 0 : i64, %s, split_count = %d : i64, split_dimension = 0 : i64", e.groups(nil), n)
	return e.generic("stablehlo.all_to_all", attrs, "", vs, e.carried(vs))
}

// equal spells n equal pieces of a size.
func equal(size, n int64) string {
	return strings.Join(slices.Repeat([]string{fmt.Sprint(size / n)}, int(n)), ",")
}

// broadcastFrom puts the root of each group first, from where StableHLO sends.
func broadcastFrom(e *emitter, vs []val) []val {
	root := int(e.node.Attrs().Int("root", 0))
	groups := e.groups(func(l []int) []int {
		return slices.Insert(slices.Delete(slices.Clone(l), root, root+1), 0, l[root])
	})
	out := slices.Clone(vs)
	for i, v := range vs {
		out[i] = e.generic("stablehlo.collective_broadcast", groups, "", []val{v}, []val{v})[0]
	}
	return out
}

func permuteRanks(e *emitter, vs []val) []val {
	l := e.node.Attrs().Ints("pairs")
	var pairs []string
	for _, g := range e.node.Group().Ranks {
		for p := range slices.Chunk(l, 2) {
			pairs = append(pairs, fmt.Sprintf("[%d, %d]", g[p[0]], g[p[1]]))
		}
	}
	attrs := fmt.Sprintf("source_target_pairs = dense<[%s]> : tensor<%dx2xi64>", list(pairs, func(s string) string { return s }), len(pairs))
	if len(pairs) == 0 {
		attrs = "source_target_pairs = dense<> : tensor<0x2xi64>"
	}
	out := slices.Clone(vs)
	for i, v := range vs {
		out[i] = e.generic("stablehlo.collective_permute", attrs, "", []val{v}, []val{v})[0]
	}
	return out
}

// shard takes the piece that a table says is the rank's.
func shard(e *emitter, vs []val) val {
	d := int(e.node.Attrs().Int("dim", 0))
	shape := e.shape(0)
	first := make([]int64, e.world)
	for _, g := range e.node.Group().Ranks {
		for i, r := range g {
			first[r] = int64(i) * shape[d]
		}
	}
	rank := e.to(e.write(ir.U32, nil, "stablehlo.replica_id : tensor<ui32>"), ir.I64)
	at := e.reshape(e.piece(e.dense(ir.I64, first), []val{rank}, []int64{1}), nil)
	starts := slices.Repeat([]val{e.whole(0, ir.I64, nil)}, len(shape))
	starts[d] = at
	return e.piece(vs[0], starts, shape)
}

// piece is what lies at a place that a run decides.
func (e *emitter) piece(x val, at []val, sizes []int64) val {
	return e.typed("stablehlo.dynamic_slice", x.dt, sizes, "sizes = ["+ints(sizes)+"]", append([]val{x}, at...)...)
}

// call is a custom call: of its attributes the text has the payload.
func call(e *emitter, vs []val) []val {
	a := e.node.Attrs()
	if e.node.Effects()&ir.EffectWrites != 0 {
		e.failf("it writes operands in place")
	}
	if e.node.Effects()&ir.EffectCommunicates != 0 {
		e.failf("StableHLO cannot say with whom it communicates")
	}
	if e.node.Effects()&ir.EffectAlias != 0 {
		e.failf("its results lie in the storage of an operand")
	}
	like := e.results()
	if len(like) == 0 {
		return nil
	}
	attrs := ""
	if p := a.Str("payload", ""); p != "" {
		attrs = fmt.Sprintf("backend_config = %s", quoted(p))
	}
	if e.node.Effects() != 0 {
		if attrs != "" {
			attrs += ", "
		}
		attrs += "has_side_effect = true"
	}
	if attrs != "" {
		attrs = " {" + attrs + "}"
	}
	return e.several(like, "stablehlo.custom_call @", quotedSymbol(a.Str("target", "")), "(", vs, ")", attrs, " : (", list(vs, val.typ), ") -> ", resultTypes(like))
}

package spmd

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

// groupedAttention is attention, forward and backward, of heads that share keys and values in groups, with
// projections that are sharded along heads and features by ranks.
func groupedAttention(t *testing.T, heads, keys, ranks int64) *ir.Module {
	const tokens, width, size = 3, 4, 4
	b := ir.NewBuilder(int(ranks))
	fb := b.Func("f")
	m := sharding.Mesh{Axes: []sharding.Axis{{Name: "tp", Size: ranks}}}
	whole, _ := m.Whole("tp")
	shard := func(v *ir.Value, d int) *ir.Value {
		s := sharding.Open(&m, 2)
		s.Dims[d].Axes = append(s.Dims[d].Axes, whole)
		fb.Func().SetMeta(v.Def(), sharding.Annotate(v.Def().Meta(), s))
		return v
	}
	shape := func(l ...int64) ir.Shape { return ir.Tensor(ir.F32, l...).Shape() }
	input := func(name string, l ...int64) *ir.Value { return fb.Input(name, ir.Tensor(ir.F32, l...)) }
	x, dy := input("x", tokens, width), input("dy", tokens, width)
	wq, wo := shard(input("wq", width, heads*size), 1), shard(input("wo", heads*size, width), 0)
	wk, wv := shard(input("wk", width, keys*size), 1), shard(input("wv", width, keys*size), 1)
	turned := func(v *ir.Value) *ir.Value { return fb.Permute(v, 1, 0) }
	split := func(v *ir.Value) *ir.Value { // of each head
		return fb.Permute(fb.View(v, shape(tokens, heads, size)), 1, 0, 2)
	}
	joined := func(v *ir.Value) *ir.Value {
		return fb.View(fb.Clone(fb.Permute(v, 1, 0, 2)), shape(tokens, heads*size))
	}
	group := heads / keys
	shared := func(v *ir.Value) *ir.Value {
		v = fb.Expand(fb.View(v, shape(tokens, keys, 1, size)), shape(tokens, keys, group, size))
		return split(fb.View(fb.Clone(v), shape(tokens, heads*size)))
	}
	summed := func(v *ir.Value) *ir.Value {
		v = fb.Reduce(ir.OpSum, fb.View(joined(v), shape(tokens, keys, group, size)), false, 2)
		return fb.View(v, shape(tokens, keys*size))
	}
	q, k, v := split(fb.MatMul(x, wq)), shared(fb.MatMul(x, wk)), shared(fb.MatMul(x, wv))
	p := fb.Softmax(fb.MatMul(q, fb.Permute(k, 0, 2, 1)), 2)
	a := joined(fb.MatMul(p, v))
	da := split(fb.MatMul(dy, turned(wo)))
	dp := fb.MatMul(da, fb.Permute(v, 0, 2, 1))
	ds := fb.Mul(p, fb.Sub(dp, fb.Expand(fb.Reduce(ir.OpSum, fb.Mul(p, dp), true, 2), shape(heads, tokens, tokens))))
	dq, dk, dv := joined(fb.MatMul(ds, k)), summed(fb.MatMul(fb.Permute(ds, 0, 2, 1), q)), summed(fb.MatMul(fb.Permute(p, 0, 2, 1), da))
	xt := turned(x)
	fb.Return(fb.MatMul(a, wo), shard(fb.MatMul(xt, dq), 1), shard(fb.MatMul(xt, dk), 1), shard(fb.MatMul(xt, dv), 1), shard(fb.MatMul(turned(a), dy), 0))
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Heads that ranks do not divide are cut within one, and are proved; what is proved of a changed program
// computes that, too.
func TestHeads(t *testing.T) {
	tried, proved := 0, 0
	for _, c := range []struct{ heads, keys, ranks int64 }{
		{3, 3, 2}, {6, 3, 2}, {6, 3, 4}, {9, 3, 6}, {15, 15, 6}, {10, 5, 4}, {12, 4, 8}, {28, 4, 8}, {28, 28, 8}, {30, 6, 4}, {40, 8, 16}, {40, 40, 16},
	} {
		t.Run(fmt.Sprint(c.heads, "_", c.keys, "_", c.ranks), func(t *testing.T) {
			m := groupedAttention(t, c.heads, c.keys, c.ranks)
			device := m.Clone().Funcs()[0]
			p, err := try(m, 1, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.agrees(1e-4); err != nil {
				t.Fatalf("%v\n%s", err, m)
			}
			o, err := mesh.Annotated(device, p.to)
			if err == nil {
				_, err = mesh.Check(device, p.to, o)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, m)
			}
			a, b := survivors(t, p, device, o, uint64(c.heads), *mutants/4)
			tried, proved = tried+a, proved+b
		})
	}
	t.Logf("%d of %d mutants are proved, and equal", proved, tried)
}

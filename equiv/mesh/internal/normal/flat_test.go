package normal

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
)

// heads is a tensor of tokens by heads and features in one dimension, of which groups of heads are the same.
func heads(m *Mesh, name string, tokens, groups, shared, features int64) *Tensor {
	x := m.Leaf(name, tokens, groups, features)
	l := digits.Add(slices.Clone(x.Dims[1]), digits.Repeated(shared))
	return x.WithDims([][]digits.Digit{x.Dims[0], digits.Joined(append(l, x.Dims[2]...))})
}

// same reports whether tensors are one in one arrangement.
func same(a, b *Tensor) bool {
	return a.base == b.base && a.coef == b.coef && slices.EqualFunc(a.Dims, b.Dims, slices.Equal) && slices.Equal(a.Atoms, b.Atoms)
}

// TestFlat cuts heads and features by ranks, within a head or not: an operation on the shards is the shard of an
// operation on the whole, and what has all shards, a sum or a gathered tensor, has none.
func TestFlat(t *testing.T) {
	for _, c := range []struct {
		groups, shared, features int64
		atoms                    []int64
	}{
		{7, 1, 8, []int64{2}}, {28, 1, 8, []int64{2, 2, 2}}, {8, 5, 4, []int64{2, 2, 2, 2}}, {4, 7, 4, []int64{2, 2, 2}}, {5, 2, 2, []int64{2, 2}},
		{3, 3, 2, []int64{2}}, {3, 2, 5, []int64{2, 5}}, {8, 1, 4, []int64{2, 2}},
	} {
		t.Run(fmt.Sprint(c.groups, c.shared, c.features, c.atoms), func(t *testing.T) {
			table := NewTable(1 << 12)
			m := table.Mesh(c.atoms...)
			x, y := heads(m, "x", 3, c.groups, c.shared, c.features), m.Leaf("y", 3, c.groups*c.shared*c.features)
			var all []int
			for a := range c.atoms {
				all = append(all, a)
			}
			shard := func(p *Tensor) *Tensor { return m.Shard(p, all, 1) }
			if !same(m.AllGather(shard(x), all, 1), x) {
				t.Error("gathered shards are not the whole")
			}
			if swapped := slices.Clone(all); len(all) > 1 {
				slices.Reverse(swapped)
				if same(m.AllGather(shard(x), swapped, 1), x) {
					t.Error("shards gathered in another order are the whole")
				}
			}
			for i, f := range []func(p, q *Tensor) *Tensor{
				func(p, _ *Tensor) *Tensor { return m.Pointwise("tanh", p) },
				func(p, q *Tensor) *Tensor { return m.Mul(q, p) },
				func(p, q *Tensor) *Tensor { return m.Add([]float64{2, 3}, p, q) },
				func(p, _ *Tensor) *Tensor { return m.Reciprocal(p) },
				func(p, _ *Tensor) *Tensor { // summed over tokens, with other columns
					o := m.Op(p, m.Leaf("z", 3, 2))
					o.Align([]int{0, 0}, true)
					return o.Contract([][]int{o.Parallel(1, 1), o.Parallel(0, 1)})
				},
			} {
				if !same(m.AllGather(f(shard(x), shard(y)), all, 1), f(x, y)) {
					t.Errorf("operation %d of shards is not that of the whole", i)
				}
			}
			for _, how := range []string{Sum, Max} {
				want := m.Reduce(how, m.Mul(x, y), []int{1}, nil)
				if !same(m.Reduce(how, m.Mul(shard(x), shard(y)), []int{1}, all), want) {
					t.Errorf("%s over shards is not that over the whole", how)
				}
				if same(m.Reduce(how, m.Mul(shard(x), shard(y)), []int{1}, all[1:]), want) {
					t.Errorf("%s over some ranks is that over the whole", how)
				}
			}
		})
	}
}

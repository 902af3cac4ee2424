package sharding

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// node is an operation that a rule is made for, with the shapes of its tensors.
type node struct {
	n    *ir.Node
	ins  [][]int64
	outs [][]int64
}

// Of is the rule of an operation. Its tensors are those that operands and results carry: an
// async value may carry several. The error says which size is not a number.
func Of(n *ir.Node) (*Rule, error) {
	x := &node{n: n}
	for _, v := range n.Args() {
		l, err := shapes(v)
		if err != nil {
			return nil, err
		}
		x.ins = append(x.ins, l...)
	}
	for _, v := range n.Results() {
		l, err := shapes(v)
		if err != nil {
			return nil, err
		}
		x.outs = append(x.outs, l...)
	}
	if n.Op().Info().Elementwise {
		return broadcasting(x), nil
	}
	make, ok := opRules[n.Op()]
	if !ok {
		return nil, fmt.Errorf("sharding: %s has no rule", n.Op())
	}
	return make(x), nil
}

func shapes(v *ir.Value) ([][]int64, error) {
	var out [][]int64
	for _, t := range v.Type().Tensors() {
		s := []int64{}
		for i, d := range t.Shape() {
			c, ok := d.Const()
			if !ok {
				return nil, fmt.Errorf("sharding: dimension %d of %s is %s, and no number", i, v, d)
			}
			s = append(s, c)
		}
		out = append(out, s)
	}
	return out, nil
}

// opRules are the rules of operations that are not elementwise.
var opRules = map[ir.Op]func(x *node) *Rule{
	ir.OpInput: alone(PassThrough), ir.OpReturn: alone(PassThrough), ir.OpFull: alone(PassThrough), ir.OpConstant: alone(PassThrough), ir.OpIota: alone(PassThrough), ir.OpRand: alone(PassThrough),
	ir.OpCall: alone(NeedReplication), ir.OpWhile: alone(NeedReplication), ir.OpCase: alone(NeedReplication), ir.OpAsyncCall: alone(NeedReplication), ir.OpAsStrided: alone(NeedReplication), ir.OpReadSize: alone(NeedReplication),

	ir.OpSum: reduction, ir.OpMean: reduction, ir.OpAmax: reduction, ir.OpAmin: reduction, ir.OpProd: reduction,
	ir.OpArgmax: reduction, ir.OpCumsum: scan, ir.OpSoftmax: scan, ir.OpLogSoftmax: scan, ir.OpTopk: topk,

	ir.OpMatmul: matmul, ir.OpAddmm: matmul, ir.OpGroupedMatmul: groupedMatmul, ir.OpConvolution: windows, ir.OpReduceWindow: reduceWindow,
	ir.OpAttention: attention, ir.OpAttentionBackward: attention,

	ir.OpClone: pairs, ir.OpAlias: pairs, ir.OpWaitTensor: pairs, ir.OpAllReduce: pairs, ir.OpBroadcast: pairs, ir.OpCollectivePermute: pairs,
	ir.OpAllGather: pairs, ir.OpReduceScatter: pairs, ir.OpAllToAll: pairs, ir.OpShard: pairs,

	ir.OpCat: cat, ir.OpSplit: cat, ir.OpSlice: cut, ir.OpSliceScatter: sliceScatter, ir.OpSelect: selected,
	ir.OpView: reshaped, ir.OpSqueeze: reshaped, ir.OpUnsqueeze: reshaped, ir.OpPermute: permuted, ir.OpExpand: broadcasting,

	ir.OpIndex: index, ir.OpIndexPut: indexPut, ir.OpIndexAdd: indexAdd, ir.OpGather: gather, ir.OpScatter: gather, ir.OpEmbedding: embedding,
}

func (x *node) rule() *Rule { return NewRule(x.ins, x.outs) }

func (x *node) dim() int { return int(x.n.Attrs().Int("dim", 0)) }

// alone relates no dimension to another: what has no operands is made where it is wanted,
// and what nobody knows is wanted whole.
func alone(kind Kind) func(x *node) *Rule {
	return func(x *node) *Rule {
		r := x.rule()
		f := Factor{Kind: kind, Blocked: kind != PassThrough}
		for t, s := range x.ins {
			for d, n := range s {
				f.Size = n
				r.Add(f, at(t, d), nil)
			}
		}
		for t, s := range x.outs {
			for d, n := range s {
				f.Size = n
				r.Add(f, nil, at(t, d))
			}
		}
		return r
	}
}

// at is dimension d of tensor t alone.
func at(t, d int) []int { return append(slices.Repeat([]int{None}, t), d) }

// broadcasting relates dimensions from the last one; those of 1 are repeated.
func broadcasting(x *node) *Rule {
	r := x.rule()
	for d, n := range x.outs[0] {
		dims := make([]int, len(x.ins))
		for i, s := range x.ins {
			k := d - (len(x.outs[0]) - len(s))
			if dims[i] = None; k >= 0 && s[k] == n {
				dims[i] = k
			}
		}
		r.Add(Factor{Size: n}, dims, []int{d})
	}
	return r.Done()
}

// reduction takes partial results, but for the index of one, which wants all.
func reduction(x *node) *Rule {
	dims := x.n.Attrs().Ints("dims")
	if x.n.Op() == ir.OpArgmax {
		dims = []int64{int64(x.dim())}
	} else if !x.n.Attrs().Has("dims") {
		for d := range x.ins[0] {
			dims = append(dims, int64(d))
		}
	}
	r := Reduce(x.ins, x.outs, 1, dims)
	for f := range r.Factors {
		if r.Factors[f].Kind == Reduction && x.n.Op() == ir.OpArgmax {
			r.Factors[f].Kind = NeedReplication
		}
	}
	return r
}

// scan wants its dimension whole.
func scan(x *node) *Rule {
	return x.rule().Each(x.ins[0], func(d int) Factor {
		if d == x.dim() {
			return Factor{Kind: NeedReplication}
		}
		return Factor{}
	})
}

// topk needs its dimension replicated; that of the results is another one, unless it is a sort.
func topk(x *node) *Rule {
	d := x.dim()
	n, k := x.ins[0][d], x.outs[0][d]
	if n == k {
		return scan(x)
	}
	r := x.rule()
	for e, size := range x.ins[0] {
		if e != d {
			r.Along(e, Factor{Size: size})
			continue
		}
		r.Add(Factor{Size: n, Kind: NeedReplication, Blocked: true}, at(0, d), nil)
		r.Add(Factor{Size: k, Kind: NeedReplication, Blocked: true}, nil, []int{d, d})
	}
	return r.Done()
}

// matmul is a matmul or batches of them, perhaps with an addend in front.
func matmul(x *node) *Rule {
	k := len(x.ins) - 2
	a, b, out := x.ins[k], x.ins[k+1], x.outs[0]
	i, j := len(a)-2, len(a)-1
	r := x.rule()
	add := func(f Factor, l, m, o int) {
		dims := []int{l, m}
		if k == 1 {
			c, d := x.ins[0], None
			if e := o - (len(out) - len(c)); o != None && e >= 0 && c[e] == f.Size {
				d = e
			}
			dims = append([]int{d}, dims...)
		}
		r.Add(f, dims, []int{o})
	}
	for d := range i {
		add(Factor{Size: a[d]}, d, d, d)
	}
	add(Factor{Size: a[i]}, i, None, i)
	add(Factor{Size: b[j]}, None, j, j)
	add(Factor{Size: a[j], Kind: Reduction}, j, i, None)
	return r.Done()
}

// groupedMatmul: where groups end is a number of the whole, so what is grouped is wanted whole.
func groupedMatmul(x *node) *Rule {
	a, b, out := x.ins[0], x.ins[1], x.outs[0]
	r := x.rule()
	dims := func(kindM, kindK, kindN Kind) *Rule {
		m, k, n, o := len(a)-2, len(b)-2, len(b)-1, len(out)-2
		r.Add(Factor{Size: a[m], Kind: kindM}, []int{m}, []int{o})
		r.Add(Factor{Size: a[m+1], Kind: kindK}, []int{m + 1, k}, nil)
		r.Add(Factor{Size: b[n], Kind: kindN}, []int{None, n}, []int{o + 1})
		return r.Done()
	}
	switch {
	case len(a) == 2 && len(b) == 3:
		r.Add(Factor{Size: b[0], Kind: NeedReplication}, []int{None, 0, 0}, nil)
		return dims(NeedReplication, Reduction, PassThrough)
	case len(a) == 3:
		r.Add(Factor{Size: a[0], Kind: NeedReplication}, []int{0, None, 0}, nil)
		return dims(PassThrough, Reduction, NeedReplication)
	}
	r.Add(Factor{Size: out[0], Kind: NeedReplication}, []int{None, None, 0}, []int{0})
	return dims(PassThrough, NeedReplication, PassThrough)
}

func windows(x *node) *Rule {
	var l []int64
	for d := range x.outs[0] {
		l = append(l, int64(d))
	}
	a := x.n.Attrs()
	return Convolution(x.ins[0], x.ins[1], x.outs[0], [3][]int64{l, l, l}, [2]int64{a.Int("batch_groups", 1), a.Int("groups", 1)}, true)
}

// reduceWindow is sharded along its windows.
func reduceWindow(x *node) *Rule {
	size := x.n.Attrs().Ints("window")
	return x.rule().Each(x.outs[0], func(d int) Factor {
		if x.ins[0][d] != x.outs[0][d] || d < len(size) && size[d] != 1 {
			return Factor{Kind: Permutation}
		}
		return Factor{}
	})
}

// attention is sharded by batch and by heads; each group of heads has one of keys.
func attention(x *node) *Rule {
	r := x.rule()
	q, k := x.ins[0], x.ins[1]
	if x.n.Op() == ir.OpAttentionBackward {
		q, k = x.ins[1], x.ins[2]
	}
	every := func(ts [][]int64, d int, n int64) []int {
		out := make([]int, len(ts))
		for i, s := range ts {
			if out[i] = None; len(s) == 4 && s[d] == n {
				out[i] = d
			}
		}
		return out
	}
	r.Add(Factor{Size: q[0]}, every(x.ins, 0, q[0]), every(x.outs, 0, q[0]))
	heads, groups := q[1], k[1]
	if heads == groups {
		r.Add(Factor{Size: heads}, every(x.ins, 1, heads), every(x.outs, 1, heads))
	} else {
		both := func(ts [][]int64) []int {
			a, b := every(ts, 1, heads), every(ts, 1, groups)
			for i := range a {
				a[i] = max(a[i], b[i])
			}
			return a
		}
		r.Add(Factor{Size: groups}, both(x.ins), both(x.outs))
		within := Factor{Size: heads / groups}
		if x.n.Op() == ir.OpAttentionBackward { // gradients of keys and values are sums over it
			within.Kind = Reduction
		}
		r.Add(within, every(x.ins, 1, heads), every(x.outs, 1, heads))
	}
	rest := func(ts [][]int64, add func(f Factor, t, d int)) { // queries, keys and features are wanted whole
		for t, s := range ts {
			for d := 2; d < len(s); d++ {
				add(Factor{Size: s[d], Kind: NeedReplication}, t, d)
			}
		}
	}
	rest(x.ins, func(f Factor, t, d int) { r.Add(f, at(t, d), nil) })
	rest(x.outs, func(f Factor, t, d int) { r.Add(f, nil, at(t, d)) })
	return r.Done()
}

// pairs relates tensor i to result i; what a collective changes is wanted whole on each side.
func pairs(x *node) *Rule {
	r := x.rule()
	for t, s := range x.ins {
		for d, n := range s {
			if out := x.outs[t][d]; out != n || x.n.Op() == ir.OpAllToAll && d == 0 {
				r.Add(Factor{Size: n, Kind: NeedReplication}, at(t, d), nil)
				r.Add(Factor{Size: out, Kind: NeedReplication}, nil, at(t, d))
			} else {
				r.Add(Factor{Size: n}, at(t, d), at(t, d))
			}
		}
	}
	return r.Done()
}

// cat joins or cuts along a dimension that is wanted whole.
func cat(x *node) *Rule {
	whole := x.ins[0]
	if x.n.Op() == ir.OpCat {
		whole = x.outs[0]
	}
	return x.rule().Each(whole, func(d int) Factor {
		if d == x.dim() {
			return Factor{Kind: NeedReplication}
		}
		return Factor{}
	})
}

func cut(x *node) *Rule {
	return x.rule().Differing(x.ins[0], x.outs[0], Factor{Kind: Permutation})
}

func sliceScatter(x *node) *Rule {
	r := x.rule()
	for d, n := range x.ins[0] {
		if d != x.dim() {
			r.Along(d, Factor{Size: n})
			continue
		}
		r.Add(Factor{Size: n}, []int{d}, []int{d})
		r.Add(Factor{Size: x.ins[1][d], Kind: NeedReplication}, at(1, d), nil)
	}
	return r
}

// selected is found on one device: the others give nothing to a sum.
func selected(x *node) *Rule { return Reduce(x.ins, x.outs, 1, []int64{int64(x.dim())}) }

func reshaped(x *node) *Rule {
	if r := Reshape(x.ins[0], x.outs[0]); r != nil {
		return r
	}
	return alone(NeedReplication)(x)
}

func permuted(x *node) *Rule { return Transpose(x.ins[0], x.outs[0], x.n.Attrs().Ints("dims")) }

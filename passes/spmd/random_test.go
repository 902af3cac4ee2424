package spmd

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/equiv/mesh"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/sharding"
)

var (
	programs = flag.Int("programs", 150, "random programs of TestRandom")
	seed     = flag.Uint64("seed", 1, "the first seed of TestRandom")
	unproved = flag.Bool("unproved", false, "list the programs of TestRandom that are not proved")
)

// meshes are what random programs lie on.
var meshes = []sharding.Mesh{
	{Axes: []sharding.Axis{{Name: "x", Size: 2}, {Name: "y", Size: 2}}},
	{Axes: []sharding.Axis{{Name: "x", Size: 4}}},
	{Axes: []sharding.Axis{{Name: "x", Size: 2}, {Name: "y", Size: 3}}},
	{Axes: []sharding.Axis{{Name: "x", Size: 2}, {Name: "y", Size: 2}}, Devices: []int64{2, 0, 3, 1}},
	{Axes: []sharding.Axis{{Name: "x", Size: 2}, {Name: "y", Size: 2}, {Name: "z", Size: 2}}},
	{Axes: []sharding.Axis{{Name: "x", Size: 1}, {Name: "y", Size: 4}}},
	{Axes: []sharding.Axis{{Name: "x", Size: 2}, {Name: "y", Size: 4}}},
}

// random makes a program.
type random struct {
	*rand.Rand
	mesh   *sharding.Mesh
	b      *ir.Builder
	fb     *ir.FuncBuilder
	groups map[string]*ir.Group // by ranks
	vals   []*ir.Value
	exact  map[*ir.Value]bool // rounded alike however it is cut
}

func (r *random) size() int64 { return int64(1 + r.IntN(7)) }

// refs are parts of axes, each once.
func (r *random) refs() []sharding.Ref {
	var out []sharding.Ref
	for _, a := range r.mesh.Axes {
		whole, _ := r.mesh.Whole(a.Name)
		if a.Size == 4 && r.IntN(2) == 0 {
			hi, _ := r.mesh.Part(a.Name, 1, 2)
			lo, _ := r.mesh.Part(a.Name, 2, 2)
			out = append(out, hi, lo)
		} else {
			out = append(out, whole)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// annotate says how a value lies, perhaps.
func (r *random) annotate(v *ir.Value) {
	n := v.Def()
	if n == nil || r.IntN(3) > 0 || len(n.Results()) != 1 || v.Type().IsAsync() || n.Op() == ir.OpWaitTensor {
		return
	}
	s := sharding.Open(r.mesh, v.Type().Rank())
	for _, a := range r.refs() {
		if v.Type().Rank() > 0 && r.IntN(2) == 0 {
			d := &s.Dims[r.IntN(v.Type().Rank())]
			d.Axes = append(d.Axes, a)
		}
	}
	for d := range s.Dims {
		s.Dims[d].Open = r.IntN(2) == 0
		if r.IntN(6) == 0 && (s.Dims[d].Open || len(s.Dims[d].Axes) > 0) {
			s.Dims[d].Priority = r.IntN(3)
		}
	}
	if r.IntN(6) == 0 {
		for _, a := range r.refs() {
			if s.Check(-1) == nil {
				was := s.Replicated
				if s.Replicated = append(slices.Clone(was), a); s.Check(-1) != nil {
					s.Replicated = was
				}
			}
		}
	}
	n.Func().SetMeta(n, sharding.Annotate(n.Meta(), s))
}

// pick is a value that a test accepts.
func (r *random) pick(ok func(shape []int64, dt ir.DType) bool) *ir.Value {
	for range 20 {
		v := r.vals[r.IntN(len(r.vals))]
		if s := shapeOf(v); ok(s, v.Type().DType()) {
			return v
		}
	}
	return nil
}

func float(min int) func([]int64, ir.DType) bool {
	return func(s []int64, dt ir.DType) bool { return len(s) >= min && dt == ir.F32 }
}

// indices are whole numbers below n, of a shape.
func (r *random) indices(n int64, shape ...int64) *ir.Value {
	count := int64(1)
	for _, k := range shape {
		count *= k
	}
	v := r.fb.View(r.fb.Iota(ir.Tensor(ir.I64, count), r.Int64N(3), 1+r.Int64N(2)), ir.Tensor(ir.I64, shape...).Shape())
	r.annotate(v)
	v = r.fb.Scalar(ir.OpFmod, v, float64(n))
	r.annotate(v)
	v = r.fb.Scalar(ir.OpSub, v, float64(n-1)) // what is behind a piece's end is no place
	r.annotate(v)
	v = r.fb.Unary(ir.OpAbs, v)
	r.annotate(v)
	return v
}

// iotaAlong are indices of a shape that differ along a dimension.
func (r *random) iotaAlong(s []int64, d int64) *ir.Value {
	t := slices.Repeat([]int64{1}, len(s))
	t[d] = s[d]
	v := r.fb.View(r.fb.Iota(ir.Tensor(ir.I64, s[d]), 0, 1), ir.Tensor(ir.I64, t...).Shape())
	v = r.fb.Expand(v, ir.Tensor(ir.I64, s...).Shape())
	r.annotate(v)
	return v
}

// step appends an operation.
func (r *random) step() {
	x := r.pick(float(1))
	if x == nil {
		return
	}
	s := shapeOf(x)
	d := int64(r.IntN(len(s)))
	k := r.IntN(45)
	if k > 41 {
		k = 42
	}
	out := slices.Concat(r.computed(k, x, s, d), r.moved(k, x, s, d), r.indexed(k, x, s, d), r.slid(k, x, s, d), r.ordered(k, x, s, d), r.typed(k, x, s, d))
	if k == 42 {
		out = r.manual(x, d, nil, 0)
	}
	for _, v := range out {
		n := 1
		for _, k := range shapeOf(v) {
			n *= int(k)
		}
		if n <= 4096 && v.Type().Rank() < 5 {
			r.vals = append(r.vals, v)
		}
		r.exact[v] = r.exact[x] && v.Def() != nil && (v.Def().Op().IsView() || v.Def().Op() == ir.OpIndex)
		r.annotate(v)
	}
}

// computed is arithmetic.
func (r *random) computed(k int, x *ir.Value, s []int64, d int64) (out []*ir.Value) {
	fb := r.fb
	add := func(vs ...*ir.Value) { out = append(out, vs...) }
	switch k {
	case 0:
		add(fb.Unary([]ir.Op{ir.OpNeg, ir.OpRelu, ir.OpTanh, ir.OpAbs}[r.IntN(4)], x))
	case 1:
		y := r.pick(func(t []int64, dt ir.DType) bool { return slices.Equal(s, t) && dt == ir.F32 })
		if y == nil {
			y = x
		}
		add(fb.Binary([]ir.Op{ir.OpAdd, ir.OpSub, ir.OpMul, ir.OpMaximum}[r.IntN(4)], x, y))
	case 2:
		add(fb.Scalar([]ir.Op{ir.OpMul, ir.OpDiv, ir.OpAdd}[r.IntN(3)], x, 0.5))
	case 3, 4:
		op := []ir.Op{ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd}[r.IntN(5)]
		add(fb.Reduce(op, x, r.IntN(2) == 0, d))
	case 5, 6, 7:
		if len(s) == 2 {
			y := r.pick(func(t []int64, dt ir.DType) bool { return len(t) == 2 && t[0] == s[1] && dt == ir.F32 })
			if y == nil {
				y = fb.Permute(x, 1, 0)
			}
			add(fb.MatMul(x, y))
		} else if len(s) == 3 {
			add(fb.MatMul(x, fb.Permute(x, 0, 2, 1)))
		}
	case 19:
		add(fb.Cumsum(x, d))
	case 20:
		if r.IntN(2) == 0 {
			add(fb.Softmax(x, d))
		} else {
			add(fb.LogSoftmax(x, d))
		}
	case 21:
		if r.exact[x] {
			add(r.best(x, s, d)...)
		}
	case 29:
		if len(s) == 3 {
			w := fb.Full(ir.Tensor(ir.F32, 2, s[1], 1), 0.5)
			add(fb.Op(ir.OpConvolution, nil, nil, []*ir.Value{x, w})...)
		}
	}
	return out
}

// best are the best elements along a dimension, and where they stand.
func (r *random) best(x *ir.Value, s []int64, d int64) []*ir.Value {
	if r.IntN(3) == 0 {
		return []*ir.Value{r.fb.Argmax(x, d, r.IntN(2) == 0)}
	}
	return r.fb.Op(ir.OpTopk, nil, ir.A("k", 1+r.Int64N(s[d]), "dim", d, "largest", r.IntN(2) == 0), []*ir.Value{x})
}

// moved are views and what moves.
func (r *random) moved(k int, x *ir.Value, s []int64, d int64) (out []*ir.Value) {
	fb := r.fb
	add := func(vs ...*ir.Value) { out = append(out, vs...) }
	switch k {
	case 8, 9:
		dims := r.Perm(len(s))
		l := make([]int64, len(s))
		for i, k := range dims {
			l[i] = int64(k)
		}
		add(fb.Permute(x, l...))
	case 10, 11, 12:
		add(r.reshaped(x, s))
	case 13:
		if lo := r.Int64N(s[d]); lo < s[d] {
			add(fb.Slice(x, d, lo, lo+1+r.Int64N(s[d]-lo)))
		}
	case 14:
		y := r.pick(func(t []int64, dt ir.DType) bool {
			return len(t) == len(s) && dt == ir.F32 && !slices.ContainsFunc(slices.Collect(func(yield func(int) bool) {
				for k := range t {
					if k != int(d) && t[k] != s[k] && !yield(k) {
						return
					}
				}
			}), func(int) bool { return true })
		})
		if y != nil && s[d] < 20 {
			add(fb.Cat(d, x, y))
		}
	case 15:
		if s[d] > 1 {
			add(fb.Split(x, d, 1, s[d]-1)...)
		}
	case 16:
		add(fb.Select(x, d, r.Int64N(s[d])))
	case 17:
		add(fb.Unsqueeze(x, d))
	case 18:
		if k := r.size(); s[0] == 1 {
			add(fb.Expand(x, ir.Tensor(ir.F32, append([]int64{k}, s[1:]...)...).Shape()))
		}
	}
	return out
}

// indexed reads and writes at places.
func (r *random) indexed(k int, x *ir.Value, s []int64, d int64) (out []*ir.Value) {
	fb := r.fb
	add := func(vs ...*ir.Value) { out = append(out, vs...) }
	switch k {
	case 22:
		add(fb.Index(x, []int64{d}, r.indices(s[d], r.size())))
	case 23:
		if len(s) > 1 {
			k := r.size()
			add(fb.Index(x, []int64{0, 1}, r.indices(s[0], k), r.indices(s[1], k)))
		}
	case 24:
		t := slices.Clone(s)
		t[d] = r.size()
		add(fb.Gather(x, r.indices(s[d], t...), d))
	case 25:
		k := r.size()
		t := slices.Clone(s)
		t[d] = k
		y := fb.Full(ir.Tensor(ir.F32, t...), 0.25)
		add(fb.IndexAdd(x, r.indices(s[d], k), y, d, 1))
	case 26:
		k := r.size()
		t := append([]int64{k}, s[1:]...)
		y := fb.Full(ir.Tensor(ir.F32, t...), 0.25)
		add(fb.IndexPut(x, y, []int64{0}, r.IntN(2) == 0, r.indices(s[0], k)))
	case 30:
		t := slices.Clone(s)
		switch r.IntN(4) {
		case 0: // of each row one element
			t[d] = 1
			add(fb.Scatter(x, r.indices(s[d], t...), fb.Full(ir.Tensor(ir.F32, t...), 0.25), d))
		case 1:
			t[d] = 1
			add(fb.Op(ir.OpScatter, nil, ir.A("dim", d, "value", 0.5), []*ir.Value{x, r.indices(s[d], t...)})...)
		case 2: // of some rows
			for k := range t {
				t[k] = 1 + r.Int64N(t[k])
			}
			add(fb.Op(ir.OpScatter, nil, ir.A("dim", d, "value", 0.5), []*ir.Value{x, r.indices(s[d], t...)})...)
		default:
			add(fb.Op(ir.OpScatter, nil, ir.A("dim", d, "value", 0.5), []*ir.Value{x, fb.Clone(r.iotaAlong(s, d))})...)
		}
	case 27:
		if len(s) == 2 {
			add(fb.Embedding(x, r.indices(s[0], r.size(), r.size())))
		}
	case 28:
		k := 1 + r.Int64N(s[d])
		at, from := r.Int64N(s[d]-k+1), r.Int64N(s[d]-k+1)
		y := fb.Scalar(ir.OpMul, fb.Slice(x, d, from, from+k), 2)
		r.annotate(y)
		add(fb.SliceScatter(x, y, d, at, at+k))
	}
	return out
}

// reshaped joins two dimensions, cuts one, or lays the elements out in any others.
func (r *random) reshaped(x *ir.Value, s []int64) *ir.Value {
	t := slices.Clone(s)
	if d := r.IntN(len(s)); r.IntN(4) == 0 {
		left := int64(1)
		for _, k := range s {
			left *= k
		}
		t = nil
		for _, k := range []int64{2, 3, 5, 7, 2, 3} {
			if left%k == 0 {
				left, t = left/k, append(t, k)
			}
		}
		t = append(t, left)
		for len(t) > 1+r.IntN(3) {
			t = append(t[:len(t)-2:len(t)-2], t[len(t)-2]*t[len(t)-1])
		}
		r.Shuffle(len(t), func(i, j int) { t[i], t[j] = t[j], t[i] })
	} else if d+1 < len(s) && r.IntN(2) == 0 {
		t = slices.Concat(s[:d], []int64{s[d] * s[d+1]}, s[d+2:])
	} else {
		for _, k := range []int64{2, 3, 5} {
			if s[d]%k == 0 {
				t = slices.Concat(s[:d], []int64{k, s[d] / k}, s[d+1:])
				break
			}
		}
	}
	return r.fb.View(r.fb.Clone(x), ir.Tensor(ir.F32, t...).Shape())
}

// program is a random program.
func program(seed uint64) (*ir.Module, error) {
	r := &random{Rand: rand.New(rand.NewPCG(seed, 1)), exact: map[*ir.Value]bool{}, groups: map[string]*ir.Group{}}
	r.mesh = &meshes[r.IntN(len(meshes))]
	world := 1
	for _, a := range r.mesh.Axes {
		world *= int(a.Size)
	}
	b := ir.NewBuilder(world)
	r.b, r.fb = b, b.Func("f")
	for i := range 3 {
		var s []int64
		for range 1 + r.IntN(3) {
			s = append(s, r.size())
		}
		v := r.fb.Input(fmt.Sprintf("x%d", i), ir.Tensor(ir.F32, s...))
		r.annotate(v)
		r.vals, r.exact[v] = append(r.vals, v), true
	}
	for range 2 + r.IntN(12) {
		r.step()
	}
	var outs []*ir.Value
	for i, v := range r.vals[3:] {
		if r.IntN(3) == 0 || i == len(r.vals)-4 {
			outs = append(outs, v)
		}
	}
	r.fb.Return(outs...)
	r.donate(outs)
	return b.Finish()
}

// donate gives results the places of inputs of their types, perhaps.
func (r *random) donate(outs []*ir.Value) {
	taken := map[int]bool{}
	for _, x := range r.vals[:3] {
		views := func(v *ir.Value) bool { return v.Def() == nil || v.Viewed() == x }
		k := slices.IndexFunc(outs, func(v *ir.Value) bool {
			return v.Type().Equal(x.Type()) && v.Def() != nil && v.Viewed().Def().Op() != ir.OpInput
		})
		if k >= 0 && !taken[k] && r.IntN(2) == 0 && !slices.ContainsFunc(outs, views) {
			r.fb.Donate(x, k)
			taken[k] = true
		}
	}
}

// Random programs with random shardings compute the pieces of what they compute whole, and most
// of them are proved to.
func TestRandom(t *testing.T) {
	proved, all := 0, 0
	for s := *seed; s < *seed+uint64(*programs); s++ {
		m, err := program(s)
		if err != nil {
			t.Fatalf("seed %d: %v", s, err)
		}
		global, whole := m.String(), m.Clone()
		if !sharding.Annotated(m.Funcs()[0]) {
			continue
		}
		if text, err := agree(m, s, s%2 == 1, 1e-4); err != nil {
			t.Errorf("seed %d: %v\n%s\n%s", s, err, global, text)
			continue
		}
		device, ranks := whole.Funcs()[0], m.Funcs()[0]
		o, err := mesh.Annotated(device, ranks)
		if err == nil {
			_, err = mesh.Check(device, ranks, o)
		}
		if all++; err == nil {
			proved++
		} else if *unproved {
			t.Logf("seed %d: %v\n%s\n%s", s, err, global, m)
		}
	}
	t.Logf("%d of %d programs are proved", proved, all)
	if all > 100 && proved*5 < all*3 {
		t.Errorf("want at least three of five")
	}
}

package sdy

import (
	"slices"

	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// still reports for each dimension whether its windows are single elements that do not move.
func (s *subject) still(rank int) (func(d int) bool, error) {
	var lists [3][]int64
	for i, name := range []string{"padding", "window_dimensions", "window_strides"} {
		l, err := s.ints(name)
		if err != nil {
			return nil, err
		}
		if i == 0 && l != nil && len(l) != 2*rank || i > 0 && l != nil && len(l) != rank {
			return nil, s.errorf("%s of %d numbers for %d dimensions", name, len(l), rank)
		}
		lists[i] = l
	}
	pad, sizes, strides := lists[0], lists[1], lists[2]
	return func(d int) bool {
		return (pad == nil || pad[2*d] == 0 && pad[2*d+1] == 0) && (strides == nil || strides[d] == 1) && (sizes == nil || sizes[d] == 1)
	}, nil
}

// reduceWindow is sharded along its windows.
func reduceWindow(s *subject) (*sharding.Rule, error) {
	still, err := s.still(len(s.outs[0]))
	if err != nil {
		return nil, err
	}
	return s.new().Each(s.outs[0], func(d int) sharding.Factor {
		if still(d) {
			return sharding.Factor{}
		}
		return s.moved()
	}).Done(), nil
}

func selectAndScatter(s *subject) (*sharding.Rule, error) {
	still, err := s.still(len(s.outs[0]))
	if err != nil {
		return nil, err
	}
	r := s.new()
	for d, n := range s.outs[0] {
		if still(d) {
			r.Along(d, sharding.Factor{Size: n})
			continue
		}
		r.Add(sharding.Factor{Size: s.ins[1][d], Kind: sharding.NeedReplication, Blocked: s.conserve}, []int{sharding.None, d}, nil)
		f := s.moved()
		f.Size = n
		r.Add(f, []int{d}, []int{d})
	}
	return r.Done(), nil
}

func convolution(s *subject) (*sharding.Rule, error) {
	l, err := stablehlo.Layouts(s.m, s.op, len(s.outs[0]))
	if err != nil {
		return nil, err
	}
	var groups [2]int64
	for i, name := range []string{"batch_group_count", "feature_group_count"} {
		n, err := s.ints(name)
		if err != nil {
			return nil, err
		}
		if groups[i] = 1; len(n) == 1 {
			groups[i] = max(1, n[0])
		}
	}
	return sharding.Convolution(s.ins[0], s.ins[1], s.outs[0], l, groups, !s.conserve), nil
}

// triangularSolve relates what is solved for to the right side; all of the matrix is wanted.
func triangularSolve(s *subject) (*sharding.Rule, error) {
	a, b := s.ins[0], s.ins[1]
	rank := len(a)
	if rank < 2 || len(b) != rank {
		return nil, s.errorf("operands of %d and %d dimensions", rank, len(b))
	}
	flag := func(name string) bool {
		v, ok := s.op.Attr(name)
		if !ok {
			return false
		}
		n, err := s.m.Ints(v)
		return err == nil && len(n) == 1 && n[0] != 0
	}
	transposed := false
	if v, ok := s.op.Attr("transpose_a"); ok {
		text, _ := s.m.Inside(v)
		transposed = slices.ContainsFunc([]string{text, v.Text}, func(t string) bool {
			return t == "transpose TRANSPOSE" || t == "transpose ADJOINT" || t == "TRANSPOSE" || t == "ADJOINT"
		})
	}
	r := s.new().Each(a[:rank-2], nil)
	add := func(da, db, dout int, n int64) {
		results := []int{dout}
		r.Add(sharding.Factor{Size: n, Kind: sharding.NeedReplication}, []int{da, db}, results)
	}
	i, j := rank-2, rank-1
	free, contracting := i, j // of the matrix
	if left := flag("left_side"); left == transposed {
		free, contracting = j, i
	}
	if flag("left_side") {
		add(free, i, sharding.None, a[free])
		add(sharding.None, j, j, b[j])
		add(contracting, sharding.None, i, a[contracting])
	} else {
		add(sharding.None, i, i, b[i])
		add(free, j, sharding.None, a[free])
		add(contracting, sharding.None, j, a[contracting])
	}
	return r.Done(), nil
}

// indexed are the dimensions of a gather or scatter: of the input that is read or written,
// of the indices, and of the slices.
type indexed struct {
	input, indices, slices []int64 // shapes
	vector                 int64   // the dimension of the indices that holds an index
	offset                 []int64 // dimensions of the slices that are of the input
	collapsed              []int64 // dimensions of the input that the slices lack
	inputBatch             []int64
	indicesBatch           []int64
	scatter, combines      bool
	add                    func(f sharding.Factor, input, indices, slice int)
}

// dims reads the dimension numbers, under the names of the operation.
func (s *subject) dims(x *indexed, attr string, names ...string) error {
	a, ok := s.op.Attr(attr, "dimension_numbers")
	if !ok {
		return s.errorf("%s without %s", s.op.Name, attr)
	}
	fields, err := s.m.Fields(a)
	if err != nil {
		return err
	}
	var vector []int64
	for i, to := range []*[]int64{&x.offset, &x.collapsed, &x.inputBatch, &x.indicesBatch, &vector} {
		if v, ok := fields.Get(names[i]); ok {
			if *to, err = s.m.Ints(v); err != nil {
				return err
			}
		}
	}
	if len(vector) == 1 {
		x.vector = vector[0]
	}
	for i, shape := range [][]int64{x.slices, x.input, x.input, x.indices} {
		for _, d := range [][]int64{x.offset, x.collapsed, x.inputBatch, x.indicesBatch}[i] {
			if d < 0 || d >= int64(len(shape)) {
				return s.errorf("%s: dimension %d of %d", names[i], d, len(shape))
			}
		}
	}
	if len(x.inputBatch) != len(x.indicesBatch) || len(x.offset)+len(x.collapsed)+len(x.inputBatch) != len(x.input) {
		return s.errorf("dimension numbers for an input of %d dimensions", len(x.input))
	}
	return nil
}

// relate adds the factors.
func (x *indexed) relate() {
	const none = sharding.None
	in, batch := 0, 0
	for d, n := range x.slices {
		if !slices.Contains(x.offset, int64(d)) {
			at := batch
			if int64(at) >= x.vector {
				at++
			}
			batch++
			f := sharding.Factor{Size: n}
			base := none
			if k := slices.Index(x.indicesBatch, int64(at)); k >= 0 {
				base = int(x.inputBatch[k])
			} else if x.scatter { // pieces of updates make partial results, if they combine
				if f.Kind = sharding.NeedReplication; x.combines {
					f.Kind = sharding.Reduction
				}
			}
			x.add(f, base, at, d)
			continue
		}
		for slices.Contains(x.collapsed, int64(in)) || slices.Contains(x.inputBatch, int64(in)) {
			in++
		}
		size := x.input[in]
		switch {
		case size == n:
			x.add(sharding.Factor{Size: n}, in, none, d)
		case x.scatter || n == 1:
			f := sharding.Factor{Size: size, Kind: sharding.NeedReplication}
			if !x.scatter { // each device finds what is its own: the result is a sum
				f.Kind = sharding.Reduction
			}
			x.add(f, in, none, none)
			x.add(sharding.Factor{Size: n, Kind: sharding.NeedReplication}, none, none, d)
		default:
			x.add(sharding.Factor{Size: size, Kind: sharding.NeedReplication, Blocked: true}, in, none, d)
		}
		in++
	}
	for _, d := range x.collapsed {
		f := sharding.Factor{Size: x.input[d]}
		if !x.scatter {
			if f.Kind = sharding.Reduction; f.Size == 1 {
				f.Kind = sharding.NeedReplication
			}
		}
		x.add(f, int(d), none, none)
	}
	if x.vector < int64(len(x.indices)) {
		x.add(sharding.Factor{Size: x.indices[x.vector], Kind: sharding.NeedReplication}, none, int(x.vector), none)
	}
}

func gather(s *subject) (*sharding.Rule, error) {
	x := &indexed{input: s.ins[0], indices: s.ins[1], slices: s.outs[0]}
	if err := s.dims(x, "dimension_numbers", "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "index_vector_dim"); err != nil {
		return nil, err
	}
	r := s.new()
	x.add = func(f sharding.Factor, input, indices, slice int) { r.Add(f, []int{input, indices}, []int{slice}) }
	x.relate()
	return r.Done(), nil
}

func scatter(s *subject) (*sharding.Rule, error) {
	n := len(s.outs)
	if len(s.ins) != 2*n+1 {
		return nil, s.errorf("%d operands for %d results", len(s.ins), n)
	}
	x := &indexed{input: s.ins[0], indices: s.ins[n], slices: s.ins[n+1], scatter: true, combines: combines(s.op)}
	if err := s.dims(x, "scatter_dimension_numbers", "update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims", "index_vector_dim"); err != nil {
		return nil, err
	}
	r := s.new()
	x.add = func(f sharding.Factor, input, indices, slice int) {
		dims := slices.Concat(slices.Repeat([]int{input}, n), []int{indices}, slices.Repeat([]int{slice}, n))
		r.Add(f, dims, slices.Repeat([]int{input}, n))
	}
	x.relate()
	return r.Done(), nil
}

// combines reports whether all that a scatter's body does is one reduction that a collective
// can do, too.
func combines(o *mlir.Operation) bool {
	if len(o.Regions) != 1 {
		return false
	}
	known := []string{"stablehlo.add", "stablehlo.multiply", "stablehlo.maximum", "stablehlo.minimum", "stablehlo.and", "stablehlo.or"}
	ops := o.Regions[0].Ops
	for _, b := range ops[:max(0, len(ops)-1)] {
		if !slices.Contains(known, b.Name) || b.Name != ops[0].Name {
			return false
		}
	}
	return len(ops) > 1
}

package aten

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// viewOps give a tensor another shape over the same storage.
var viewOps = []row{
	{"aten.view.default aten.reshape.default aten._unsafe_view.default aten._reshape_alias.default", "self size stride", reshape},
	{"aten.permute.default", "self dims", permute},
	{"aten.transpose.int", "self dim0 dim1", transpose},
	{"aten.t.default", "self", transpose},
	{"aten.expand.default", "self size * implicit", expand},
	{"aten.slice.Tensor", "self dim start end step", slice},
	{"aten.select.int", "self dim index", selectOne},
	{"aten.squeeze.dim aten.squeeze.dims", "self dim", squeeze},
	{"aten.squeeze.default", "self", squeeze},
	{"aten.unsqueeze.default", "self dim", unsqueeze},
	{"aten.split.Tensor aten.unsafe_split.Tensor", "self split_size dim", split},
	{"aten.split_with_sizes.default aten.unsafe_split_with_sizes.default", "self split_sizes dim", split},
	{"aten.alias.default aten.detach.default aten.lift_fresh.default", "self", unary(ir.OpAlias)},
	{"aten.as_strided.default", "self size stride storage_offset", asStrided},
}

// checkSize compares the argument size, in which -1 stands for anything, with out.
func (c *call) checkSize() {
	want := c.Sizes("size")
	if c.Err != nil || c.NumResults != 1 {
		return
	}
	have := c.Shape(0)
	if !slices.EqualFunc(want, have, func(a, b ir.Dim) bool { return a.Equal(b) || a.Equal(ir.D(-1)) }) {
		c.Err = c.Fail("out", "type", "result 0 has shape %s, the arguments give %s", have, want)
	}
}

// reshape imports a view; a reshape that the trace counts as a copy is one.
func reshape(c *call) error {
	x := c.Tensor("self")
	c.checkSize()
	if c.Err != nil {
		return c.Err
	}
	if c.Class == ir.ClassMemory && !x.Type().Contiguous() {
		t, err := c.Types()
		if err != nil {
			return err
		}
		if len(t) == 1 && !t[0].Contiguous() {
			return traced.ErrForm
		}
		x = c.Helper(ir.OpClone, nil, ir.TensorOf(x.Type().DType(), x.Type().Shape()), x)
	}
	return c.EmitErr(ir.OpView, nil, x)
}

func permute(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	return c.EmitErr(ir.OpPermute, attr.List(nil).With("dims", attr.Ints(c.Dims("dims", x.Type().Rank())...)), x)
}

// transpose exchanges two dimensions; aten.t those of a matrix.
func transpose(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	rank := x.Type().Rank()
	dims := make([]int64, rank)
	for k := range dims {
		dims[k] = int64(k)
	}
	a, b := int64(0), int64(1)
	if slices.Contains(c.Params, "dim0") {
		a, b = c.Dim("dim0", 0, rank), c.Dim("dim1", 0, rank)
	} else if rank > 2 {
		c.Reject("self", c.Arg("self"), "t takes at most 2 dimensions, got %d", rank)
	}
	if c.Err == nil && rank > 1 {
		dims[a], dims[b] = dims[b], dims[a]
	}
	return c.EmitErr(ir.OpPermute, attr.List(nil).With("dims", attr.Ints(dims...)), x)
}

func expand(c *call) error {
	x := c.Tensor("self")
	c.checkSize()
	return c.EmitErr(ir.OpExpand, nil, x)
}

func slice(c *call) error {
	x := c.Tensor("self")
	if c.Err == nil && x.Type().Rank() > 0 && c.NumResults == 1 {
		d := c.Dim("dim", 0, x.Type().Rank())
		length := c.Shape(0)
		if int(d) >= len(length) {
			return traced.ErrForm
		}
		if start, step, ok := c.sizedRange(x, d, length[d], true); ok {
			return c.pieces(c.SizedPiece(x, d, start, length[d], step))
		}
	}
	return c.EmitErr(ir.OpSlice, c.sliceAttrs(x), x)
}

// sizedRange is where a slice of that length begins, if that is known at run time only, and the distance of its elements;
// false if the arguments are numbers of which attributes can be made, and for a view also where that begins.
func (c *call) sizedRange(x *ir.Value, d int64, length ir.Dim, view bool) (start ir.Dim, step int64, _ bool) {
	n := x.Type().Shape()[d]
	bounds, open := [2]ir.Dim{ir.D(0), n}, false
	for k, param := range []string{"start", "end"} {
		given := c.Sizes(param)
		if len(given) != 1 {
			continue
		}
		size, sized := n.Const()
		v, number := given[0].Const()
		switch {
		case !number && c.Never(given[0]):
			bounds[k], open = n.Add(given[0]), true
		case !number:
			bounds[k], open = given[0], true
		case sized:
			bounds[k] = ir.D(clampTo(v, size))
		case v < 0:
			bounds[k], open = n.Add(given[0]), true
		case v < traced.MaxElems:
			bounds[k] = given[0]
		}
	}
	step = c.Int("step", 1)
	if first, ok := bounds[0].Const(); view && ok && !traced.Placed(x, int(d), first) {
		open = true
	}
	if c.Err != nil || !open || step < 1 {
		return start, step, false
	}
	c.same(bounds[1].Sub(bounds[0]).Add(ir.D(step-1)).Div(step), length) // the trace says how long it is
	c.Trace.Require(n.Sub(bounds[1]))
	return bounds[0], step, true
}

// same makes the program one for two equal sizes.
func (c *call) same(a, b ir.Dim) {
	c.Trace.Require(a.Sub(b))
	c.Trace.Require(b.Sub(a))
}

// pieces ends an operator whose results PyTorch has in the operand's memory: nothing reads
// that behind an operator that overwrites one of them.
func (c *call) pieces(vals ...*ir.Value) error {
	c.Pieces = true
	err := c.Settle(vals...)
	c.View = err == nil
	return err
}

func selectOne(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	d, i := c.Dim("dim", 0, x.Type().Rank()), c.Need("index")
	if c.Err == nil && x.Type().Rank() > 0 {
		at := ir.D(i)
		if i < 0 {
			at = at.Add(x.Type().Shape()[d])
		}
		n, ok := at.Const()
		if i = n; !ok || !traced.Placed(x, int(d), i) {
			return c.pieces(c.one(x, d, at))
		}
	}
	return c.EmitErr(ir.OpSelect, traced.DimAttr(d).With("index", attr.Int(i)), x)
}

// one is a copy of one element along d.
func (c *call) one(x *ir.Value, d int64, at ir.Dim) *ir.Value {
	return c.Make(ir.OpSqueeze, attr.List(nil).With("dims", attr.Ints(d)), c.SizedPiece(x, d, at, ir.D(1), 1))
}

func squeeze(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	rank := x.Type().Rank()
	var dims []int64
	if slices.Contains(c.Params, "dim") {
		dims = c.Dims("dim", rank)
	} else {
		for k := range rank {
			dims = append(dims, int64(k))
		}
	}
	if rank == 0 {
		return c.EmitErr(ir.OpAlias, nil, x)
	}
	return c.EmitErr(ir.OpSqueeze, attr.List(nil).With("dims", attr.Ints(dims...)), x)
}

func unsqueeze(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	c.Need("dim")
	return c.EmitErr(ir.OpUnsqueeze, traced.DimAttr(c.Dim("dim", 0, x.Type().Rank()+1)), x)
}

// split imports both forms: one size for all pieces, or a list of sizes.
func split(c *call) error {
	x := c.Tensor("self")
	if c.Err != nil {
		return c.Err
	}
	if x.Type().Rank() == 0 {
		c.Reject("self", c.Arg("self"), "a scalar has no dimension to split")
		return c.Err
	}
	d := c.Dim("dim", 0, x.Type().Rank())
	pieces := int64(c.NumResults)
	var sizes []int64
	if slices.Contains(c.Params, "split_sizes") {
		open := c.Sizes("split_sizes")
		if _, numbers := open.Static(); c.Err == nil && !numbers {
			return c.splitOpen(x, d, open)
		}
		sizes = c.Ints("split_sizes")
	} else if open := c.Sizes("split_size"); c.Err == nil && (!known(open) || !known(x.Type().Shape()[d:d+1])) {
		return c.splitEvenly(x, d, open)
	} else if n, each := traced.SizeAt(x, d), c.Need("split_size"); c.Err == nil {
		count := int64(1)
		if n > 0 && each > 0 {
			count = (n-1)/each + 1
		}
		switch {
		case each < 1 && n > 0:
			c.Reject("split_size", c.Arg("split_size"), "size %d is not positive", each)
		case count != pieces: // before a list of that length is made
			return c.Fail("out", "results", "out lists %d pieces, the arguments give %d", pieces, count)
		}
		for rest := n; int64(len(sizes)) < pieces; rest -= each {
			sizes = append(sizes, min(each, rest))
		}
	}
	if c.Err == nil && int64(len(sizes)) != pieces {
		return c.Fail("out", "results", "out lists %d pieces, the arguments give %d", pieces, len(sizes))
	}
	if c.Err == nil && !traced.Placed(x, int(d), 1) {
		return c.splitOpen(x, d, ir.Dims(sizes...))
	}
	return c.EmitErr(ir.OpSplit, traced.DimAttr(d).With("sizes", attr.Ints(sizes...)), x)
}

// known reports whether all sizes are numbers.
func known(s ir.Shape) bool {
	_, ok := s.Static()
	return ok
}

// splitEvenly takes pieces of one size apart, of which the last may be shorter, where the sizes are known at run time only.
func (c *call) splitEvenly(x *ir.Value, d int64, each ir.Shape) error {
	if len(each) != 1 || c.NumResults == 0 {
		return traced.ErrForm
	}
	sizes := slices.Repeat(each, c.NumResults)
	rest := x.Type().Shape()[d]
	for range sizes[1:] {
		rest = rest.Sub(each[0])
	}
	sizes[len(sizes)-1] = rest
	c.Trace.Require(each[0].Sub(rest))
	c.Trace.Require(rest)
	return c.splitOpen(x, d, sizes)
}

// splitOpen takes pieces apart whose sizes are known at run time only.
func (c *call) splitOpen(x *ir.Value, d int64, sizes ir.Shape) error {
	if len(sizes) != c.NumResults {
		return c.Fail("out", "results", "out lists %d pieces, the arguments give %d", c.NumResults, len(sizes))
	}
	var out []*ir.Value
	at := ir.D(0)
	for _, n := range sizes {
		out, at = append(out, c.SizedPiece(x, d, at, n, 1)), at.Add(n)
	}
	c.same(at, x.Type().Shape()[d])
	return c.pieces(out...)
}

// beginsWithin reports whether a view may begin behind the first element of its operand.
func beginsWithin(v *ir.Value) bool {
	a := v.Def().Attrs()
	switch v.Def().Op() {
	case ir.OpSlice:
		return a.Int("start", 0) != 0
	case ir.OpSelect:
		return a.Int("index", 0) != 0
	case ir.OpSplit:
		return v.Index() != 0
	case ir.OpAsStrided:
		return a.Int("offset", 0) != 0
	}
	return false
}

// asStrided imports a free layout. PyTorch counts the offset from the start of the storage, the IR from
// the operand, which is the tensor that begins there.
func asStrided(c *call) error {
	x := c.Tensor("self")
	c.checkSize()
	offset := c.Int("storage_offset", 0)
	if c.Err != nil {
		return c.Err
	}
	dt := x.Type().DType()
	for x.Def().Op().IsView() {
		if c.Arg("storage_offset") == nil && beginsWithin(x) { // and so does the result
			return traced.ErrForm
		}
		x = x.Def().Arg(0)
	}
	if x.Type().DType() != dt { // whose elements have another size
		return traced.ErrForm
	}
	if offset < 0 || offset > traced.MaxElems {
		c.Reject("storage_offset", c.Arg("storage_offset"), "offset %d lies outside the storage", offset)
	}
	var l attr.List
	if offset != 0 {
		l = l.With("offset", attr.Int(offset))
	}
	return c.EmitErr(ir.OpAsStrided, l, x)
}

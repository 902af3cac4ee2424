package types

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// operands is what a type rule sees of a node.
type operands struct {
	args  []Type
	attrs attr.List
	want  []Type // declared result types; nil when the builder asks for them
	group int    // ranks per subgroup, 0 if the node has no group
}

// rule is a type rule: it returns the result types, or says why the
// operands do not fit. Where the rule leaves something open (the element type of
// a conversion, the shape of a view) it takes it from want. Layouts of views are
// exact; other results are returned row-major and may be declared in any layout.
type rule func(c *operands) ([]Type, error)

// wantType returns declared result 0.
func (c *operands) wantType() (Type, error) {
	if len(c.want) == 0 {
		return Type{}, errors.New("result type 0 must be declared")
	}
	return c.want[0], nil
}

// dtypeOr is the declared element type of result 0, or def.
func (c *operands) dtypeOr(def dtype.DType) dtype.DType {
	if len(c.want) > 0 && !c.want[0].IsAsync() {
		return c.want[0].dt
	}
	return def
}

// dim returns the attribute dim of a tensor of that rank.
func (c *operands) dim(rank int) (int, error) {
	d := c.attrs.Int("dim", 0)
	if d < 0 || d >= int64(rank) {
		return 0, fmt.Errorf("dim=%d is outside the %d dimensions", d, rank)
	}
	return int(d), nil
}

// inferDeclared accepts the declared types.
func inferDeclared(c *operands) ([]Type, error) {
	if len(c.want) == 0 {
		return []Type{}, nil
	}
	return c.want, nil
}

// inferAsyncCall accepts the declared type of one tensor in flight.
func inferAsyncCall(c *operands) ([]Type, error) {
	t, err := c.wantType()
	if err == nil && (!t.IsAsync() || len(t.Tensors()) != 1) {
		err = fmt.Errorf("the result is %s, want one tensor, async", t)
	}
	if err == nil && c.args[0].IsAsync() {
		err = fmt.Errorf("operand 0 is %s, want a tensor", c.args[0])
	}
	return []Type{t}, err
}

// maxConstant is how many bytes a constant has at most: it is written into every text and
// every kernel that has it.
const maxConstant = 64 << 10

// inferConstant accepts declared types that the data fills.
func inferConstant(c *operands) ([]Type, error) {
	t, err := c.wantType()
	if err != nil {
		return nil, err
	}
	data, err := c.attrs.Bytes("data")
	if err != nil {
		return nil, err
	}
	n, ok := t.shape.NumElems().Const()
	switch size := int64(t.dt.Size()); {
	case t.IsAsync() || !ok:
		return nil, fmt.Errorf("%s is not the type of a constant: it has a size that is not constant, or is in flight", t)
	case len(data) > maxConstant:
		return nil, fmt.Errorf("%d bytes of data, a constant has %d at most: hand it over as a parameter", len(data), maxConstant)
	case int64(len(data)) != n*size:
		return nil, fmt.Errorf("%d bytes of data, %s has %d", len(data), t, n*size)
	case t.dt == dtype.Bool && slices.ContainsFunc(data, func(b byte) bool { return b > 1 }):
		return nil, fmt.Errorf("a bool of the data is neither 0 nor 1")
	}
	return []Type{t}, nil
}

// promote is the element type that mixes a and b, as in PyTorch: the wider float, else
// the wider integer. No integer but itself mixes with u16, u32 or u64.
func promote(a, b dtype.DType) (dtype.DType, error) {
	if a == b {
		return a, nil
	}
	if a.IsFloat() != b.IsFloat() {
		if a.IsFloat() {
			return a, nil
		}
		return b, nil
	}
	switch {
	case a == dtype.Bool:
		return b, nil
	case b == dtype.Bool:
		return a, nil
	case a.IsFloat() && a.Size() == b.Size():
		return dtype.F32, nil
	case a.IsInt() && (a.IsUnsigned() && a != dtype.U8 || b.IsUnsigned() && b != dtype.U8):
		return 0, fmt.Errorf("%s and %s do not mix: convert one of them", a, b)
	case a.Size() == b.Size(): // i8 and u8
		return dtype.I16, nil
	case a.Size() > b.Size():
		return a, nil
	}
	return b, nil
}

// promoteAll is promote of all of ts, Invalid of none.
func promoteAll(ts []Type) (dtype.DType, error) {
	var dt dtype.DType
	for _, t := range ts {
		if dt == 0 {
			dt = t.dt
			continue
		}
		var err error
		if dt, err = promote(dt, t.dt); err != nil {
			return 0, err
		}
	}
	return dt, nil
}

func broadcastShapes(args []Type) (Shape, error) {
	var out Shape
	for _, a := range args {
		s := a.shape
		if len(s) > len(out) {
			out = append(slices.Clone(s[:len(s)-len(out)]), out...)
		}
		off := len(out) - len(s)
		for i, d := range s {
			o := out[off+i]
			switch {
			case o.Equal(dim.New(1)):
				out[off+i] = d
			case d.Equal(dim.New(1)) || d.Equal(o):
			default:
				return nil, fmt.Errorf("operand shapes do not broadcast: %s beside %s in dimension %d", d, o, off+i)
			}
		}
	}
	return out, nil
}

func inferPointwise(c *operands) ([]Type, error) {
	shape, err := broadcastShapes(c.args)
	if err != nil {
		return nil, err
	}
	dt, err := c.mixed()
	if err != nil {
		return nil, err
	}
	return []Type{TensorOf(c.dtypeOr(dt), shape)}, nil
}

// mixed is the element type that mixes those of the operands. A scalar beside u64 must
// be one of its values: it would be compared as another number.
func (c *operands) mixed() (dtype.DType, error) {
	dt, err := promoteAll(c.args)
	if err != nil || dt != dtype.U64 {
		return dt, err
	}
	for _, key := range [...]string{"scalar", "min", "max"} {
		if v := c.attrs.Float(key, 0); v < 0 {
			return 0, fmt.Errorf("%s=%v is not a value of u64", key, v)
		}
	}
	return dt, nil
}

func inferBitwise(c *operands) ([]Type, error) {
	for _, a := range c.args {
		if a.DType().IsFloat() {
			return nil, fmt.Errorf("operands of type %s, want integers", a.DType())
		}
	}
	if v, ok := c.attrs.Get("scalar"); ok {
		if _, ok := v.AsInt(); !ok {
			return nil, fmt.Errorf("scalar=%v, want an integer", v)
		}
	}
	out, err := inferPointwise(c)
	if err == nil && out[0].DType().IsFloat() {
		return nil, fmt.Errorf("a result of type %s, want integers", out[0].DType())
	}
	return out, err
}

func inferBitcast(c *operands) ([]Type, error) {
	w, err := c.wantType()
	if err != nil {
		return nil, err
	}
	from, to := c.args[0].dt, w.dt
	if from.Size() != to.Size() || from == dtype.Bool || to == dtype.Bool {
		return nil, fmt.Errorf("cannot bitcast %s to %s", from, to)
	}
	return []Type{TensorOf(to, c.args[0].shape)}, nil
}

func inferCompare(c *operands) ([]Type, error) {
	shape, err := broadcastShapes(c.args)
	if err != nil {
		return nil, err
	}
	if _, err := c.mixed(); err != nil {
		return nil, err
	}
	return []Type{TensorOf(dtype.Bool, shape)}, nil
}

// inferSame keeps shape; the element type may be declared.
func inferSame(c *operands) ([]Type, error) {
	if c.attrs.Has("dim") {
		if _, err := c.dim(c.args[0].Rank()); err != nil {
			return nil, err
		}
	}
	return []Type{TensorOf(c.dtypeOr(c.args[0].dt), c.args[0].shape)}, nil
}

// inferLikeFirst gives the type of operand 0.
func inferLikeFirst(c *operands) ([]Type, error) {
	if _, err := c.dim(c.args[0].Rank()); err != nil {
		return nil, err
	}
	return []Type{TensorOf(c.args[0].dt, c.args[0].shape)}, nil
}

func inferReduce(c *operands) ([]Type, error) {
	x := c.args[0]
	dims := c.attrs.Ints("dims")
	if c.attrs.Has("dim") {
		dims = []int64{c.attrs.Int("dim", 0)}
	} else if !c.attrs.Has("dims") {
		for i := range x.shape {
			dims = append(dims, int64(i))
		}
	}
	keep := c.attrs.Bool("keepdim", false)
	for _, d := range dims {
		if d < 0 || d >= int64(len(x.shape)) {
			return nil, fmt.Errorf("dimension %d is outside the %d dimensions", d, len(x.shape))
		}
	}
	var out Shape
	for i, n := range x.shape {
		switch {
		case !slices.Contains(dims, int64(i)):
			out = append(out, n)
		case keep:
			out = append(out, dim.New(1))
		}
	}
	dt := x.dt
	if c.attrs.Has("dim") {
		dt = dtype.I64
	}
	return []Type{TensorOf(c.dtypeOr(dt), out)}, nil
}

func inferMatmul(c *operands) ([]Type, error) {
	a, b := c.args[0], c.args[1]
	if a.Rank() != b.Rank() || a.Rank() < 2 || a.Rank() > 3 {
		return nil, fmt.Errorf("matmul takes two matrices or two batches of matrices, got %s and %s", a, b)
	}
	r := a.Rank()
	if !a.shape[r-1].Equal(b.shape[r-2]) {
		return nil, fmt.Errorf("inner dimensions differ: %s and %s", a.shape[r-1], b.shape[r-2])
	}
	if r == 3 && !a.shape[0].Equal(b.shape[0]) {
		return nil, fmt.Errorf("batch dimensions differ: %s and %s", a.shape[0], b.shape[0])
	}
	dt, err := promote(a.dt, b.dt)
	if err != nil {
		return nil, err
	}
	out := append(slices.Clone(a.shape[:r-1]), b.shape[r-1])
	return []Type{TensorOf(c.dtypeOr(dt), out)}, nil
}

func inferAddmm(c *operands) ([]Type, error) {
	m := *c
	m.args = c.args[1:]
	ts, err := inferMatmul(&m)
	if err != nil {
		return nil, err
	}
	s, err := broadcastShapes([]Type{c.args[0], ts[0]})
	if err != nil {
		return nil, err
	}
	if !s.Equal(ts[0].shape) {
		return nil, fmt.Errorf("operand 0 of shape %s does not broadcast to the product's %s", c.args[0].shape, ts[0].shape)
	}
	return ts, nil
}

func inferGroupedMatmul(c *operands) ([]Type, error) {
	a, b, ends := c.args[0], c.args[1], c.args[2]
	if ends.Rank() != 1 || ends.dt != dtype.I32 && ends.dt != dtype.I64 {
		return nil, fmt.Errorf("the ends of groups are i32[g] or i64[g], got %s", ends)
	}
	ra, rb := a.Rank(), b.Rank()
	if min(ra, rb) != 2 || max(ra, rb) > 3 {
		return nil, fmt.Errorf("grouped_matmul takes two matrices, or a matrix and one for each group, got %s and %s", a, b)
	}
	if !a.shape[ra-1].Equal(b.shape[rb-2]) {
		return nil, fmt.Errorf("inner dimensions differ: %s and %s", a.shape[ra-1], b.shape[rb-2])
	}
	for _, x := range []Type{a, b} {
		if x.Rank() == 3 && !x.shape[0].Equal(ends.shape[0]) {
			return nil, fmt.Errorf("%s has %s matrices for %s groups", x, x.shape[0], ends.shape[0])
		}
	}
	dt, err := promote(a.dt, b.dt)
	if err != nil {
		return nil, err
	}
	out := Shape{a.shape[ra-2], b.shape[rb-1]}
	if ra == rb {
		out = slices.Insert(out, 0, ends.shape[0])
	}
	return []Type{TensorOf(c.dtypeOr(dt), out)}, nil
}

func inferAttention(c *operands) ([]Type, error) {
	q, k, v := c.args[0], c.args[1], c.args[2]
	if q.Rank() != 4 || k.Rank() != 4 || v.Rank() != 4 {
		return nil, fmt.Errorf("attention takes [batch, heads, length, size] operands, got %s, %s, %s", q, k, v)
	}
	if !k.shape[2].Equal(v.shape[2]) || !q.shape[3].Equal(k.shape[3]) || !q.shape[0].Equal(k.shape[0]) || !k.shape[1].Equal(v.shape[1]) {
		return nil, fmt.Errorf("attention operands do not fit: q %s, k %s, v %s", q.shape, k.shape, v.shape)
	}
	out := Shape{q.shape[0], q.shape[1], q.shape[2], v.shape[3]}
	lse := Shape{q.shape[0], q.shape[1], q.shape[2], dim.New(1)}
	sums := dtype.F32
	if q.dt == dtype.F64 {
		sums = dtype.F64
	}
	return []Type{TensorOf(c.dtypeOr(q.dt), out), TensorOf(sums, lse), TensorOf(dtype.I64, nil), TensorOf(dtype.I64, nil)}, nil
}

func inferAttentionBackward(c *operands) ([]Type, error) {
	g, q, k, v, o := c.args[0], c.args[1], c.args[2], c.args[3], c.args[4]
	if !g.shape.Equal(o.shape) {
		return nil, fmt.Errorf("gradient %s and output %s differ in shape", g, o)
	}
	return []Type{TensorOf(c.dtypeOr(q.dt), q.shape), TensorOf(k.dt, k.shape), TensorOf(v.dt, v.shape)}, nil
}

func inferCat(c *operands) ([]Type, error) {
	first := c.args[0]
	d, err := c.dim(first.Rank())
	if err != nil {
		return nil, err
	}
	sizes := make([]dim.Dim, len(c.args))
	for i, a := range c.args {
		if a.dt != first.dt {
			return nil, fmt.Errorf("operand %d has element type %s, operand 0 has %s", i, a.dt, first.dt)
		}
		if a.Rank() != first.Rank() {
			return nil, fmt.Errorf("operand %d has %d dimensions, operand 0 has %d", i, a.Rank(), first.Rank())
		}
		for j := range a.shape {
			if j != d && !a.shape[j].Equal(first.shape[j]) {
				return nil, fmt.Errorf("operand %d has size %s in dimension %d, operand 0 has %s", i, a.shape[j], j, first.shape[j])
			}
		}
		sizes[i] = a.shape[d]
	}
	out := slices.Clone(first.shape)
	out[d] = dim.Sum(sizes...)
	return []Type{TensorOf(first.dt, out)}, nil
}

func inferReadSize(c *operands) ([]Type, error) {
	x, n := c.args[0], int64(len(c.attrs.Strs("symbols")))
	if x.Rank() != 1 || !x.shape[0].Equal(dim.New(n)) || !x.dt.IsInt() || x.dt == dtype.Bool {
		return nil, fmt.Errorf("read_size takes one integer for each of %d symbols, got %s", n, x)
	}
	return []Type{TensorOf(dtype.I64, x.shape)}, nil
}

func inferTopk(c *operands) ([]Type, error) {
	x := c.args[0]
	d, err := c.dim(x.Rank())
	if err != nil {
		return nil, err
	}
	k := c.attrs.Int("k", 0)
	if n, ok := x.shape[d].Const(); k < 0 || ok && k > n {
		return nil, fmt.Errorf("k=%d is outside 0..%s", k, x.shape[d])
	}
	out := slices.Clone(x.shape)
	out[d] = dim.New(k)
	return []Type{TensorOf(x.dt, out), TensorOf(dtype.I64, out)}, nil
}

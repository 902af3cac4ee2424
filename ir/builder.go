package ir

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
)

// Builder builds a module in Go. It is what the author of an integrating
// compiler sees first: one typed method per common operation, result types
// inferred, errors collected and returned once by Finish. After an error every
// method is a no-op that returns nil, so calls need no checks in between.
//
//	b := ir.NewBuilder(8)
//	tp := b.Group("tp", [][]int{{0, 1, 2, 3, 4, 5, 6, 7}})
//	f := b.Func("mlp")
//	x := f.Input("x", ir.Tensor(ir.BF16, 256, 4096))
//	w := f.Parameter("w", ir.Tensor(ir.BF16, 4096, 512))
//	h := f.MatMul(x, w)
//	f.Return(f.Wait(f.AllReduce(ir.Sum, tp, h))...)
//	m, err := b.Finish()
type Builder struct {
	m    *Module
	errs diag.List
}

// NewBuilder starts a module for a world of that many ranks.
func NewBuilder(world int) *Builder { return &Builder{m: NewModule(world)} }

// Finish verifies the module and returns it, or every error made on the way.
func (b *Builder) Finish() (*Module, error) {
	if err := b.errs.Err(); err != nil {
		return nil, err
	}
	if err := b.m.Verify(); err != nil {
		return nil, err
	}
	return b.m, nil
}

// Group declares a process group: a partition of the world into equal subgroups.
func (b *Builder) Group(name string, ranks [][]int) *Group { return b.m.AddGroup(name, ranks) }

// Symbol declares a run-time size with a hint for costs and an upper bound for memory.
func (b *Builder) Symbol(name string, hint, maximum int64) Dim {
	b.m.AddSymbol(name, hint, maximum)
	return Sym(name)
}

// Func adds a function.
func (b *Builder) Func(name string) *FuncBuilder {
	return &FuncBuilder{b: b, f: b.m.AddFunc(name)}
}

// FuncBuilder appends operations to one function, in program order.
type FuncBuilder struct {
	b    *Builder
	f    *Func
	name string  // for the next operation
	cost float64 // for the next operation, if has
	has  bool

	inputs int // declared so far
}

// Named gives the next operation a name instead of one derived from its op.
func (fb *FuncBuilder) Named(name string) *FuncBuilder { fb.name = name; return fb }

// Cost attaches a cost in milliseconds to the next operation; costs that are
// attached take precedence over every model.
func (fb *FuncBuilder) Cost(ms float64) *FuncBuilder { fb.cost, fb.has = ms, true; return fb }

// Op appends any operation of the op table and returns its results, or nil
// after an error. types declares result types where the op's rule leaves them
// open; it may be empty where the rule determines them.
func (fb *FuncBuilder) Op(op Op, group *Group, attrs attr.List, args []*Value, types ...Type) []*Value {
	spec := NodeSpec{Op: op, Name: fb.name, Args: args, Results: types, Group: group, Attrs: attrs, Cost: fb.cost, HasCost: fb.has}
	fb.name, fb.cost, fb.has = "", 0, false
	for i, a := range args {
		if a == nil {
			fb.fail(op, "operand %d is missing: an earlier operation failed", i)
			return nil
		}
		if a.def.fn != fb.f {
			fb.fail(op, "operand %d, %s, belongs to another function", i, a)
			return nil
		}
	}
	if i := op.info(); len(args) < i.MinArgs || i.MaxArgs >= 0 && len(args) > i.MaxArgs {
		fb.fail(op, "takes %s, got %d", argCount(i), len(args))
		return nil
	}
	c := inferCtx{attrs: attrs, want: types}
	if len(types) == 0 {
		c.want = nil
	}
	for _, a := range args {
		c.args = append(c.args, a.typ)
	}
	if group != nil {
		c.group = group.Size()
	}
	got, err := op.info().Infer(&c)
	if err != nil {
		fb.fail(op, "%v", err)
		return nil
	}
	if len(types) == 0 || op.IsView() {
		spec.Results = got
	}
	return fb.f.Append(spec).results
}

func (fb *FuncBuilder) fail(op Op, format string, args ...any) {
	f := &diag.Finding{Rule: "builder", Msg: fmt.Sprintf("@%s: %s: %s", fb.f.Name, op.Name(), fmt.Sprintf(format, args...))}
	if len(fb.b.errs.All) == 0 { // what follows an error is its consequence
		fb.b.errs.Add(f)
	}
}

// one is Op for operations of one result.
func (fb *FuncBuilder) one(op Op, attrs attr.List, args []*Value, types ...Type) *Value {
	if r := fb.Op(op, nil, attrs, args, types...); len(r) == 1 {
		return r[0]
	}
	return nil
}

// Input declares an input that lives throughout.
func (fb *FuncBuilder) Input(name string, t Type) *Value { return fb.InputRole(name, t, RoleData) }

// Parameter declares a parameter: an input that lives throughout.
func (fb *FuncBuilder) Parameter(name string, t Type) *Value {
	return fb.InputRole(name, t, RoleParameter)
}

// InputRole declares an input of any role. A type made by Async declares a
// collective that the caller has started.
func (fb *FuncBuilder) InputRole(name string, t Type, role Role) *Value {
	fb.name, fb.cost, fb.has = "", 0, false
	spec := NodeSpec{Op: OpInput, Name: name, Results: []Type{t}}
	if role != "" {
		spec.Meta = attr.Make(attr.Attr{Key: "role", Val: attr.String(string(role))})
	}
	if order := fb.f.Order(); fb.inputs < len(order) { // inputs stand first, wherever they are declared
		fb.inputs++
		return fb.f.InsertBefore(order[fb.inputs-1], spec).results[0]
	}
	fb.inputs++
	return fb.f.Append(spec).results[0]
}

// Return ends the function.
func (fb *FuncBuilder) Return(vs ...*Value) { fb.Op(OpReturn, nil, nil, vs) }

// Unary appends an elementwise operation of one operand, such as OpRelu.
func (fb *FuncBuilder) Unary(op Op, x *Value) *Value { return fb.one(op, nil, []*Value{x}) }

// Binary appends an elementwise operation of two operands, which broadcast.
func (fb *FuncBuilder) Binary(op Op, a, b *Value) *Value { return fb.one(op, nil, []*Value{a, b}) }

// Scalar appends an elementwise operation of x and a number.
func (fb *FuncBuilder) Scalar(op Op, x *Value, c float64) *Value {
	return fb.one(op, attr.Make(attr.Attr{Key: "scalar", Val: attr.Float(c)}), []*Value{x})
}

// Add returns a + b.
func (fb *FuncBuilder) Add(a, b *Value) *Value { return fb.Binary(OpAdd, a, b) }

// Mul returns a * b, elementwise.
func (fb *FuncBuilder) Mul(a, b *Value) *Value { return fb.Binary(OpMul, a, b) }

// MatMul returns the product of two matrices or two batches of matrices.
func (fb *FuncBuilder) MatMul(a, b *Value) *Value { return fb.one(OpMatmul, nil, []*Value{a, b}) }

// Convert returns x in another element type.
func (fb *FuncBuilder) Convert(x *Value, dt DType) *Value {
	if x == nil {
		return fb.one(OpConvert, nil, []*Value{nil})
	}
	return fb.one(OpConvert, nil, []*Value{x}, TensorOf(dt, x.typ.shape))
}

// Reduce appends a reduction over dims, such as OpSum; without dims over all.
func (fb *FuncBuilder) Reduce(op Op, x *Value, keepdim bool, dims ...int64) *Value {
	var l attr.List
	if len(dims) > 0 {
		l = l.With("dims", attr.Ints(dims...))
	}
	if keepdim {
		l = l.With("keepdim", attr.Bool(true))
	}
	return fb.one(op, l, []*Value{x})
}

// View returns x under another shape, without a copy.
func (fb *FuncBuilder) View(x *Value, shape Shape) *Value {
	if x == nil {
		return fb.one(OpView, nil, []*Value{nil})
	}
	return fb.one(OpView, nil, []*Value{x}, TensorOf(x.typ.dt, shape))
}

// Permute returns x with its dimensions in another order, without a copy.
func (fb *FuncBuilder) Permute(x *Value, dims ...int64) *Value {
	return fb.one(OpPermute, attr.Make(attr.Attr{Key: "dims", Val: attr.Ints(dims...)}), []*Value{x})
}

// Slice returns indices start up to end of dim, without a copy.
func (fb *FuncBuilder) Slice(x *Value, dim, start, end int64) *Value {
	return fb.one(OpSlice, attr.Make(attr.Attr{Key: "dim", Val: attr.Int(dim)}, attr.Attr{Key: "start", Val: attr.Int(start)}, attr.Attr{Key: "end", Val: attr.Int(end)}), []*Value{x})
}

// Call appends an operation that concert does not know. effects are among
// writes, communicates, random and alias; class is compute or memory.
func (fb *FuncBuilder) Call(target, class string, effects []string, args []*Value, types ...Type) []*Value {
	l := attr.Make(attr.Attr{Key: "target", Val: attr.String(target)}, attr.Attr{Key: "class", Val: attr.String(class)})
	if len(effects) > 0 {
		l = l.With("effects", attr.Strings(effects...))
	}
	return fb.Op(OpCall, nil, l, args, types...)
}

// comm appends a collective.
func (fb *FuncBuilder) comm(op Op, g *Group, l attr.List, xs []*Value) *Value {
	if r := fb.Op(op, g, l, xs); len(r) == 1 {
		return r[0]
	}
	return nil
}

// AllReduce starts reducing the ranks' operands; every rank gets every result.
// Several operands travel together, here and in every other collective.
func (fb *FuncBuilder) AllReduce(r Reduction, g *Group, xs ...*Value) *Value {
	return fb.comm(OpAllReduce, g, attr.Make(attr.Attr{Key: "reduce", Val: attr.String(string(r))}), xs)
}

// AllGather starts concatenating the ranks' operands along dim.
func (fb *FuncBuilder) AllGather(g *Group, dim int64, xs ...*Value) *Value {
	return fb.comm(OpAllGather, g, attr.Make(attr.Attr{Key: "dim", Val: attr.Int(dim)}), xs)
}

// ReduceScatter starts reducing the ranks' operands; each rank gets its piece along dim.
func (fb *FuncBuilder) ReduceScatter(r Reduction, g *Group, dim int64, xs ...*Value) *Value {
	return fb.comm(OpReduceScatter, g, attr.Make(attr.Attr{Key: "reduce", Val: attr.String(string(r))}, attr.Attr{Key: "dim", Val: attr.Int(dim)}), xs)
}

// AllToAll starts exchanging equal pieces of dimension 0.
func (fb *FuncBuilder) AllToAll(g *Group, xs ...*Value) *Value {
	return fb.comm(OpAllToAll, g, nil, xs)
}

// AllToAllUneven starts exchanging pieces of dimension 0: send[i] goes to group
// rank i, receive[i] comes from it.
func (fb *FuncBuilder) AllToAllUneven(g *Group, x *Value, send, receive []Dim) *Value {
	return fb.comm(OpAllToAll, g, attr.Make(attr.Attr{Key: "in_splits", Val: attr.Strings(SplitsText(send))},
		attr.Attr{Key: "out_splits", Val: attr.Strings(SplitsText(receive))}), []*Value{x})
}

// Broadcast starts copying the operands of group rank root to every rank.
func (fb *FuncBuilder) Broadcast(g *Group, root int64, xs ...*Value) *Value {
	return fb.comm(OpBroadcast, g, attr.Make(attr.Attr{Key: "root", Val: attr.Int(root)}), xs)
}

// Shard returns this rank's piece of x along dim, by its place in the group.
func (fb *FuncBuilder) Shard(g *Group, dim int64, x *Value) *Value {
	if r := fb.Op(OpShard, g, attr.Make(attr.Attr{Key: "dim", Val: attr.Int(dim)}), []*Value{x}); len(r) == 1 {
		return r[0]
	}
	return nil
}

// Wait returns the tensors of a collective once it has finished.
func (fb *FuncBuilder) Wait(v *Value) []*Value { return fb.Op(OpWaitTensor, nil, nil, []*Value{v}) }

package ir

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
)

// Builder builds a module in Go. It is what the author of an integrating
// compiler sees first: one typed method per common operation, result types
// inferred, errors collected and returned once by Finish. After an error methods
// are no-ops, whose results may be used as any others, so calls need no checks in
// between.
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
	for _, f := range b.m.funcs {
		f.ResolveVersions()
	}
	if err := b.m.Verify(); err != nil {
		return nil, err
	}
	return b.m, nil
}

// Group declares a process group: a partition of the world into equal subgroups.
func (b *Builder) Group(name string, ranks [][]int) *Group { return b.m.AddGroup(name, ranks) }

// Symbol declares a run-time size with a hint for costs, and bounds: memory suffices for maximum.
func (b *Builder) Symbol(name string, hint, minimum, maximum int64) Dim {
	b.m.AddSymbol(name, hint, minimum, maximum)
	return Sym(name)
}

// Func adds a function.
func (b *Builder) Func(name string) *FuncBuilder {
	return &FuncBuilder{b: b, f: b.m.AddFunc(name), inputs: new(int)}
}

// FuncBuilder appends operations to one function, in program order. Named, Cost and
// Origin return a builder of the same function that gives the operations made through it
// what they say, and leave their receiver as it is:
//
//	f.Named("mm").Cost(5).MatMul(x, f.Permute(y, 1, 0)) // the permute has neither
type FuncBuilder struct {
	b      *Builder
	f      *Func
	inputs *int // declared so far
	spec   NodeSpec
}

// Func is the function that is being built.
func (fb *FuncBuilder) Func() *Func { return fb.f }

// Named gives operations a name instead of one derived from their op: any printable text,
// made unique with a suffix if it is taken.
func (fb FuncBuilder) Named(name string) *FuncBuilder { fb.spec.Name = name; return &fb }

// Cost attaches a cost in milliseconds; costs that are attached take precedence over every
// model.
func (fb FuncBuilder) Cost(ms float64) *FuncBuilder {
	fb.spec.Cost, fb.spec.HasCost = ms, true
	return &fb
}

// Origin attaches the caller's own object, which passes keep (Node.Origins).
func (fb FuncBuilder) Origin(o any) *FuncBuilder { fb.spec.Origin = o; return &fb }

// After makes operations come after those that compute some values, without reading
// them: an order-only edge. Of a view it is what computes the elements.
func (fb FuncBuilder) After(vs ...*Value) *FuncBuilder {
	fb.spec.After = nil
	for _, v := range vs {
		if v != nil && v.def != nil && v.def.fn == fb.f {
			fb.spec.After = append(fb.spec.After, v.Viewed().def)
		} else {
			fb.fail(&NodeSpec{Op: fb.spec.Op}, "After: the value is missing or of another function")
		}
	}
	return &fb
}

// Annotate attaches annotations: facts that no result depends on (Node.Meta).
func (fb FuncBuilder) Annotate(meta Attrs) *FuncBuilder { fb.spec.Meta = meta; return &fb }

// Op appends any operation of the op table and returns its results. types declares
// result types where the op's rule leaves them open; it may be empty where the rule
// determines them. After an error it returns as many values as there would be, of no
// function and no use but as operands, which are no-ops.
func (fb *FuncBuilder) Op(op Op, group *Group, attrs Attrs, args []*Value, types ...Type) []*Value {
	spec := fb.spec
	spec.Op, spec.Args, spec.Results, spec.Group, spec.Attrs = op, args, types, group, attrs
	for i, a := range args {
		if a == nil || a.def == nil {
			return fb.fail(&spec, "operand %d is missing: an earlier operation failed", i)
		}
		if a.def.fn != fb.f {
			return fb.fail(&spec, "operand %d, %s, belongs to another function", i, a)
		}
	}
	if i := op.info(); len(args) < i.MinArgs || i.MaxArgs >= 0 && len(args) > i.MaxArgs {
		return fb.fail(&spec, "takes %s, got %d", argCount(i), len(args))
	}
	given := make([]Type, len(args))
	for i, a := range args {
		given[i] = a.typ
	}
	got, err := op.info().Types.Infer(group.ranks(), attrs, given, types...)
	if err != nil {
		return fb.fail(&spec, "%v", err)
	}
	if len(types) == 0 || op.IsView() {
		spec.Results = got
	}
	return fb.f.Append(spec).results
}

// fail records an error, unless there is one, and returns values that stand for the
// results: as many as there would be, without a node.
func (fb *FuncBuilder) fail(s *NodeSpec, format string, args ...any) []*Value {
	if len(fb.b.errs.All) == 0 { // what follows an error is its consequence
		fb.b.errs.Add(&diag.Finding{Rule: "builder", Msg: fmt.Sprintf("@%s: %s: %s", fb.f.Name, s.Op.Name(), fmt.Sprintf(format, args...))})
	}
	types := s.Results
	switch i := s.Op.info(); {
	case len(types) > 0:
	case i.Class == ClassCollective:
		types = []Type{Async(make([]Type, max(len(s.Args), 1))...)}
	case s.Op == OpWaitTensor && len(s.Args) == 1 && s.Args[0] != nil && s.Args[0].typ.IsAsync():
		types = s.Args[0].typ.Tensors()
	default:
		types = make([]Type, max(i.NumResults, 1))
	}
	out := make([]*Value, len(types))
	for k, t := range types {
		out[k] = &Value{id: -1, index: int32(k), typ: t}
	}
	return out
}

// one is Op for operations of one result.
func (fb *FuncBuilder) one(op Op, attrs Attrs, args []*Value, types ...Type) *Value {
	return fb.Op(op, nil, attrs, args, types...)[0]
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
	spec := fb.spec
	spec.Op, spec.Name, spec.Results, spec.HasCost = OpInput, name, []Type{t}, false
	if role != "" {
		spec.Meta = spec.Meta.With("role", attr.String(string(role)))
	}
	*fb.inputs++
	if order := fb.f.Order(); *fb.inputs <= len(order) { // inputs stand first, wherever they are declared
		return fb.f.InsertBefore(order[*fb.inputs-1], spec).results[0]
	}
	return fb.f.Append(spec).results[0]
}

// Donate gives the storage of an input to a result of the same type: when the function
// has ended, that result lies where the input lay; see [Func.Donations].
func (fb *FuncBuilder) Donate(input *Value, result int) {
	if input == nil || input.def == nil || input.def.fn != fb.f || input.def.op != OpInput {
		fb.fail(&NodeSpec{Op: OpInput}, "Donate: the value is not an input of @%s", fb.f.Name)
		return
	}
	fb.f.SetAttrs(input.def, input.def.attrs.With(DonateKey, attr.Int(int64(result))))
}

// Return ends the function.
func (fb *FuncBuilder) Return(vs ...*Value) { fb.Op(OpReturn, nil, nil, vs) }

// Unary appends an elementwise operation of one operand, such as OpRelu.
func (fb *FuncBuilder) Unary(op Op, x *Value) *Value { return fb.one(op, nil, []*Value{x}) }

// Binary appends an elementwise operation of two operands, which broadcast.
func (fb *FuncBuilder) Binary(op Op, a, b *Value) *Value { return fb.one(op, nil, []*Value{a, b}) }

// Scalar appends an elementwise operation of x and a number.
func (fb *FuncBuilder) Scalar(op Op, x *Value, c float64) *Value {
	return fb.one(op, A("scalar", c), []*Value{x})
}

// Add returns a + b.
func (fb *FuncBuilder) Add(a, b *Value) *Value { return fb.Binary(OpAdd, a, b) }

// Mul returns a * b, elementwise.
func (fb *FuncBuilder) Mul(a, b *Value) *Value { return fb.Binary(OpMul, a, b) }

// MatMul returns the product of two matrices or two batches of matrices.
func (fb *FuncBuilder) MatMul(a, b *Value) *Value { return fb.one(OpMatmul, nil, []*Value{a, b}) }

// Convert returns x in another element type.
func (fb *FuncBuilder) Convert(x *Value, dt DType) *Value {
	return fb.one(OpConvert, nil, []*Value{x}, TensorOf(dt, typeOf(x).Shape()))
}

// Reduce appends a reduction over dims, such as OpSum; without dims over all.
func (fb *FuncBuilder) Reduce(op Op, x *Value, keepdim bool, dims ...int64) *Value {
	var l Attrs
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
	return fb.one(OpView, nil, []*Value{x}, TensorOf(typeOf(x).DType(), shape))
}

// Permute returns x with its dimensions in another order, without a copy.
func (fb *FuncBuilder) Permute(x *Value, dims ...int64) *Value {
	return fb.one(OpPermute, A("dims", dims), []*Value{x})
}

// Slice returns indices start up to end of dim, without a copy.
func (fb *FuncBuilder) Slice(x *Value, dim, start, end int64) *Value {
	return fb.one(OpSlice, A("dim", dim, "start", start, "end", end), []*Value{x})
}

// comm appends a collective.
func (fb *FuncBuilder) comm(op Op, g *Group, l Attrs, xs []*Value) *Value {
	return fb.Op(op, g, l, xs)[0]
}

// AllReduce starts reducing the ranks' operands; every rank gets every result.
// Several operands share a bucket, here and in every other collective.
func (fb *FuncBuilder) AllReduce(r Reduction, g *Group, xs ...*Value) *Value {
	return fb.comm(OpAllReduce, g, A("reduce", string(r)), xs)
}

// AllGather starts concatenating the ranks' operands along dim.
func (fb *FuncBuilder) AllGather(g *Group, dim int64, xs ...*Value) *Value {
	return fb.comm(OpAllGather, g, A("dim", dim), xs)
}

// ReduceScatter starts reducing the ranks' operands; each rank gets its piece along dim.
func (fb *FuncBuilder) ReduceScatter(r Reduction, g *Group, dim int64, xs ...*Value) *Value {
	return fb.comm(OpReduceScatter, g, A("reduce", string(r), "dim", dim), xs)
}

// AllToAll starts exchanging equal pieces of dimension 0.
func (fb *FuncBuilder) AllToAll(g *Group, xs ...*Value) *Value {
	return fb.comm(OpAllToAll, g, nil, xs)
}

// AllToAllV starts exchanging pieces of dimension 0: send[i] goes to group
// rank i, receive[i] comes from it.
func (fb *FuncBuilder) AllToAllV(g *Group, x *Value, send, receive []Dim) *Value {
	return fb.comm(OpAllToAll, g, A("in_splits", []string{SplitsText(send)}, "out_splits", []string{SplitsText(receive)}), []*Value{x})
}

// Broadcast starts copying the operands of group rank root to every rank.
func (fb *FuncBuilder) Broadcast(g *Group, root int64, xs ...*Value) *Value {
	return fb.comm(OpBroadcast, g, A("root", root), xs)
}

// Shard returns this rank's piece of x along dim, by its place in the group.
func (fb *FuncBuilder) Shard(g *Group, dim int64, x *Value) *Value {
	return fb.Op(OpShard, g, A("dim", dim), []*Value{x})[0]
}

// Wait returns the tensors of a collective once it has finished.
func (fb *FuncBuilder) Wait(v *Value) []*Value { return fb.Op(OpWaitTensor, nil, nil, []*Value{v}) }

// Wait1 returns the tensor of a collective of one operand once it has finished.
func (fb *FuncBuilder) Wait1(v *Value) *Value {
	if n := len(typeOf(v).Tensors()); v != nil && v.def != nil && v.typ.IsAsync() && n != 1 {
		return fb.fail(&NodeSpec{Op: OpWaitTensor, Args: []*Value{v}}, "Wait1 of %s, which carries %d tensors: use Wait", v, n)[0]
	}
	return fb.Wait(v)[0]
}

// typeOf is the type of a value, that of nothing for nil.
func typeOf(v *Value) Type {
	if v == nil {
		return Type{}
	}
	return v.typ
}

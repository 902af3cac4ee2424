package hlo

import (
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file converts loops, branches and operations in two halves. A loop of HLO carries one
// tuple, which one of StableHLO has the parts of.

// leaves are the tensors of a value, taken out of the tuples that it is.
func (c *converter) leaves(name string, t shape) (names []mlir.Use, types []mlir.Type) {
	if !t.many {
		return []mlir.Use{{Name: name}}, []mlir.Type{c.typ(t)}
	}
	for i, e := range t.tuple {
		part := c.temporary()
		c.as("stablehlo.get_tuple_element", part, c.typ(e), named("index", mlir.Number(c.in.at, int64(i))), name)
		n, ts := c.leaves(part, e)
		names, types = append(names, n...), append(types, ts...)
	}
	return names, types
}

// whole puts a value together again from its tensors, under a name, and returns what is left.
func (c *converter) whole(name string, t shape, parts []mlir.Use) []mlir.Use {
	if !t.many {
		c.add(mlir.Spec{Name: "stablehlo.optimization_barrier", Result: name, Operands: parts[:1], Types: []mlir.Type{c.typ(t)}})
		return parts[1:]
	}
	var in []mlir.Use
	for _, e := range t.tuple {
		part := c.temporary()
		parts = c.whole(part, e, parts)
		in = append(in, mlir.Use{Name: part})
	}
	c.add(mlir.Spec{Name: "stablehlo.tuple", Result: name, Operands: in, Types: []mlir.Type{c.typ(t)}})
	return parts
}

// calling is a region that calls a computation on one value, given by its tensors or from
// around the region, and returns the tensors of its result.
func (c *converter) calling(k *computation, arg string, t shape, own bool, depth int) (*mlir.Block, error) {
	if err := c.tooLong(); err != nil {
		return nil, err
	}
	f, err := c.function(k, k.name, depth+1)
	if err != nil {
		return nil, err
	}
	if err := c.takes(k, t); err != nil {
		return nil, err
	}
	outer := c.ops
	c.ops = nil
	var args []mlir.Arg
	if own {
		_, types := c.leaves(arg, t)
		c.ops = nil
		var parts []mlir.Use
		for _, typ := range types {
			a := c.temporary()
			args, parts = append(args, mlir.Arg{Name: a, Type: typ}), append(parts, mlir.Use{Name: a})
		}
		arg = c.temporary()
		c.whole(arg, t, parts)
	}
	out := c.temporary()
	c.as("func.call", out, c.typ(k.root.shape), named("callee", mlir.Symbol(c.in.at, f.Name)), arg)
	results, _ := c.leaves(out, k.root.shape)
	c.add(mlir.Spec{Name: "stablehlo.return", Operands: results})
	b := &mlir.Block{Args: args, Ops: c.ops}
	c.ops = outer
	return b, nil
}

func while(c *converter, depth int) error {
	if err := c.want(1); err != nil {
		return err
	}
	t := c.in.shape
	if !c.by[c.in.operands[0]].shape.like(t) {
		return c.errorf("while of a value of type %s gives %s", c.typ(c.by[c.in.operands[0]].shape), c.typ(t))
	}
	parts, types := c.leaves(c.in.operands[0], t)
	var regions []*mlir.Block
	for _, key := range []string{"condition", "body"} {
		k, err := c.called(key)
		if err != nil {
			return err
		}
		b, err := c.calling(k, c.in.operands[0], t, true, depth)
		if err == nil {
			err = c.gives(k, map[string]shape{"condition": {elem: "pred"}, "body": t}[key])
		}
		if err != nil {
			return err
		}
		regions = append(regions, b)
	}
	out := c.temporary()
	c.add(mlir.Spec{Name: "stablehlo.while", Result: unless(len(types) == 0, out), Results: len(types), Operands: parts, Regions: regions, Types: types})
	c.whole(c.in.name, t, of(out, len(types)))
	return nil
}

// unless is a name, or none for an operation without results.
func unless(none bool, name string) string {
	if none {
		return ""
	}
	return name
}

// of are the results of an operation.
func of(name string, n int) []mlir.Use {
	out := make([]mlir.Use, n)
	for i := range out {
		out[i] = mlir.Use{Name: name, Index: i}
	}
	return out
}

// branches are the computations of which a conditional runs one: of two, that for true is first.
func (c *converter) branches() ([]*computation, error) {
	var out []*computation
	if _, two := get(c.in.attrs, "true_computation"); two {
		for _, key := range []string{"true_computation", "false_computation"} {
			k, err := c.called(key)
			if err != nil {
				return nil, err
			}
			out = append(out, k)
		}
		return out, nil
	}
	for _, key := range strings.FieldsFunc(c.text("branch_computations"), func(r rune) bool { return strings.ContainsRune("{}, \t\r\n", r) }) {
		k := c.m.by[strings.TrimPrefix(key, "%")]
		if k == nil {
			return nil, c.errorf("there is no computation %q", key)
		}
		out = append(out, k)
	}
	return out, nil
}

// conditional runs one of some computations, each on an operand of its own.
func conditional(c *converter, depth int) error {
	keys, err := c.branches()
	if err != nil {
		return err
	}
	name := "stablehlo.case"
	if len(c.in.operands) != len(keys)+1 || len(keys) == 0 {
		return c.errorf("%d branches for %d operands: want the index, and one operand for each branch", len(keys), len(c.in.operands))
	}
	if at := c.by[c.in.operands[0]].shape; at.elem == "pred" {
		name = "stablehlo.if"
	} else if name == "stablehlo.if" {
		return c.errorf("conditional on a value of type %s: one with true_computation and false_computation is on pred[]", c.typ(at))
	}
	var regions []*mlir.Block
	for i, key := range keys {
		o := c.in.operands[i+1]
		b, err := c.calling(key, o, c.by[o].shape, false, depth)
		if err != nil {
			return err
		}
		regions = append(regions, b)
	}
	outer := c.ops
	_, types := c.leaves(c.in.name, c.in.shape)
	c.ops = outer
	out := c.temporary()
	c.add(mlir.Spec{Name: name, Result: unless(len(types) == 0, out), Results: len(types), Operands: []mlir.Use{{Name: c.in.operands[0]}}, Regions: regions, Types: types})
	c.whole(c.in.name, c.in.shape, of(out, len(types)))
	return nil
}

// start begins what an instruction of the name without -start does.
func start(opcode string) func(*converter, int) error {
	return func(c *converter, depth int) error {
		in, outer := c.in, c.ops
		args := make([]mlir.Arg, len(in.operands))
		for i, o := range in.operands {
			args[i] = mlir.Arg{Name: o, Type: c.typ(c.by[o].shape)}
		}
		one := *in
		one.opcode, one.name, one.shape = opcode, c.temporary(), c.started(in, opcode)
		c.ops, c.in = nil, &one
		err := c.inferred(&one, depth)
		if err == nil {
			err = c.instruction(&one, depth)
		}
		ops := c.ops
		c.ops, c.in = outer, in
		in.started = &one.shape
		if err != nil && len(in.operands) == 0 {
			return c.errorf("%s without operands; such that an update adds are not supported", in.opcode)
		}
		if err != nil {
			return err
		}
		last := ops[len(ops)-1]
		results := last.Defines()
		if one.shape.many && last.Name == "stablehlo.tuple" { // it is made where it is awaited
			ops, results = ops[:len(ops)-1], last.Uses()
		}
		ops = append(ops, mlir.Spec{Name: "stablehlo.return", At: in.at, Operands: results}.Operation())
		c.add(mlir.Spec{Name: "stablehlo.async_start", Result: in.name, Operands: c.uses(), Regions: []*mlir.Block{&mlir.Block{Args: args, Ops: ops}},
			Types: []mlir.Type{{Text: "!stablehlo.future"}}})
		return nil
	}
}

// started is the type of what an instruction gives once it is done: that of a start has the
// operands beside it, but for all-reduce. A call may tell at the end only.
func (c *converter) started(in *instruction, opcode string) shape {
	t := in.shape
	beside := t.many && len(t.tuple) > 1
	if opcode == "all-reduce" && beside {
		beside = len(t.tuple) != len(in.operands) || t.tuple[0].many
	}
	if !beside {
		return t
	}
	if t = t.tuple[1]; t.many && len(t.tuple) == 0 && (opcode == "call" || opcode == "fusion") {
		t = shape{absent: true}
	}
	return t
}

// done waits for what was started.
func done(c *converter, _ int) error {
	if err := c.want(1); err != nil {
		return err
	}
	t := c.typ(c.in.shape)
	if s := c.by[c.in.operands[0]].started; s != nil && !s.like(c.in.shape) {
		return c.errorf("%s of what gives %s, in the place of %s", c.in.opcode, c.typ(*s), t)
	}
	if !c.in.shape.many {
		c.as("stablehlo.async_done", c.in.name, t, nil, c.in.operands[0])
		return nil
	}
	out := c.temporary()
	c.add(mlir.Spec{Name: "stablehlo.async_done", Result: unless(len(t.Tuple) == 0, out), Results: len(t.Tuple), Operands: c.uses(), Types: t.Tuple})
	c.add(mlir.Spec{Name: "stablehlo.tuple", Result: c.in.name, Operands: of(out, len(t.Tuple)), Types: []mlir.Type{t}})
	return nil
}

// goesOn lets what was started go on.
func goesOn(c *converter, _ int) error {
	if len(c.in.operands) > 1 {
		return c.errorf("%s that adds operands is not supported: give them to the start", c.in.opcode)
	}
	if err := c.want(1); err != nil {
		return err
	}
	if c.in.started = c.by[c.in.operands[0]].started; c.in.started == nil {
		return c.errorf("%s of %%%s, which nothing started", c.in.opcode, c.in.operands[0])
	}
	return same(c, 0)
}

// asyncStart begins a computation: one of a single instruction in flight, others at once.
func asyncStart(c *converter, depth int) error {
	k, err := c.called("calls")
	if err != nil {
		return err
	}
	b, err := c.region(k, depth+1)
	if err != nil {
		return err
	}
	if err := c.takes(k, c.given()...); err != nil {
		return err
	}
	c.in.started = &k.root.shape
	c.add(mlir.Spec{Name: "stablehlo.async_start", Result: c.in.name, Operands: c.uses(), Regions: []*mlir.Block{b}, Types: []mlir.Type{{Text: "!stablehlo.future"}}})
	return nil
}

// scan runs a computation on slices of its inputs, one after the other, and on what it carries.
func scan(c *converter, depth int) error {
	k, err := c.called("to_apply")
	if err != nil {
		return err
	}
	f, err := c.function(k, k.name, depth+1)
	if err != nil {
		return err
	}
	_, dims, err := c.list("dimensions")
	if err != nil {
		return err
	}
	_, carries, err := c.list("num_carries")
	if err != nil {
		return err
	}
	n := int64(len(c.in.operands))
	if len(dims) != 1 || len(carries) != 1 || carries[0] < 0 || carries[0] > n || int64(len(f.Args)) != n || !c.in.shape.many {
		return c.errorf("scan of %d operands along dimensions %v, which carries %v of them, with a computation of %d", n, dims, carries, len(f.Args))
	}
	outer := c.ops
	c.ops = nil
	var args []mlir.Arg
	var names []string
	for _, a := range f.Args {
		name := c.temporary()
		args, names = append(args, mlir.Arg{Name: name, Type: a.Type}), append(names, name)
	}
	out := c.temporary()
	c.as("func.call", out, c.typ(k.root.shape), named("callee", mlir.Symbol(c.in.at, f.Name)), names...)
	results, _ := c.leaves(out, k.root.shape)
	c.add(mlir.Spec{Name: "stablehlo.return", Operands: results})
	body := &mlir.Block{Args: args, Ops: c.ops}
	c.ops = outer
	at := c.in.at
	attrs := named("dimension", mlir.Number(at, dims[0]), "operandSegmentSizes", mlir.Numbers(at, n-carries[0], carries[0]))
	if v := c.text("is_reverse"); v != "" {
		attrs = append(attrs, named("is_reverse", mlir.Word(at, v))...)
	}
	return c.operation("chlo.scan", attrs, []*mlir.Block{body})
}

package hlo

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// specials are instructions that say something in a way of their own.
func specials() map[string]func(c *converter, depth int) error {
	return map[string]func(c *converter, depth int) error{
		"copy": same, "copy-start": same, "copy-done": same, "domain": same, "add-dependency": same, "async-update": goesOn, "bitcast": bitcast,
		"constant": constant, "fusion": function("calls"), "call": function("to_apply"), "compare": compare, "slice": slice, "pad": pad, "dot": dot,
		"convolution": convolution, "reduce-window": reduceWindow, "select-and-scatter": reduceWindow, "topk": topK, "all-to-all": allToAll,
		"gather":              indexed("dimension_numbers", "offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim", "operand_batching_dims", "start_indices_batching_dims"),
		"scatter":             indexed("scatter_dimension_numbers", "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "index_vector_dim", "input_batching_dims", "scatter_indices_batching_dims"),
		"rng-bit-generator":   word("rng_bit_generator", "algorithm", "rng_algorithm", func(s string) string { return strings.ToUpper(strings.TrimPrefix(s, "rng_")) }),
		"triangular-solve":    solver,
		"cholesky":            solver,
		"batch-norm-training": batchNorm, "batch-norm-inference": batchNorm, "batch-norm-grad": batchNorm,
		"dynamic-slice":        vector(1, "dynamic_slice_sizes", "slice_sizes"),
		"dynamic-update-slice": vector(2, "", ""),
		"set-dimension-size":   bounded,
		"while":                while,
		"conditional":          conditional,
		"async-start":          asyncStart,
		"async-done":           done,
		"custom-call":          customCall,
		"rng":                  random,
		"scan":                 scan,
		"ragged-dot":           raggedDot,
		"mulhi":                mulHigh,
	}
}

// named are attributes, of names and values in turn.
func named(l ...any) []mlir.Named {
	var out []mlir.Named
	for i := 0; i < len(l); i += 2 {
		out = append(out, mlir.Named{Name: l[i].(string), Val: l[i+1].(mlir.Attr)})
	}
	return out
}

// customCall keeps the name, and what configures the call as its payload.
func customCall(c *converter, _ int) error {
	target := c.text("custom_call_target")
	if target == "" {
		return c.errorf("custom-call without custom_call_target")
	}
	attrs := named("call_target_name", mlir.Text(c.in.at, target))
	if config := c.text("backend_config"); config != "" {
		attrs = append(attrs, named("backend_config", mlir.Text(c.in.at, config))...)
	}
	one := *c.in
	one.operands = nil
	for _, o := range c.in.operands { // it gets the tensors
		uses, _ := c.leaves(o, c.by[o].shape)
		for _, u := range uses {
			one.operands = append(one.operands, u.Name)
		}
	}
	if !one.shape.many && one.shape.elem != "token" {
		c.in = &one
		return c.operation("custom_call", attrs, nil)
	}
	result := c.temporary()
	spec := mlir.Spec{Name: "stablehlo.custom_call", Attrs: attrs}
	for _, o := range one.operands {
		spec.Operands = append(spec.Operands, mlir.Use{Name: o})
	}
	var parts []mlir.Use
	for _, t := range tensors(one.shape, nil) {
		if t.elem == "token" {
			parts = append(parts, mlir.Use{Name: c.temporary()})
			c.add(mlir.Spec{Name: "stablehlo.create_token", Result: parts[len(parts)-1].Name, Types: []mlir.Type{c.typ(t.shape)}})
			continue
		}
		parts = append(parts, mlir.Use{Name: result, Index: spec.Results})
		spec.Results++
		spec.Types = append(spec.Types, c.typ(t.shape))
	}
	spec.Result = unless(spec.Results == 0, result)
	c.add(spec)
	c.whole(c.in.name, one.shape, parts)
	return nil
}

// list is an attribute as numbers; nil where it is absent.
func (c *converter) list(name string) (mlir.Attr, []int64, error) {
	a, ok := get(c.in.attrs, name)
	if !ok {
		return mlir.Numbers(c.in.at), nil, nil
	}
	n, err := c.numbers(a)
	return mlir.Numbers(a.start, n...), n, err
}

// want checks how many operands the instruction has.
func (c *converter) want(n int) error {
	if len(c.in.operands) != n {
		return c.errorf("%s takes %d operands, got %d", c.in.opcode, n, len(c.in.operands))
	}
	return nil
}

// as adds an operation on names that gives a name of a type.
func (c *converter) as(name, result string, t mlir.Type, attrs []mlir.Named, operands ...string) {
	uses := make([]mlir.Use, len(operands))
	for i, o := range operands {
		uses[i] = mlir.Use{Name: o}
	}
	c.add(mlir.Spec{Name: name, Result: result, Operands: uses, Attrs: attrs, Types: []mlir.Type{t}})
}

// same is the operand under another name.
func same(c *converter, _ int) error {
	if len(c.in.operands) == 0 {
		return c.errorf("%s without operands", c.in.opcode)
	}
	c.as("stablehlo.optimization_barrier", c.in.name, c.typ(c.in.shape), nil, c.in.operands[0])
	return nil
}

// bitcast gives the bytes of the operand, as they lie, another type.
func bitcast(c *converter, _ int) error {
	if err := c.want(1); err != nil {
		return err
	}
	from, to := c.by[c.in.operands[0]].shape, c.in.shape
	at := c.in.operands[0]
	if from.many || to.many {
		return c.errorf("bitcast of a tuple")
	}
	at = c.laidOut(at, from, false)
	if from.elem != to.elem {
		next := c.temporary()
		c.as("stablehlo.bitcast_convert", next, c.typ(shape{elem: to.elem, dims: physical(from)}), nil, at)
		at = next
	}
	next := c.temporary()
	c.as("stablehlo.reshape", next, c.typ(shape{elem: to.elem, dims: physical(to)}), nil, at)
	c.as("stablehlo.optimization_barrier", c.in.name, c.typ(to), nil, c.laidOut(next, to, true))
	return nil
}

// physical are the sizes of a type in the order in which they lie.
func physical(t shape) []int64 {
	if t.layout == nil {
		return t.dims
	}
	out := make([]int64, len(t.dims))
	for i, d := range t.layout {
		out[len(out)-1-i] = t.dims[d]
	}
	return out
}

// laidOut is a value with its dimensions in the order in which they lie, or back from there.
func (c *converter) laidOut(v string, t shape, back bool) string {
	if t.layout == nil {
		return v
	}
	order := slices.Clone(t.layout)
	slices.Reverse(order)
	to := shape{elem: t.elem, dims: physical(t)}
	if back {
		inverse := make([]int64, len(order))
		for i, d := range order {
			inverse[d] = int64(i)
		}
		order, to = inverse, shape{elem: t.elem, dims: t.dims}
	}
	next := c.temporary()
	c.as("stablehlo.transpose", next, c.typ(to), named("permutation", mlir.Numbers(c.in.at, order...)), v)
	return next
}

// function calls a computation, which becomes part of the function.
func function(key string) func(*converter, int) error {
	return func(c *converter, depth int) error {
		k, err := c.called(key)
		if err != nil {
			return err
		}
		f, err := c.function(k, k.name, depth+1)
		if err != nil {
			return err
		}
		if err := c.takes(k, c.given()...); err != nil {
			return err
		}
		if err := c.gives(k, c.in.shape); err != nil {
			return err
		}
		return c.operation("func.call", named("callee", mlir.Symbol(c.in.at, f.Name)), nil)
	}
}

// compared are the kinds of numbers that a comparison takes for what they are, by how element types begin.
var compared = map[string]string{"FLOAT": "fb", "TOTALORDER": "fb", "SIGNED": "s", "UNSIGNED": "up"}

func compare(c *converter, _ int) error {
	if t := c.text("type"); t != "" && len(c.in.operands) > 0 {
		elem := c.by[c.in.operands[0]].shape.elem
		if elem != "" && !strings.Contains(compared[t], elem[:1]) {
			return c.errorf("compare with type=%s of elements of type %s", t, elem)
		}
	}
	attrs := named("comparison_direction", mlir.Word(c.in.at, c.text("direction")))
	if t := c.text("type"); t != "" {
		attrs = append(attrs, named("compare_type", mlir.Word(c.in.at, t))...)
	}
	return c.operation("", attrs, nil)
}

// ranges reads slice={[0:2], [1:9:2]}: starts, limits and strides.
func (c *converter) ranges() (l [3][]int64, err error) {
	a, ok := get(c.in.attrs, "slice")
	if !ok {
		return l, c.errorf("slice without ranges")
	}
	p := c.scan(a)
	p.expect("{", "before ranges")
	for first := true; p.err == nil && !p.eat("}"); first = false {
		if !first && !p.expect(",", "between ranges") {
			break
		}
		p.expect("[", "before a range")
		l[0] = append(l[0], p.integer("a start"))
		p.expect(":", "in a range")
		l[1] = append(l[1], p.integer("a limit"))
		step := int64(1)
		if p.eat(":") {
			step = p.integer("a stride")
		}
		l[2] = append(l[2], step)
		p.expect("]", "behind a range")
	}
	return l, p.err
}

func slice(c *converter, _ int) error {
	l, err := c.ranges()
	if err != nil {
		return err
	}
	at := c.in.at
	return c.operation("", named("start_indices", mlir.Numbers(at, l[0]...), "limit_indices", mlir.Numbers(at, l[1]...), "strides", mlir.Numbers(at, l[2]...)), nil)
}

// pad reads padding=0_1x2_3_1: in front, behind, between.
func pad(c *converter, _ int) error {
	a, _ := get(c.in.attrs, "padding")
	rows, err := c.grid(a, 3)
	if err != nil {
		return err
	}
	var l [3][]int64
	for _, r := range rows {
		for i := range l {
			l[i] = append(l[i], r[i])
		}
	}
	return c.operation("", named("edge_padding_low", mlir.Numbers(a.start, l[0]...), "edge_padding_high", mlir.Numbers(a.start, l[1]...),
		"interior_padding", mlir.Numbers(a.start, l[2]...)), nil)
}

// grid reads rows of numbers, 0_1x2_3, of a width; what a row leaves out is 0.
func (c *converter) grid(a attribute, width int) ([][]int64, error) {
	p := c.scan(a)
	var rows [][]int64
	for p.err == nil && p.peek() != 0 {
		if len(rows) > 0 && !p.expect("x", "between dimensions") {
			break
		}
		at := p.i
		row := []int64{p.integer("a number")}
		for p.err == nil && p.i < len(p.s) && p.s[p.i] == '_' {
			p.i++
			row = append(row, p.integer("a number"))
		}
		if len(row) > width || len(rows) >= maxDims {
			p.failf(at, "%d numbers for a dimension, want %d at most", len(row), width)
			break
		}
		for len(row) < width {
			row = append(row, 0)
		}
		rows = append(rows, row)
	}
	return rows, p.err
}

// window reads window={size=2x2 stride=1x2 pad=0_0x1_1 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}.
func (c *converter) window() (map[string][]int64, error) {
	out := map[string][]int64{}
	a, ok := get(c.in.attrs, "window")
	if !ok {
		return out, nil
	}
	p := c.scan(a)
	p.expect("{", "before a window")
	for p.err == nil && !p.eat("}") {
		key := p.word()
		if !p.expect("=", "behind a part of a window") {
			break
		}
		p.space()
		start := p.i
		for p.i < len(p.s) && p.s[p.i] != ' ' && p.s[p.i] != '}' {
			p.i++
		}
		width := 1
		if key == "pad" {
			width = 2
		}
		rows, err := c.grid(attribute{span: span{start, p.i}}, width)
		if err != nil {
			return nil, err
		}
		out[key] = slices.Concat(rows...)
	}
	return out, p.err
}

// indexed reads the dimension numbers of gather and scatter.
func indexed(name string, keys ...string) func(*converter, int) error {
	return func(c *converter, depth int) error {
		var fields []mlir.Named
		for _, k := range keys {
			l, n, err := c.list(k)
			if err != nil {
				return err
			}
			if n != nil {
				fields = append(fields, named(k, l)...)
			}
		}
		attrs := named(name, mlir.Dict(c.in.at, fields...))
		if sizes, n, err := c.list("slice_sizes"); err != nil {
			return err
		} else if n != nil {
			attrs = append(attrs, named("slice_sizes", sizes)...)
		}
		if c.in.opcode == "scatter" { // an update that reaches over the edge is left out, in StableHLO only what is beyond it
			attrs = append(attrs, named("concert.entire", mlir.Word(c.in.at, "true"))...)
		}
		return c.withRegion("", attrs, depth)
	}
}

// reduceWindow reads its window.
func reduceWindow(c *converter, depth int) error {
	w, err := c.window()
	if err != nil {
		return err
	}
	attrs := named("window_dimensions", mlir.Numbers(c.in.at, w["size"]...))
	for key, to := range map[string]string{"stride": "window_strides", "pad": "padding", "lhs_dilate": "base_dilations", "rhs_dilate": "window_dilations"} {
		if l := w[key]; l != nil {
			attrs = append(attrs, named(to, mlir.Numbers(c.in.at, l...))...)
		}
	}
	if c.in.opcode == "reduce-window" {
		return c.withRegion("", attrs, depth)
	}
	var regions []*mlir.Block // of select-and-scatter
	for _, key := range []string{"select", "scatter"} {
		b, err := c.calledRegion(key, depth)
		if err != nil {
			return err
		}
		regions = append(regions, b)
	}
	return c.operation("", attrs, regions)
}

// word moves an attribute that is a word, under another name.
func word(name, from, to string, up func(string) string) func(*converter, int) error {
	return func(c *converter, _ int) error {
		return c.operation(name, named(to, mlir.Word(c.in.at, up(c.text(from)))), nil)
	}
}

func topK(c *converter, _ int) error {
	a, ok := get(c.in.attrs, "k")
	if !ok {
		return c.errorf("topk without k")
	}
	n, err := c.numbers(a)
	if err != nil || len(n) != 1 {
		return c.errorf("topk of %v elements", n)
	}
	attrs := named("k", mlir.Number(a.start, n[0]))
	if v := c.text("largest"); v != "" {
		attrs = append(attrs, named("largest", mlir.Word(a.start, v))...)
	}
	return c.operation("chlo.top_k", attrs, nil)
}

// solver moves attributes that are truth values and words.
func solver(c *converter, _ int) error {
	var attrs []mlir.Named
	for _, key := range []string{"left_side", "lower", "unit_diagonal", "transpose_a"} {
		if v := c.text(key); v != "" {
			attrs = append(attrs, named(key, mlir.Word(c.in.at, v))...)
		}
	}
	return c.operation("", attrs, nil)
}

// batchNorm has a number that is not whole.
func batchNorm(c *converter, _ int) error {
	attrs, err := c.renamed(map[string]string{"feature_index": "feature_index"})
	if err != nil {
		return err
	}
	return c.operation("", append(attrs, named("epsilon", mlir.Word(c.in.at, c.text("epsilon")))...), nil)
}

func mulHigh(c *converter, _ int) error { return c.operation("chlo.mulhi", nil, nil) }

// random draws numbers between two, or around one, for the shape of the result.
func random(c *converter, _ int) error {
	if err := c.want(2); err != nil {
		return err
	}
	at, rank := c.in.at, int64(len(c.in.shape.dims))
	l := &mlir.Literal{DType: ir.I64, Shape: []int64{rank}}
	for _, n := range c.in.shape.dims {
		l.Data = binary.LittleEndian.AppendUint64(l.Data, uint64(n))
	}
	sizes := c.temporary()
	c.as("stablehlo.constant", sizes, mlir.Type{Tensor: true, Elem: "i64", Shape: l.Shape}, named("value", mlir.Constant(at, l)))
	kind := strings.ToUpper(strings.TrimPrefix(c.text("distribution"), "rng_"))
	c.as("stablehlo.rng", c.in.name, c.typ(c.in.shape), named("rng_distribution", mlir.Word(at, kind)), append(slices.Clone(c.in.operands), sizes)...)
	return nil
}

// vector gives an operation its indices one by one, which may be one vector behind so many operands.
func vector(behind int, list, to string) func(*converter, int) error {
	return func(c *converter, _ int) error {
		attrs, err := c.renamed(map[string]string{list: to})
		if err != nil {
			return err
		}
		of := c.in.operands
		if len(of) != behind+1 || len(c.by[of[behind]].shape.dims) != 1 {
			return c.operation("", attrs, nil)
		}
		one, t := *c.in, c.by[of[behind]].shape
		one.operands = slices.Clone(of[:behind])
		part, scalar := c.typ(shape{elem: t.elem, dims: []int64{1}}), c.typ(shape{elem: t.elem})
		for k := range min(t.dims[0], maxDims) {
			cut, index := c.temporary(), c.temporary()
			c.as("stablehlo.slice", cut, part, named("start_indices", mlir.Numbers(c.in.at, k), "limit_indices", mlir.Numbers(c.in.at, k+1), "strides", mlir.Numbers(c.in.at, 1)), of[behind])
			c.as("stablehlo.reshape", index, scalar, nil, cut)
			one.operands = append(one.operands, index)
		}
		c.in = &one
		return c.operation("", attrs, nil)
	}
}

// bounded refuses sizes that are known at run time only.
func bounded(c *converter, _ int) error {
	return c.errorf("op not supported: %s: a tensor whose size is known at run time only; compile the program for fixed sizes", c.in.opcode)
}

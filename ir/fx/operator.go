package fx

import (
	"errors"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// operation imports a node that is neither input nor output.
func (c *node) operation() error {
	if isGetitem(c.Operator) {
		return c.getitem()
	}
	if isAssertion(c.Operator) {
		c.im.warn(c.n, "assertion", pytext.Clip(c.n.Target+c.n.Args)+" is left out: runs do not check it")
		return nil
	}
	if op, ok := c.operators()[c.Operator]; ok {
		err := op.Import(c.Call)
		if err == nil {
			c.keep()
		}
		return c.orOpaque(err)
	}
	if strings.HasPrefix(c.Operator, foreachPrefix) {
		return c.foreach()
	}
	signature, build, ok := collectiveOperator(c.Operator)
	if !ok {
		return c.opaque(nil)
	}
	return c.orOpaque(c.Run(signature, func() error { return build(c) }))
}

// isAssertion reports whether an operator ends a run in which a tensor's value is false, and does nothing else.
func isAssertion(operator string) bool { return strings.HasPrefix(operator, "aten._assert_async.") }

// orOpaque imports an operator whose form is unknown as an opaque call.
func (c *node) orOpaque(err error) error {
	if errors.Is(err, traced.ErrForm) {
		return c.opaque(err)
	}
	return err
}

// opaque imports an operator that the table does not know, or not in the form that unknown
// tells of.
func (c *node) opaque(unknown error) error {
	if c.n.Kind == KindWait {
		return c.Fail("target", "operator", "%q is not a wait that concert knows", pytext.Clip(c.n.Target))
	}
	if ok, err := c.withoutElements(); ok || err != nil {
		return err
	}
	why := "is not an operator that concert knows"
	switch {
	case c.Complex != nil && unknown == nil:
		why = "is not known to concert for complex numbers: keep real and imaginary parts apart (torch.view_as_real)"
	case c.Unsized:
		why = "is known to concert only for sizes that are numbers when it is traced"
	case unknown != nil:
		why = "has arguments that concert does not know" + strings.TrimPrefix(unknown.Error(), traced.ErrForm.Error())
	}
	var args []*ir.Value
	c.Err, c.Items, c.hasRoot = nil, nil, false
	for _, name := range c.n.Inputs {
		v := pytext.Value{Kind: pytext.Name, Text: name, Col: 1}
		vals, st, err := c.values(&v)
		if err != nil {
			return err
		}
		if !c.hasRoot {
			c.operandRoot, c.hasRoot = st.root, true
		}
		args = append(args, vals...)
	}
	attrs := attr.Make(attr.Attr{Key: "target", Val: attr.String(c.Operator)})
	if effects := c.opaqueEffects(len(args)); len(effects) > 0 {
		attrs = attrs.With("effects", attr.Strings(effects...))
	}
	if c.n.Kind == KindCompute {
		attrs = attrs.With("class", attr.String("compute"))
	}
	if text := strings.TrimSpace(c.n.Args + " " + c.n.Kwargs); text != "()" {
		attrs = attrs.With("payload", attr.String(text))
	}
	if _, err := c.emit(ir.OpCall, attrs, nil, args...); err != nil {
		return err
	}
	c.im.warn(c.n, "opaque", pytext.Clip(c.n.Target)+" "+why+"; it becomes an opaque call, whose function is to be given in Config.Funcs")
	return nil
}

// withoutElements imports an operator whose results have no elements, as those of empty batches: whatever it computes.
func (c *node) withoutElements() (bool, error) {
	if c.Complex != nil || c.n.Kind == KindView || len(c.n.Out) == 0 || len(c.opaqueEffects(0)) > 0 {
		return false, nil
	}
	for i := range c.n.Out {
		if s, ok := c.Shape(i).Static(); !ok || !slices.Contains(s, 0) {
			return false, nil
		}
	}
	c.Err, c.Items, c.Lines = nil, nil, false
	ts, err := c.Types()
	if err != nil {
		return false, err
	}
	zero := attr.Make(attr.Attr{Key: "value", Val: attr.Int(0)})
	var others []*ir.Value
	for _, t := range ts[1:] {
		others = append(others, c.Helper(ir.OpFull, zero, t))
	}
	if err := c.Finish(ir.OpFull, zero, nil, others...); err != nil {
		return false, err
	}
	c.keep()
	return true, nil
}

// opaqueEffects guesses, on the safe side, what an unknown operator does.
func (c *node) opaqueEffects(args int) []string {
	base, _, _ := strings.Cut(c.Operator[strings.IndexByte(c.Operator, '.')+1:], ".")
	var e []string
	if c.n.Kind == KindView && args > 0 && len(c.n.Out) > 0 {
		e = append(e, "alias")
	}
	if c.n.Kind == KindCollective || strings.Contains(c.Operator, "c10d") {
		e = append(e, "communicates")
	}
	for _, w := range []string{"rand", "dropout", "bernoulli", "multinomial", "normal_", "exponential"} {
		if strings.Contains(base, w) {
			e = append(e, "random")
			break
		}
	}
	if strings.HasSuffix(base, "_") && !strings.HasSuffix(base, "__") || len(c.n.Out) == 0 {
		e = append(e, "writes")
	}
	return e
}

func isGetitem(target string) bool {
	switch target {
	case "<built-in function getitem>", "_operator.getitem", "operator.getitem":
		return true
	}
	return false
}

// resultItems gives, for operators whose result tuple holds more than tensors,
// the place of each tensor of out in the tuple.
func resultItems(target string, tensors int) []int {
	var items []int
	switch {
	case strings.HasPrefix(target, "aten._scaled_dot_product_cudnn_attention."),
		strings.HasPrefix(target, "aten._scaled_dot_product_flash_attention."),
		strings.HasPrefix(target, "aten._scaled_dot_product_fused_attention_overrideable."):
		items = []int{0, 1, 6, 7, 8}
	default:
		return nil
	}
	if tensors < len(items) {
		items = items[:tensors]
	}
	return items
}

// getitem picks one result of a node with several.
func (c *node) getitem() error {
	if err := c.Bind("self index"); err != nil {
		return c.Fail("args", "arguments", "getitem takes a node and an index")
	}
	v, index := c.Arg("self"), c.Need("index")
	if v == nil || v.Kind != pytext.Name {
		c.Want("self", "a node", v)
	}
	if c.Err != nil {
		return c.Err
	}
	j := c.im.index[v.Text]
	src := &c.im.nodes[j]
	if src.flight != nil && src.item == allItems {
		return c.getitemInFlight(src.flight, index)
	}
	vals, _, err := c.values(v)
	if err != nil {
		return err
	}
	if src.lists > 0 && index == 1 { // the list of a pair
		st := &c.im.nodes[c.i]
		st.vals, st.root = vals[src.lists-1:], storage{node: j}
		if len(c.n.Out) != len(st.vals) {
			return c.Fail("out", "results", "getitem gives %d results, out lists %d", len(st.vals), len(c.n.Out))
		}
		return nil
	}
	if src.lists > 0 {
		vals = vals[:src.lists-1]
	}
	k, err := c.itemOf(&c.im.file.Nodes[j], src.items, index, len(vals))
	if err != nil {
		return err
	}
	c.operandRoot = src.root
	if c.im.file.Nodes[j].Kind != KindView {
		c.operandRoot.item = int32(k) + 1
	}
	c.hasRoot = true
	_, err = c.emit(ir.OpAlias, nil, nil, vals[k])
	return err
}

// itemOf converts an index of a result tuple to one of out; items are those that the
// operator gave.
func (c *node) itemOf(producer *Node, items []int, index int64, tensors int) (int, error) {
	if items == nil {
		items = resultItems(strings.TrimPrefix(producer.Target, "torch.ops."), tensors)
	}
	if items == nil {
		if index < 0 || index >= int64(tensors) {
			return 0, c.FailAt("args", int(c.Arg("index").Col), "arguments", "item %d of %q, whose out lists %d tensors", index, producer.Name, tensors)
		}
		return int(index), nil
	}
	for k, item := range items {
		if int64(item) == index {
			return k, nil
		}
	}
	return 0, c.FailAt("args", int(c.Arg("index").Col), "arguments", "item %d of %q is not a tensor; those are items %v", index, producer.Name, items)
}

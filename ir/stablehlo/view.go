package stablehlo

// This file shows the parsed text to packages that read programs for another end than to
// import them.

// Operation is one operation as the text has it.
type Operation = op

// Block is a region's only block.
type Block = block

// Attr is an attribute's value.
type Attr = attr

// Use names a value: one of those that a name stands for.
type Use struct {
	Name  string
	Index int
}

// Others are the operations that stand beside the module's functions.
func (m *Module) Others() []*Operation { return m.ops }

// Body is what the function does; nil of a declaration.
func (f *Func) Body() *Block { return f.body }

// ResultAttr is an attribute of a result.
func (f *Func) ResultAttr(i int, name string) (Attr, bool) {
	if i >= len(f.resultAttrs) {
		return attr{}, false
	}
	return f.resultAttrs[i].Get(name)
}

// Attr is an attribute of an argument.
func (a Arg) Attr(name string) (Attr, bool) { return a.attrs.Get(name) }

// Args are the arguments of a block.
func (b *block) Args() []Arg { return b.args }

// Ops are the operations of a block, in their order.
func (b *block) Ops() []*Operation { return b.ops }

// Name is the operation's name with its dialect.
func (o *op) Name() string { return o.name }

// Defines are the values that the operation defines.
func (o *op) Defines() []Use {
	var out []Use
	for _, r := range o.results {
		for i := range r.count {
			out = append(out, Use{r.name, i})
		}
	}
	return out
}

// Uses are the operands.
func (o *op) Uses() []Use {
	out := make([]Use, len(o.operands))
	for i, r := range o.operands {
		out[i] = Use{r.name, r.index}
	}
	return out
}

// Attr is the attribute that has one of some names.
func (o *op) Attr(names ...string) (Attr, bool) { return o.attr(names...) }

// Flags are the attributes without a name.
func (o *op) Flags() []Attr { return o.flags }

// Regions are the operation's regions.
func (o *op) Regions() []*Block { return o.regions }

// Outs are the declared types of the results; that of a constant is its value's.
func (o *op) Outs() []Type {
	if o.outs == nil && len(o.results) == 1 {
		v, _ := o.attr("value")
		for _, f := range append(o.flags, v) {
			if f.Type != nil {
				return []Type{*f.Type}
			}
		}
	}
	return o.outs
}

// LineOf is the line of the text that the operation stands in.
func (m *Module) LineOf(o *Operation) int { return int(m.src.PosAt(o.at).Line) }

// Inside is the text inside the brackets of an attribute, and where it starts.
func (m *Module) Inside(a Attr) (string, int) { return m.src.Text[a.start:a.end], a.start }

// Layouts says where the dimensions of a convolution's operands and result are: batch (of
// the second operand what comes out), feature, and those of the window. The error is a
// *diag.Finding at the operation.
func (m *Module) Layouts(o *Operation, rank int) ([3][]int64, error) {
	l, err := (&importer{m: m, op: o}).layouts(rank)
	return [3][]int64{l[0], l[1], l[2]}, err
}

// Pairs are the dimensions of both operands of a product that belong together: batches, and
// those that are summed over. The error is a *diag.Finding at the operation.
func (m *Module) Pairs(o *Operation) (batch, contracting [2][]int64, err error) {
	im := &importer{m: m, op: o}
	if batch[0], batch[1], err = im.pair(o, "batching_dims", "lhs_batching_dimensions", "rhs_batching_dimensions"); err == nil {
		contracting[0], contracting[1], err = im.pair(o, "contracting_dims", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
	}
	return batch, contracting, err
}

// Ints are the whole numbers of an attribute. The error is a *diag.Finding at what is none.
func (m *Module) Ints(a Attr) ([]int64, error) { return m.ints(a) }

// Fields are the named attributes inside the brackets of an attribute. The error is a
// *diag.Finding in them.
func (m *Module) Fields(a Attr) (func(name string) (Attr, bool), error) {
	l, err := m.fields(a)
	return l.Get, err
}

// ErrorAt makes an error at an operation, or at a place in the text where there is none.
func (m *Module) ErrorAt(o *Operation, at int, format string, args ...any) error {
	n := 1
	if o != nil {
		at, n = o.at, len(o.name)
	}
	return errorAt(m.src, at, n, "sharding", format, args...)
}

package mlir

// ResultAttr is an attribute of a result.
func (f *Func) ResultAttr(i int, name string) (Attr, bool) {
	if i >= len(f.ResultAttrs) {
		return Attr{}, false
	}
	return f.ResultAttrs[i].Get(name)
}

// Defines are the values that the operation defines.
func (o *Operation) Defines() []Use {
	var out []Use
	for _, r := range o.Results {
		for i := range r.Count {
			out = append(out, Use{r.Name, i})
		}
	}
	return out
}

// Uses are the operands.
func (o *Operation) Uses() []Use {
	out := make([]Use, len(o.Operands))
	for i, r := range o.Operands {
		out[i] = r.Use
	}
	return out
}

// ResultTypes are the declared types of the results; that of a constant is its value's.
func (o *Operation) ResultTypes() []Type {
	if o.Outs == nil && len(o.Results) == 1 {
		v, _ := o.Attr("value")
		for _, f := range append(o.Flags, v) {
			if f.Type != nil {
				return []Type{*f.Type}
			}
		}
	}
	return o.Outs
}

// LineOf is the line of the text that the operation stands in.
func (m *Module) LineOf(o *Operation) int { return int(m.Source.PosAt(o.At).Line) }

// Inside is the text inside the brackets of an attribute, and where it starts.
func (m *Module) Inside(a Attr) (string, int) { return m.Source.Text[a.Start:a.End], a.Start }

// ErrorAt makes an error at an operation, or at a place in the text where there is none.
func (m *Module) ErrorAt(o *Operation, at int, format string, args ...any) error {
	n := 1
	if o != nil {
		at, n = o.At, len(o.Name)
	}
	return ErrorAt(m.Source, at, n, "sharding", format, args...)
}

package stablehlo

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// This file reads the attributes of operations, under the names of the generic form and of
// the forms that dialects print.

// attr is the attribute that has one of some names.
func (o *op) attr(names ...string) (attr, bool) {
	for _, n := range names {
		if a, ok := o.attrs.Get(n); ok {
			return a, true
		}
	}
	return attr{}, false
}

// fields are the named attributes inside the brackets of an opaque attribute.
func (m *Module) fields(a attr) (attrs, error) {
	if a.Kind == kindDict {
		return a.Dict, nil
	}
	p := m.inside(a)
	l := p.dict("")
	return l, p.err
}

// inside is a parser of what the brackets of an attribute hold.
func (m *Module) inside(a attr) *parser {
	return &parser{src: m.src, s: m.src.Text[:a.end], i: a.start, alias: m.alias}
}

// integer is a whole number.
func (m *Module) integer(a attr) (int64, error) {
	if a.Kind == kindBool {
		if a.Text == "true" {
			return 1, nil
		}
		return 0, nil
	}
	n, err := strconv.ParseInt(a.Text, base(a.Text), 64)
	if a.Kind != kindNumber || err != nil {
		return 0, errorAt(m.src, a.at, 1, "stablehlo", "expected a whole number")
	}
	return n, nil
}

// ints are the whole numbers of a list, an array or a constant of one or more dimensions.
func (m *Module) ints(a attr) ([]int64, error) {
	switch {
	case a.numbers != nil:
		return slices.Clone(a.numbers), nil
	case a.Kind == kindList:
		var out []int64
		for _, e := range a.List {
			l, err := m.ints(e) // lists of pairs, too
			if err != nil {
				return nil, err
			}
			out = append(out, l...)
		}
		return out, nil
	case a.Kind == kindDense && a.Text == "array":
		p := m.inside(a)
		p.word()
		if !p.eat(":") {
			return nil, nil
		}
		var out []int64
		for p.err == nil && p.peek() != 0 {
			if len(out) > 0 && !p.expect(",", "in an array") {
				break
			}
			switch {
			case p.keyword("true"):
				out = append(out, 1)
			case p.keyword("false"):
				out = append(out, 0)
			default:
				out = append(out, p.integer("an element"))
			}
		}
		return out, p.err
	case a.Kind != kindDense:
		n, err := m.integer(a)
		return []int64{n}, err
	}
	l, err := m.decode(a)
	if err != nil {
		return nil, err
	}
	if l.DType.IsFloat() {
		return nil, errorAt(m.src, a.at, 1, "stablehlo", "expected whole numbers")
	}
	if n, _ := elements(l.Shape); n > maxResults {
		return nil, errorAt(m.src, a.at, 1, "stablehlo", "%d numbers in an attribute", n)
	}
	return l.ints(), nil
}

// ints are the numbers of an attribute that has one of some names; nil where it is absent.
func (im *importer) ints(names ...string) ([]int64, error) {
	a, ok := im.op.attr(names...)
	if !ok {
		return nil, nil
	}
	return im.m.ints(a)
}

// integer is the number of an attribute that has one of some names, and must be there.
func (im *importer) integer(names ...string) (int64, error) {
	a, ok := im.op.attr(names...)
	if !ok {
		return 0, im.errorf("%s without %s", im.op.name, names[0])
	}
	return im.m.integer(a)
}

// dims are the numbers of an attribute that has one of some names: dimensions below rank,
// each once.
func (im *importer) dims(rank int, names ...string) ([]int64, error) {
	l, err := im.ints(names...)
	if err != nil {
		return nil, err
	}
	return l, im.checkDims(l, rank, names[0])
}

func (im *importer) checkDims(l []int64, rank int, what string) error {
	seen := make([]bool, rank)
	for _, d := range l {
		if d < 0 || d >= int64(rank) || seen[d] {
			return im.errorf("%s = %v: want dimensions of %d, each once", what, l, rank)
		}
		seen[d] = true
	}
	return nil
}

// dim is a dimension below rank.
func (im *importer) dim(rank int, names ...string) (int64, error) {
	d, err := im.integer(names...)
	if err == nil && (d < 0 || d >= int64(rank)) {
		err = im.errorf("%s = %d: there are %d dimensions", names[0], d, rank)
	}
	return d, err
}

// enum is an enumerated attribute such as LT, which stands by itself, under a name, or as
// #stablehlo<comparison_direction LT>; empty if it is absent.
func (im *importer) enum(name string, flag int) string {
	if a, ok := im.op.attr(name); ok {
		switch a.Kind {
		case kindOpaque:
			body := strings.Fields(im.m.src.Text[a.start:a.end])
			if len(body) > 0 {
				return body[len(body)-1]
			}
		default:
			return a.Text
		}
	}
	if flag >= 0 && flag < len(im.op.flags) && im.op.flags[flag].Kind == kindWord {
		return im.op.flags[flag].Text
	}
	return ""
}

// literal is the constant that a value is.
func (im *importer) literal(v *value, what string) (*Literal, error) {
	if v.lit == nil {
		return nil, im.errorf("%s of %s is not a constant", what, im.op.name)
	}
	return v.lit, nil
}

// result is the declared type of a result.
func (im *importer) result(i int) (Type, error) {
	if i >= len(im.op.outs) || !im.op.outs[i].Tensor {
		return Type{}, im.errorf("%s does not declare the type of result %d", im.op.name, i)
	}
	return im.op.outs[i], nil
}

// resultDType is the declared element type of the first result.
func (im *importer) resultDType() (ir.DType, error) {
	t, err := im.result(0)
	if err != nil {
		return 0, err
	}
	dt, err := elementType(t.Elem)
	if err != nil {
		return 0, im.errorf("%v", err)
	}
	return dt, nil
}

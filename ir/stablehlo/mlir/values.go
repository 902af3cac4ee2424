package mlir

import (
	"slices"
	"strconv"
)

// Attr is the attribute that has one of some names.
func (o *Operation) Attr(names ...string) (Attr, bool) {
	for _, n := range names {
		if a, ok := o.Attrs.Get(n); ok {
			return a, true
		}
	}
	return Attr{}, false
}

// Fields are the named attributes inside the brackets of an opaque attribute.
func (m *Module) Fields(a Attr) (Attrs, error) {
	if a.Kind == KindDict {
		return a.Dict, nil
	}
	p := m.Parser(a)
	l := p.dict("")
	return l, p.Err
}

// Parser is a parser of what the brackets of an attribute hold.
func (m *Module) Parser(a Attr) *Parser {
	return &Parser{src: m.Source, s: m.Source.Text[:a.End], Pos: a.Start, alias: m.Alias}
}

// Integer is a whole number.
func (m *Module) Integer(a Attr) (int64, error) {
	if a.Kind == KindBool {
		if a.Text == "true" {
			return 1, nil
		}
		return 0, nil
	}
	n, err := strconv.ParseInt(a.Text, IntBase(a.Text), 64)
	if a.Kind != KindNumber || err != nil {
		return 0, ErrorAt(m.Source, a.At, 1, "stablehlo", "expected a whole number")
	}
	return n, nil
}

// Ints are the whole numbers of a list, an array or a constant of one or more dimensions.
func (m *Module) Ints(a Attr) ([]int64, error) {
	switch {
	case a.numbers != nil:
		return slices.Clone(a.numbers), nil
	case a.Kind == KindList:
		var out []int64
		for _, e := range a.List {
			l, err := m.Ints(e) // lists of pairs, too
			if err != nil {
				return nil, err
			}
			out = append(out, l...)
		}
		return out, nil
	case a.Kind == KindDense && a.Text == "array":
		p := m.Parser(a)
		p.Word()
		if !p.Eat(":") {
			return nil, nil
		}
		var out []int64
		for p.Err == nil && p.Peek() != 0 {
			if len(out) > 0 && !p.Expect(",", "in an array") {
				break
			}
			switch {
			case p.Keyword("true"):
				out = append(out, 1)
			case p.Keyword("false"):
				out = append(out, 0)
			default:
				out = append(out, p.Integer("an element"))
			}
		}
		return out, p.Err
	case a.Kind != KindDense:
		n, err := m.Integer(a)
		return []int64{n}, err
	}
	l, err := m.Decode(a)
	if err != nil {
		return nil, err
	}
	if l.DType.IsFloat() {
		return nil, ErrorAt(m.Source, a.At, 1, "stablehlo", "expected whole numbers")
	}
	if n, _ := NumElements(l.Shape); n > MaxNumbers {
		return nil, ErrorAt(m.Source, a.At, 1, "stablehlo", "%d numbers in an attribute", n)
	}
	return l.Ints(), nil
}

package stablehlo

import (
	"strconv"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
)

// This file makes modules of what another text says: HLO has a syntax of its own for the
// same operations. Places are offsets in that text.

// Named is an attribute with its name.
type Named = named

// NewModule is an empty module of a text.
func NewModule(file, text string) *Module {
	return &Module{src: diag.NewSource(file, text), alias: map[string]attr{}}
}

// NewArg is an argument of a function or block.
func NewArg(name string, t Type, at int) Arg { return Arg{Name: name, Type: t, at: at} }

// Set gives the module an attribute.
func (m *Module) Set(name string, a Attr) { m.attrs = append(m.attrs, named{name, a}) }

// Source is the text that the module is of.
func (m *Module) Source() *diag.Source { return m.src }

// NewFunc adds a function that only others of the module call, or not.
func (m *Module) NewFunc(name string, private bool, b *Block, results []Type, at int) *Func {
	f := &Func{Name: name, Private: private, Args: b.args, Results: results, resultAttrs: make([]attrs, len(results)), body: b, at: at}
	m.Funcs = append(m.Funcs, f)
	return f
}

// SetArg gives an argument an attribute.
func (f *Func) SetArg(i int, name string, a Attr) {
	f.Args[i].attrs = append(f.Args[i].attrs, named{name, a})
}

// NewBlock is a block of operations, of which the last returns values.
func NewBlock(args []Arg, ops []*Operation) *Block { return &block{args, ops} }

// Spec is what an operation has. Its results have one name.
type Spec struct {
	Name     string
	At       int
	Location string
	Result   string
	Results  int // how many there are, 0: one
	Operands []Use
	Attrs    []Named
	Regions  []*Block
	Types    []Type // of the results
}

// Operation makes the operation.
func (s Spec) Operation() *Operation {
	o := &op{name: s.Name, at: s.At, loc: s.Location, attrs: s.Attrs, regions: s.Regions, outs: s.Types}
	if s.Result != "" {
		o.results = []result{{s.Result, max(s.Results, 1)}}
	}
	for _, u := range s.Operands {
		o.operands = append(o.operands, ref{u.Name, u.Index, s.At})
	}
	return o
}

// Numbers is a list of whole numbers.
func Numbers(at int, l ...int64) Attr {
	return attr{Kind: kindList, at: at, numbers: append([]int64{}, l...)}
}

// Rows are lists of whole numbers, filled to one length with -1.
func Rows(at int, rows [][]int64) Attr {
	width := 0
	for _, r := range rows {
		width = max(width, len(r))
	}
	var flat []int64
	for _, r := range rows {
		flat = append(flat, r...)
		for range width - len(r) {
			flat = append(flat, -1)
		}
	}
	a := Numbers(at, flat...)
	a.Type = &Type{Tensor: true, Elem: "i64", Shape: []int64{int64(len(rows)), int64(width)}}
	return a
}

// Number is a whole number.
func Number(at int, n int64) Attr {
	return attr{Kind: kindNumber, Text: strconv.FormatInt(n, 10), at: at}
}

// Word is a word, such as LT.
func Word(at int, s string) Attr { return attr{Kind: kindWord, Text: s, at: at} }

// Text is a text in quotes.
func Text(at int, s string) Attr { return attr{Kind: kindString, Text: s, at: at} }

// Symbol names a function.
func Symbol(at int, s string) Attr { return attr{Kind: kindSymbol, Text: s, at: at} }

// Dict is attributes with names.
func Dict(at int, l ...Named) Attr { return attr{Kind: kindDict, Dict: l, at: at} }

// Parts is an attribute of several lists, such as [0] x [1].
func Parts(at int, l ...Attr) Attr { return attr{Kind: kindList, Text: "parts", List: l, at: at} }

// List is a list of attributes.
func List(at int, l ...Attr) Attr { return attr{Kind: kindList, List: l, at: at} }

// Constant is the elements of a tensor.
func Constant(at int, l *Literal) Attr {
	return attr{Kind: kindDense, Text: "dense", at: at, start: at, literal: l}
}

// Element is the type of concert that an element type's name stands for. The error says that
// there is none.
func Element(elem string) (ir.DType, error) { return elementType(elem) }

// ElementOf reads an element of a type as a text spells it and appends its bytes. The error
// says what it is not.
func ElementOf(out []byte, elem, text string) ([]byte, error) {
	dt, err := elementType(elem)
	if err != nil {
		return nil, err
	}
	switch text {
	case "true":
		text = "1"
	case "false":
		text = "0"
	}
	b := make([]byte, dt.Size())
	if err := store(b, dt, text); err != nil {
		return nil, err
	}
	return append(out, b...), nil
}

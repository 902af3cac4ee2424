package mlir

import (
	"strconv"

	"github.com/seed-ee968945/concert/internal/diag"
)

// This file makes modules of what another text says: HLO has a syntax of its own for the
// same operations. Places are offsets in that text.

// NewModule is an empty module of a text.
func NewModule(file, text string) *Module {
	return &Module{Source: diag.NewSource(file, text), Alias: map[string]Attr{}}
}

// NewFunc adds a function that only others of the module call, or not.
func (m *Module) NewFunc(name string, private bool, b *Block, results []Type, at int) *Func {
	f := &Func{Name: name, Private: private, Args: b.Args, Results: results, ResultAttrs: make([]Attrs, len(results)), Body: b, At: at}
	m.Funcs = append(m.Funcs, f)
	return f
}

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
	o := &Operation{Name: s.Name, At: s.At, Location: s.Location, Attrs: s.Attrs, Regions: s.Regions, Outs: s.Types}
	if s.Result != "" {
		o.Results = []Result{{s.Result, max(s.Results, 1)}}
	}
	for _, u := range s.Operands {
		o.Operands = append(o.Operands, Operand{u, s.At})
	}
	return o
}

// Numbers is a list of whole numbers.
func Numbers(at int, l ...int64) Attr {
	return Attr{Kind: KindList, At: at, numbers: append([]int64{}, l...)}
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
	return Attr{Kind: KindNumber, Text: strconv.FormatInt(n, 10), At: at}
}

// Word is a word, such as LT.
func Word(at int, s string) Attr { return Attr{Kind: KindWord, Text: s, At: at} }

// Text is a text in quotes.
func Text(at int, s string) Attr { return Attr{Kind: KindString, Text: s, At: at} }

// Symbol names a function.
func Symbol(at int, s string) Attr { return Attr{Kind: KindSymbol, Text: s, At: at} }

// Dict is attributes with names.
func Dict(at int, l ...Named) Attr { return Attr{Kind: KindDict, Dict: l, At: at} }

// Parts is an attribute of several lists, such as [0] x [1].
func Parts(at int, l ...Attr) Attr { return Attr{Kind: KindList, Text: "parts", List: l, At: at} }

// List is a list of attributes.
func List(at int, l ...Attr) Attr { return Attr{Kind: KindList, List: l, At: at} }

// Constant is the elements of a tensor.
func Constant(at int, l *Literal) Attr {
	return Attr{Kind: KindDense, Text: "dense", At: at, Start: at, literal: l}
}

// ElementOf reads an element of a type as a text spells it and appends its bytes. The error
// says what it is not.
func ElementOf(out []byte, elem, text string) ([]byte, error) {
	dt, err := ElementType(elem)
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
	if err := StoreElement(b, dt, text); err != nil {
		return nil, err
	}
	return append(out, b...), nil
}

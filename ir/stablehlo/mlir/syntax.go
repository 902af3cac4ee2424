// Package mlir parses and prints MLIR text as a tree of operations: the dialects stablehlo, chlo,
// func, sdy, check and interpreter, in generic form and in their custom assembly formats.
//
// The parser is permissive: it takes an operation's operands, attributes, regions and types in any
// order that the formats allow. It is linear in its input, and nesting is bounded.
package mlir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
)

// Module is a parsed module: its functions and other contents.
type Module struct {
	Name   string
	Attrs  Attrs
	Funcs  []*Func
	Others []*Operation    // other operations of the module, such as meshes
	Alias  map[string]Attr // attributes that the text names, by name
	Source *diag.Source
	At     int

	blobs map[string]int // where the data of resources stand
}

// Func is a function of a module.
type Func struct {
	Name        string
	Private     bool
	Attrs       Attrs
	Args        []Arg
	Results     []Type
	ResultAttrs []Attrs
	Body        *Block // nil of a declaration
	At          int
}

// Arg is an argument of a function or block.
type Arg struct {
	Name  string
	Type  Type
	Attrs Attrs
	At    int
}

// Line is the line of the text that the module starts in.
func (m *Module) Line() int { return int(m.Source.PosAt(m.At).Line) }

// Empty reports whether the text holds nothing that could run.
func (m *Module) Empty() bool { return len(m.Funcs) == 0 && len(m.Others) == 0 }

// Operations are the names of the operations in the module's functions, sorted, each once.
func (m *Module) Operations() []string {
	var out []string
	var walk func(b *Block)
	walk = func(b *Block) {
		for _, o := range b.Ops {
			out = append(out, o.Name)
			for _, r := range o.Regions {
				walk(r)
			}
		}
	}
	for _, f := range m.Funcs {
		if f.Body != nil {
			walk(f.Body)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Entries are the functions that a test runs: main, else all public ones without arguments.
func (m *Module) Entries() []*Func {
	if f := m.Func("main"); f != nil {
		return []*Func{f}
	}
	var out []*Func
	for _, f := range m.Funcs {
		if !f.Private && len(f.Args) == 0 && f.Body != nil {
			out = append(out, f)
		}
	}
	return out
}

// twins are prefixes of names under which tests run a function a second way, and those under
// which it is defined.
var twins = [][2]string{{"sequential_", "parallel_"}, {"original_", "transformed_"}}

// Func returns the function of that name, or else the one whose twin it names; nil if there is
// none.
func (m *Module) Func(name string) *Func {
	for _, f := range m.Funcs {
		if f.Name == name {
			return f
		}
	}
	for _, t := range twins {
		if rest, ok := strings.CutPrefix(name, t[0]); ok {
			return m.Func(t[1] + rest)
		}
	}
	return nil
}

// Block is a region's only block.
type Block struct {
	Args []Arg
	Ops  []*Operation
}

// Operation is one operation as the text has it.
type Operation struct {
	Name     string // with its dialect
	At       int
	Location string // where the program came from, as the text says it
	Results  []Result
	Operands []Operand
	Attrs    Attrs
	Flags    []Attr // attributes without a name, in their order
	Regions  []*Block
	Ins      []Type // declared types of operands; nil where the form leaves them out
	Outs     []Type // of results
}

// Result is a name on the left side, which stands for Count values.
type Result struct {
	Name  string
	Count int
}

// Use names a value: one of those that a name stands for.
type Use struct {
	Name  string
	Index int
}

// Operand is a use in the text.
type Operand struct {
	Use
	At int
}

// NumResults is how many values an operation defines.
func (o *Operation) NumResults() int {
	n := 0
	for _, r := range o.Results {
		n += r.Count
	}
	return n
}

// Kind is a kind of attribute.
type Kind uint8

// The kinds of attributes.
const (
	KindUnit   Kind = iota // present, no more
	KindNumber             // Text is the number, Type its type if the text says it
	KindBool               // Text is true or false
	KindString             // Text is what stands between the quotes
	KindSymbol             // Text is the name behind @
	KindWord               // Text is a bare word, such as LT
	KindList               // List
	KindDict               // Dict
	KindDense              // elements; see Module.Decode
	KindTyped              // Type
	KindOpaque             // Text is the name behind #, and Start and End are what its brackets hold
)

// Attr is an attribute's value, at a place of the text; Start and End are what its brackets hold.
type Attr struct {
	Kind       Kind
	Text       string
	List       []Attr
	Dict       Attrs
	Type       *Type
	At         int
	Start, End int
	parts      int      // attributes inside of it
	literal    *Literal // of elements that another text holds
	numbers    []int64  // of a list that another text holds; nil where List has it
}

// Named is an attribute with its name.
type Named struct {
	Name string
	Val  Attr
}

// Attrs are named attributes in the order of the text.
type Attrs []Named

// Get returns the attribute of that name.
func (l Attrs) Get(name string) (Attr, bool) {
	for i := range l {
		if l[i].Name == name {
			return l[i].Val, true
		}
	}
	return Attr{}, false
}

// Type is a type: a tensor, a tuple of types, or something that only has a name.
type Type struct {
	Elem   string  // element type of a tensor, such as bf16 or complex<f32>
	Shape  []int64 // of a tensor; -1 where the size is not known
	Tensor bool
	Tuple  []Type
	Text   string // of a type that is neither tensor nor tuple
}

// TensorType is the type of tensors of a static shape.
func TensorType(dt ir.DType, shape ...int64) Type {
	return Type{Tensor: true, Elem: ElementName(dt), Shape: shape}
}

// String is the type as MLIR spells it.
func (t Type) String() string {
	switch {
	case t.Tensor:
		s := "tensor<"
		for _, d := range t.Shape {
			if d < 0 {
				s += "?x"
			} else {
				s += fmt.Sprintf("%dx", d)
			}
		}
		return s + t.Elem + ">"
	case t.Text != "":
		return t.Text
	}
	s := "tuple<"
	for i, e := range t.Tuple {
		if i > 0 {
			s += ", "
		}
		s += e.String()
	}
	return s + ">"
}

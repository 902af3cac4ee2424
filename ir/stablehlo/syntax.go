package stablehlo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
)

// Module is a parsed module: functions and what else stands beside them.
type Module struct {
	Name  string
	attrs attrs
	Funcs []*Func
	ops   []*op           // other operations of the module, such as meshes
	alias map[string]attr // attributes that the text names, by name
	src   *diag.Source
	at    int
	find  Shardings // what is said of functions; nil: nothing
}

// Func is a function of a module.
type Func struct {
	Name        string
	Private     bool
	attrs       attrs
	Args        []Arg
	Results     []Type
	resultAttrs []attrs
	body        *block // nil of a declaration
	at          int
}

// Arg is an argument of a function or block.
type Arg struct {
	Name  string
	Type  Type
	attrs attrs
	at    int
}

// Line is the line of the text that the module starts in.
func (m *Module) Line() int { return int(m.src.PosAt(m.at).Line) }

// Empty reports whether the text holds nothing that could run.
func (m *Module) Empty() bool { return len(m.Funcs) == 0 && len(m.ops) == 0 }

// Operations are the names of the operations in the module's functions, sorted, each once.
func (m *Module) Operations() []string {
	var out []string
	var walk func(b *block)
	walk = func(b *block) {
		for _, o := range b.ops {
			out = append(out, o.name)
			for _, r := range o.regions {
				walk(r)
			}
		}
	}
	for _, f := range m.Funcs {
		if f.body != nil {
			walk(f.body)
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
		if !f.Private && len(f.Args) == 0 && f.body != nil {
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

// block is a region's only block.
type block struct {
	args []Arg
	ops  []*op
}

// op is one operation as the text has it.
type op struct {
	name     string // with its dialect
	at       int
	loc      string // where the program came from, as the text says it
	results  []result
	operands []ref
	attrs    attrs
	flags    []attr // attributes without a name, in their order
	regions  []*block
	ins      []Type // declared types of operands; nil where the form leaves them out
	outs     []Type // of results
}

// result is a name on the left side, which stands for count values.
type result struct {
	name  string
	count int
}

// ref is a use of a value.
type ref struct {
	name  string
	index int
	at    int
}

// numResults is how many values an operation defines.
func (o *op) numResults() int {
	n := 0
	for _, r := range o.results {
		n += r.count
	}
	return n
}

// kind is a kind of attribute.
type kind uint8

// The kinds of attributes.
const (
	kindUnit   kind = iota // present, no more
	kindNumber             // Text is the number, Type its type if the text says it
	kindBool               // Text is true or false
	kindString             // Text is what stands between the quotes
	kindSymbol             // Text is the name behind @
	kindWord               // Text is a bare word, such as LT
	kindList               // List
	kindDict               // Dict
	kindDense              // elements; see decode
	kindTyped              // Type
	kindOpaque             // Text is the name behind #, and start and end are what its brackets hold
)

// attr is an attribute's value.
type attr struct {
	Kind       kind
	Text       string
	List       []attr
	Dict       attrs
	Type       *Type
	at         int
	start, end int
	parts      int      // attributes inside of it
	literal    *Literal // of elements that another text holds
	numbers    []int64  // of a list that another text holds; nil where List has it
}

// named is an attribute with its name.
type named struct {
	Name string
	Val  attr
}

// attrs are named attributes in the order of the text.
type attrs []named

// Get returns the attribute of that name.
func (l attrs) Get(name string) (attr, bool) {
	for i := range l {
		if l[i].Name == name {
			return l[i].Val, true
		}
	}
	return attr{}, false
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
	return Type{Tensor: true, Elem: elementName(dt), Shape: shape}
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

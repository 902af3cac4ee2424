package hlo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Parse reads a module and says it in StableHLO: its entry is the function that the module
// has, under the name main, and computations are private functions. The error is a
// *diag.Finding: line, column and a caret.
func Parse(name, text string) (*stablehlo.Module, error) {
	out := mlir.NewModule(name, text)
	m, err := parse(out.Source)
	if err != nil {
		return nil, err
	}
	c := &converter{src: out.Source, m: m, out: out, funcs: map[string]*mlir.Func{}, regions: map[string]*mlir.Block{}, special: specials(), lists: map[string]list{}}
	if err := c.module(); err != nil {
		return nil, err
	}
	return &stablehlo.Module{Module: out, Missing: c.missing}, nil
}

// converter says a module in StableHLO.
type converter struct {
	src     *diag.Source
	m       *module
	out     *mlir.Module
	funcs   map[string]*mlir.Func  // by computation
	regions map[string]*mlir.Block // computations as bodies of operations
	special map[string]func(c *converter, depth int) error

	lists  map[string]list // groups by their text
	named  [3]int64        // how many replicas, partitions and ranks collectives name
	counts [2]int64        // replicas and partitions that the text says, 0 where it says none
	entry  *computation

	missing error // that a run needs and the text leaves out

	by    map[string]*instruction // of the computation that is converted
	ops   []*mlir.Operation       // likewise
	fresh int                     // names of its operations that the text does not have
	made  int                     // operations of all computations
	in    *instruction
}

// errorf makes an error at the instruction.
func (c *converter) errorf(format string, args ...any) error {
	at, n := c.m.at, 1
	if c.in != nil {
		at, n = c.in.at, len(c.in.opcode)
	}
	return errorAt(c.src, at, n, "hlo", format, args...)
}

// module converts all that the entry needs.
func (c *converter) module() error {
	i := slices.IndexFunc(c.m.order, func(k *computation) bool { return k.entry })
	if i < 0 { // the last, where none is marked
		i = len(c.m.order) - 1
	}
	if i < 0 {
		return c.errorf("the module has no computation")
	}
	said := false
	for i, l := range counted {
		if a, ok := get(c.m.attrs, l[0]); ok {
			n, err := c.numbers(a)
			if err != nil {
				return err
			}
			if said = true; len(n) == 1 {
				c.counts[i] = n[0]
				c.out.Attrs = append(c.out.Attrs, mlir.Named{Name: l[1], Val: mlir.Number(a.start, n[0])})
			}
		}
	}
	c.entry = c.m.order[i]
	if err := c.partitioned(); err != nil {
		return err
	}
	f, err := c.function(c.entry, "main", 0)
	if err != nil {
		return err
	}
	if !said {
		err = c.world()
	}
	if err != nil {
		return err
	}
	return c.aliases(f)
}

// scan reads the value of an attribute.
func (c *converter) scan(a attribute) *scanner {
	return &scanner{src: c.src, s: c.src.Text[:a.end], i: a.start}
}

func get(l []attribute, name string) (attribute, bool) {
	for _, a := range l {
		if a.name == name {
			return a, true
		}
	}
	return attribute{}, false
}

// text is the value of an attribute of the instruction, without quotes; empty if it is absent.
func (c *converter) text(name string) string {
	a, ok := get(c.in.attrs, name)
	if !ok {
		return ""
	}
	text := strings.TrimSpace(c.src.Text[a.start:a.end])
	if s, err := strconv.Unquote(text); err == nil {
		return s
	}
	return text
}

// numbers are the whole numbers of a value, however it groups them; truth values are 0 and 1.
func (c *converter) numbers(a attribute) ([]int64, error) {
	p := c.scan(a)
	out := []int64{}
	for p.err == nil && p.peek() != 0 {
		switch ch := p.peek(); {
		case strings.IndexByte("{}[],:()", ch) >= 0:
			p.i++
		case ch == 't' || ch == 'f':
			w := p.word()
			if w != "true" && w != "false" {
				return nil, errorAt(c.src, a.start, 1, "syntax", "expected whole numbers, found %q", w)
			}
			out = append(out, map[string]int64{"true": 1}[w])
		default:
			out = append(out, p.integer("a whole number"))
		}
		if len(out) > 1<<20 {
			return nil, errorAt(c.src, a.start, 1, "syntax", "more than %d numbers", 1<<20)
		}
	}
	return out, p.err
}

// maxMade bounds the operations beside one for each byte of the text: tuples are taken apart.
const maxMade = 1 << 18

// maxCalls bounds how deep computations call each other.
const maxCalls = 100

// function converts a computation.
func (c *converter) function(k *computation, name string, depth int) (*mlir.Func, error) {
	if f := c.funcs[k.name]; f != nil {
		return f, nil
	}
	if depth > maxCalls {
		return nil, errorAt(c.src, k.at, 1, "hlo", "computations call each other deeper than %d times", maxCalls)
	}
	b, err := c.block(k, depth)
	if err != nil {
		return nil, err
	}
	f := c.out.NewFunc(name, name != "main", b, []mlir.Type{c.typ(k.root.shape)}, k.at)
	c.funcs[k.name] = f
	return f, nil
}

// block converts the instructions of a computation.
func (c *converter) block(k *computation, depth int) (*mlir.Block, error) {
	defer func(by map[string]*instruction, ops []*mlir.Operation, in *instruction) {
		c.by, c.ops, c.in = by, ops, in
	}(c.by, c.ops, c.in)
	c.by, c.ops = map[string]*instruction{}, nil
	var params []*instruction
	for _, in := range k.list {
		c.in = in
		if c.by[in.name] != nil {
			return nil, c.errorf("a second instruction %s", in.name)
		}
		if err := c.inferred(in, depth); err != nil {
			return nil, err
		}
		if in.opcode == "parameter" {
			n, err := c.numbers(attribute{span: in.inside})
			if err != nil {
				return nil, err
			}
			if len(n) != 1 || n[0] < 0 || n[0] >= int64(len(k.list)) {
				return nil, c.errorf("parameter %v of a computation of %d instructions", n, len(k.list))
			}
			for int(n[0]) >= len(params) {
				params = append(params, nil)
			}
			if params[n[0]] != nil {
				return nil, c.errorf("a second parameter %d", n[0])
			}
			if params[n[0]] = in; k == c.entry && in.shape.many {
				c.whole(in.name, in.shape, parts(in))
			}
		} else if err := c.instruction(in, depth); err != nil {
			return nil, err
		}
		if err := c.tooLong(); err != nil {
			return nil, err
		}
		c.by[in.name] = in
	}
	args, err := c.args(k, params)
	if err != nil {
		return nil, err
	}
	if c.in = k.root; k.gives != nil && !k.gives.like(k.root.shape) {
		return nil, c.errorf("the root of computation %s is %s, which the computation declares as %s", k.name, c.typ(k.root.shape), c.typ(*k.gives))
	}
	c.add(mlir.Spec{Name: "func.return", Operands: []mlir.Use{{Name: k.root.name}}})
	return &mlir.Block{Args: args, Ops: c.ops}, nil
}

// called is the computation that an attribute of the instruction names.
func (c *converter) called(name string) (*computation, error) {
	if a, _ := get(c.in.attrs, name); a.inline != nil {
		return a.inline, nil
	}
	k := c.m.by[strings.TrimPrefix(c.text(name), "%")]
	if k == nil {
		return nil, c.errorf("%s: there is no computation %q", name, c.text(name))
	}
	return k, nil
}

// calledRegion is the computation that an attribute names, as the body of an operation.
func (c *converter) calledRegion(name string, depth int) (*mlir.Block, error) {
	k, err := c.called(name)
	if err != nil {
		return nil, err
	}
	return c.region(k, depth+1)
}

// region is a computation as the body of an operation.
func (c *converter) region(k *computation, depth int) (*mlir.Block, error) {
	if b := c.regions[k.name]; b != nil {
		return b, nil
	}
	if depth > maxCalls {
		return nil, c.errorf("computations call each other deeper than %d times", maxCalls)
	}
	b, err := c.block(k, depth)
	c.regions[k.name] = b
	return b, err
}

// tooLong is an error where more was made than a text of that length may say.
func (c *converter) tooLong() error {
	if c.made > maxMade+len(c.src.Text) {
		return c.errorf("more than %d operations where tuples are taken apart", maxMade)
	}
	return nil
}

// add appends an operation at the place of the instruction.
func (c *converter) add(s mlir.Spec) {
	c.made++
	s.At = c.in.at
	s.Location = c.location()
	c.ops = append(c.ops, s.Operation())
}

// temporary is a name that the text does not have.
func (c *converter) temporary() string {
	c.fresh++
	return fmt.Sprintf("%%%d", c.fresh)
}

// location is what the metadata says: the operation's name in the program.
func (c *converter) location() string {
	a, ok := get(c.in.attrs, "metadata")
	if !ok {
		return ""
	}
	text := c.src.Text[a.start:a.end]
	if _, rest, ok := strings.Cut(text, `op_name="`); ok {
		if name, _, ok := strings.Cut(rest, `"`); ok && !strings.Contains(name, "\\") {
			return `"` + name + `"`
		}
	}
	return ""
}

// elements are element types as StableHLO spells them.
var elements = map[string]string{"pred": "i1", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "u8": "ui8", "u16": "ui16", "u32": "ui32", "u64": "ui64",
	"c64": "complex<f32>", "c128": "complex<f64>"}

// typ is a type as StableHLO has it.
func (c *converter) typ(t shape) mlir.Type {
	switch {
	case t.many:
		out := mlir.Type{Tuple: []mlir.Type{}}
		for _, e := range t.tuple {
			out.Tuple = append(out.Tuple, c.typ(e))
		}
		return out
	case t.elem == "token":
		return mlir.Type{Text: "!stablehlo.token"}
	}
	elem := elements[t.elem]
	if dt, ok := dtype.Parse(t.elem); ok && dt.IsFloat8() {
		elem = mlir.ElementName(dt)
	} else if elem == "" {
		elem = t.elem
	}
	return mlir.Type{Tensor: true, Elem: elem, Shape: append([]int64{}, t.dims...)}
}

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
	c := &converter{src: out.Source, m: m, out: out, funcs: map[string]*mlir.Func{}, regions: map[string]*mlir.Block{}, special: specials(), lists: map[string]mlir.Attr{}}
	if err := c.module(); err != nil {
		return nil, err
	}
	return &stablehlo.Module{Module: out}, nil
}

// converter says a module in StableHLO.
type converter struct {
	src     *diag.Source
	m       *module
	out     *mlir.Module
	funcs   map[string]*mlir.Func  // by computation
	regions map[string]*mlir.Block // computations as bodies of operations
	special map[string]func(c *converter, depth int) error

	lists    map[string]mlir.Attr // groups by their text
	ranks    int64                // that groups name
	channels bool                 // a collective has one

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
	if i < 0 && len(c.m.order) == 1 {
		i = 0
	}
	if i < 0 {
		return c.errorf("the module has no entry")
	}
	said := false
	for _, l := range [][2]string{{"replica_count", "mhlo.num_replicas"}, {"num_partitions", "mhlo.num_partitions"}} {
		if a, ok := get(c.m.attrs, l[0]); ok {
			n, err := c.numbers(a)
			if err != nil {
				return err
			}
			if said = true; len(n) == 1 {
				c.out.Attrs = append(c.out.Attrs, mlir.Named{Name: l[1], Val: mlir.Number(a.start, n[0])})
			}
		}
	}
	entry := c.m.order[i]
	f, err := c.function(entry, "main", 0)
	if err != nil {
		return err
	}
	if key := map[bool]string{true: "mhlo.num_partitions", false: "mhlo.num_replicas"}[c.channels]; !said && c.ranks > 0 {
		c.out.Attrs = append(c.out.Attrs, mlir.Named{Name: key, Val: mlir.Number(c.m.at, c.ranks)}) // the text leaves it to whoever runs it
	}
	return c.aliases(f)
}

// aliases gives arguments to the results that they lie in place of: {0}: (3, {}, may-alias).
func (c *converter) aliases(f *mlir.Func) error {
	a, ok := get(c.m.attrs, "input_output_alias")
	if !ok {
		return nil
	}
	p := c.scan(a)
	p.expect("{", "before aliases")
	for first := true; p.err == nil && !p.eat("}"); first = false {
		if !first && !p.expect(",", "between aliases") {
			break
		}
		at := p.i
		p.expect("{", "before a result")
		result := int64(0)
		if p.peek() != '}' {
			result = p.integer("a result")
		}
		p.expect("}", "behind a result")
		p.expect(":", "behind a result")
		p.expect("(", "before an argument")
		arg := p.integer("an argument")
		p.expect(",", "behind an argument")
		p.expect("{", "before a part of an argument")
		p.expect("}", "behind a part of an argument")
		if p.eat(",") {
			p.word()
		}
		p.expect(")", "behind an argument")
		if p.err == nil && (arg < 0 || arg >= int64(len(f.Args))) {
			p.failf(at, "there is no parameter %d", arg)
		}
		if p.err == nil {
			f.Args[arg].Attrs = append(f.Args[arg].Attrs, mlir.Named{Name: "tf.aliasing_output", Val: mlir.Number(at, result)})
		}
	}
	return p.err
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
	var args []mlir.Arg
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
			for int(n[0]) >= len(args) {
				args = append(args, mlir.Arg{})
			}
			if args[n[0]].Name != "" {
				return nil, c.errorf("a second parameter %d", n[0])
			}
			args[n[0]] = mlir.Arg{Name: in.name, Type: c.typ(in.shape), At: in.at}
		} else if err := c.instruction(in, depth); err != nil {
			return nil, err
		}
		if err := c.tooLong(); err != nil {
			return nil, err
		}
		c.by[in.name] = in
	}
	for i, a := range args {
		if a.Name == "" {
			return nil, errorAt(c.src, k.at, 1, "hlo", "computation %s has no parameter %d", k.name, i)
		}
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

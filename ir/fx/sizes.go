package fx

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// Sizes that are known at run time only. A document declares symbols; shapes, strides and
// nodes of kind "size" are expressions over them, as text. A traced name may then stand for a
// number instead of tensors: PyTorch's SymInt. Such nodes leave nothing in the IR but the
// symbols in shapes and, where a tensor's computation reads the number, a count.

// Symbol is a size that is known at run time only, from Min to Max.
type Symbol struct {
	Name           string
	Hint, Min, Max int64
}

func (s *scanner) symbols(f *File) {
	s.object("the symbols", func(name string) {
		y := Symbol{Name: name, Max: -1}
		s.object("a symbol", func(key string) {
			switch key {
			case "hint":
				y.Hint = s.int64("a hint")
			case "min":
				y.Min = s.int64("a lower bound")
			case "max":
				y.Max = s.int64("an upper bound")
			default:
				s.skip()
			}
		})
		if s.err == nil && y.Max < 0 {
			s.failf("symbol %q has no upper bound: give it a max", pytext.Clip(name))
		}
		f.Symbols = append(f.Symbols, y)
	})
}

// dims reads a list of sizes: numbers, and texts of expressions where sizes are known at run
// time only. Numbers alone are returned as such.
func (s *scanner) dims(what string) (ns []int64, ds []ir.Dim) {
	symbolic := false
	s.array(what, func(int) {
		if s.peek() != '"' {
			n := s.int64("a number")
			ns, ds = append(ns, n), append(ds, ir.D(n))
			return
		}
		d, err := ir.ParseDim(s.str())
		if err != nil && s.err == nil {
			s.failf("%v", err)
		}
		symbolic = true
		ns, ds = append(ns, 0), append(ds, d)
	})
	if symbolic {
		return nil, ds
	}
	return ns, nil
}

// rank is the number of dimensions.
func (t *Tensor) rank() int { return max(len(t.Shape), len(t.Dims)) }

// shape is the tensor's shape.
func (t *Tensor) shape() ir.Shape {
	if t.Dims != nil {
		return t.Dims
	}
	return ir.Dims(t.Shape...)
}

// declareSymbols adds the symbols to the module.
func (im *importer) declareSymbols() error {
	for _, s := range im.file.Symbols {
		if traced.TextName(s.Name, "") != s.Name || im.m.Symbol(s.Name) != nil || s.Name == "" {
			return im.file.errorf("", "symbols", "symbol", "%q is not a symbol's name, or taken", pytext.Clip(s.Name))
		}
		im.m.AddSymbol(s.Name, max(min(s.Hint, s.Max), s.Min), s.Min, s.Max)
	}
	var checks []ir.Dim
	for _, text := range im.file.Checks {
		d, err := ir.ParseDim(text)
		if err != nil {
			return im.file.errorf("", "checks", "check", "%v", err)
		}
		checks = append(checks, d)
	}
	for _, d := range checks {
		if of := d.Symbols(nil); len(of) == 1 && im.m.Symbol(of[0]) != nil {
			y := im.m.Symbol(of[0])
			if n, ok := ir.Sym(y.Name).Sub(d).Const(); ok && n <= y.Max {
				y.Min, y.Hint = max(y.Min, n), max(y.Hint, n)
			}
		}
	}
	for _, d := range checks {
		im.check(d)
	}
	im.zeros = im.m.Zeros()
	im.settle()
	return nil
}

// known checks that the symbols of a size are declared.
func (c *node) known(field string, d ir.Dim) error {
	for _, name := range d.Symbols(nil) {
		if c.im.m.Symbol(name) == nil {
			return c.Fail(field, "symbol", "symbol %q is not declared", pytext.Clip(name))
		}
	}
	return nil
}

// sizedType is the type of a result some of whose sizes are known at run time only.
func (c *node) sizedType(i int, dt ir.DType) (ir.Type, error) {
	t := &c.n.Out[i]
	shape, strides := t.shape(), t.Steps
	if strides == nil {
		strides = ir.Dims(t.Stride...)
	}
	for _, d := range slices.Concat(shape, strides) {
		if err := c.known("out", d); err != nil {
			return ir.Type{}, err
		}
	}
	for k, s := range strides {
		if n, ok := s.Const(); ok && n < 0 {
			return ir.Type{}, c.Fail("out", "type", "stride %d of result %d is negative: %d", k, i, n)
		}
	}
	return ir.TensorOf(dt, shape).WithSymbolicStrides(strides), nil
}

// sizeOf is the number that a name stands for; nil if it stands for tensors.
func (im *importer) sizeOf(v *pytext.Value) *ir.Dim {
	if v == nil || v.Kind != pytext.Name {
		return nil
	}
	return im.nodes[im.index[v.Text]].size
}

// open reports whether a name stands for a number that is known at run time only.
func (im *importer) open(v *pytext.Value) bool {
	return v != nil && v.Kind == pytext.Name && (im.sizeOf(v) != nil || im.nodes[im.index[v.Text]].float != nil)
}

// fold replaces names of sizes that are numbers after all.
func (c *node) fold(v *pytext.Value) {
	if d := c.im.sizeOf(v); d != nil {
		if n, ok := d.Const(); ok {
			*v = pytext.Value{Kind: pytext.Int, Int: n, Col: v.Col}
		}
	} else if c.im.open(v) {
		if f := c.im.floatOf(v); f.how == nil {
			*v = pytext.Value{Kind: pytext.Float, Float: f.number, Col: v.Col}
		}
	}
	for k := range v.List {
		c.fold(&v.List[k])
	}
}

// sizeNode imports a node of kind "size": an input, or arithmetic on sizes.
func (c *node) sizeNode() error {
	st := &c.im.nodes[c.i]
	if done, err := c.check(); done || err != nil {
		return err
	}
	if name := c.targetName(); c.n.Size != "" && (name == "aten._local_scalar_dense.default" || name == "aten.item.default") {
		return c.readSize()
	}
	given, has := ir.Dim{}, c.n.Size != ""
	if has {
		d, err := ir.ParseDim(c.n.Size)
		if err != nil {
			return c.Fail("size", "size", "%v", err)
		}
		if err := c.known("size", d); err != nil {
			return err
		}
		given = c.im.settled(d)
	}
	computed, ok, err := c.arithmetic()
	computed = c.im.settled(computed)
	switch {
	case err != nil:
		return err
	case ok && has && !c.im.settled(computed.Sub(given)).Equal(ir.D(0)):
		return c.Fail("size", "size", "the size is %s, the arguments give %s", given, computed)
	case ok && !has:
		given = computed
	case !ok && !has:
		if st.float = c.float(); st.float != nil {
			return nil
		}
		return c.Fail("target", "operator", "%q gives a size that concert cannot tell; write it in the field size", pytext.Clip(c.n.Target))
	}
	st.size = &given
	return nil
}

// check imports a comparison of sizes, and an assertion of one, which becomes a check of the
// module; false if the node is neither.
func (c *node) check() (bool, error) {
	args, name := c.Args.List, c.targetName()
	if name == "aten._assert_scalar.default" && len(args) > 0 {
		v := &args[0]
		if v.Kind == pytext.Bool && v.Int != 0 {
			return true, nil
		}
		if v.Kind != pytext.Name || c.im.nodes[c.im.index[v.Text]].holds == nil {
			return true, c.Fail("args", "check", "the assertion is of no comparison of sizes")
		}
		for _, d := range c.im.nodes[c.im.index[v.Text]].holds {
			c.im.check(d)
		}
		return true, nil
	}
	if name == "aten.sym_constrain_range.default" || name == "aten.sym_constrain_range_for_size.default" {
		return true, c.constrain()
	}
	compare, ok := comparisons[name]
	if !ok || len(args) != 2 {
		return false, nil
	}
	a, ok := c.Size(&args[0])
	b, ok2 := c.Size(&args[1])
	if !ok || !ok2 {
		return true, c.Fail("args", "arguments", "%s compares two sizes", pytext.Clip(c.n.Target))
	}
	c.im.nodes[c.i].holds = compare(a, b)
	return true, nil
}

// constrain imports the bounds of a size.
func (c *node) constrain() error {
	if err := c.Bind("size min max"); err != nil || c.Arg("size") == nil {
		return c.Fail("args", "arguments", "%s takes a size and its bounds", pytext.Clip(c.n.Target))
	}
	d, ok := c.Size(c.Arg("size"))
	if !ok {
		return c.Fail("args", "arguments", "%s takes a size and its bounds", pytext.Clip(c.n.Target))
	}
	least, most := c.Int("min", 0), c.Int("max", traced.MaxElems)
	if c.Err != nil {
		return c.Err
	}
	if c.Arg("min") != nil {
		c.im.check(d.Sub(ir.D(least)))
	}
	if most < traced.MaxElems {
		c.im.check(ir.D(most).Sub(d))
	}
	return nil
}

// check makes the module one for sizes that leave d at 0 or more, where some do not that are
// not refused yet.
func (im *importer) check(d ir.Dim) {
	known := func(c ir.Check) bool { return c.Size.Equal(d) }
	if r, ok := im.m.Bounds(d); (!ok || r.Min < 0) && !slices.ContainsFunc(im.m.Checks(), known) {
		im.m.AddCheck(d)
	}
}

// comparisons give sizes none of which is negative where a comparison holds; look-up only.
var comparisons = map[string]func(a, b ir.Dim) []ir.Dim{
	"operator.ge": func(a, b ir.Dim) []ir.Dim { return []ir.Dim{a.Sub(b)} },
	"operator.le": func(a, b ir.Dim) []ir.Dim { return []ir.Dim{b.Sub(a)} },
	"operator.gt": func(a, b ir.Dim) []ir.Dim { return []ir.Dim{a.Sub(b).Sub(ir.D(1))} },
	"operator.lt": func(a, b ir.Dim) []ir.Dim { return []ir.Dim{b.Sub(a).Sub(ir.D(1))} },
	"operator.eq": func(a, b ir.Dim) []ir.Dim { return []ir.Dim{a.Sub(b), b.Sub(a)} },
}

// targetName is the target as PyTorch's module operator calls it, whatever Python prints.
func (c *node) targetName() string {
	name := strings.TrimPrefix(c.n.Target, "torch.ops.")
	if t, ok := strings.CutPrefix(name, "<built-in function "); ok {
		name = "operator." + strings.TrimSuffix(t, ">")
	}
	return strings.Replace(name, "_operator.", "operator.", 1)
}

// arithmetic is the size that the target gives; false if concert does not know the target.
func (c *node) arithmetic() (ir.Dim, bool, error) {
	name := c.targetName()
	if strings.HasPrefix(name, "aten.sym_") {
		return c.shapeOf(name)
	}
	var x []ir.Dim
	for k := range c.Args.List {
		d, ok := c.Size(&c.Args.List[k])
		if !ok {
			return ir.Dim{}, false, nil
		}
		x = append(x, d)
	}
	switch {
	case len(x) == 1 && name == "operator.neg":
		return ir.D(0).Sub(x[0]), true, nil
	case len(x) != 2:
		return ir.Dim{}, false, nil
	}
	den, number := x[1].Const()
	number = number && den > 0
	switch {
	case name == "operator.add":
		return x[0].Add(x[1]), true, nil
	case name == "operator.sub":
		return x[0].Sub(x[1]), true, nil
	case name == "operator.mul":
		return x[0].Mul(x[1]), true, nil
	case name == "operator.floordiv" && number:
		return x[0].Div(den), true, nil
	case name == "operator.mod" && number:
		return x[0].Sub(x[0].Div(den).Mul(x[1])), true, nil
	case name == "torch.sym_max" || name == "torch.sym_min":
		d, ok := c.extreme(x[0], x[1], name == "torch.sym_max")
		return d, ok, nil
	}
	return ir.Dim{}, false, nil
}

// extreme is the greater or the smaller of two sizes; false if that depends on the symbols.
func (c *node) extreme(a, b ir.Dim, greater bool) (ir.Dim, bool) {
	r, ok := c.im.m.Bounds(a.Sub(b))
	switch {
	case ok && r.Min >= 0:
	case ok && r.Max <= 0:
		a, b = b, a
	default:
		return a, false
	}
	if !greater {
		a = b
	}
	return a, true
}

// shapeOf is what aten's sym_size and sym_numel say of a tensor.
func (c *node) shapeOf(name string) (ir.Dim, bool, error) {
	if err := c.Bind("self dim"); err != nil {
		return ir.Dim{}, false, c.Fail("args", "arguments", "%s takes a tensor and a dimension", name)
	}
	s, ok := c.tracedShape("self")
	if !ok {
		x := c.Tensor("self")
		if c.Err != nil {
			return ir.Dim{}, false, c.Err
		}
		s = x.Type().Shape()
	}
	switch name {
	case "aten.sym_numel.default":
		return s.NumElems(), true, nil
	case "aten.sym_size.int":
		d := c.Need("dim")
		if d = c.NormDim("dim", d, len(s)); c.Err == nil && len(s) > 0 {
			return s[d], true, nil
		}
	}
	return ir.Dim{}, false, c.Err
}

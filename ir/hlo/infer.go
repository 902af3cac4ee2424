package hlo

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/window"
)

// This file finds the types of results that the text leaves out.

// like reports whether types are equal but for their layouts.
func (t shape) like(o shape) bool {
	return t.elem == o.elem && t.many == o.many && slices.Equal(t.dims, o.dims) && slices.EqualFunc(t.tuple, o.tuple, shape.like)
}

// inferred checks the operands of an instruction, and gives it a type if it has none.
func (c *converter) inferred(in *instruction, depth int) error {
	args := make([]shape, len(in.operands))
	for i, o := range in.operands {
		k := c.by[o]
		if k == nil {
			return c.errorf("%%%s is not defined here", o)
		}
		args[i] = k.shape
		if i < len(in.declared) && !in.declared[i].absent && !in.declared[i].like(k.shape) {
			return c.errorf("operand %d of %s, %%%s, is %s, and is written here as %s", i, in.opcode, o, c.typ(k.shape), c.typ(in.declared[i]))
		}
	}
	if !in.shape.absent {
		return nil
	}
	t, err := c.typeOf(args, depth)
	if negative := func(n int64) bool { return n < 0 }; err == nil && slices.ContainsFunc(t.dims, negative) {
		err = c.errorf("%s gives sizes %v", in.opcode, t.dims)
	}
	if err == nil && t.absent {
		err = c.errorf("the type of what %s gives is not here, and does not follow from its operands: write it in front, as in f32[2,3] %s(...)", in.opcode, in.opcode)
	}
	in.shape = t
	return err
}

// asFirst give what their first operand is.
var asFirst = []string{"copy", "domain", "add-dependency", "opt-barrier", "reverse", "dynamic-update-slice", "reduce-precision", "collective-permute", "collective-broadcast", "cholesky",
	"batch-norm-inference", "while"}

// asAll give a value like every operand: it, or a tuple of several.
var asAll = []string{"all-reduce", "sort"}

// rulesOf are the types of results by opcode, of operands whose number is checked.
var rulesOf = map[string]struct {
	least int
	rule  func(c *converter, args []shape) (shape, error)
}{
	"is-finite":          {1, truth},
	"compare":            {2, truth},
	"select":             {3, func(_ *converter, args []shape) (shape, error) { return args[1], nil }},
	"clamp":              {3, func(_ *converter, args []shape) (shape, error) { return args[1], nil }},
	"get-dimension-size": {1, func(*converter, []shape) (shape, error) { return shape{elem: "s32"}, nil }},
	"partition-id":       {0, func(*converter, []shape) (shape, error) { return shape{elem: "u32"}, nil }},
	"replica-id":         {0, func(*converter, []shape) (shape, error) { return shape{elem: "u32"}, nil }},
	"after-all":          {0, func(*converter, []shape) (shape, error) { return shape{elem: "token"}, nil }},
	"tuple":              {0, func(_ *converter, args []shape) (shape, error) { return shape{many: true, tuple: args}, nil }},
	"get-tuple-element":  {1, elementOf},
	"transpose":          {1, transposed},
	"concatenate":        {1, concatenated},
	"slice":              {1, sliced},
	"dynamic-slice":      {1, (*converter).sliceSizes},
	"pad":                {2, padded},
	"reduce":             {2, reduced},
	"reduce-window":      {2, windowed},
	"dot":                {2, multiplied},
	"convolution":        {2, convolved},
}

// typeOf is the type of what the instruction gives; an absent one where that is not known.
func (c *converter) typeOf(args []shape, depth int) (shape, error) {
	op := c.in.opcode
	if r, ok := rulesOf[op]; ok {
		if len(args) < r.least {
			return shape{absent: true}, nil
		}
		t, err := r.rule(c, args)
		t.layout = nil
		return t, err
	}
	switch _, elementwise := plain[op]; {
	case op == "call", op == "fusion":
		k, err := c.called(map[string]string{"call": "to_apply", "fusion": "calls"}[op])
		if err != nil {
			return shape{}, err
		}
		if _, err := c.function(k, k.name, depth+1); err != nil {
			return shape{}, err
		}
		return k.root.shape, nil
	case len(args) == 0 || op == "reshape" || op == "convert" || op == "bitcast-convert":
	case elementwise, slices.Contains(asFirst, op), slices.Contains(asAll, op) && len(args) == 1:
		return args[0], nil
	case slices.Contains(asAll, op):
		return shape{many: true, tuple: args}, nil
	}
	return shape{absent: true}, nil
}

func truth(_ *converter, args []shape) (shape, error) {
	return shape{elem: "pred", dims: args[0].dims}, nil
}

// dimensions are numbers of an attribute that are dimensions of a type.
func (c *converter) dimensions(name string, of shape) ([]int64, error) {
	_, l, err := c.list(name)
	for i, d := range l {
		if err == nil && (d < 0 || d >= int64(len(of.dims)) || slices.Contains(l[:i], d)) {
			err = c.errorf("%s=%v of an operand of %d dimensions", name, l, len(of.dims))
		}
	}
	return l, err
}

func elementOf(c *converter, args []shape) (shape, error) {
	_, n, err := c.list("index")
	if err == nil && (len(n) != 1 || n[0] < 0 || n[0] >= int64(len(args[0].tuple))) {
		err = c.errorf("element %v of a value of type %s", n, c.typ(args[0]))
	}
	if err != nil {
		return shape{}, err
	}
	return args[0].tuple[n[0]], nil
}

func transposed(c *converter, args []shape) (shape, error) {
	order, err := c.dimensions("dimensions", args[0])
	t := shape{elem: args[0].elem}
	for _, d := range order {
		if err == nil {
			t.dims = append(t.dims, args[0].dims[d])
		}
	}
	return t, err
}

func concatenated(c *converter, args []shape) (shape, error) {
	l, err := c.dimensions("dimensions", args[0])
	if err == nil && len(l) != 1 {
		err = c.errorf("concatenate along dimensions %v, want one", l)
	}
	if err != nil {
		return shape{}, err
	}
	t := shape{elem: args[0].elem, dims: slices.Clone(args[0].dims)}
	for _, a := range args[1:] {
		if len(a.dims) != len(t.dims) {
			return shape{}, c.errorf("concatenate of %s and %s", c.typ(args[0]), c.typ(a))
		}
		t.dims[l[0]] += a.dims[l[0]]
	}
	return t, nil
}

func sliced(c *converter, args []shape) (shape, error) {
	l, err := c.ranges()
	t := shape{elem: args[0].elem}
	for d, start := range l[0] {
		if step := l[2][d]; step > 0 {
			t.dims = append(t.dims, max((l[1][d]-start+step-1)/step, 0))
		}
	}
	return t, err
}

func (c *converter) sliceSizes(args []shape) (shape, error) {
	_, l, err := c.list("dynamic_slice_sizes")
	return shape{elem: args[0].elem, dims: l}, err
}

func padded(c *converter, args []shape) (shape, error) {
	a, _ := get(c.in.attrs, "padding")
	rows, err := c.grid(a, 3)
	if err == nil && len(rows) != len(args[0].dims) {
		err = c.errorf("padding of %d dimensions for an operand of %d", len(rows), len(args[0].dims))
	}
	t := shape{elem: args[0].elem}
	for i, r := range rows {
		if err == nil {
			t.dims = append(t.dims, window.Dim{Low: r[0], High: r[1], Base: r[2] + 1}.Span(args[0].dims[i]))
		}
	}
	return t, err
}

func reduced(c *converter, args []shape) (shape, error) {
	over, err := c.dimensions("dimensions", args[0])
	if err == nil && len(args)%2 != 0 {
		err = c.errorf("reduce takes as many first values as operands, got %d in all", len(args))
	}
	if err != nil {
		return shape{}, err
	}
	t := shape{many: true}
	for i := range args[:len(args)/2] {
		one := shape{elem: args[len(args)/2+i].elem}
		for d, n := range args[i].dims {
			if !slices.Contains(over, int64(d)) {
				one.dims = append(one.dims, n)
			}
		}
		t.tuple = append(t.tuple, one)
	}
	if len(t.tuple) == 1 {
		return t.tuple[0], nil
	}
	return t, nil
}

// windows are how many windows there are along dimensions of some sizes.
func (c *converter) windows(sizes []int64) ([]int64, error) {
	w, err := c.window()
	if err != nil {
		return nil, err
	}
	dims, err := window.Parse(func(key string) []int64 {
		return w[map[string]string{window.StridesKey: "stride", window.PaddingKey: "pad", window.BaseKey: "lhs_dilate", window.DilationKey: "rhs_dilate", window.ReverseKey: "rhs_reversal"}[key]]
	}, w["size"])
	if err != nil {
		return nil, c.errorf("%v", err)
	}
	if len(dims) != len(sizes) {
		return nil, c.errorf("a window of %d dimensions, want %d", len(dims), len(sizes))
	}
	out := make([]int64, len(sizes))
	for i, d := range dims {
		out[i] = d.Count(sizes[i])
	}
	return out, nil
}

func windowed(c *converter, args []shape) (shape, error) {
	if len(args) != 2 {
		return shape{absent: true}, nil
	}
	n, err := c.windows(args[0].dims)
	return shape{elem: args[0].elem, dims: n}, err
}

func multiplied(c *converter, args []shape) (shape, error) {
	t := shape{elem: args[0].elem}
	for i, side := range []string{"lhs_", "rhs_"} {
		batch, err := c.dimensions(side+"batch_dims", args[i])
		if err != nil {
			return shape{}, err
		}
		over, err := c.dimensions(side+"contracting_dims", args[i])
		if err != nil {
			return shape{}, err
		}
		for _, d := range batch {
			if i == 0 {
				t.dims = append(t.dims, args[i].dims[d])
			}
		}
		if i > 0 && args[0].elem != args[1].elem {
			return shape{absent: true}, nil
		}
		for d, n := range args[i].dims {
			if !slices.Contains(batch, int64(d)) && !slices.Contains(over, int64(d)) {
				t.dims = append(t.dims, n)
			}
		}
	}
	return t, nil
}

func convolved(c *converter, args []shape) (shape, error) {
	labels := c.labels()
	if len(labels) != 3 || len(labels[0]) < 2 || len(labels[0]) != len(args[0].dims) || len(labels[1]) != len(args[1].dims) || len(labels[2]) != len(labels[0]) || args[0].elem != args[1].elem {
		return shape{absent: true}, nil
	}
	of := map[rune]int64{}
	for i, r := range labels[0] {
		of[r] = args[0].dims[i]
	}
	spatial := make([]int64, len(labels[0])-2)
	for i := range spatial {
		spatial[i] = of[rune('0'+i)]
	}
	n, err := c.windows(spatial)
	if err != nil {
		return shape{}, err
	}
	for i, r := range labels[1] {
		if r == 'o' {
			of['f'] = args[1].dims[i]
		}
	}
	if g, ok := get(c.in.attrs, "batch_group_count"); ok {
		k, err := c.numbers(g)
		if err != nil || len(k) != 1 || k[0] < 1 {
			return shape{absent: true}, err
		}
		of['b'] /= k[0]
	}
	t := shape{elem: args[0].elem}
	for _, r := range labels[2] {
		if k := int(r - '0'); k >= 0 && k < len(n) {
			t.dims = append(t.dims, n[k])
		} else {
			t.dims = append(t.dims, of[r])
		}
	}
	return t, nil
}

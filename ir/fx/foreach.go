package fx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// foreachPrefix begins the operators that do one thing to each tensor of a list.
const foreachPrefix = "aten._foreach_"

// ofEach gives the operator that a list operator applies, where that is not the default
// overload of the same name.
var ofEach = map[string]string{
	"add": "aten.add.Tensor", "sub": "aten.sub.Tensor", "mul": "aten.mul.Tensor", "div": "aten.div.Tensor", "pow": "aten.pow.Tensor_Tensor",
	"maximum.Scalar": "aten.clamp_min.default", "maximum.ScalarList": "aten.clamp_min.default", "clamp_min.List": "aten.maximum.default",
	"minimum.Scalar": "aten.clamp_max.default", "minimum.ScalarList": "aten.clamp_max.default", "clamp_max.List": "aten.minimum.default",
	"lerp": "aten.lerp.Tensor", "norm": "aten.linalg_vector_norm.default", "zero": "aten.zeros_like.default",
}

// element is the trace of one tensor of a list operator: its only result is one of the list's.
type element struct {
	*node
	k int
}

func (e element) Declared(int) (string, ir.Shape) { return e.node.Declared(e.k) }
func (e element) TypeOf(int) (ir.Type, error)     { return e.node.TypeOf(e.k) }

// foreach imports a list operator as one operator for each tensor.
func (c *node) foreach() error {
	name, overload, _ := strings.Cut(strings.TrimPrefix(c.Operator, foreachPrefix), ".")
	target := ofEach[name+"."+overload]
	if target == "" {
		target = ofEach[name]
	}
	if target == "" {
		target = "aten." + name + ".default"
	}
	op, ok := c.operators()[target]
	if !ok {
		return c.opaque(nil)
	}
	var results []*ir.Value
	for k := range c.n.Out {
		sub := *c.Call
		sub.Trace, sub.Target, sub.Operator = element{c, k}, target, target
		sub.Name, sub.NumResults, sub.Ms = fmt.Sprintf("%s.%d", c.Name, k), 1, c.Ms/float64(len(c.n.Out))
		var err error
		if sub.Args, err = c.elementOf(k); err == nil {
			err = op.Import(&sub)
		}
		if errors.Is(err, traced.ErrForm) {
			return c.opaque(err)
		}
		if err != nil {
			return err
		}
		results = append(results, sub.Results...)
	}
	c.Results = results
	c.keep()
	return nil
}

// elementOf is the arguments with element k in the place of each list.
func (c *node) elementOf(k int) (pytext.Value, error) {
	args := c.Args
	args.List = slices.Clone(args.List)
	// The type of norms is what out says.
	args.List = slices.DeleteFunc(args.List, func(v pytext.Value) bool { return v.Kind == pytext.DType })
	for i := range args.List {
		v := &args.List[i]
		if v.Kind != pytext.List && v.Kind != pytext.Tuple {
			continue
		}
		if len(v.List) != len(c.n.Out) {
			return args, c.FailAt("args", int(v.Col), "arguments", "a list of %d for %d results", len(v.List), len(c.n.Out))
		}
		args.List[i] = v.List[k]
	}
	return args, nil
}
